"""One run as people see it. Every event updates the card, so that drawing needs nothing else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from retinue.app.text import clip, first_line, optional, status_word
from retinue.core.format import context_percent
from retinue.core.run_state import ActiveRun
from retinue.core.tool_names import canonical

ACTIVITY_CHARACTERS = 60

# The activity of each tool, and the noun for the objects of several calls.
_VERBS: dict[str, tuple[str, str]] = {
    "read": ("reading", "files"),
    "write": ("writing", "files"),
    "edit": ("editing", "files"),
    "bash": ("running", "commands"),
    "grep": ("searching", "patterns"),
    "find": ("finding", "patterns"),
    "ls": ("listing", "folders"),
    "web_search": ("searching the web for", "queries"),
    "fetch_content": ("fetching", "pages"),
    "lsp": ("asking the language server", "questions"),
    "Agent": ("delegating to", "agents"),
    "subagent": ("delegating to", "agents"),
    "dispatch_agent": ("delegating to", "agents"),
    "get_subagent_result": ("waiting for", "agents"),
    "skill": ("loading", "skills"),
    "todo": ("planning", "lists"),
}


def describe(tools: Iterable[str], text: str = "") -> str:
    """Return `reading 3 files, searching…`, the first line of the current text, or `thinking…`."""
    counts: Counter[str] = Counter()
    for tool in tools:
        for name in canonical(tool):
            if name in _VERBS:
                tool = name
                break
        counts[tool] += 1
    phrases = []
    for tool, count in counts.items():
        phrase, noun = _VERBS.get(tool, (f"using {tool}", ""))
        if count > 1 and noun:
            phrase += f" {count} {noun}"
        elif count > 1:
            phrase += f" × {count}"
        phrases.append(phrase)
    if phrases:
        return ", ".join(phrases) + "…"
    return clip(first_line(text), ACTIVITY_CHARACTERS) or "thinking…"


# Returns the context size of a model by its full name; None when it is unknown.
Window = Callable[[str], int | None]


class RunCard(ActiveRun):
    """A run of the board."""

    ended_turn: int = 0
    """The board's `turns` when this run ended, by which its row disappears."""

    @property
    def at_work(self) -> bool:
        return self.live and self.state != "queued"

    @property
    def is_main(self) -> bool:
        """Return whether a person talks to this run directly."""
        return self.depth == 0 and self.parent_id is None and bool(self.agent)

    @property
    def label(self) -> str:
        return self.display_name or self.agent or self.id[:8]

    @property
    def about(self) -> str:
        return self.description or first_line(self.task)

    def activity(self) -> str:
        """Return its current activity in a few words."""
        if self.state == "waiting":
            return f"{status_word(self.state)} for an answer" + optional(": {}", next(iter(self.asks.values()), ""))
        return describe(self.tools.values(), self.text)

    def elapsed_ms(self, now: float) -> float:
        begun, ended = self.began, self.ended_at
        if begun is None:
            begun = self.created_at
        if ended is None:
            ended = now
        return max(ended - begun, 0.0) * 1000

    def context_percent(self, window: Window) -> float | None:
        if not self.model:
            return None
        return context_percent(self.context_tokens, window(self.model))

    def mark_lost(self, at: float) -> None:
        """Note that its process is gone: the run neither works nor has ended."""
        if self.live:
            self.end("interrupted", at)
