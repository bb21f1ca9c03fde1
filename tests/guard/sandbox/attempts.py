# ruff: noqa: E501 - a table of scripts, one to a line
"""Ways out that a read-only agent's shell might try. Each is a script for bash.

`$W` is the workspace (a git repository), `$N` a folder beside it, `$H` the user's home, `$PY` a
Python. `$PORT` and `$UDP` are listeners on the loopback interface (both families), `$SOCK` and
`$DGRAM` sockets in `$N`, `$ABSTRACT` an abstract one. `$VICTIM` is a process outside, `$MARK` a name
that is nowhere yet. A script that reaches something which leaves no trace says `$OUT`.
"""

from __future__ import annotations

from typing import NamedTuple

SEGMENT_BYTES = 64
"""The size of the shared memory that an attempt makes."""


class Attempt(NamedTuple):
    name: str
    script: str
    tame: bool = True
    """Safe to run without walls, to see that it would work: the control."""


def _python(name: str, code: str, tame: bool = True) -> Attempt:
    return Attempt(name, f"$PY - <<'CODE'\nimport os, sys, ctypes, socket\nE = os.environ\n{code}\nCODE", tame)


_SYSCALL = """
libc = ctypes.CDLL(None, use_errno=True)
def sys_(*a): return libc.syscall(*[ctypes.c_long(x) if isinstance(x, int) else x for x in a])
"""

SHELL = [
    Attempt("redirect", "echo x > $W/a.txt"),
    Attempt("append", "echo x >> $W/a.txt"),
    Attempt("clobber", "set -o noclobber; echo x >| $W/a.txt"),
    Attempt("new-file", "echo x > $W/new.txt"),
    Attempt("outside-the-workspace", "echo x > $N/b.txt"),
    Attempt("relative-path", "echo x > ../neighbour/b.txt"),
    Attempt("heredoc", "cat > $W/a.txt <<E\nx\nE"),
    Attempt("read-write-redirect", "exec 3<> $W/a.txt; echo x >&3"),
    Attempt("tee", "echo x | tee -a $W/a.txt"),
    Attempt("dd", "dd if=/dev/zero of=$W/a.txt bs=1 count=3 conv=notrunc"),
    Attempt("cp", "cp /etc/hostname $W/copied"),
    Attempt("cp-over", "cp --remove-destination /etc/hostname $W/a.txt"),
    Attempt("install", "install -m 755 /etc/hostname $W/installed"),
    Attempt("mv", "mv $W/a.txt $W/moved.txt"),
    Attempt("mv-into", "echo x > $TMPDIR/x; mv $TMPDIR/x $W/x"),
    Attempt("rename-across", "mv $W/a.txt $N/"),
    Attempt("rm", "rm -rf $W/a.txt $W/sub"),
    Attempt("unlink", "unlink $N/b.txt"),
    Attempt("rmdir", "rmdir $W/empty"),
    Attempt("mkdir", "mkdir -p $W/made/deep"),
    Attempt("mkfifo", "mkfifo $W/pipe"),
    Attempt("mknod", "mknod $W/device c 1 3"),
    Attempt("hard-link", "ln $W/a.txt $W/hard"),
    Attempt("hard-link-into-scratch", "ln $W/a.txt $TMPDIR/hard && echo x > $TMPDIR/hard"),
    Attempt("symbolic-link", "ln -s /etc/hostname $W/link"),
    Attempt("through-a-symbolic-link", "ln -s $W/a.txt $TMPDIR/way; echo x > $TMPDIR/way"),
    Attempt(
        "symbolic-link-race",
        "mkdir -p $TMPDIR/d $TMPDIR/r; (for i in $(seq 300); do rm -rf $TMPDIR/r; ln -sfn $W $TMPDIR/r;"
        " rm -f $TMPDIR/r; ln -sfn $TMPDIR/d $TMPDIR/r; done) & for i in $(seq 300); do echo x > $TMPDIR/r/raced; done",
        tame=False,
    ),
    Attempt("truncate", "truncate -s 0 $W/a.txt"),
    Attempt("empty-by-colon", ": > $W/a.txt"),
    Attempt("touch", "touch $W/a.txt"),
    Attempt("touch-old", "touch -d 2001-01-01 $W/a.txt $W"),
    Attempt("chmod", "chmod 777 $W/a.txt $W"),
    Attempt("chown", "chown 1234:1234 $W/a.txt"),
    Attempt("chattr", "chattr +d $W/a.txt"),
    Attempt("setfattr", "setfattr -n user.x -v 1 $W/a.txt"),
    Attempt("background", "(sleep 0.1; echo x > $W/a.txt) & wait"),
    Attempt("left-in-background", "(sleep 0.3; echo x > $W/late) >/dev/null 2>&1 &", tame=False),
    Attempt("nohup", "nohup sh -c 'echo x > $W/a.txt' & wait"),
    Attempt("setsid", 'setsid sh -c "echo x > $W/a.txt"; wait; sleep 0.2'),
    Attempt("own-session-without-environment", 'setsid env -i /bin/sh -c "echo x > $W/a.txt"; sleep 0.2'),
    Attempt("subshell-trap", "trap 'echo x > $W/a.txt' EXIT; exit 1"),
    Attempt("xargs", "echo $W/a.txt | xargs rm"),
    Attempt("find-delete", "find $W -name a.txt -delete"),
    Attempt("find-exec", "find $W -name a.txt -exec cp /etc/hostname {} ';'"),
    Attempt("tar-extract", "cd $TMPDIR && echo x > a.txt && tar cf t.tar a.txt && tar xf t.tar -C $W"),
    Attempt(
        "patch-by-diff", "cd $W && printf -- '--- a.txt\\n+++ a.txt\\n@@ -1 +1 @@\\n-alpha\\n+beta\\n' | patch -p0"
    ),
    Attempt("split", "cd $W && split -b 1 a.txt part-"),
    Attempt("sort-output", "sort -o $W/a.txt $W/a.txt /etc/hostname"),
    Attempt("bash-history", "set -o history; HISTFILE=$W/history; history -s secret; history -w"),
    Attempt("xtrace-file", "exec 9>$W/trace; BASH_XTRACEFD=9; set -x; true"),
    Attempt("temporary-folder-of-others", "echo x > /tmp/$MARK"),
    Attempt("var-tmp", "echo x > /var/tmp/$MARK"),
    Attempt("home", "echo x > $H/.bashrc"),
    Attempt("system-folder", "echo x > /etc/$MARK"),
    Attempt("shared-memory", "echo x > /dev/shm/$MARK"),
]

PROGRAMS = [
    _python("python-open", "open(E['W'] + '/a.txt', 'w').write('x')"),
    _python("python-chmod", "os.chmod(E['W'] + '/a.txt', 0o777)"),
    _python("python-utime", "os.utime(E['W'] + '/a.txt', (1, 1))"),
    _python("python-chmod-by-descriptor", "os.fchmod(os.open(E['W'] + '/a.txt', os.O_RDONLY), 0o777)"),
    _python("python-utime-by-descriptor", "os.utime(os.open(E['W'] + '/a.txt', os.O_RDONLY), (1, 1))"),
    _python("python-setxattr", "os.setxattr(E['W'] + '/a.txt', 'user.x', b'1')"),
    _python("python-open-to-truncate", "os.open(E['W'] + '/a.txt', os.O_RDONLY | os.O_TRUNC)"),
    _python("python-shutil", "import shutil; shutil.copytree(E['W'], E['N'] + '/copy')"),
    _python("python-sqlite", "import sqlite3; sqlite3.connect(E['W'] + '/x.db').execute('create table t (a)')"),
    _python(
        "python-shared-mapping",
        "import mmap\nf = os.open(E['W'] + '/a.txt', os.O_RDWR)\nmmap.mmap(f, 0)[0:1] = b'Z'",
    ),
    _python(
        "python-sendfile",
        "f = os.open(E['W'] + '/a.txt', os.O_WRONLY)\nos.sendfile(f, os.open('/etc/hostname', os.O_RDONLY), 0, 5)",
    ),
    _python("python-relative-to-a-folder", "d = os.open(E['W'], os.O_PATH)\nos.open('n', os.O_CREAT | os.O_WRONLY, dir_fd=d)"),
    _python("unnamed-file-linked-in", "f = os.open(E['W'], os.O_TMPFILE | os.O_RDWR)\n"
        "ctypes.CDLL(None).linkat(-100, f'/proc/self/fd/{f}'.encode(), -100, (E['W'] + '/tmpfile').encode(), 0x400)"),
    _python(
        "openat2-by-number",
        _SYSCALL + "how = (ctypes.c_uint64 * 3)(os.O_CREAT | os.O_WRONLY, 0o644, 0)\n"
        "sys_(437, -100, ctypes.c_char_p((E['W'] + '/n').encode()), how, 24)",
    ),
    _python(
        "creat-by-old-machine-mode",
        _SYSCALL + "sys_(0x40000000 + 85, ctypes.c_char_p((E['W'] + '/n').encode()), 0o644)",
        tame=False,
    ),
    _python(
        "io-uring",
        _SYSCALL + "p = ctypes.create_string_buffer(120)\nif sys_(425, 4, p) >= 0: print('OUT-' + E['OUT'])",
        tame=False,
    ),
    _python(
        "fchmodat2-by-number",
        _SYSCALL + "sys_(452, -100, ctypes.c_char_p((E['W'] + '/a.txt').encode()), 0o777, 0)",
    ),
    _python(
        "open-by-handle",
        _SYSCALL + "h = ctypes.create_string_buffer(136); ctypes.c_uint32.from_buffer(h).value = 128\n"
        "m = ctypes.c_int()\nsys_(303, -100, ctypes.c_char_p((E['W'] + '/a.txt').encode()), h, ctypes.byref(m), 0)\n"
        "d = os.open(E['W'], os.O_RDONLY)\nf = sys_(304, d, h, os.O_WRONLY | os.O_TRUNC)",
    ),
    Attempt("perl", "perl -e 'open(F, \">\", \"$ENV{W}/a.txt\"); print F \"x\"; close F'"),
    Attempt("perl-utime", "perl -e 'utime(1, 1, \"$ENV{W}/a.txt\")'"),
    Attempt("awk", "awk 'BEGIN { print \"x\" > ENVIRON[\"W\"] \"/a.txt\" }'"),
    Attempt("sed-in-place", "sed -i s/alpha/beta/ $W/a.txt"),
    Attempt("sed-write", "sed -n \"w $W/n\" /etc/hostname"),
    Attempt("ex", "printf '%%s/alpha/beta/\\nwq!\\n' | ex -s $W/a.txt"),
    Attempt("ed", "printf 's/alpha/beta/\\nw\\nq\\n' | ed -s $W/a.txt"),
    Attempt("vim", "vim -es -u NONE -c '%s/alpha/beta/' -c 'wq!' $W/a.txt </dev/null"),
    Attempt("git-commit", "cd $W && echo x | git hash-object -w --stdin; git commit -q --allow-empty -m x"),
    Attempt("git-add", "cd $W && git add -f ignored.txt"),
    Attempt("git-stash", "cd $W && git stash"),
    Attempt("git-checkout", "cd $W && git checkout -q -- a.txt sub; git checkout -q -b other"),
    Attempt("git-config", "cd $W && git config core.pager evil"),
    Attempt("git-config-global", "HOME=$H git config --global alias.x y"),
    Attempt("git-worktree", "cd $W && git worktree add -q $N/tree"),
    Attempt("git-dir", "GIT_DIR=$W/.git GIT_WORK_TREE=$N git checkout -q -f HEAD -- ."),
    Attempt("git-c", "git -C $W tag evil"),
    Attempt("git-clone", "git clone -q $W $N/clone"),
    Attempt("git-hook", "printf '#!/bin/sh\\ntouch $W/hooked' > $W/.git/hooks/post-checkout"),
    Attempt("git-alternate-objects", "cd $W && GIT_OBJECT_DIRECTORY=$N git hash-object -w a.txt"),
    Attempt("git-clean", "cd $W && git clean -fdxq"),
    Attempt("pip-install", "$PY -m pip install -q --no-index --no-build-isolation --no-deps --target $N/site $W/package", tame=False),
    Attempt("npm", "cd $W && npm init -y"),
    Attempt("make", "cd $W && printf 'all:\\n\\ttouch made\\n' | make -f -"),
    Attempt("compiled-program", "cd $TMPDIR && printf '#include <stdlib.h>\\n#include <stdio.h>\\nint main(void){char b[999];"
            "sprintf(b,\"%%s/c\",getenv(\"W\"));return !fopen(b,\"w\");}' > c.c && gcc c.c -o c && ./c"),
    Attempt("preloaded-library", "cd $TMPDIR && printf '#include <fcntl.h>\\n#include <stdlib.h>\\n#include <stdio.h>\\n"
            "__attribute__((constructor)) void f(void){char b[999];sprintf(b,\"%%s/l\",getenv(\"W\"));"
            "open(b,O_CREAT|O_WRONLY,0644);}' > l.c && gcc -shared -fPIC l.c -o l.so && LD_PRELOAD=$TMPDIR/l.so /bin/true"),
    Attempt("crontab", "echo '* * * * * touch /tmp/$MARK' | crontab - && crontab -l | grep -q $MARK && echo OUT-$OUT; crontab -r",
            tame=False),
    Attempt("at", "echo touch /tmp/$MARK | at now + 1 hour && echo OUT-$OUT", tame=False),
    Attempt("core-dump", "cd $W && ulimit -c unlimited; sh -c 'kill -SEGV $$'; ls core* 2>/dev/null && echo OUT-$OUT", tame=False),
]  # fmt: skip

SYSTEM = [
    Attempt("proc-self-root", "echo x > /proc/self/root$W/a.txt"),
    Attempt("proc-self-cwd", "cd $W; echo x > /proc/self/cwd/a.txt"),
    Attempt("proc-of-a-process-outside", "echo x > /proc/$VICTIM/root$W/a.txt"),
    Attempt("proc-of-the-parents", "for p in /proc/[0-9]*; do echo x > $p/root$W/a.txt; done"),
    Attempt("descriptors-of-others", "for f in /proc/[0-9]*/fd/*; do case $(readlink $f) in $W/*|$N/*) echo x > $f;; esac; done"),
    Attempt("environment-of-a-process-outside", "tr '\\0' '\\n' < /proc/$VICTIM/environ | grep -q TELLTALE && echo OUT-$OUT"),
    Attempt("list-of-processes", "ps -eo args | grep -q '^sleep 3[6]00' && echo OUT-$OUT"),
    Attempt("environment-by-ps", "ps eww -p $VICTIM | rev | rev | grep -q TELLTALE && echo OUT-$OUT"),
    Attempt("environment-of-the-parents-by-ps", "p=$PPID; while [ ${p:-0} -gt 0 ]; do ps eww -p $p; p=$(awk '{print $4}' /proc/$p/stat);"
            " done | grep -o ' H[O]ME=[^ ]*' | grep -qv $H && echo OUT-$OUT"),
    Attempt("environment-of-everybody", "cat /proc/[0-9]*/environ | tr '\\0' '\\n' | grep -q '^TELLTALE' && echo OUT-$OUT"),
    Attempt("command-lines-of-everybody", "cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -q 'sleep 3[6]00' && echo OUT-$OUT"),
    Attempt("command-line-of-a-process-outside", "tr '\\0' ' ' < /proc/$VICTIM/cmdline | grep -q 3600 && echo OUT-$OUT"),
    Attempt("state-of-a-process-outside", "cat /proc/$VICTIM/stat /proc/$VICTIM/status /proc/$VICTIM/comm | grep -q sleep && echo OUT-$OUT"),
    Attempt("threads-of-a-process-outside", "cat /proc/$VICTIM/task/$VICTIM/comm | grep -q sleep && echo OUT-$OUT"),
    Attempt("process-by-name", "pgrep -f 'sleep 3[6]00' && echo OUT-$OUT; pidof sleep && echo OUT-$OUT"),
    Attempt("open-files-of-everybody", "ls -l /proc/[0-9]*/fd | grep -q b.txt && echo OUT-$OUT"),
    Attempt("another-proc", "mkdir $TMPDIR/p; mount -t proc p $TMPDIR/p || unshare -rmp --fork mount -t proc p $TMPDIR/p;"
            " cat $TMPDIR/p/$VICTIM/cmdline | grep -q sleep && echo OUT-$OUT", tame=False),
    Attempt("memory-of-a-process-outside", "head -c 1 /proc/$VICTIM/maps | grep -q . && echo OUT-$OUT"),
    Attempt("kernel-settings", "echo 1 > /proc/sys/vm/drop_caches && echo OUT-$OUT", tame=False),
    Attempt("core-pattern", "echo '|/bin/sh' > /proc/sys/kernel/core_pattern && echo OUT-$OUT", tame=False),
    Attempt("sysrq", "echo h > /proc/sysrq-trigger && echo OUT-$OUT", tame=False),
    Attempt("sys-file-system", "for f in /sys/kernel/mm/transparent_hugepage/enabled; do cat $f > $f && echo OUT-$OUT; done", tame=False),
    Attempt("control-groups", "mkdir /sys/fs/cgroup/pids/$MARK /sys/fs/cgroup/$MARK /sys/fs/cgroup/unified/$MARK", tame=False),
    Attempt("raw-disk", "for d in /dev/vda /dev/sda /dev/nvme0n1 /dev/mem; do head -c 1 $d | grep -qa . && echo OUT-$OUT; done", tame=False),
    Attempt("sudo", "sudo -n sh -c \"echo x > $W/a.txt\""),
    Attempt("su", "su root -c \"echo x > $W/a.txt\""),
    Attempt("unshare", "unshare -rm sh -c \"mount -o remount,rw / ; mount -o remount,bind,rw $W; echo x > $W/a.txt\""),
    Attempt("chroot", "chroot / /bin/sh -c \"echo x > $W/a.txt\""),
    Attempt("remount", "mount -o remount,rw /; mount -o remount,rw,bind $W; umount -l $W; echo x > $W/a.txt"),
    Attempt("bind-mount", "mkdir $TMPDIR/b; mount --bind $W $TMPDIR/b; echo x > $TMPDIR/b/a.txt", tame=False),
    Attempt("nsenter", "nsenter -t 1 -m sh -c \"echo x > $W/a.txt\"; nsenter -t $VICTIM -a sh -c \"echo x > $W/a.txt\""),
    Attempt("bubblewrap", "bwrap --dev-bind / / sh -c \"echo x > $W/a.txt\""),
    Attempt("setuid-program", "cp /bin/sh $TMPDIR/s; chmod 4755 $TMPDIR/s; $TMPDIR/s -p -c \"echo x > $W/a.txt\""),
    Attempt("kill-a-process-outside", "kill -9 $VICTIM", tame=False),
    Attempt("kill-everything", "kill -9 -1", tame=False),
    Attempt("kill-the-parents", "p=$PPID; while [ $p -gt 1 ]; do kill -9 $p; p=$(awk '{print $4}' /proc/$p/stat); done", tame=False),
    Attempt("stop-a-process-outside", "kill -STOP $VICTIM", tame=False),
    Attempt("slow-down-a-process-outside", "renice -n 19 -p $VICTIM", tame=False),
    Attempt("limit-a-process-outside", "prlimit --pid $VICTIM --nofile=3:3", tame=False),
    _python("trace-a-process-outside", _SYSCALL + "if sys_(101, 16, int(E['VICTIM']), 0, 0) == 0: print('OUT-' + E['OUT'])", tame=False),
    _python("descriptor-of-a-process-outside",
            _SYSCALL + "p = sys_(434, int(E['VICTIM']), 0)\nif sys_(438, p, 1, 0) >= 0: print('OUT-' + E['OUT'])", tame=False),
    _python("write-into-a-process-outside",
            _SYSCALL + "open(f\"/proc/{E['VICTIM']}/mem\", 'r+b'); print('OUT-' + E['OUT'])", tame=False),
    Attempt("shared-memory-segment", f"ipcmk -M {SEGMENT_BYTES} && ipcs -m", tame=False),
    _python("message-queue", _SYSCALL + "q = sys_(240, ctypes.c_char_p(E['MARK'].encode()), os.O_CREAT | os.O_RDWR, 0o600, None)", tame=False),
    _python("key-ring", _SYSCALL + "k = sys_(248, ctypes.c_char_p(b'user'), ctypes.c_char_p(b'x'), ctypes.c_char_p(b'y'), 1, -4)\n"
            "if k > 0: print('OUT-' + E['OUT'])", tame=False),
    _python("type-into-the-terminal", "import fcntl\nfor t in ('/dev/tty', '/dev/console', '/dev/pts/0'):\n"
            "    try: fcntl.ioctl(os.open(t, os.O_RDWR), 0x5412, b'x'); print('OUT-' + E['OUT'])\n    except OSError: pass", tame=False),
    _python("raise-limits", "import resource as r\nfor n in (r.RLIMIT_FSIZE, r.RLIMIT_CORE, r.RLIMIT_DATA):\n"
            "    try: r.setrlimit(n, (r.RLIM_INFINITY, r.RLIM_INFINITY)); print('OUT-' + E['OUT'])\n"
            "    except (ValueError, OSError): pass", tame=False),
    Attempt("host-name", "hostname $MARK && echo OUT-$OUT", tame=False),
    Attempt("clock", "date -s '2001-01-01' && echo OUT-$OUT", tame=False),
    Attempt("kernel-log", "dmesg | grep -q . && echo OUT-$OUT", tame=False),
    Attempt("keys-of-the-user", "cat $H/.ssh/id_ed25519 $H/.aws/credentials $H/.netrc | grep -q PRIVATE && echo OUT-$OUT"),
    Attempt("keys-by-another-way", "cat /proc/self/root$H/.ssh/id_ed25519 | grep -q PRIVATE && echo OUT-$OUT"),
    Attempt("log-of-other-runs", "cat $H/.retinue/projects/p/log.db | grep -q PRIVATE && echo OUT-$OUT"),
    Attempt("change-the-log", "echo x >> $H/.retinue/projects/p/log.db"),
]  # fmt: skip

NETWORK = [
    Attempt("bash-tcp", "echo hello > /dev/tcp/127.0.0.1/$PORT"),
    Attempt("bash-udp", "echo hello > /dev/udp/127.0.0.1/$UDP"),
    Attempt("curl", "curl -s -m 2 http://127.0.0.1:$PORT/"),
    Attempt("curl-ipv6", "curl -s -g -m 2 'http://[::1]:'$PORT/"),
    Attempt("curl-unix-socket", "curl -s -m 2 --unix-socket $SOCK http://localhost/"),
    Attempt("curl-abstract-socket", "curl -s -m 2 --abstract-unix-socket $ABSTRACT http://localhost/"),
    Attempt("nc", "echo hello | nc -w 1 127.0.0.1 $PORT"),
    Attempt("nc-udp", "echo hello | nc -u -w 1 127.0.0.1 $UDP"),
    Attempt("nc-unix", "echo hello | nc -w 1 -U $SOCK"),
    Attempt("perl-tcp", "perl -MSocket -e 'socket(S,PF_INET,SOCK_STREAM,0);connect(S,sockaddr_in($ENV{PORT},inet_aton(\"127.0.0.1\")))"
            " and syswrite(S,\"hello\")'"),
    _python("python-tcp", "socket.create_connection(('127.0.0.1', int(E['PORT'])), 2).send(b'hello')"),
    _python("python-tcp-ipv6", "socket.create_connection(('::1', int(E['PORT'])), 2).send(b'hello')"),
    _python("python-udp", "socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'hello', ('127.0.0.1', int(E['UDP'])))"),
    _python("python-udp-ipv6", "socket.socket(socket.AF_INET6, socket.SOCK_DGRAM).sendto(b'hello', ('::1', int(E['UDP'])))"),
    _python("name-server-query", "socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'\\1\\2\\1\\0\\0\\1\\0\\0\\0\\0\\0\\0'"
            " + b'\\6secret\\7example\\0\\0\\1\\0\\1', ('127.0.0.1', int(E['UDP'])))"),
    _python("tcp-fast-open", "s = socket.socket()\ns.sendto(b'hello', 0x20000000, ('127.0.0.1', int(E['PORT'])))"),
    _python("unix-stream", "s = socket.socket(socket.AF_UNIX)\ns.connect(E['SOCK'])\ns.send(b'hello')"),
    _python("unix-datagram", "socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b'hello', E['DGRAM'])"),
    _python("unix-abstract", "s = socket.socket(socket.AF_UNIX)\ns.connect('\\0' + E['ABSTRACT'])\ns.send(b'hello')"),
    _python("unix-datagram-from-a-pair", "a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)\na.sendto(b'hello', E['DGRAM'])"),
    _python("unix-stream-from-a-pair", "a, b = socket.socketpair()\na.connect(E['SOCK'])\na.send(b'hello')", tame=False),
    _python("raw-socket", "socket.socket(socket.AF_INET, socket.SOCK_RAW, 255); print('OUT-' + E['OUT'])"),
    _python("packet-socket", "socket.socket(socket.AF_PACKET, socket.SOCK_RAW); print('OUT-' + E['OUT'])"),
    _python("netlink-socket", "socket.socket(socket.AF_NETLINK, socket.SOCK_RAW); print('OUT-' + E['OUT'])"),
    _python("socket-to-the-host-of-a-machine", "socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM); print('OUT-' + E['OUT'])", tame=False),
    _python("multi-path-tcp", "s = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262)\ns.connect(('127.0.0.1', int(E['PORT'])))\n"
            "s.send(b'hello')"),
    _python("listen-for-others", "s = socket.create_server(('127.0.0.1', 0))\nopen(E['TMPDIR'] + '/port', 'w').write(str(s.getsockname()[1]))",
            tame=False),
    Attempt("other-network-namespace", "nsenter -t $VICTIM -n curl -s -m 2 http://127.0.0.1:$PORT/; unshare -n true;"
            " ip netns exec x true", tame=False),
]  # fmt: skip

ALL = [*SHELL, *PROGRAMS, *SYSTEM, *NETWORK]
