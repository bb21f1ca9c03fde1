"""A plan as a launcher takes it: system calls in order, each with what to do next.

A plan is the content of memory from `BASE` on, so that it can hold pointers into itself. It
begins with the address of the first step and that of the names of errors; then come all that
calls point to, and the steps. A step is eleven words:

    0      the number of the call, or one of the launcher's own (`_END_AS` …), and in the upper
           half a bit for every argument that is the address of an earlier result
    1-6    the arguments
    7      where the result is kept
    8-10   how far it is to the next step if the result is negative, zero, positive

Nothing is decided while it is carried out but which of the three comes next.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Mapping

from retinue.domain.lean import dataclass

BASE = 0x10000000
"""Free in every process, and within the 32 bits that the launcher in Python can pass on."""
LONGEST = 0x1000000
FAILED = 125
_WORDS = 11
_STEP = 8 * _WORDS
_HEADER, _ERRORS, _ERROR_LENGTH = 24, 134, 64
_UNWANTED = BASE + 16
_END_AS, _BECOME, _GIVE_UP = 0xFFFFFFFF, 0xFFFFFFFE, 0xFFFFFFFD
_NEGATIVE, _ZERO = 8, 9
_SIGCHLD = 17


@dataclass(frozen=True, slots=True)
class Result:
    """What a call returned, as an argument of a later one."""

    address: int


_NOTHING = Result(_UNWANTED)

Argument = int | bytes | str | Result
"""A number, or a pointer to bytes, or to a text with a zero at its end."""


class Mark:
    """A step that others lead to. It can be set after them."""

    __slots__ = ("at",)

    def __init__(self) -> None:
        self.at: int | None = None


class Steps:
    def __init__(self, calls: Mapping[str, int]) -> None:
        self._calls = calls
        self._memory = bytearray(_HEADER)
        self._shared: dict[bytes | str, int] = {}
        self._words: list[int] = []
        self._jumps: list[tuple[int, Mark]] = []
        self._messages: dict[int, Mark] = {}

    def own(self, content: bytes) -> int:
        """The address of memory for one purpose only, where results may be kept."""
        address = BASE + len(self._memory)
        self._memory += content + bytes(-len(content) % 8)
        return address

    def set(self, mark: Mark) -> None:
        mark.at = len(self._words)

    def call(
        self,
        name: str,
        *arguments: Argument,
        failing: Mark | None = None,
        zero: Mark | None = None,
        keep: int = _UNWANTED,
    ) -> Result:
        """Goes on with the next step, unless a mark is given for a negative or zero result."""
        begin = len(self._words)
        self._add(self._calls[name], arguments, keep)
        if failing is not None:
            self._jumps.append((begin + _NEGATIVE, failing))
        if zero is not None:
            self._jumps.append((begin + _ZERO, zero))
        return _NOTHING if keep == _UNWANTED else Result(keep)

    def must(self, what: str | int, name: str, *arguments: Argument, keep: int = _UNWANTED) -> Result:
        """If the call fails nothing is started. `what` says why, or where that is written."""
        return self.call(name, *arguments, failing=self.give_up(what), keep=keep)

    def fork(self, what: str, *, child: Mark) -> Result:
        """Goes on in the parent, and with `child` in the child."""
        pid = self.own(bytes(8))
        return self.call("clone", _SIGCHLD, 0, 0, 0, 0, failing=self.give_up(what), zero=child, keep=pid)

    def end_as(self, child: Result) -> None:
        """Reaps until that child has ended, and ends as it did, with a code as a shell gives it."""
        self._add(_END_AS, (child,))

    def become_the_program(self) -> None:
        self._add(_BECOME, ())

    def give_up(self, what: str | int) -> Mark:
        address = self._address(f"retinue sandbox: {what}") if isinstance(what, str) else what
        return self._messages.setdefault(address, Mark())

    def image(self) -> bytes:
        """The whole plan, once."""
        for address, mark in self._messages.items():
            self.set(mark)
            self._add(_GIVE_UP, (address, FAILED))
        for place, mark in self._jumps:
            if mark.at is None:
                raise ValueError("a step leads nowhere")
            self._words[place] = 8 * (mark.at - place + place % _WORDS)
        errors = self.own(b"".join(_error(number) for number in range(_ERRORS)))
        self._memory[:16] = array("q", [BASE + len(self._memory), errors]).tobytes()
        image = bytes(self._memory) + array("q", self._words).tobytes()
        if len(image) > LONGEST:
            raise ValueError("a plan is longer than a launcher takes it")
        return image

    def _add(self, number: int, arguments: tuple[Argument, ...], keep: int = _UNWANTED) -> None:
        values = [0, 0, 0, 0, 0, 0]
        for place, argument in enumerate(arguments):
            if isinstance(argument, int):
                values[place] = argument
            elif isinstance(argument, Result):
                number |= 1 << 33 + place
                values[place] = argument.address
            else:
                values[place] = self._address(argument)
        self._words += (number, *values, keep, _STEP, _STEP, _STEP)

    def _address(self, content: bytes | str) -> int:
        address = self._shared.get(content)
        if address is None:
            data = content if isinstance(content, bytes) else os.fsencode(content) + b"\0"
            address = self._shared[content] = self.own(data)
        return address


def _error(number: int) -> bytes:
    text = f": {os.strerror(number)}\n" if number else "\n"
    return text.encode()[: _ERROR_LENGTH - 1].ljust(_ERROR_LENGTH, b"\0")
