"""What a file says about tools, in every form seen: text, lists, maps, `*`, `none`.

One rule holds throughout: what cannot be read never widens. A bad allow list allows nothing,
a bad deny list denies everything.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, NamedTuple

from retinue.agents.dialects.names import BadNamesError, read_names, split_names
from retinue.agents.dialects.table import UNSET, BadValueError, Kind, off_by_one
from retinue.core.toolnames import ALIASES, base_name, canonical

EVERY = frozenset({"*", "all"})
DENY_ALL = ("*",)

_NO_NAME = re.compile(r"[-+.\d]*|true|false|null|yes|no", re.IGNORECASE)
_SHORT = 400
_SHORTEST = 3
_SELECTOR = "ext:"
_FLOW = frozenset("[{ ")
_ON = frozenset({"true", "yes", "on", "1", "allow", "ask"})
_OFF = frozenset({"false", "no", "off", "0", "deny"})


class ToolChoice(NamedTuple):
    """`names` as written, `refused` those a map switches off. `allow` is None for every tool;
    `selectors` are the names of extension tools among `names`."""

    names: tuple[str, ...]
    refused: tuple[str, ...] = ()
    allow: tuple[str, ...] | None = ()
    selectors: tuple[str, ...] = ()


def chosen(names: tuple[str, ...], refused: tuple[str, ...] = (), *, only: bool = True) -> ToolChoice:
    """What `names` mean: `*` or `all` anywhere is every tool, `none` alone is no tool. Unless
    `only`, names that are not mentioned are allowed too."""
    lowered = {name.lower() for name in names}
    allow: tuple[str, ...] | None = None
    selectors: tuple[str, ...] = ()
    if only and EVERY.isdisjoint(lowered):
        allow = () if lowered == {"none"} else tuple(dict.fromkeys(names))
    if _SELECTOR in "".join(names):
        selectors = tuple(dict.fromkeys([name for name in names if name[:4] == _SELECTOR]))
        allow = allow and tuple([name for name in allow if name[:4] != _SELECTOR])
    return ToolChoice(names, refused, allow, selectors)


NO_VALUE = ToolChoice(())
"""`tools:` with nothing after it: no tools, as Claude Code and pi have it."""


def _choice(value: Any, *, spaces: bool = False) -> Any:
    if type(value) is str and not spaces and len(value) < _SHORT and value[:1] not in _FLOW:
        return _same_words(value)
    if value is None:
        return NO_VALUE
    if value is False:
        return chosen(())
    if isinstance(value, dict):
        return _from_map(value)
    try:
        return chosen(read_names(value, spaces=spaces))
    except BadNamesError as error:
        raise BadValueError(error.why, error.remedy, instead=chosen(error.readable)) from None


@lru_cache(maxsize=1024)
def _same_words(text: str) -> ToolChoice:
    """Many files say exactly the same: one reading does for all of them."""
    return chosen(split_names(text))


def _spaced_choice(value: Any) -> Any:
    return _choice(value, spaces=True)


def _from_map(value: dict[str, Any]) -> ToolChoice:
    """`{read: true, bash: false}`. Only refusals leave the other tools as they are; as soon as
    one tool is switched on, those that are not named are out."""
    states = {name: str(state).lower() for name, state in value.items()}
    on = tuple(name for name, state in states.items() if state in _ON)
    off = tuple(name for name, state in states.items() if state not in _ON)
    strange = [name for name in off if states[name] not in _OFF]
    if strange:
        why = f"'{strange[0]}' is neither true nor false; read as false"
        raise BadValueError(why, "Write true or false for each tool.", instead=chosen(on, off))
    choice = chosen(on, off, only=bool(on) or not off or "*" in off)
    check_denied(off, instead=choice)
    return choice


def _deny(value: Any) -> Any:
    if value is None:
        return UNSET
    try:
        names = read_names(value)
    except BadNamesError as error:
        raise BadValueError(error.why, error.remedy, instead=DENY_ALL) from None
    if [name.lower() for name in names] == ["none"]:
        return UNSET
    check_denied(names, instead=names)
    return names


def check_denied(names: Iterable[str], *, instead: Any) -> None:
    """Raises BadValueError for a name that is almost that of a tool: `writ` denies nothing. Names
    that resemble no tool are those of other programs, which there are many of."""
    for name in names:
        if _NO_NAME.fullmatch(name):
            raise BadValueError(f"'{name}' is no name of a tool", "Write the names of tools.", instead=instead)
        meant = misspelt_tool(base_name(name))
        if meant is not None:
            raise BadValueError(f"there is no tool '{name}'", f"Did you mean '{meant}'?", instead=instead)


@lru_cache(maxsize=1024)
def misspelt_tool(name: str) -> str | None:
    """The tool that `name` was meant to be, if it is one letter off; None for any other name."""
    lowered = name.lower()
    if lowered in ALIASES or len(lowered) < _SHORTEST:
        return None
    return next((known for known in ALIASES if len(known) > _SHORTEST and off_by_one(lowered, known)), None)


def _both(left: ToolChoice, right: ToolChoice) -> ToolChoice:
    """Said twice: what both allow."""
    refused = (*left.refused, *right.refused)
    if left.allow is None or right.allow is None:
        narrower = right if left.allow is None else left
        return ToolChoice(narrower.names, refused, narrower.allow, narrower.selectors)
    other = {key for name in right.allow for key in (name, *canonical(name))}
    kept = (name for name in left.names if name in other or not other.isdisjoint(canonical(name)))
    return chosen(tuple(kept), refused)


TOOLS = Kind("tool names: comma text, list, map of true/false, *, none", "", _choice, combine=_both)
SPACED_TOOLS = Kind("tool names: comma or space text, list, *, none", "", _spaced_choice, combine=_both)
DENY = Kind("tool names: comma text or list", "", _deny, combine=lambda left, right: (*left, *right))
