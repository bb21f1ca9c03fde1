"""The `permission` map of an agent's file as rules and limits of its run.

The map is an ordered list: of the entries that match a call, the last one counts. Our rules have
no order, so each entry that restricts is made a rule with exceptions, the entries after it that
say less. An entry that cannot be made a rule restricts every call of its tool.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase

from retinue.core.spec import PermissionRule
from retinue.core.toolnames import TOOLS, canonical
from retinue.guard.permissions.policy import Limit
from retinue.guard.permissions.rule import FETCHING, SPAWNING, WRITING, Kind, Rule, parse_rule

EVERY = "*"
_URL = re.compile(r"(?:https?|\*)://([\w.*-]+)(?:[/:].*)?")


def rules_of_file(
    entries: Sequence[PermissionRule], *, source: str, base: str
) -> tuple[tuple[Rule, ...], tuple[Limit, ...]]:
    """What a file's `permission` map forbids, wants asked and leaves. Never raises."""
    rules: list[Rule] = []
    limits: list[Limit] = []
    for tool in _tools_of(entries):
        chain = _from_last_for_all([each for each in entries if _is_about(each, tool)])
        made = _Chain(tool, chain, source, base)
        rules += made.rules()
        limits += made.limits()
    return tuple(dict.fromkeys(rules)), tuple(limits)


class _Chain:
    """The entries about one tool. The first may be about every call of it; no other is."""

    def __init__(self, tool: str, entries: Sequence[PermissionRule], source: str, base: str) -> None:
        self._tool = tool
        self._entries = entries
        self._source = source
        self._base = base

    def limits(self) -> list[Limit]:
        """Where everything is denied at first, only what later entries name is left."""
        if not self._entries or self._entries[0].pattern != EVERY or self._entries[0].verdict != "deny":
            return []
        return [Limit(self._tool, self._permitting(self._entries[1:], ("allow", "ask")), self._source)]

    def rules(self) -> list[Rule]:
        found: list[Rule] = []
        for place, entry in enumerate(self._entries):
            if entry.verdict == "allow" or (entry.verdict == "deny" and entry.pattern == EVERY):
                continue
            milder = ("allow", "ask") if entry.verdict == "deny" else ("allow",)
            rule = self._rule(entry.pattern, entry.verdict) or self._rule(EVERY, entry.verdict)
            if rule is not None:
                found.append(replace(rule, unless=self._permitting(self._entries[place + 1 :], milder)))
        return found

    def _permitting(self, entries: Iterable[PermissionRule], verdicts: tuple[str, ...]) -> tuple[Rule, ...]:
        made = [self._rule(each.pattern, "allow") for each in entries if each.verdict in verdicts]
        return tuple(rule for rule in made if rule is not None)

    def _rule(self, pattern: str, kind: Kind) -> Rule | None:
        """The rule for one pattern; None for one that means nothing to this tool."""
        specifier = self._specifier(pattern)
        if specifier is None:
            return None
        text = self._tool if specifier == EVERY else f"{self._tool}({specifier})"
        made = parse_rule(text, kind, source=self._source, base=self._base)
        return made if isinstance(made, Rule) else None

    def _specifier(self, pattern: str) -> str | None:
        if pattern == EVERY:
            return EVERY
        if self._tool in FETCHING:
            host = _URL.fullmatch(pattern)
            return f"domain:{host[1]}" if host is not None else None
        if self._tool in SPAWNING:
            return pattern if EVERY not in pattern else None
        return pattern


def _tools_of(entries: Iterable[PermissionRule]) -> tuple[str, ...]:
    """The tools that the entries are about, by the names a call has. A pattern that covers none of
    our own is about tools of MCP servers."""
    found: dict[str, None] = {}
    for entry in entries:
        own = [tool for tool in TOOLS if _is_about(entry, tool)]
        found.update(dict.fromkeys(own or [_served(entry.tool)]))
    return tuple(found)


def _is_about(entry: PermissionRule, tool: str) -> bool:
    name = entry.tool
    if name in (EVERY, tool) or _served(name) == tool:
        return True
    if name == "edit":
        return tool in WRITING
    known = canonical(name)
    if known:
        return tool in known or (tool in SPAWNING and bool(SPAWNING & set(known)))
    return EVERY in name and fnmatchcase(tool.lower(), name.lower())


def _served(name: str) -> str:
    """opencode's `server_tool` as the name that a tool of a server has here."""
    return name if name.startswith("mcp__") else f"mcp__{name.replace('_', EVERY)}"


def _from_last_for_all(entries: list[PermissionRule]) -> list[PermissionRule]:
    """Without what a later entry about every call overrides."""
    last = max((place for place, entry in enumerate(entries) if entry.pattern == EVERY), default=0)
    return entries[last:]
