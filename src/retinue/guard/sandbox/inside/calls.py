"""System calls for the launcher: by number, with errors as OSError, and nothing imported that takes time."""

import posix
import sys
from _ctypes import FUNCFLAG_CDECL, FUNCFLAG_USE_ERRNO, CFuncPtr, _SimpleCData, dlopen, dlsym, get_errno

AT_CWD = -100
O_PATH = 0x200000
PR_SET_PDEATHSIG, PR_SET_SECCOMP, PR_CAPBSET_READ, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS = 1, 22, 23, 24, 38
PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL = 47, 4
SIGHUP, SIGINT, SIGKILL, SIGUSR2, SIGPIPE, SIGALRM, SIGTERM, SIGXFSZ = 1, 2, 9, 12, 13, 14, 15, 25
SIG_DFL, SIG_IGN = bytes(32), b"\1" + bytes(31)
"""Structures of rt_sigaction."""

numbers: "dict[str, int]" = {}
"""Of the system calls, from the plan: they differ between machines."""


class _Long(_SimpleCData):  # type: ignore[type-arg]  # subscripts are for type checkers only
    _type_ = "l"


class _Address(_SimpleCData):  # type: ignore[type-arg]
    _type_ = "z"


class _Function(CFuncPtr):
    _flags_ = FUNCFLAG_CDECL | FUNCFLAG_USE_ERRNO
    _restype_ = _Long


_syscall = _Function(dlsym(dlopen(None, 2), "syscall"))  # type: ignore[arg-type]  # None is the program itself


class WallError(Exception):
    """A wall that cannot be put up."""


def call(name: str, *arguments: "int | bytes | str | None") -> int:
    """Return what a system call returned. Raise OSError if it failed. Numbers above 32 bits do not occur."""
    given = [_encode(each) if isinstance(each, str) else each for each in arguments]
    result: int = _syscall(numbers[name], *given)
    if result < 0:
        number = get_errno()
        raise OSError(number, posix.strerror(number))
    return result


def attempt(name: str, *arguments: "int | bytes | str | None") -> bool:
    """Make a system call whose failure does not matter, or is looked at by the caller."""
    try:
        call(name, *arguments)
    except OSError:
        return False
    return True


def words(*values: int) -> bytes:
    """Return numbers of 64 bits as the kernel reads them."""
    return b"".join((value & (1 << 64) - 1).to_bytes(8, "little") for value in values)


def address(content: bytes) -> bytes:
    """Return a pointer to `content`, which must be kept by the caller."""
    return bytes(memoryview(_Address(content)))


def put(path: str, text: str) -> None:
    """Write to a file of the kernel."""
    file = posix.open(path, posix.O_WRONLY | posix.O_CLOEXEC)
    try:
        posix.write(file, text.encode())
    finally:
        posix.close(file)


def attempt_put(path: str, text: str) -> bool:
    """Write to a file of the kernel, if it lets us."""
    try:
        put(path, text)
    except OSError:
        return False
    return True


def get(path: str) -> bytes:
    """Read a file of the kernel."""
    file = posix.open(path, posix.O_RDONLY | posix.O_CLOEXEC)
    try:
        return posix.read(file, 65536)
    finally:
        posix.close(file)


def open_path(path: str) -> int:
    return posix.open(path, O_PATH | posix.O_CLOEXEC)


def _encode(text: str) -> bytes:
    return text.encode(sys.getfilesystemencoding(), "surrogateescape")
