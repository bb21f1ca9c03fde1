"""The tools a file names, in every form seen: comma strings, lists, maps, JSON in a string, `*`, `none`.

A value that cannot be read never widens the rights of an agent: a bad allow list allows nothing, a
bad deny list denies everything.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from functools import lru_cache, partial
from typing import Any, NamedTuple

from retinue.agents.dialects.table import UNSET, BadValueError, FieldKind
from retinue.agents.yaml_items import scalar_text
from retinue.core.tool_list import entry_problem, split_entries
from retinue.core.toolnames import BUILT_IN_SEVEN, base_name, canonical

_PATTERN = re.compile(r"[*?\[]")


class BadNamesError(BadValueError):
    """A list that cannot be read as a whole. `readable` are the names in it that can; whether
    they may be used without the rest is for the field to say."""

    def __init__(self, why: str, remedy: str, *, readable: tuple[str, ...] = ()) -> None:
        super().__init__(why, remedy)
        self.readable = readable


def is_servers(name: str) -> bool:
    """Return whether it is a tool of an MCP server or an extension, which are known only at run time."""
    base = base_name(name)
    return base.startswith(("mcp__", "mcp:", "mcp_", "ext:")) or "/" in base or bool(_PATTERN.search(base))


def split_names(text: str, *, spaces: bool = False) -> tuple[str, ...]:
    """Return the names in a text, which may be a JSON list. With `spaces` blanks separate as well, as the Agent
    Skills format has it. Raise BadNamesError."""
    text = text.strip()
    if text.startswith("["):
        return _from_json(text)
    if text.startswith("{"):
        raise BadNamesError("the map cannot be read", "Close it with '}', or write 'a, b'.")
    return split_entries(text, blanks=spaces)


def read_names(value: Any, *, spaces: bool = False) -> tuple[str, ...]:
    """Return the names in `value`. Raise BadNamesError."""
    if isinstance(value, str):
        return split_names(value, spaces=spaces)
    if not isinstance(value, list):
        raise BadNamesError(f"a list of names is wanted, not {describe(value)}", "Write 'a, b' or a YAML list.")
    names: list[str] = []
    strange: list[Any] = []
    for item in value:
        text = _item_text(item)
        if text is None:
            strange.append(item)
        else:
            names += split_entries(text)
    if strange:
        why = f"one entry is {describe(strange[0])}, not a name"
        raise BadNamesError(why, "Write one name per entry.", readable=tuple(names))
    return tuple(names)


def describe(value: Any) -> str:
    """Return `value` for an error message: short, and plain about its type."""
    if value is None:
        return "nothing"
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    if isinstance(value, bool):
        return "true" if value else "false"
    text = str(value)
    if len(text) > 40:
        return f"'{text[:40]}…'"
    return f"'{text}'"


def _item_text(item: Any) -> str | None:
    if isinstance(item, str):
        return item
    if isinstance(item, dict):
        # `- Bash(git log: *)` is a mapping to YAML; put the text together again.
        if len(item) == 1:
            ((key, value),) = item.items()
            if "(" in key and not isinstance(value, (dict, list)):
                return f"{key}: {scalar_text(value)}".rstrip()
        return None
    if isinstance(item, list):
        return None
    return scalar_text(item)


def _from_json(text: str) -> tuple[str, ...]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        if not text.endswith("]"):
            raise BadNamesError("the list has no closing bracket", "Close it with ']'.") from None
        names = split_entries(text[1:-1])
        if any(name[0] in "[{" for name in names):
            raise BadNamesError("one entry is a list or a map, not a name", "Write one name per entry.") from None
        return names
    return read_names(found)


EVERY = frozenset({"*", "all"})
DENY_ALL = ("*",)

_SHORT = 400
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


def choose_tools(names: tuple[str, ...], refused: tuple[str, ...] = (), *, only: bool = True) -> ToolChoice:
    """Return what `names` mean: `*` or `all` anywhere is every tool, `none` alone is no tool. Unless
    `only`, names that are not mentioned are allowed too."""
    lowered = {name.lower() for name in names}
    allow: tuple[str, ...] | None = None
    selectors: tuple[str, ...] = ()
    if only and EVERY.isdisjoint(lowered):
        allow = () if lowered == {"none"} else tuple(dict.fromkeys(names))
    if _SELECTOR in "".join(names):
        selectors = tuple(dict.fromkeys([name for name in names if name.startswith(_SELECTOR)]))
        allow = allow and tuple([name for name in allow if name not in selectors])
    return ToolChoice(names, refused, allow, selectors)


NO_VALUE = ToolChoice(())
"""`tools:` with nothing after it: no tools, as Claude Code and pi have it."""


def _choice(value: Any, *, spaces: bool = False) -> Any:
    if type(value) is str and not spaces and len(value) < _SHORT and value[:1] not in _FLOW:
        return _same_words(value)
    if value is None:
        return NO_VALUE
    if value is False:
        return choose_tools(())
    if isinstance(value, dict):
        return _from_map(value)
    try:
        return choose_tools(read_names(value, spaces=spaces))
    except BadNamesError as error:
        raise BadValueError(error.why, error.remedy, instead=choose_tools(error.readable)) from None


def _pi_choice(value: Any) -> Any:
    """Read pi's `*`, which is its seven tools: other names beside it are added to these."""
    choice: ToolChoice = _choice(value)
    others = [name for name in choice.names if name.lower() not in EVERY and name not in choice.selectors]
    if choice.allow is not None or not others:
        return choice
    return choice._replace(allow=tuple(dict.fromkeys((*BUILT_IN_SEVEN, *others))))


@lru_cache(maxsize=1024)
def _same_words(text: str) -> ToolChoice:
    # Many files say exactly the same: one reading serves all of them.
    return choose_tools(split_names(text))


def _from_map(value: dict[str, Any]) -> ToolChoice:
    """Read `{read: true, bash: false}`."""
    # Only refusals leave the other tools as they are; as soon as one tool is switched on, those that are not
    # named are out.
    on: list[str] = []
    off: list[str] = []
    strange = ""
    for name, state in value.items():
        word = str(state).lower()
        if word in _ON:
            on.append(name)
            continue
        off.append(name)
        if word not in _OFF:
            strange = strange or f"'{name}' is neither true nor false; read as false"
    if strange:
        instead = choose_tools(tuple(on), tuple(off))
        raise BadValueError(strange, "Write true or false for each tool.", instead=instead)
    choice = choose_tools(tuple(on), tuple(off), only=bool(on) or not off or "*" in off)
    check_denied(off, instead=choice)
    return choice


def _deny(value: Any) -> Any:
    if value is None:
        return UNSET
    try:
        names = read_names(value)
    except BadNamesError as error:
        raise BadValueError(error.why, error.remedy, instead=DENY_ALL) from None
    if says_none(names):
        return UNSET
    check_denied(names, instead=names)
    return names


def says_none(names: tuple[str, ...]) -> bool:
    """Return whether the one name in a list is `none`."""
    return len(names) == 1 and names[0].lower() == "none"


def check_denied(names: Iterable[str], *, instead: Any) -> None:
    """Raise BadValueError for an entry that cannot be understood: it would deny nothing."""
    for name in names:
        problem = entry_problem(name)
        if problem is not None:
            raise BadValueError(f"{describe(name)} {problem.why}", problem.remedy, instead=instead)


def both_allow(left: tuple[str, ...] | None, right: tuple[str, ...] | None) -> tuple[str, ...] | None:
    """Return the names in both lists; None is a list of every name."""
    if left is None or right is None:
        return right if left is None else left
    return tuple(name for name in left if name in right)


def _both(left: ToolChoice, right: ToolChoice) -> ToolChoice:
    """Return what two statements both allow."""
    refused = (*left.refused, *right.refused)
    if left.allow is None or right.allow is None:
        narrower = right if left.allow is None else left
        return ToolChoice(narrower.names, refused, narrower.allow, narrower.selectors)
    other = set(right.allow)
    for name in right.allow:
        other.update(canonical(name))
    kept = []
    for name in left.names:
        if name in other or not other.isdisjoint(canonical(name)):
            kept.append(name)
    return choose_tools(tuple(kept), refused)


TOOLS = FieldKind("tool names: comma text, list, map of true/false, *, none", "", _choice, combine=_both)
PI_TOOLS = FieldKind(TOOLS.type, TOOLS.bad, _pi_choice, combine=_both)
SPACED_TOOLS = FieldKind(
    "tool names: comma or space text, list, *, none", "", partial(_choice, spaces=True), combine=_both
)
DENY = FieldKind("tool names: comma text or list", "", _deny, combine=lambda left, right: (*left, *right))
