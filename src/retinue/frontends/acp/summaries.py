"""Agents below the main one, for editors that show only one conversation: a live summary inside the call that started
them.

For the editor, the call ends when all its agents have ended, even if the model continued earlier. So a background agent
stays visible while it works.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct, field

from retinue.app.text import clean_line, clip, plural
from retinue.core.format import count_tokens, format_wait
from retinue.frontends.acp.updates import Update, call_changed, text_content

SUMMARY_SECONDS = 2.0
"""The interval of live summaries. They show elapsed time, so each one differs."""
_UNSUCCESSFUL_ENDS = frozenset({"failed", "stopped", "interrupted"})
_MAX_STEPS = 5
_MAX_LINE_CHARACTERS = 100
_MAX_RESULT_CHARACTERS = 8_000


class LiveSummary(Struct, eq=False):
    """The displayed facts of one run."""

    id: str
    title: str
    began_at: float
    steps: list[str] = field(default_factory=list)
    words: str = ""
    calls: int = 0
    tokens: int = 0
    ended: str = ""
    result: str = ""
    waits_for: str = ""
    took: float = 0.0
    below: list[LiveSummary] = field(default_factory=list)

    def step(self, text: str) -> None:
        """Add an activity to the latest steps."""
        self.steps.append(clean_line(text, _MAX_LINE_CHARACTERS))
        del self.steps[:-_MAX_STEPS]

    @property
    def is_live(self) -> bool:
        return not self.ended

    def everyone(self) -> Iterator[LiveSummary]:
        yield self
        for child in self.below:
            yield from child.everyone()

    def lines(self, now: float, indent: str = "") -> list[str]:
        """Return the lines of the run and the runs below it."""
        took = self.took or now - self.began_at
        state = self.ended or ("waits for you" if self.waits_for else "works")
        facts = [self.title, state, plural(self.calls, "call"), count_tokens(self.tokens)]
        lines = [f"{indent}{' · '.join(facts)} · {format_wait(max(took, 0.0))}"]
        if self.is_live:
            lines += [f"{indent}  ▸ {step}" for step in self.steps]
            if self.waits_for:
                lines.append(f"{indent}  ? {clean_line(self.waits_for, _MAX_LINE_CHARACTERS)}")
            elif self.words.strip():
                lines.append(f"{indent}  “{clean_line(self.words[-400:].strip(), _MAX_LINE_CHARACTERS)}”")
        for child in self.below:
            lines += child.lines(now, indent + "  ")
        return lines


class AgentCard(Struct, eq=False):
    """One call of the main run, with the agents that it started. `own_end` is the end of the call itself; it is sent
    when the last of its agents has ended."""

    call_id: str
    runs: list[LiveSummary] = field(default_factory=list)
    own_end: Mapping[str, Any] | None = None
    sent_at: float = 0.0
    is_over: bool = False

    @property
    def is_live(self) -> bool:
        return any(summary.is_live for run in self.runs for summary in run.everyone())

    def summarise(self, now: float, *, at_once: bool = False) -> list[Update]:
        """Return the current summary, if one is due."""
        if self.is_over or (not at_once and now - self.sent_at < SUMMARY_SECONDS):
            return []
        self.sent_at = now
        text = "\n".join(line for run in self.runs for line in run.lines(now))
        return [call_changed(self.call_id, status="in_progress", content=[text_content(text)])]

    def end(self, now: float) -> list[Update]:
        """Return the end of the call, once it and its agents have ended; otherwise nothing."""
        if self.is_over or self.own_end is None or self.is_live:
            return []
        self.is_over = True
        summary = "\n".join(line for run in self.runs for line in run.lines(now))
        results = [run.result for run in self.runs if run.result]
        content = [text_content(summary), *(text_content(clip(result, _MAX_RESULT_CHARACTERS)) for result in results)]
        failed = self.own_end.get("status") == "failed" or any(run.ended in _UNSUCCESSFUL_ENDS for run in self.runs)
        return [call_changed(self.call_id, status="failed" if failed else "completed", content=content)]
