"""A call of sed: which scripts it is handed, which files, and whether it changes them."""

from __future__ import annotations

from retinue.domain.lean import dataclass
from retinue.guard.permissions.marks import HOLE, is_known
from retinue.guard.permissions.shell.sedscript import only_edits

_FLAGS = frozenset("nErsuzb")
_LONG = frozenset({"--quiet", "--silent", "--regexp-extended", "--separate", "--unbuffered", "--null-data", "--posix"})


@dataclass(frozen=True, slots=True)
class SedCall:
    scripts: tuple[str, ...]
    files: tuple[str, ...]
    in_place: bool = False


def edits_only(call: SedCall) -> bool:
    """Whether its scripts only edit text, wherever that goes."""
    return all(is_known(script) and only_edits(script) for script in call.scripts)


def read_call(words: tuple[str, ...]) -> SedCall | None:
    """The call of sed with these arguments; None where an option is not known for what it is."""
    scripts: list[str] = []
    rest: list[str] = []
    in_place = False
    waiting = iter(words)
    for word in waiting:
        if not is_known(word) and word.startswith((HOLE, "-")):
            return None
        if word == "--":
            rest += waiting
        elif not word.startswith("-") or word == "-" or word in _LONG:
            rest += [] if word in _LONG else [word]
        else:
            option, value = _option(word)
            if option == "e":
                value = value if value is not None else next(waiting, None)
                scripts += [] if value is None else [value]
            elif option == "i" and not {"/", "*"} & set(value or ""):
                in_place = True
            elif option != "n":  # not known, or a suffix that puts the old file elsewhere
                return None
    if not scripts:
        first = 1 if in_place and rest[:1] == [""] else 0  # sed of other systems: -i takes the next word
        scripts, rest = rest[first : first + 1], rest[1:]
    return SedCall(tuple(scripts), tuple(rest), in_place) if scripts else None


def _option(word: str) -> tuple[str, str | None]:
    """What the word says beside flags, and the value joined to it: e, i, n for nothing, or what
    is not known here."""
    name, equals, value = word.partition("=")
    if name in ("--expression", "--in-place"):
        return ("e" if name == "--expression" else "i"), value if equals else None
    letters = word[1:].lstrip("".join(_FLAGS)) if not word.startswith("--") else "-"
    return letters[:1] or "n", letters[1:] or None
