"""The filter of system calls: closes what neither Landlock nor read-only mounts cover.

It is a list of exceptions, ended by a rule that knows no system call younger than this file: what
a future kernel adds is refused, not let through. Calls are refused with an error, so that programs
see what they would see without rights, and go on.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from struct import pack

from retinue.guard.sandbox.kernel import NEWEST, Machine

_LOAD, _JUMP_EQ, _JUMP_GT, _JUMP_SET, _AND, _RETURN = 0x20, 0x15, 0x25, 0x45, 0x54, 0x06
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
EPERM, EACCES, ENOSYS = 1, 13, 38

AF_UNIX, AF_INET, AF_INET6 = 1, 2, 10
_STREAM, _SEQPACKET = 1, 5
_NEW_NAMESPACES = 0x7E020000
_REFUSED_IOCTLS = (0x5412, 0x541C, 0x40086602, 0x40046602, 0x401C5820, 0x40087602)
"""Typing into a terminal (TIOCSTI, TIOCLINUX), and attributes of files."""

_ALWAYS = """
acct add_key adjtimex bpf chroot clock_adjtime clock_settime create_module delete_module fanotify_init
finit_module fsconfig fsmount fsopen fspick init_module io_uring_enter io_uring_register io_uring_setup ioperm
iopl kcmp kexec_file_load kexec_load keyctl lookup_dcookie migrate_pages mount mount_setattr move_mount
move_pages nfsservctl open_by_handle_at open_tree open_tree_attr perf_event_open pidfd_getfd pivot_root
process_madvise process_mrelease process_vm_readv process_vm_writev ptrace quotactl quotactl_fd reboot
request_key setdomainname sethostname setns settimeofday swapoff swapon syslog umount2 unshare uselib
userfaultfd vhangup
""".split()

_METADATA = """
chmod chown fchmod fchmodat fchmodat2 fchown fchownat file_setattr fremovexattr fsetxattr futimesat lchown
lremovexattr lsetxattr removexattr removexattrat setxattr setxattrat utime utimensat utimes
""".split()
"""Mode, owner, times and attributes of files: not Landlock's business, and no file has to be opened."""

_SHARED = """
mq_notify mq_open mq_timedreceive mq_timedsend mq_unlink msgctl msgget msgrcv msgsnd semctl semget semop
semtimedop shmat shmctl shmget
""".split()
"""Memory, queues and semaphores that all processes of a user share."""

_SIGNALS = "kill tkill tgkill rt_sigqueueinfo rt_tgsigqueueinfo".split()
_OTHERS = "sched_setaffinity sched_setattr sched_setparam sched_setscheduler".split()


def program(machine: Machine, *, inside: bool, families: Iterable[int], signals_scoped: bool) -> bytes:
    """The filter as the kernel wants it. `inside` says that mounts are read-only and processes,
    memory and network of others out of sight; without that, more has to be refused here.
    `families` are the kinds of socket that may be made; without `signals_scoped` a process may
    only signal its own group."""
    code = _Code(machine)
    code.refuse(_ALWAYS, EPERM)
    code.refuse(["clone3"], ENOSYS)  # its flags are out of sight; the C library then uses clone
    code.check("clone", 0, mask=_NEW_NAMESPACES)
    code.check("ioctl", 1, refused=_REFUSED_IOCTLS)
    code.sockets(families)
    code.only_own("prlimit64", unless_null=2)
    if not inside:
        code.refuse([*_METADATA, *_SHARED], EPERM)
        for name in _OTHERS:
            code.only_own(name)
        code.check("setpriority", 1, only=(0,))
        code.check("ioprio_set", 1, only=(0,))
        if not signals_scoped:
            for name in _SIGNALS:
                code.only_own(name)
            code.refuse(["pidfd_send_signal"], EPERM)
    return code.bytes()


class _Code:
    """Blocks that each decide one call for good or fall through to the next."""

    def __init__(self, machine: Machine) -> None:
        self._calls = machine.calls
        self._code: list[tuple[int, int, int, int]] = [
            (_LOAD, 0, 0, 4),
            (_JUMP_EQ, 1, 0, machine.audit),
            (_RETURN, 0, 0, _ERRNO | ENOSYS),
            (_LOAD, 0, 0, 0),
            (_JUMP_GT, 0, 1, NEWEST),  # the second instruction set of x86-64 lies up there, too
            (_RETURN, 0, 0, _ERRNO | ENOSYS),
        ]

    def refuse(self, names: Iterable[str], error: int) -> None:
        for name in names:
            if name in self._calls:
                self._code += [(_JUMP_EQ, 0, 1, self._calls[name]), (_RETURN, 0, 0, _ERRNO | error)]

    def check(
        self, name: str, argument: int, *, mask: int = 0, refused: Iterable[int] = (), only: Iterable[int] = ()
    ) -> None:
        """Refuses by the low half of one argument: any bit of `mask`, one of `refused`, all but `only`."""
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
        whole = [*self._code, (_RETURN, 0, 0, _ALLOW)]
        return pack("<" + "HBBI" * len(whole), *chain.from_iterable(whole))

    def _block(self, name: str, block: list[tuple[int, int, int, int]]) -> None:
        self._code += [(_JUMP_EQ, 0, len(block), self._calls[name]), *block]

    @staticmethod
    def _low(argument: int) -> tuple[int, int, int, int]:
        return (_LOAD, 0, 0, 16 + 8 * argument)
