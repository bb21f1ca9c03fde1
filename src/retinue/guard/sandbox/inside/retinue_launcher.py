"""The program that confines itself and then becomes another: `launcher PLAN PROGRAM ARGUMENT…`.

It carries out the steps of a plan (`steps.py` says what they look like) and decides nothing. It
is for machines and systems where the launcher in machine code (`launch-*`), which does just the
same, cannot be started. It runs as `python -I -S` for every confined command, so it imports
nothing but built-in modules and `_ctypes`.
"""

import posix
import sys
from _ctypes import call_function, dlopen, dlsym

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

_BASE, _LONGEST, _FAILED, _NOT_FOUND = 0x10000000, 0x1000000, 125, 127
_UNWANTED = _BASE + 16
_END_AS, _BECOME, _GIVE_UP = 0xFFFFFFFF, 0xFFFFFFFE, 0xFFFFFFFD
_EXACTLY_THERE = 0x100002
"""mmap: a private copy, at that address or not at all."""

_libc = dlopen(None, 2)  # type: ignore[arg-type]  # the program itself; typeshed wants a name
_syscall, _memmove, _mmap, _perror = (dlsym(_libc, name) for name in ("syscall", "memmove", "mmap", "perror"))


def main() -> "NoReturn":
    file = posix.open(sys.argv[1], posix.O_RDONLY | posix.O_CLOEXEC)
    plan = posix.read(file, _LONGEST)
    if call_function(_mmap, (_BASE, _LONGEST, 3, _EXACTLY_THERE, file, 0)) != _BASE:
        give_up(b"retinue sandbox: memory for the plan", _FAILED)
    walk(plan, sys.argv[2:])


def walk(plan: bytes, argv: "list[str]") -> "NoReturn":
    """Numbers and pointers are passed as C ints: a plan has no larger ones."""
    words = memoryview(plan).cast("q")
    results: dict[int, int] = {}
    at = words[0] - _BASE >> 3
    while True:
        number, earlier = words[at] & 0xFFFFFFFF, words[at] >> 33
        given = words[at + 1 : at + 7]
        arguments = [results[word] if earlier >> place & 1 else word for place, word in enumerate(given)]
        if number == _END_AS:
            posix._exit(ending(arguments[0]))
        elif number == _BECOME:
            become(argv)
        elif number == _GIVE_UP:
            begin = arguments[0] - _BASE
            give_up(plan[begin : plan.index(b"\0", begin)], arguments[1])
        result: int = call_function(_syscall, (number, *arguments))
        keep = words[at + 7]
        if keep != _UNWANTED:
            results[keep] = result
            call_function(_memmove, (keep, result.to_bytes(8, "little", signed=True), 8))
        at += words[at + (8 if result < 0 else 10 if result else 9)] >> 3


def ending(child: int) -> int:
    """Reaps until `child` has ended, and gives its code as a shell would."""
    while True:
        try:
            done, status = posix.wait()
        except InterruptedError:
            continue
        except ChildProcessError:
            return _FAILED
        if done == child:
            return posix.WEXITSTATUS(status) if posix.WIFEXITED(status) else 128 + posix.WTERMSIG(status)


def become(argv: "list[str]") -> "NoReturn":
    try:
        posix.execve(argv[0], argv, posix.environ)
    except OSError as error:
        posix.write(2, f"{argv[0]}: {error.strerror}\n".encode())
    posix._exit(_NOT_FOUND)


def give_up(what: bytes, code: int) -> "NoReturn":
    """Says also what the last call said."""
    call_function(_perror, (what,))
    posix._exit(code)


if __name__ in ("__main__", "retinue_launcher"):
    main()
