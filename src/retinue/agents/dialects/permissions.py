"""opencode's `permission` map: tools to allow, ask or deny, as a whole or by patterns of calls.

    permission:
      edit: deny                                   no tool that changes files
      webfetch: ask                                every call is asked about
      bash: {"*": deny, "git diff*": allow}        of commands that match, the last pattern counts
      "*": deny                                    no tool that is not named

What a whole tool is denied becomes part of the tool lists; everything else becomes rules that are
asked at every call (`retinue.guard.permissions.rule`). `allow` lifts no question of the
run's own mode: a file may restrict, only a person grants.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from retinue.agents.dialects.table import UNSET, BadValueError, FieldKind
from retinue.agents.dialects.tools import DENY_ALL, TOOLS, both_allow, check_denied, describe
from retinue.core.spec import PermissionRule
from retinue.core.toolnames import canonical

EVERY_CALL = "*"
_VERDICTS = {"allow": "allow", "ask": "ask", "deny": "deny", True: "allow", False: "deny"}
_REMEDY = "Write allow, ask or deny, or a map of patterns to these."
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
    if value is None:
        return UNSET
    if isinstance(value, str):
        value = {EVERY_CALL: value}
    if not isinstance(value, dict):
        why = f"a mapping of tools to allow, ask or deny is wanted, not {describe(value)}"
        raise BadValueError(why, _REMEDY, instead=ToolRules(DENY_ALL))
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
        self.strange = ""

    def add(self, tool: str, state: Any) -> None:
        if isinstance(state, dict) and state:
            self._add_patterns(tool, state)
            return
        verdict = _verdict(state)
        if verdict is None:
            self.strange = self.strange or f"'{tool}' is {describe(state)}, neither allow, ask nor deny"
            verdict = "deny"
        if tool == EVERY_CALL:
            self.denies_rest = self.denies_rest or verdict == "deny"
        elif tool in NOT_TOOLS:
            return
        else:
            (self.deny if verdict == "deny" else self.only).append(tool)
        if verdict == "ask" or (verdict == "allow" and tool != EVERY_CALL and self.rules):
            self.rules.append(PermissionRule(tool, EVERY_CALL, verdict))

    def _add_patterns(self, tool: str, states: dict[Any, Any]) -> None:
        verdicts: dict[str, Any] = {}
        unclear = ""
        for pattern, state in states.items():
            verdicts[str(pattern)] = _verdict(state)
            if verdicts[str(pattern)] is None:
                unclear = unclear or f"'{pattern}' of '{tool}' is {describe(state)}, neither allow, ask nor deny"
        if unclear:
            self.strange = self.strange or unclear
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
        if self.strange:
            raise BadValueError(self.strange, _REMEDY, instead=rules)
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
    """Return the tools that opencode's names stand for."""
    # opencode's `edit` covers every tool that changes files, and `server_tool` names one of a server.
    spread: list[str] = []
    for name in names:
        spread += _CHANGES_FILES if name == "edit" else (name,)
        if "_" in name and not canonical(name) and not name.startswith("mcp__"):
            spread.append(f"mcp__{name.replace('_', '*')}")
    return tuple(dict.fromkeys(spread))


def _only(value: Any) -> Any:
    # Kimi's `allowed_tools` is a second list that narrows the first.
    if value is None:
        return UNSET
    try:
        return ToolRules(only=TOOLS.read(value).allow)
    except BadValueError as error:
        raise BadValueError(error.why, error.remedy, instead=ToolRules(only=error.instead.allow)) from None


def _join_rules(left: ToolRules, right: ToolRules) -> ToolRules:
    only = both_allow(left.only, right.only)
    return ToolRules((*left.deny, *right.deny), only, (*left.rules, *right.rules))


RULES = FieldKind("map of tools to allow, ask or deny, or to patterns of calls", "", _permissions, combine=_join_rules)
ONLY = FieldKind("list of tool names", "", _only, combine=_join_rules)
