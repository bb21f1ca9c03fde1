"""Names people can type for runs, and `@name message` at the start of what they say."""

from __future__ import annotations

import re
from collections.abc import Collection

from msgspec import Struct

RESERVED = frozenset({"main"})
LONGEST = 64
_MENTION = re.compile(r"@([A-Za-z0-9][A-Za-z0-9_-]{0,127})[ \t\r\n]+(\S.*)", re.DOTALL)


class Mention(Struct, frozen=True):
    handle: str
    message: str


def slug(name: str) -> str:
    """A name as one lower-case word of letters, digits and dashes, at most 64 characters."""
    word = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:LONGEST].rstrip("-")
    return word or "agent"


def assign(name: str, taken: Collection[str], number: int = 2) -> str:
    """The handle for `name`: itself if free, else with the lowest free number from `number` on."""
    base = slug(name)
    if base not in taken and base not in RESERVED:
        return base
    while f"{base[: LONGEST - len(str(number)) - 1]}-{number}" in taken:
        number += 1
    return f"{base[: LONGEST - len(str(number)) - 1]}-{number}"


class Names:
    """The handles of the runs of one process. None is given back, so the thousandth run of an
    agent need not look at the numbers of all the others."""

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._last: dict[str, int] = {}

    def free(self, name: str) -> str:
        """The handle that `assign` gives; it stays free until it is added."""
        return assign(name, self._taken, self._last.get(slug(name), 2))

    def add(self, handle: str) -> None:
        self._taken.add(handle)
        base, _, number = handle.rpartition("-")
        if base and number.isdecimal() and int(number) == self._last.get(base, 2):
            self._last[base] = int(number) + 1


def parse_mention(text: str) -> Mention | None:
    """`@explore look here` as handle and message. A bare handle, a path, a file name and a
    mention anywhere but at the very start are none."""
    found = _MENTION.fullmatch(text)
    return Mention(found[1].lower(), found[2].strip()) if found else None


def without_prefix(handle: str) -> str | None:
    """`agent-explore` as `explore`; None when it has no such prefix with something behind it."""
    rest = handle.removeprefix("agent-")
    return rest if rest != handle and rest else None
