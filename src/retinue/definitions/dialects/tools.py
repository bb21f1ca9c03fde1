"""What a file says about tools, in every form seen: text, lists, maps, `*`, `none`, permissions.

One rule holds throughout: what cannot be read never widens. A bad allow list allows nothing,
a bad deny list denies everything.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

from retinue.definitions.dialects.names import BadNamesError, describe, read_names, split_names
from retinue.definitions.dialects.table import UNSET, BadValueError, Kind
from retinue.domain.toolnames import canonical

EVERY = frozenset({"*", "all"})
DENY_ALL = ("*",)

_SHORT = 400
_SELECTOR = "ext:"
_FLOW = frozenset("[{ ")
_ON = frozenset({"true", "yes", "on", "1", "allow", "ask"})
_OFF = frozenset({"false", "no", "off", "0", "deny"})
_NOTHING_RULE = "no tools at all, and reported as an error"


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


class ToolRules(NamedTuple):
    """opencode's `permission` map: tools that are out, and the only ones that are in."""

    deny: tuple[str, ...] = ()
    only: tuple[str, ...] | None = None


def _choice(value: Any, *, spaces: bool = False) -> Any:
    if type(value) is str and not spaces and len(value) < _SHORT and value[:1] not in _FLOW:
        return _same_words(value)
    if value is None:
        return UNSET
    if value is False:
        return chosen(())
    if isinstance(value, dict):
        return _from_map(value)
    if isinstance(value, str) and value.lstrip()[:1] == "{":
        raise BadValueError("the map cannot be read; no tool is allowed", "Close it with '}'.", instead=chosen(()))
    try:
        return chosen(read_names(value, spaces=spaces))
    except BadNamesError as error:
        why = f"{error.why}; what could not be read is not allowed"
        raise BadValueError(why, error.remedy, instead=chosen(error.readable)) from None


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
    return chosen(on, off, only=bool(on) or not off or "*" in off)


def _deny(value: Any) -> Any:
    if value is None:
        return UNSET
    try:
        names = read_names(value)
    except BadNamesError as error:
        why = f"{error.why}; a deny list that cannot be read denies every tool"
        raise BadValueError(why, error.remedy, instead=DENY_ALL) from None
    return UNSET if [name.lower() for name in names] == ["none"] else names


def _both(left: ToolChoice, right: ToolChoice) -> ToolChoice:
    """Said twice: what both allow."""
    refused = (*left.refused, *right.refused)
    if left.allow is None or right.allow is None:
        narrower = right if left.allow is None else left
        return ToolChoice(narrower.names, refused, narrower.allow, narrower.selectors)
    other = {key for name in right.allow for key in (name, *canonical(name))}
    kept = (name for name in left.names if name in other or not other.isdisjoint(canonical(name)))
    return chosen(tuple(kept), refused)


def _rules(value: Any) -> Any:
    """`permission: {edit: deny, bash: {"*": ask, "rm *": deny}}`, or one word for everything."""
    if value is None:
        return UNSET
    if isinstance(value, str):
        value = {"*": value}
    if not isinstance(value, dict):
        why = f"a mapping of tools to allow, ask or deny is wanted, not {describe(value)}"
        raise BadValueError(why, instead=ToolRules(DENY_ALL, ()))
    deny: list[str] = []
    only: list[str] = []
    strange = ""
    for tool, state in value.items():
        found = _one_rule(tool, state)
        if found is None:
            strange = strange or tool
            deny.append(tool)
        elif tool != "*":
            deny += found[0]
            only += found[1]
    rules = ToolRules(_spread(deny), _spread(only) if _denies_rest(value.get("*")) else None)
    if strange:
        raise BadValueError(f"'{strange}' is neither allow, ask nor deny; read as deny", instead=rules)
    return rules


def _one_rule(tool: str, state: Any) -> tuple[list[str], list[str]] | None:
    """The names `tool` adds to the denied and to the possible ones; None if it is unclear."""
    if state in ("allow", "ask", True):
        return [], [tool]
    if state in ("deny", False):
        return [tool], []
    if not isinstance(state, dict) or not all(each in ("allow", "ask", "deny") for each in state.values()):
        return None
    if not _denies_rest(state.get("*")):
        return [f"{tool}({pattern})" for pattern, each in state.items() if each == "deny"], [tool]
    kept = [f"{tool}({pattern})" for pattern, each in state.items() if each != "deny"]
    return ([], kept) if kept else ([tool], [])


def _denies_rest(state: Any) -> bool:
    return state in ("deny", False)


def _spread(names: list[str]) -> tuple[str, ...]:
    """opencode's `edit` permission covers every tool that changes files."""
    spread: list[str] = []
    for name in names:
        spread += ("edit", "write", "patch") if name == "edit" else (name,)
    return tuple(dict.fromkeys(spread))


def _only(value: Any) -> Any:
    if value is None:
        return UNSET
    try:
        return ToolRules(only=_choice(value).allow)
    except BadValueError as error:
        raise BadValueError(error.why, error.remedy, instead=ToolRules(only=error.instead.allow)) from None


def _joined_rules(left: ToolRules, right: ToolRules) -> ToolRules:
    only = left.only if right.only is None else right.only
    if left.only is not None and right.only is not None:
        only = tuple(name for name in left.only if name in right.only)
    return ToolRules((*left.deny, *right.deny), only)


TOOLS = Kind(
    "tool names: comma text, list, map of true/false, *, none", _NOTHING_RULE, _choice, "limits", combine=_both
)
SPACED_TOOLS = Kind(
    "tool names: comma or space text, list, *, none", _NOTHING_RULE, _spaced_choice, "limits", combine=_both
)
DENY = Kind(
    "tool names: comma text or list",
    "every tool is denied, and reported as an error",
    _deny,
    "limits",
    combine=lambda left, right: (*left, *right),
)
RULES = Kind("map of tools to allow, ask or deny", _NOTHING_RULE, _rules, "limits", combine=_joined_rules)
ONLY = Kind("list of tool names", _NOTHING_RULE, _only, "limits", combine=_joined_rules)
