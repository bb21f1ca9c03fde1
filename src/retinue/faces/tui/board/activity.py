"""What an agent does right now, in a few words: grouped verbs for its tools, else what it says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from retinue.core.toolnames import canonical

LONGEST = 60

_VERBS: dict[str, tuple[str, str, str]] = {
    "read": ("reading", "file", "files"),
    "write": ("writing", "file", "files"),
    "edit": ("editing", "file", "files"),
    "bash": ("running", "command", "commands"),
    "grep": ("searching", "pattern", "patterns"),
    "find": ("finding", "pattern", "patterns"),
    "ls": ("listing", "folder", "folders"),
    "web_search": ("searching the web for", "query", "queries"),
    "fetch_content": ("fetching", "page", "pages"),
    "lsp": ("asking the language server", "question", "questions"),
    "Agent": ("delegating to", "agent", "agents"),
    "subagent": ("delegating to", "agent", "agents"),
    "dispatch_agent": ("delegating to", "agent", "agents"),
    "get_subagent_result": ("waiting for", "agent", "agents"),
    "skill": ("loading", "skill", "skills"),
    "todo": ("planning", "list", "lists"),
}


def describe(tools: Iterable[str], text: str = "") -> str:
    """`reading 3 files, searching…`; the first line of the current text; or `thinking…`."""
    counts = Counter(_known(tool) for tool in tools)
    if counts:
        return ", ".join(_phrase(tool, count) for tool, count in counts.items()) + "…"
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    if not line:
        return "thinking…"
    return line if len(line) <= LONGEST else line[: LONGEST - 1] + "…"


def _known(tool: str) -> str:
    return next((name for name in canonical(tool) if name in _VERBS), tool)


def _phrase(tool: str, count: int) -> str:
    if tool not in _VERBS:
        return f"using {tool}" if count == 1 else f"using {tool} × {count}"
    verb, _, many = _VERBS[tool]
    return verb if count == 1 else f"{verb} {count} {many}"
