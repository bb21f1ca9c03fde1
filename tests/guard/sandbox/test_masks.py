# ruff: noqa: E501 - scripts read better on one line
"""`change="all"`: a shell that is free, but for files that are hidden or kept as they are."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.guard.sandbox.scene import Scene

from retinue.guard.sandbox.box import Box
from retinue.guard.sandbox.policy import SandboxPolicy, masks_work

pytestmark = pytest.mark.skipif(not masks_work(), reason="needs namespaces")

SECRET = "PRIVATE-AND-HIDDEN"
"""What no output may hold. Scripts do not know it."""


def policy_of(scene: Scene) -> SandboxPolicy:
    (scene.workspace / "deep" / "er").mkdir(parents=True)
    for name in (".env", "deep/er/.env"):
        (scene.workspace / name).write_text(SECRET)
    (scene.workspace / "kept.txt").write_text("kept\n")
    (scene.workspace / "vault").mkdir()
    (scene.workspace / "vault" / "key").write_text(SECRET)
    hidden = tuple(scene.workspace / name for name in (".env", "deep/er/.env", "vault"))
    return SandboxPolicy(change="all", network="on", hidden=hidden, readonly=(scene.workspace / "kept.txt",))


@pytest.fixture
def box(scene: Scene) -> Iterator[Box]:
    made = Box(policy_of(scene), "run")
    yield made
    made.close()


_SYSCALL = """$PY - <<'CODE'
import ctypes, os
E = os.environ
libc = ctypes.CDLL(None, use_errno=True)
def sys_(*a): return libc.syscall(*[ctypes.c_long(x) if isinstance(x, int) else x for x in a])
def text(s): return ctypes.c_char_p(os.fsencode(s))
"""
READS = "cat .env deep/er/.env vault/key; "

BREAKING = {
    "read": READS,
    "read-by-other-programs": "grep -r PRIV .; tar cf - . | strings; python3 -c 'print(open(\".env\").read())'; sort .env",
    "read-by-git": "git add -f .env deep; git diff --cached; git stash list; git hash-object -w .env | xargs git cat-file -p",
    "copy": "cp -r . $TMPDIR/copy; cat $TMPDIR/copy/.env $TMPDIR/copy/deep/er/.env $TMPDIR/copy/vault/key",
    "unmount": f"umount .env; umount -l deep/er/.env vault kept.txt; umount -a; {READS}",
    "unmount-in-a-namespace": f"unshare -m sh -c 'umount .env; {READS}'; unshare -rm sh -c 'umount .env vault; umount -l .; {READS}'",
    "recursive-bind": "mkdir -p $TMPDIR/b; unshare -rm sh -c 'mount --rbind . $TMPDIR/b && umount $TMPDIR/b/.env; cat $TMPDIR/b/.env'",
    "bind-without-what-is-below": "mkdir -p $TMPDIR/b; unshare -rm sh -c 'mount --bind . $TMPDIR/b; cat $TMPDIR/b/.env $TMPDIR/b/vault/key'",
    "bind-of-the-root": "mkdir -p $TMPDIR/b; unshare -rm sh -c 'mount --bind / $TMPDIR/b; cat $TMPDIR/b$W/.env'; mount --bind / $TMPDIR/b; cat $TMPDIR/b$W/.env",
    "overlay": "mkdir -p $TMPDIR/u $TMPDIR/k $TMPDIR/m; unshare -rm sh -c 'mount -t overlay o -o lowerdir=.,upperdir=$TMPDIR/u,workdir=$TMPDIR/k $TMPDIR/m; cat $TMPDIR/m/.env $TMPDIR/m/vault/key'",
    "pivot": "unshare -rm sh -c 'mkdir -p $TMPDIR/n; mount --rbind / $TMPDIR/n; cd $TMPDIR/n && mkdir -p tmp/o; pivot_root . tmp/o; umount -l tmp/o; cat $W/.env'",
    "other-namespaces": f"for p in 1 $PPID $VICTIM; do nsenter -t $p -m sh -c 'cd $W; {READS}'; nsenter -t $p -a cat $W/.env; nsenter -t $p -U -m cat $W/.env; done",
    "root-of-other-processes": "for p in /proc/[0-9]*; do cat $p/root$W/.env $p/cwd/.env; done",
    "root-of-other-processes-as-others": "for u in 1 1000 65534; do setpriv --reuid $u --clear-groups sh -c 'for p in /proc/[0-9]*; do cat $p/root$W/.env; done'; done",
    "descriptors-of-other-processes": "for f in /proc/[0-9]*/fd/*; do case $(readlink $f) in */.env) cat $f;; esac; done",
    "rename": "mv .env open; cat open; mv deep shallow; cat shallow/er/.env; mv deep/er deep/re; cat deep/re/.env; mv vault v; cat v/key",
    "rename-and-look-in-the-next-command": "mv deep shallow; mv deep/er deep/re; mv $W $W-moved; true",
    "exchange": _SYSCALL + "sys_(316, -100, text('deep'), -100, text('sub'), 2); sys_(316, -100, text('.env'), -100, text('a.txt'), 2)\nprint(open('a.txt').read(), os.listdir('sub'))\nCODE\ncat sub/er/.env",
    "hard-link": "ln .env open; ln vault/key open2; ln -L deep/er/.env open3; cat open open2 open3",
    "delete-and-restore": "rm -rf .env deep vault; git checkout -f .; cat .env",
    "file-handles": _SYSCALL + """
h = ctypes.create_string_buffer((128).to_bytes(4, 'little') + bytes(132)); m = ctypes.c_int()
for name in ('.env', '.', 'a.txt'):
    if sys_(303, -100, text(name), h, ctypes.byref(m), 0) == 0:
        f = sys_(304, os.open('.', os.O_RDONLY), h, os.O_RDONLY)
        print(name, f, os.read(f, 99) if f >= 0 and name != '.' else '')
CODE""",
    "the-disk-itself": "for d in /dev/vd* /dev/sd* /dev/nvme* /dev/dm-* /dev/xvd* /dev/loop* /dev/mapper/*; do head -c 1 $d | wc -c | grep -q 1 && echo PRIVATE-$OUT; done 2>/dev/null; debugfs -R \"cat $W/.env\" $(findmnt -no SOURCE -T $W)",
    "a-new-node-for-the-disk": "mknod $TMPDIR/disk b $(stat -c '%Hd %Ld' $W) && head -c 1 $TMPDIR/disk | wc -c | grep -q 1 && echo PRIVATE-$OUT",
    "programs-of-the-kernel": "cat /proc/sys/kernel/core_pattern > /proc/sys/kernel/core_pattern && echo PRIVATE-$OUT; cat /proc/sys/kernel/modprobe > /proc/sys/kernel/modprobe && echo PRIVATE-$OUT; echo > /sys/kernel/uevent_helper && echo PRIVATE-$OUT",
    "trace-a-process-outside": "gdb -p $VICTIM -batch -ex 'call (int)system(\"cp $W/.env $N/stolen\")'; cat $N/stolen",
    "memory-of-a-process-outside": "head -c 1 /proc/$VICTIM/maps | grep -q . && cat /proc/$VICTIM/environ | grep -q TELLTALE && echo PRIVATE-$OUT",
    "stand-in": "for f in $(find / -xdev -maxdepth 6 -path '*retinue-*/void*' 2>/dev/null); do echo PRIVATE-$OUT > $f; done; cat .env",
    "chmod-and-write": "chmod 777 .env vault; echo PRIVATE-$OUT > .env; echo PRIVATE-$OUT > vault/key; cat .env vault/key",
    "new-root": "chroot /proc/1/root cat $W/.env; chroot /proc/$VICTIM/root cat $W/.env; mkdir -p $TMPDIR/c; chroot $TMPDIR/c true",
    "background": "(sleep 0.2; cat .env > $N/later) & disown; sleep 0.4; cat $N/later",
    "a-container-program": "bwrap --dev-bind / / sh -c 'umount .env; cat .env'; podman unshare cat .env; systemd-nspawn -D / cat $W/.env",
    "io-uring": _SYSCALL + "print(sys_(425, 8, ctypes.create_string_buffer(120)))\nCODE\n",
}  # fmt: skip


@pytest.mark.parametrize("name", BREAKING)
async def test_a_mask_cannot_be_broken_by(name: str, scene: Scene, box: Box):
    before = {path: path.stat().st_ino for path in (scene.workspace / ".env", scene.workspace / "deep/er/.env")}
    output = await scene.shell(BREAKING[name], box)
    later = await scene.shell(READS + "ls -R $W; cat kept.txt", box)
    for text in (output.text, later.text):
        assert SECRET not in text
        assert f"PRIVATE-{scene.out}" not in text
    assert {path: path.stat().st_ino for path in before} == before
    assert (scene.workspace / ".env").read_text() == SECRET
    assert (scene.workspace / "vault" / "key").read_text() == SECRET
    assert not [path for path in scene.folder.rglob("*") if path.is_file() and _is_stolen(scene, path)]


def _is_stolen(scene: Scene, path: Path) -> bool:
    known = {scene.workspace / name for name in (".env", "deep/er/.env", "vault/key")}
    return path not in known and SECRET.encode() in path.read_bytes()


CHANGING = {
    "redirect": "echo x > kept.txt",
    "sort": "sort -o kept.txt a.txt",
    "sed": "sed -i s/kept/x/ kept.txt",
    "perl": "perl -pi -e s/kept/x/ kept.txt",
    "rename-over": "echo x > n; mv n kept.txt",
    "delete": "rm -f kept.txt; rm -rf $W",
    "hard-link": "ln kept.txt other && echo x > other",
    "truncate": "truncate -s 0 kept.txt",
    "mode": "chmod 777 kept.txt; chown 1 kept.txt; touch -d 2001-01-01 kept.txt",
    "remount": "mount -o remount,rw,bind kept.txt; mount -o remount,rw $W/kept.txt; unshare -rm mount -o remount,bind,rw $W/kept.txt; echo x > kept.txt",
    "attributes": _SYSCALL
    + "import struct\nprint(sys_(442, -100, text('kept.txt'), 0, struct.pack('<4Q', 0, 1, 0, 0), 32))\nCODE\necho x > kept.txt",
    "python": 'python3 -c \'open("kept.txt", "w").write("x")\'',
    "git": "git add kept.txt; git commit -qm x; git rm -f kept.txt; git checkout HEAD~1 -- .; git clean -fdx",
    "moved-away": "mv $W $W-away; mkdir $W; echo x > $W/kept.txt",
}


@pytest.mark.parametrize("name", CHANGING)
async def test_a_file_that_is_kept_cannot_be_changed_by(name: str, scene: Scene, box: Box):
    kept = scene.workspace / "kept.txt"
    before = kept.stat()
    await scene.shell(CHANGING[name], box)
    assert kept.read_text() == "kept\n"
    after = kept.stat()
    assert (after.st_ino, after.st_mode, after.st_uid, after.st_mtime_ns, after.st_nlink) == (
        before.st_ino, before.st_mode, before.st_uid, before.st_mtime_ns, before.st_nlink,
    )  # fmt: skip


FREE = {
    "write-anywhere": ("echo x > $N/new && echo x > $H/new && cat $N/new", "x"),
    "read-anywhere": ("cat $N/b.txt $H/.ssh/id_ed25519", "PRIVATE"),
    "network": ("echo hi > /dev/tcp/127.0.0.1/$PORT && echo sent", "sent"),
    "local-services": ("$PY -c 'import os, socket; socket.socket(socket.AF_UNIX).connect(os.environ[\"SOCK\"]); print(\"connected\")'", "connected"),
    "signals": ("kill -0 $VICTIM && echo signalled", "signalled"),
    "processes": ("ps -p $VICTIM -o comm=", "sleep"),
    "debugger": ("gdb -batch -ex run -ex 'print 6*7' /bin/true", "42"),
    "environment": ("echo $GITHUB_TOKEN", "value"),
    "temporary-files": ("echo $TMPDIR", "loose"),
    "commit": ("git -c user.name=T -c user.email=t@example.invalid commit -qam mine && git log --oneline -1", "mine"),
    "push": ("git init -q --bare $N/r.git && git push -q $N/r.git HEAD:main && git -C $N/r.git log --oneline main", "first"),
    "rename-in-the-workspace": ("mkdir d1 d2; echo x > d1/f; git mv -k a.txt d1/; $PY -c 'import os; os.rename(\"d1/f\", \"d2/f\")' && ls d2", "f"),
    "owners": ("touch o && chown 1234:1234 o && stat -c %u o" if os.getuid() == 0 else "echo 1234", "1234"),
    "other-users": ("setpriv --reuid 1234 --clear-groups id -u" if os.getuid() == 0 else "echo 1234", "1234"),
    "modes": ("touch m && chmod 600 m && stat -c %a m", "600"),
    "server": ("$PY -m http.server 0 --bind 127.0.0.1 >$TMPDIR/log 2>&1 & sleep 0.5; kill $! && echo served", "served"),
    "namespaces": ("unshare -r id -u", "0"),
    "exit-code": ("exit 7", "exit code 7"),
    "large-files": ("truncate -s 6G $TMPDIR/big && stat -c %s $TMPDIR/big; rm $TMPDIR/big", "6442450944"),
    "core-files": ("ulimit -c", ""),
}  # fmt: skip


@pytest.mark.parametrize("name", FREE)
async def test_everything_else_is_as_without_a_sandbox(name: str, scene: Scene, box: Box):
    script, expected = FREE[name]
    context = scene.context(box)
    context.environment = {**context.environment, "GITHUB_TOKEN": "value"}
    (scene.folder / "loose").mkdir()
    from retinue.tools.bash import BashTool

    output = await BashTool().run("call", {"command": script}, context)
    if "not found" in output.text:
        pytest.skip(output.text)
    assert expected in output.text


def test_a_command_with_nothing_to_hide_or_keep_is_started_as_it_is(scene: Scene):
    box = Box(SandboxPolicy(change="all", network="on", hidden=(scene.workspace / "missing",)), "run")
    assert box.wrap(["/bin/true", "x"], scene.workspace) == ["/bin/true", "x"]
    box.close()


def test_root_without_user_namespaces_is_held_by_masks_too(scene: Scene):
    """A user namespace whose root may make no further ones stands for such a host."""
    if os.getuid() != 0:
        pytest.skip("only root has this way")
    box = Box(policy_of(scene), "run")
    for script in (BREAKING["root-of-other-processes"], BREAKING["root-of-other-processes-as-others"], BREAKING["unmount"],
                   BREAKING["other-namespaces"], BREAKING["file-handles"], BREAKING["rename"], "cat .env a.txt"):  # fmt: skip
        inner = 'echo 0 > /proc/sys/user/max_user_namespaces && exec "$@"'
        argv = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", inner, "sh"]
        argv += box.wrap(["/bin/bash", "-c", script], scene.workspace)
        environment = {**os.environ, **scene.variables, "TMPDIR": str(scene.folder)}
        done = subprocess.run(argv, capture_output=True, text=True, env=environment)
        assert SECRET not in done.stdout + done.stderr
        assert "retinue sandbox" not in done.stderr
    assert "alpha" in done.stdout
    box.close()


def test_hundreds_of_files_are_hidden_and_kept(scene: Scene):
    files = []
    for number in range(600):
        path = scene.workspace / "many" / str(number % 20) / f"{number}.env"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(SECRET)
        files.append(path)
    box = Box(SandboxPolicy(change="all", network="on", hidden=tuple(files[:400]), readonly=tuple(files[400:])), "run")
    argv = box.wrap(
        ["/bin/sh", "-c", "cat many/*/*.env | wc -c; rm -f many/1/*.env; ls many/1 | wc -l"], scene.workspace
    )
    done = subprocess.run(argv, capture_output=True, text=True)
    assert done.stdout.split() == [str(200 * len(SECRET)), "30"]
    box.close()


def test_a_policy_may_change_between_commands_and_the_scratch_folder_stays(scene: Scene):
    box = Box(SandboxPolicy(), "run")
    first = box.wrap(["/bin/sh", "-c", "echo kept > $TMPDIR/x"], scene.workspace)
    subprocess.run(first, check=True, env=box.environment(os.environ))
    box.update(SandboxPolicy(hidden=(scene.workspace / "a.txt",)))
    second = box.wrap(["/bin/sh", "-c", "cat $TMPDIR/x a.txt"], scene.workspace)
    done = subprocess.run(second, check=True, capture_output=True, text=True, env=box.environment(os.environ))
    box.close()
    assert done.stdout == "kept\n"


def test_what_a_host_cannot_enforce_is_said(scene: Scene, monkeypatch: pytest.MonkeyPatch):
    from retinue.guard.sandbox import policy as probe

    hidden = (scene.workspace / "a.txt",)
    assert probe.uncovered(SandboxPolicy(change="all", hidden=hidden)) == ""
    monkeypatch.setattr(probe, "masks_work", lambda: False)
    monkeypatch.setattr(probe, "namespaces_available", lambda: False)
    assert "cannot be kept from commands" in probe.uncovered(SandboxPolicy(change="all", hidden=hidden))
    assert "Files in a writable folder" in probe.uncovered(SandboxPolicy(writable=(scene.workspace,), readonly=hidden))
    assert probe.uncovered(SandboxPolicy(change="all")) == ""
