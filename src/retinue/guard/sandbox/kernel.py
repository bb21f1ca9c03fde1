"""The means of confinement that the kernel offers, and the filter of system calls.

The filter refuses system calls that neither Landlock nor read-only mounts cover. It also refuses every system call that
is newer than this file. A refused call returns an error, as it would for a program without the right, so programs can
continue.

Numbers of system calls are known for the machines listed here. Programs for other machines, or for
the 32-bit mode of these, are refused.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from functools import cache
from itertools import chain
from struct import pack
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from retinue.settings.table import Settings

NEWEST_CALL = 469
"""The newest system call that was reviewed. Newer ones do not exist for a confined program."""

_COMMON_CALLS = """
pidfd_send_signal 424 io_uring_setup 425 io_uring_enter 426 io_uring_register 427 open_tree 428 move_mount 429
fsopen 430 fsconfig 431 fsmount 432 fspick 433 clone3 435 close_range 436 openat2 437 pidfd_getfd 438
process_madvise 440 mount_setattr 442 quotactl_fd 443 landlock_create_ruleset 444 landlock_add_rule 445
landlock_restrict_self 446 process_mrelease 448 fchmodat2 452 setxattrat 463 removexattrat 466
open_tree_attr 467 file_setattr 469
"""
"""Name and number of system calls that have the same number everywhere."""

_CALLS_BY_MACHINE = """
acct 163 89            add_key 248 217        adjtimex 159 171
bpf 321 280            capget 125 90          capset 126 91          chmod 90 -
chown 92 -             chroot 161 51          clock_adjtime 305 266  clock_settime 227 112
clone 56 220           create_module 174 -    delete_module 176 106
fallocate 285 47       fanotify_init 300 262  fchmod 91 52           fchmodat 268 53
fchown 93 55           fchownat 260 54        fcntl 72 25            finit_module 313 273   fremovexattr 199 16
fsetxattr 190 7        futimesat 261 -        init_module 175 105    inotify_add_watch 254 27
inotify_init1 294 26   ioctl 16 29
ioperm 173 -           iopl 172 -             ioprio_set 251 30      kcmp 312 272
kexec_file_load 320 294  kexec_load 246 104   keyctl 250 219         kill 62 129
lchown 94 -            lookup_dcookie 212 18  lremovexattr 198 15
lsetxattr 189 6
memfd_create 319 279   migrate_pages 256 238  mount 165 40           move_pages 279 239     mq_notify 244 184
mq_open 240 180        mq_timedreceive 243 183  mq_timedsend 242 182 mq_unlink 241 181
msgctl 71 187          msgget 68 186          msgrcv 70 188          msgsnd 69 189
nfsservctl 180 42      open_by_handle_at 304 265
perf_event_open 298 241  pivot_root 155 41
prctl 157 167          prlimit64 302 261      process_vm_readv 310 270  process_vm_writev 311 271
ptrace 101 117         quotactl 179 60        reboot 169 142         removexattr 197 14
request_key 249 218    rt_sigaction 13 134    rt_sigqueueinfo 129 138  rt_tgsigqueueinfo 297 240
sched_setaffinity 203 122
sched_setattr 314 274  sched_setparam 142 118 sched_setscheduler 144 119  semctl 66 191
semget 64 190          sendmsg 46 211         semop 65 193           semtimedop 220 192
setdomainname 171 162
sethostname 170 161    setns 308 268          setpriority 141 140    settimeofday 164 170
setxattr 188 5         shmat 30 196           shmctl 31 195          shmget 29 194
socket 41 198          socketpair 53 199      swapoff 168 225        swapon 167 224
syslog 103 116         tgkill 234 131         tkill 200 130          umount2 166 39
unshare 272 97         uselib 134 -           userfaultfd 323 282    utime 132 -
utimensat 280 88       utimes 235 -           vhangup 153 58
"""
"""Name, number on x86-64, number on ARM64."""


class Machine(Struct, frozen=True):
    """`audit` is how the kernel names the machine to a filter."""

    name: str
    audit: int
    calls: dict[str, int]


@cache
def machine() -> Machine | None:
    """Return the machine this runs on; None where confinement is not known to work."""
    # The filter compares halves of 64-bit arguments in this order.
    if sys.platform != "linux" or sys.maxsize < 2**32 or sys.byteorder != "little":
        return None
    return machine_called(os.uname().machine)


def machine_called(name: str) -> Machine | None:
    column = {"x86_64": 1, "aarch64": 2}.get(name)
    if column is None:
        return None
    common = dict(zip(_COMMON_CALLS.split()[::2], map(int, _COMMON_CALLS.split()[1::2]), strict=True))
    fields = _CALLS_BY_MACHINE.split()
    rows = zip(fields[::3], fields[1::3], fields[2::3], strict=True)
    calls = {row[0]: int(row[column]) for row in rows if row[column] != "-"}
    return Machine(name, 0xC000003E if column == 1 else 0xC00000B7, {**calls, **common})


@cache
def landlock_abi() -> int:
    """Return the version of Landlock that the kernel offers; 0 without it. Costs one system call."""
    here = machine()
    if here is None:
        return 0
    # The launcher uses it as well; the whole of ctypes would take milliseconds.
    try:
        from _ctypes import call_function, dlopen, dlsym

        syscall = dlsym(dlopen(None, 2), "syscall")  # type: ignore[arg-type]  # None is the program itself
    except (ImportError, OSError):
        return 0
    version: int = call_function(syscall, (here.calls["landlock_create_ruleset"], None, 0, 1))
    return max(version, 0)


def _own_status(name: bytes) -> bytes:
    """Return a line of what the kernel says of this process; b"" without it."""
    try:
        with open("/proc/self/status", "rb") as status:  # noqa: PTH123 - a file of the kernel
            return next((line for line in status if line.startswith(name)), b"")
    except OSError:
        return b""


@cache
def has_seccomp() -> bool:
    return bool(_own_status(b"Seccomp:"))


@cache
def own_proc_works() -> bool:
    """Return whether a new /proc can be mounted in a namespace. Containers cover parts of theirs, and
    the kernel then does not provide a whole one."""
    capabilities = _own_status(b"CapEff:").split()
    if os.geteuid() == 0 and capabilities and int(capabilities[1], 16) & _SYS_ADMIN:
        return True
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as mounts:  # noqa: PTH123 - of the kernel
            points = [line.split()[4] for line in mounts]
    except OSError:
        return False
    return not any(point.startswith("/proc/") and point != "/proc/sys/fs/binfmt_misc" for point in points)


_SYS_ADMIN = 1 << 21
_FIRST_ABI_WITH_TRUNCATION = 3
"""From this version on Landlock alone keeps files from being emptied."""


@cache
def why_not() -> str | None:
    """Return why programs cannot be kept from writing here; None if they can. A start that then fails
    anyway starts nothing: the launcher does not let a program run half confined."""
    if sys.platform == "darwin":
        from retinue.guard.sandbox.seatbelt import why_no_seatbelt

        return why_no_seatbelt()
    if machine() is None:
        return "only Linux on x86-64 and ARM64, and macOS, can confine programs"
    if not has_seccomp():
        return "the kernel has no seccomp"
    abi = landlock_abi()
    # Older versions let a program empty a file that it may not write.
    if abi >= _FIRST_ABI_WITH_TRUNCATION:
        return None
    if abi == 0:
        return "the kernel has no Landlock, or this container forbids it"
    from retinue.guard.sandbox.policy import namespaces_work

    if namespaces_work():
        return None
    return f"Landlock is too old here (version {abi} of {_FIRST_ABI_WITH_TRUNCATION}) and namespaces are not available"


def can_confine() -> bool:
    return why_not() is None


_LOAD, _JUMP_EQ, _JUMP_GT, _JUMP_SET, _AND, _RETURN = 0x20, 0x15, 0x25, 0x45, 0x54, 0x06
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
EPERM, EACCES, ENOSYS, EOPNOTSUPP = 1, 13, 38, 95

AF_UNIX, AF_INET, AF_INET6 = 1, 2, 10
_STREAM, _SEQPACKET = 1, 5
_NEW_NAMESPACES = 0x7E020000
_REFUSED_IOCTLS = (0x5412, 0x541C, 0x40086602, 0x40046602, 0x401C5820, 0x40087602)
"""Typing into a terminal (TIOCSTI, TIOCLINUX), and attributes of files."""

_ALWAYS_REFUSED_CALLS = """
acct add_key adjtimex bpf chroot clock_adjtime clock_settime create_module delete_module fanotify_init
finit_module fsconfig fsmount fsopen fspick init_module io_uring_enter io_uring_register io_uring_setup ioperm
iopl kcmp kexec_file_load kexec_load keyctl lookup_dcookie migrate_pages mount mount_setattr move_mount
move_pages nfsservctl open_by_handle_at open_tree open_tree_attr perf_event_open pidfd_getfd pivot_root
process_madvise process_mrelease process_vm_readv process_vm_writev ptrace quotactl quotactl_fd reboot
request_key setdomainname sethostname setns settimeofday swapoff swapon syslog umount2 unshare uselib
userfaultfd vhangup
""".split()

_METADATA_CALLS = """
chmod chown fchmod fchmodat fchmodat2 fchown fchownat file_setattr fremovexattr fsetxattr futimesat lchown
lremovexattr lsetxattr removexattr removexattrat setxattr setxattrat utime utimensat utimes
""".split()
"""Calls for mode, owner, times and attributes of files, which Landlock does not check."""

_SHARED_MEMORY_CALLS = """
mq_notify mq_open mq_timedreceive mq_timedsend mq_unlink msgctl msgget msgrcv msgsnd semctl semget semop
semtimedop shmat shmctl shmget
""".split()
"""Calls for memory, queues and semaphores that all processes of a user share."""

_SIGNAL_CALLS = "kill tkill tgkill rt_sigqueueinfo rt_tgsigqueueinfo".split()
_SCHEDULING_CALLS = "sched_setaffinity sched_setattr sched_setparam sched_setscheduler".split()


def filter_program(
    machine: Machine, *, inside: bool, families: Iterable[int], signals_scoped: bool, refused: Mapping[str, int]
) -> bytes:
    """The filter as the kernel wants it. `inside` says that mounts are read-only and processes,
    memory and network of others out of sight; without that, more has to be refused here.
    `families` are the kinds of socket that may be made; without `signals_scoped` a process may
    only signal its own group. `refused` is what would get around a limit, with the error that
    programs get for it."""
    code = _FilterCode(machine)
    for name, error in refused.items():
        code.refuse([name], error)
    code.refuse(_ALWAYS_REFUSED_CALLS, EPERM)
    # Its flags are out of sight; the C library then uses clone.
    code.refuse(["clone3"], ENOSYS)
    code.check("clone", 0, mask=_NEW_NAMESPACES)
    code.check("ioctl", 1, refused=_REFUSED_IOCTLS)
    code.sockets(families)
    code.only_own("prlimit64", unless_null=2)
    if not inside:
        code.refuse([*_METADATA_CALLS, *_SHARED_MEMORY_CALLS], EPERM)
        for name in _SCHEDULING_CALLS:
            code.only_own(name)
        code.check("setpriority", 1, only=(0,))
        code.check("ioprio_set", 1, only=(0,))
        if not signals_scoped:
            for name in _SIGNAL_CALLS:
                code.only_own(name)
            code.refuse(["pidfd_send_signal"], EPERM)
    return code.bytes()


class _FilterCode:
    """Blocks that each decide one call for good or fall through to the next."""

    def __init__(self, machine: Machine) -> None:
        self._calls = machine.calls
        self._code: list[tuple[int, int, int, int]] = [
            (_LOAD, 0, 0, 4),
            (_JUMP_EQ, 1, 0, machine.audit),
            (_RETURN, 0, 0, _ERRNO | ENOSYS),
            (_LOAD, 0, 0, 0),
            (_JUMP_GT, 0, 1, NEWEST_CALL),  # the second instruction set of x86-64 also lies up there
            (_RETURN, 0, 0, _ERRNO | ENOSYS),
        ]

    def refuse(self, names: Iterable[str], error: int) -> None:
        for name in names:
            if name in self._calls:
                self._code += [(_JUMP_EQ, 0, 1, self._calls[name]), (_RETURN, 0, 0, _ERRNO | error)]

    def check(
        self, name: str, argument: int, *, mask: int = 0, refused: Iterable[int] = (), only: Iterable[int] = ()
    ) -> None:
        """Refuse by the low half of one argument: any bit of `mask`, one of `refused`, all but `only`."""
        block = [self._low(argument)]
        if mask:
            block += [(_JUMP_SET, 0, 1, mask), (_RETURN, 0, 0, _ERRNO | EPERM)]
        for value in refused:
            block += [(_JUMP_EQ, 0, 1, value), (_RETURN, 0, 0, _ERRNO | EPERM)]
        allowed = list(only)
        for value in allowed:
            block += [(_JUMP_EQ, 0, 1, value), (_RETURN, 0, 0, _ALLOW)]
        block.append((_RETURN, 0, 0, _ERRNO | EPERM if allowed else _ALLOW))
        self._block(name, block)

    def sockets(self, families: Iterable[int]) -> None:
        """No socket of another family. A pair is let through if it cannot be turned elsewhere:
        datagrams can, because each may carry an address."""
        block = [self._low(0)]
        for family in families:
            block += [(_JUMP_EQ, 0, 1, family), (_RETURN, 0, 0, _ALLOW)]
        self._block("socket", [*block, (_RETURN, 0, 0, _ERRNO | EACCES)])
        pair = [
            self._low(0),
            (_JUMP_EQ, 1, 0, AF_UNIX),
            (_RETURN, 0, 0, _ERRNO | EACCES),
            self._low(1),
            (_AND, 0, 0, 0xF),
            (_JUMP_EQ, 1, 0, _STREAM),
            (_JUMP_EQ, 0, 1, _SEQPACKET),
            (_RETURN, 0, 0, _ALLOW),
            (_RETURN, 0, 0, _ERRNO | EACCES),
        ]
        self._block("socketpair", pair)

    def only_own(self, name: str, unless_null: int | None = None) -> None:
        """Only with 0 for the process, which is the caller itself; or where an argument is null."""
        block = []
        if unless_null is not None:
            low, high = self._low(unless_null), (_LOAD, 0, 0, 20 + 8 * unless_null)
            block = [low, (_JUMP_EQ, 0, 3, 0), high, (_JUMP_EQ, 0, 1, 0), (_RETURN, 0, 0, _ALLOW)]
        block += [self._low(0), (_JUMP_EQ, 0, 1, 0), (_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, _ERRNO | EPERM)]
        self._block(name, block)

    def bytes(self) -> bytes:
        code = [*self._code, (_RETURN, 0, 0, _ALLOW)]
        return pack("<" + "HBBI" * len(code), *chain.from_iterable(code))

    def _block(self, name: str, block: list[tuple[int, int, int, int]]) -> None:
        self._code += [(_JUMP_EQ, 0, len(block), self._calls[name]), *block]

    @staticmethod
    def _low(argument: int) -> tuple[int, int, int, int]:
        return (_LOAD, 0, 0, 16 + 8 * argument)


def can_sandbox(settings: Settings) -> bool:
    """Return whether a read-only run can have a shell here. Quick: nothing is started for it."""
    return settings.sandbox_mode != "off" and can_confine()
