"""The tools a file names, in every form seen: comma strings, lists, maps, JSON in a string, `*`, `none`.

A value that cannot be read never widens the rights of an agent: a bad allow list allows nothing, a
bad deny list denies everything.

opencode's `permission` map allows, asks about or denies tools, as a whole or by patterns of calls:

    permission:
      edit: deny                                   no tool that changes files
      webfetch: ask                                every call is asked about
      bash: {"*": deny, "git diff*": allow}        of commands that match, the last pattern counts
      "*": deny                                    no tool that is not named

A tool that is denied as a whole becomes part of the tool lists; everything else becomes rules that are
asked at every call (`retinue.guard.permissions.rule`). `allow` lifts no question of the
run's own mode: a file may restrict, only a person grants.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from functools import lru_cache, partial
from typing import Any, NamedTuple

from retinue.agents.dialects.table import UNSET, BadValueError, FieldKind
from retinue.agents.yaml_reader import scalar_text
from retinue.core.spec import PermissionRule
from retinue.core.tool_names import BUILT_IN_SEVEN, base_name, canonical, entry_problem, split_entries

_PATTERN = re.compile(r"[*?\[]")


class BadNamesError(BadValueError):
    """A list that cannot be read as a whole. `readable` are the names in it that can be read; the field decides whether
    they may be used without the others."""

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
    unreadable: list[Any] = []
    for item in value:
        text = _item_text(item)
        if text is None:
            unreadable.append(item)
        else:
            names += split_entries(text)
    if unreadable:
        why = f"one entry is {describe(unreadable[0])}, not a name"
        raise BadNamesError(why, "Write one name per entry.", readable=tuple(names))
    return tuple(names)


def describe(value: Any) -> str:
    """Return `value` for an error message: short, and plain about its type."""
    if value is None:
        return "nothing"
    if isinstance(value, (dict, list)):
        return "a mapping" if isinstance(value, dict) else "a list"
    if isinstance(value, bool):
        return "true" if value else "false"
    text = str(value)
    return f"'{text[:40]}…'" if len(text) > 40 else f"'{text}'"


def _item_text(item: Any) -> str | None:
    if isinstance(item, dict) and len(item) == 1:
        # `- Bash(git log: *)` is a mapping to YAML; put the text together again.
        ((key, value),) = item.items()
        if "(" in key and not isinstance(value, (dict, list)):
            return f"{key}: {scalar_text(value)}".rstrip()
    return None if isinstance(item, (dict, list)) else scalar_text(item)


def _from_json(text: str) -> tuple[str, ...]:
    try:
        return read_names(json.loads(text))
    except (ValueError, RecursionError):
        if not text.endswith("]"):
            raise BadNamesError("the list has no closing bracket", "Close it with ']'.") from None
        names = split_entries(text[1:-1])
        if any(name[0] in "[{" for name in names):
            raise BadNamesError("one entry is a list or a map, not a name", "Write one name per entry.") from None
        return names


ALL_TOOLS_WORDS = frozenset({"*", "all"})
DENY_ALL = ("*",)

_MAX_CACHED_CHARACTERS = 400
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
    if only and ALL_TOOLS_WORDS.isdisjoint(lowered):
        allow = () if lowered == {"none"} else tuple(dict.fromkeys(names))
    if _SELECTOR in "".join(names):
        selectors = tuple(dict.fromkeys([name for name in names if name.startswith(_SELECTOR)]))
        allow = allow and tuple([name for name in allow if name not in selectors])
    return ToolChoice(names, refused, allow, selectors)


NO_VALUE = ToolChoice(())
"""`tools:` with nothing after it: no tools, as Claude Code and pi have it."""


def _choice(value: Any, *, spaces: bool = False) -> Any:
    if type(value) is str and not spaces and len(value) < _MAX_CACHED_CHARACTERS and value[:1] not in _FLOW:
        return _same_words(value)
    if value is False:
        return choose_tools(())
    if isinstance(value, dict):
        return _from_map(value)
    try:
        return choose_tools(read_names(value, spaces=spaces))
    except BadNamesError as error:
        error.instead = choose_tools(error.readable)
        raise


def _pi_choice(value: Any) -> Any:
    """Read pi's `*`, which is its seven tools: other names beside it are added to these."""
    choice: ToolChoice = _choice(value)
    others = [name for name in choice.names if name.lower() not in ALL_TOOLS_WORDS and name not in choice.selectors]
    if choice.allow is not None or not others:
        return choice
    return choice._replace(allow=tuple(dict.fromkeys((*BUILT_IN_SEVEN, *others))))


@lru_cache(maxsize=1024)
def _same_words(text: str) -> ToolChoice:
    # Many files have exactly the same list: one reading serves all of them.
    return choose_tools(split_names(text))


def _from_map(value: dict[str, Any]) -> ToolChoice:
    """Read `{read: true, bash: false}`."""
    # Only refusals leave the other tools as they are; as soon as one tool is switched on, those that are not
    # named are out.
    on: list[str] = []
    off: list[str] = []
    unclear = ""
    for name, state in value.items():
        word = str(state).lower()
        (on if word in _ON else off).append(name)
        if word not in _ON and word not in _OFF:
            unclear = unclear or f"'{name}' is neither true nor false; read as false"
    if unclear:
        instead = choose_tools(tuple(on), tuple(off))
        raise BadValueError(unclear, "Write true or false for each tool.", instead=instead)
    choice = choose_tools(tuple(on), tuple(off), only=bool(on) or not off or "*" in off)
    check_denied(off, instead=choice)
    return choice


def _deny(value: Any) -> Any:
    try:
        names = read_names(value)
    except BadNamesError as error:
        error.instead = DENY_ALL
        raise
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


def both_allow(first: tuple[str, ...] | None, second: tuple[str, ...] | None) -> tuple[str, ...] | None:
    """Return the names in both lists; None is a list of every name."""
    if first is None or second is None:
        return second if first is None else first
    return tuple(name for name in first if name in second)


def _both(first: ToolChoice, second: ToolChoice) -> ToolChoice:
    """Return what two statements both allow."""
    refused = (*first.refused, *second.refused)
    if first.allow is None or second.allow is None:
        narrower = second if first.allow is None else first
        return narrower._replace(refused=refused)
    allowed = {*second.allow, *(tool for name in second.allow for tool in canonical(name))}
    both = [name for name in first.names if name in allowed or not allowed.isdisjoint(canonical(name))]
    return choose_tools(tuple(both), refused)


TOOL_LIST_KIND = FieldKind(
    "tool names: comma text, list, map of true/false, *, none", _choice, blank=NO_VALUE, combine=_both
)
PI_TOOLS = FieldKind(TOOL_LIST_KIND.type, _pi_choice, blank=NO_VALUE, combine=_both)
SPACED_TOOLS = FieldKind(
    "tool names: comma or space text, list, *, none",
    partial(_choice, spaces=True),
    blank=NO_VALUE,
    combine=_both,
)
DENY = FieldKind("tool names: comma text or list", _deny, combine=lambda first, second: (*first, *second))


EVERY_CALL = "*"
_VERDICTS = {"allow": "allow", "ask": "ask", "deny": "deny", True: "allow", False: "deny"}
_RULES_REMEDY = "Write allow, ask or deny, or a map of patterns to these."
NOT_TOOLS = frozenset({"doom_loop", "external_directory"})
"""Permissions of opencode about no tool: repeated calls have a guard of their own, and no file
tool leaves the workspace in any case."""
_CHANGES_FILES = ("edit", "write", "patch")


class ToolRules(NamedTuple):
    """Tools that are out, the only ones that are in, and rules for single calls."""

    deny: tuple[str, ...] = ()
    only: tuple[str, ...] | None = None
    rules: tuple[PermissionRule, ...] = ()


def _permissions(value: Any) -> Any:
    if isinstance(value, str):
        value = {EVERY_CALL: value}
    if not isinstance(value, dict):
        why = f"a mapping of tools to allow, ask or deny is wanted, not {describe(value)}"
        raise BadValueError(why, _RULES_REMEDY, instead=ToolRules(DENY_ALL))
    reading = _Reading()
    for tool, state in value.items():
        reading.add(str(tool), state)
    return reading.result()


class _Reading:
    """The entries of one map, as they are read."""

    def __init__(self) -> None:
        self.deny: list[str] = []
        self.only: list[str] = []
        self.rules: list[PermissionRule] = []
        self.denies_rest = False
        self.unclear = ""

    def add(self, tool: str, state: Any) -> None:
        if isinstance(state, dict) and state:
            self._add_patterns(tool, state)
            return
        verdict = _verdict(state)
        if verdict is None:
            self.unclear = self.unclear or f"'{tool}' is {describe(state)}, neither allow, ask nor deny"
            verdict = "deny"
        if tool == EVERY_CALL:
            self.denies_rest = self.denies_rest or verdict == "deny"
        elif tool in NOT_TOOLS:
            return
        else:
            (self.deny if verdict == "deny" else self.only).append(tool)
        # A tool of a plugin that the file allows is not denied with the tools of its effect.
        narrows = bool(self.rules) or not canonical(tool)
        if verdict == "ask" or (verdict == "allow" and tool != EVERY_CALL and narrows):
            self.rules.append(PermissionRule(tool, EVERY_CALL, verdict))

    def _add_patterns(self, tool: str, states: dict[Any, Any]) -> None:
        verdicts: dict[str, Any] = {}
        unclear = ""
        for pattern, state in states.items():
            verdicts[str(pattern)] = _verdict(state)
            if verdicts[str(pattern)] is None:
                unclear = unclear or f"'{pattern}' of '{tool}' is {describe(state)}, neither allow, ask nor deny"
        if unclear:
            self.unclear = self.unclear or unclear
            verdicts = dict.fromkeys(verdicts, "deny")
        if tool in NOT_TOOLS:
            return
        if set(verdicts.values()) == {"deny"} and EVERY_CALL in verdicts:
            self.deny.append(tool)
            return
        if tool != EVERY_CALL:
            self.only.append(tool)
        for pattern, verdict in verdicts.items():
            self.rules.append(PermissionRule(tool, pattern, verdict))

    def result(self) -> ToolRules:
        only = None
        if self.denies_rest:
            only = _spread(self.only)
        rules = ToolRules(_spread(self.deny), only, tuple(self.rules))
        if self.unclear:
            raise BadValueError(self.unclear, _RULES_REMEDY, instead=rules)
        check_denied(self.deny, instead=rules)
        check_denied([rule.tool for rule in self.rules], instead=rules)
        return rules


def _verdict(state: Any) -> Any:
    if isinstance(state, str):
        return _VERDICTS.get(state.strip().lower())
    if isinstance(state, bool):
        return _VERDICTS.get(state)
    return None


def _spread(names: list[str]) -> tuple[str, ...]:
    """Return the tools that opencode's names mean."""
    # opencode's `edit` covers every tool that changes files, and `server_tool` names one of a server.
    spread: list[str] = []
    for name in names:
        spread += _CHANGES_FILES if name == "edit" else (name,)
        if "_" in name and not canonical(name) and not name.startswith("mcp__"):
            spread.append(f"mcp__{name.replace('_', '*')}")
    return tuple(dict.fromkeys(spread))


def _only(value: Any) -> Any:
    # Kimi's `allowed_tools` is a second list that narrows the first.
    try:
        return ToolRules(only=TOOL_LIST_KIND.read(value).allow)
    except BadValueError as error:
        raise BadValueError(error.why, error.remedy, instead=ToolRules(only=error.instead.allow)) from None


def _join_rules(first: ToolRules, second: ToolRules) -> ToolRules:
    only = both_allow(first.only, second.only)
    return ToolRules((*first.deny, *second.deny), only, (*first.rules, *second.rules))


RULES = FieldKind("map of tools to allow, ask or deny, or to patterns of calls", _permissions, combine=_join_rules)
ONLY = FieldKind("list of tool names", _only, combine=_join_rules)
