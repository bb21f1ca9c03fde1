"""What the kernel calls things: numbers of system calls and rights, for the machines we know.

Programs for other machines, or for the 32-bit mode of these, find no filter here and are refused.
"""

from __future__ import annotations

import os
import sys
from functools import cache

from retinue.core.lean import dataclass

NEWEST = 469
"""The newest system call that was looked at. Younger ones do not exist for a confined program."""

_COMMON = {
    "pidfd_send_signal": 424,
    "io_uring_setup": 425,
    "io_uring_enter": 426,
    "io_uring_register": 427,
    "open_tree": 428,
    "move_mount": 429,
    "fsopen": 430,
    "fsconfig": 431,
    "fsmount": 432,
    "fspick": 433,
    "clone3": 435,
    "close_range": 436,
    "pidfd_getfd": 438,
    "process_madvise": 440,
    "mount_setattr": 442,
    "quotactl_fd": 443,
    "landlock_create_ruleset": 444,
    "landlock_add_rule": 445,
    "landlock_restrict_self": 446,
    "process_mrelease": 448,
    "fchmodat2": 452,
    "setxattrat": 463,
    "removexattrat": 466,
    "open_tree_attr": 467,
    "file_setattr": 469,
}

_TABLE = """
acct 163 89            add_key 248 217        adjtimex 159 171
bpf 321 280            capset 126 91          chmod 90 -
chown 92 -             chroot 161 51          clock_adjtime 305 266  clock_settime 227 112
clone 56 220           create_module 174 -    delete_module 176 106
fanotify_init 300 262  fchmod 91 52           fchmodat 268 53
fchown 93 55           fchownat 260 54        finit_module 313 273   fremovexattr 199 16
fsetxattr 190 7        futimesat 261 -        init_module 175 105    ioctl 16 29
ioperm 173 -           iopl 172 -             ioprio_set 251 30      kcmp 312 272
kexec_file_load 320 294  kexec_load 246 104   keyctl 250 219         kill 62 129
lchown 94 -            lookup_dcookie 212 18  lremovexattr 198 15
lsetxattr 189 6
migrate_pages 256 238  mount 165 40           move_pages 279 239     mq_notify 244 184
mq_open 240 180        mq_timedreceive 243 183  mq_timedsend 242 182 mq_unlink 241 181
msgctl 71 187          msgget 68 186          msgrcv 70 188          msgsnd 69 189
nfsservctl 180 42      open_by_handle_at 304 265
perf_event_open 298 241  pivot_root 155 41
prctl 157 167          prlimit64 302 261      process_vm_readv 310 270  process_vm_writev 311 271
ptrace 101 117         quotactl 179 60        reboot 169 142         removexattr 197 14
request_key 249 218    rt_sigaction 13 134    rt_sigqueueinfo 129 138  rt_tgsigqueueinfo 297 240
sched_setaffinity 203 122
sched_setattr 314 274  sched_setparam 142 118 sched_setscheduler 144 119  semctl 66 191
semget 64 190          semop 65 193           semtimedop 220 192
setdomainname 171 162
sethostname 170 161    setns 308 268          setpriority 141 140    settimeofday 164 170
setxattr 188 5         shmat 30 196           shmctl 31 195          shmget 29 194
socket 41 198          socketpair 53 199      swapoff 168 225        swapon 167 224
syslog 103 116         tgkill 234 131         tkill 200 130          umount2 166 39
unshare 272 97         uselib 134 -           userfaultfd 323 282    utime 132 -
utimensat 280 88       utimes 235 -           vhangup 153 58
"""
"""Name, number on x86-64, number on ARM64."""


@dataclass(frozen=True, slots=True)
class Machine:
    """`audit` is how the kernel names the machine to a filter."""

    name: str
    audit: int
    calls: dict[str, int]


@cache
def machine() -> Machine | None:
    """The machine this runs on; None where confinement is not known to work."""
    if sys.platform != "linux" or sys.maxsize < 2**32 or sys.byteorder != "little":
        return None
    return machine_called(os.uname().machine)


def machine_called(name: str) -> Machine | None:
    column = {"x86_64": 1, "aarch64": 2}.get(name)
    if column is None:
        return None
    fields = _TABLE.split()
    rows = zip(fields[::3], fields[1::3], fields[2::3], strict=True)
    calls = {row[0]: int(row[column]) for row in rows if row[column] != "-"}
    return Machine(name, 0xC000003E if column == 1 else 0xC00000B7, {**calls, **_COMMON})


@cache
def landlock_abi() -> int:
    """The version of Landlock that the kernel offers; 0 without it. Costs one system call."""
    here = machine()
    if here is None:
        return 0
    try:  # what the launcher uses, too; the whole of ctypes would take milliseconds
        from _ctypes import call_function, dlopen, dlsym

        syscall = dlsym(dlopen(None, 2), "syscall")  # type: ignore[arg-type]  # None is the program itself
    except (ImportError, OSError):
        return 0
    found: int = call_function(syscall, (here.calls["landlock_create_ruleset"], None, 0, 1))
    return max(found, 0)


@cache
def has_seccomp() -> bool:
    try:
        with open("/proc/self/status", "rb") as status:  # noqa: PTH123 - a file of the kernel
            return any(line.startswith(b"Seccomp:") for line in status)
    except OSError:
        return False


@cache
def own_proc_works() -> bool:
    """Whether a new /proc can be mounted in a namespace. Containers cover parts of theirs, and the
    kernel then does not give out a whole one."""
    if os.geteuid() == 0 and _holds_sys_admin():
        return True
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as mounts:  # noqa: PTH123 - of the kernel
            points = [line.split()[4] for line in mounts]
    except OSError:
        return False
    return not any(point.startswith("/proc/") and point != "/proc/sys/fs/binfmt_misc" for point in points)


def _holds_sys_admin() -> bool:
    with open("/proc/self/status", "rb") as status:  # noqa: PTH123 - a file of the kernel
        line = next((line for line in status if line.startswith(b"CapEff:")), b"CapEff: 0")
    return bool(int(line.split()[1], 16) >> 21 & 1)
