"""Checks on tool lists: unknown names, what the lists add up to, and whether they fit the agent."""

from __future__ import annotations

import re
from collections.abc import Iterator

from retinue.agents.dialects.permissions import NOT_TOOLS
from retinue.agents.dialects.tables import in_dialect, is_foreign
from retinue.agents.dialects.tools import is_servers
from retinue.agents.edit import FileLines
from retinue.agents.lint.keys import nearest
from retinue.agents.lint.subject import CheckResult, LintSubject, Repair
from retinue.core.spec import AgentSpec
from retinue.core.tool_list import misspelt_tool
from retinue.core.toolnames import ALIASES, TOOLS, base_name, canonical

ELSEWHERE = frozenset(
    {
        *("artifact", "endconversation", "enterplanmode", "exitplanmode", "enterworktree", "exitworktree", "monitor"),
        *("listmcpresourcestool", "readmcpresourcetool", "schedulewakeup", "slashcommand", "workflow"),
        *("croncreate", "crondelete", "cronlist", "waitformcpservers", "computer", "memory", "think", "thinking"),
        *("changes", "extensions", "findtestfiles", "githubrepo", "new", "opensimplebrowser", "runnotebooks"),
        *("runtasks", "runtests", "terminalselection", "testfailure", "vscode", "vscodeapi", "write_todos"),
    }
)
"""Names of tools that other programs have and Retinue has no counterpart for."""

_MOST_SUGGESTIONS = 100
_EVERY = frozenset({"*", "all"})
_SAYS_READ_ONLY = re.compile(r"\bread[- ]?only\b", re.IGNORECASE)


def check_tools(subject: LintSubject) -> Iterator[CheckResult]:
    spec = subject.parsed.spec
    if spec is None:
        return
    yield from _names(subject, spec.tools.allow or (), "tools.allow", denies=False)
    yield from _names(subject, spec.tools.deny, "tools.deny", denies=True)
    yield from _resolution(subject, spec)
    yield from _read_only(subject, spec)
    yield from _comma_text(subject)


def _names(subject: LintSubject, names: tuple[str, ...], field: str, *, denies: bool) -> Iterator[CheckResult]:
    key = next(iter(subject.keys_for(field)), None)
    for count, name in enumerate(names):
        base = base_name(name)
        if canonical(name) and is_foreign(base, subject.parsed.dialect):
            own = ", ".join(in_dialect(base, subject.parsed.dialect))
            reason = f"{subject.table.title} itself has no tool '{base}'; Retinue reads it as {own}."
            yield subject.report("foreign-tool-name", reason, f"Write '{own}'.", key=key, word=base)
        if canonical(name) or is_servers(name) or name.lower() in _EVERY or base in NOT_TOOLS:
            continue
        if subject.parsed.dialect == "opencode" and "_" in base and misspelt_tool(base) is None:
            # `server_tool`: which servers there are is known only at run time.
            continue
        if base.lower() in ELSEWHERE:
            yield subject.report("tool-elsewhere", f"Retinue has no tool like '{base}'.", key=key, word=base)
            continue
        effect = "it denies nothing" if denies else "it gives the agent nothing"
        meant = None
        if count < _MOST_SUGGESTIONS:
            meant = _guess_tool(base, subject)
        remedy = "Correct the name, or write mcp__SERVER__TOOL for a server's."
        if meant:
            remedy = f"Did you mean '{meant}'?"
        bare_server = subject.parsed.dialect == "copilot" and meant is None
        yield subject.report(
            "unknown-tool",
            f"There is no tool '{base}'; {effect}.",
            remedy,
            key=key,
            word=base,
            severity="info" if bare_server else "warning",
        )


def _guess_tool(name: str, subject: LintSubject) -> str | None:
    # Names of two or three letters resemble too many others to be suggested.
    found = nearest(name, [alias for alias in ALIASES if len(alias) > 3])
    if found is None:
        return None
    return in_dialect(found, subject.parsed.dialect)[0]


def _resolution(subject: LintSubject, spec: AgentSpec) -> Iterator[CheckResult]:
    tools = spec.tools
    key = next(iter(subject.keys_for("tools.allow")), None)
    if tools.allow and not tools.selectors and not any(canonical(name) or is_servers(name) for name in tools.allow):
        reason = f"None of these tools exists: {', '.join(tools.allow[:5])}. The agent would be refused."
        yield subject.report("tools-resolve-to-nothing", reason, key=key)
    denied: set[str] = set()
    for name in tools.deny:
        if "(" not in name:
            denied.update(canonical(name))
    denies_every = not _EVERY.isdisjoint(map(str.lower, tools.deny))
    if denies_every or (tools.allow and denied and not tools.selectors and _all_in(tools.allow, denied)):
        deny_key = next(iter(subject.keys_for("tools.deny") or subject.keys_for("tools.rules")), None)
        yield subject.report("all-tools-denied", "The deny list leaves no tool.", key=deny_key)
        return
    for name in tools.allow or ():
        if name in tools.deny or (canonical(name) and set(canonical(name)) <= denied):
            yield subject.report("allowed-and-denied", f"'{name}' is allowed and denied.", key=key, word=name)


def _all_in(names: tuple[str, ...], denied: set[str]) -> bool:
    known: set[str] = set()
    for name in names:
        if is_servers(name):
            return False
        known.update(canonical(name))
    return bool(known) and known <= denied


def _read_only(subject: LintSubject, spec: AgentSpec) -> Iterator[CheckResult]:
    # A shell is no contradiction: a read-only agent has one that cannot write.
    key = next(iter(subject.keys_for("tools.allow")), None)
    denied: set[str] = set()
    for name in spec.tools.deny:
        denied.update(canonical(name))
    writing: list[str] = []
    for name in spec.tools.allow or ():
        effects: set[str] = set()
        for tool in canonical(name):
            if tool not in denied:
                effects |= set(TOOLS[tool])
        if "execute" in effects:
            if spec.readonly:
                yield subject.report("readonly-shell", f"'{name}' runs in a sandbox here.", key=key, word=name)
        elif "write" in effects:
            writing.append(name)
    if spec.readonly:
        for name in writing:
            reason = f"The agent is read-only, but lists '{name}', which writes."
            yield subject.report("readonly-write-tool", reason, key=key, word=name)
    elif writing and spec.readonly is None and _SAYS_READ_ONLY.search(spec.description):
        reason = f"The description says read-only, but the agent has {', '.join(writing)}."
        yield subject.report("says-read-only", reason, key=key)


def _comma_text(subject: LintSubject) -> Iterator[CheckResult]:
    # CodingCode's own loader drops a `tools` that is no list and then allows everything.
    names = subject.parsed.tools
    if subject.parsed.dialect != "codingcode" or not names:
        return
    entries = subject.text.find("tools")
    if len(entries) != 1:
        return
    line = subject.text.lines[entries[0].first]
    if entries[0].first != entries[0].last or line[entries[0].stop :].lstrip(": \t").startswith("["):
        return

    def apply(text: FileLines) -> FileLines:
        from retinue.agents.encode import flow

        entry = text.find("tools")[0]
        return text.replace_lines(entry.first, entry.last, (f"tools: {flow(names)}",))

    repair = Repair("wrote 'tools' as a list", apply)
    yield subject.report(
        "comma-tools", "CodingCode itself would give this agent every tool.", key="tools", repair=repair
    )
