"""What one run said, was told and did, in the order it happened: the content of a viewer."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from msgspec.structs import replace

from retinue.core import events
from retinue.core.format import retry_text
from retinue.core.messages import AssistantMessage, Text, Thinking, ToolCall, UserMessage
from retinue.core.outcome import CUT_OFF
from retinue.faces.text import optional
from retinue.faces.tui.board.cards import RunCard
from retinue.faces.tui.board.questions import without_frames

Kind = Literal["user", "assistant", "thinking", "tool", "result", "notice"]
# Characters of a result that are shown.
RESULT_CHARACTERS = 500
# Characters of an unfinished answer that are kept: its end is what one watches.
MOST_LIVE = 20_000


@dataclass(frozen=True, slots=True)
class Entry:
    """One block of the transcript. `note` is said beside its title; a tool call has `call`. `more` counts the
    characters that were left out of `text`."""

    kind: Kind
    text: str = ""
    note: str = ""
    bad: bool = False
    call: ToolCall | None = None
    more: int = 0


@dataclass(slots=True)
class RunStory:
    """The events of one run as they are taken. `entries` only grow, so the caller that draws them may keep what is
    drawn; `version` changes with everything that could be seen."""

    card: RunCard
    entries: list[Entry] = field(default_factory=list)
    effects: list[events.Event] = field(default_factory=list)
    """The events that say what its tools did."""
    created: events.RunCreated | None = None
    started: events.RunStarted | None = None
    saying: str = ""
    thinking: str = ""
    progress: dict[str, str] = field(default_factory=dict)
    """The newest line of each tool at work, by call."""
    version: int = 0

    def take(self, event: events.Event) -> None:
        self.version += 1
        self.card.take(event)
        body = event.body
        match body:
            case events.TextDelta(text):
                self.saying = (self.saying + text)[-MOST_LIVE:]
            case events.ThinkingDelta(text):
                self.thinking = (self.thinking + text)[-MOST_LIVE:]
            case events.ToolProgress(call_id, text):
                self.progress[call_id] = text
            case events.AssistantEnded(_, message):
                self._quiet()
                self.entries += _said(message)
            case events.ToolStarted() | events.ToolEnded():
                self._tool(event, body)
            case _:
                self._other(event)

    def mark_lost(self, at: float) -> None:
        """Note that its process is gone."""
        self.version += 1
        self.card.mark_lost(at)

    def _tool(self, event: events.Event, body: events.ToolStarted | events.ToolEnded) -> None:
        if isinstance(body, events.ToolStarted):
            self.effects.append(event)
            return
        # Outputs are most of a long run, and little of each is shown: the whole is in the log.
        self.effects.append(replace(event, body=replace(body, result=replace(body.result, content=()))))
        self.progress.pop(body.call_id, None)
        text = body.result.text.strip("\n")
        shown = text[:RESULT_CHARACTERS]
        more = len(text) - len(shown)
        self.entries.append(Entry("result", shown, body.name, bad=body.result.is_error, more=more))

    def _other(self, event: events.Event) -> None:
        body = event.body
        match body:
            case events.RunCreated():
                self.created = body
            case events.RunStarted():
                self.started = body
            case events.TurnStarted():
                self.effects.append(event)
            case events.MessageAdded(message):
                self.entries.append(_heard(message))
            case events.RunEnded():
                self._quiet()
                self.effects.append(event)
                self.entries += _ended(body)
            case events.Retrying():
                self._quiet()
                trouble = retry_text(body.failure.message, body.delay, body.attempt, body.most)
                trouble += optional(" What it had said: {}", body.partial)
                self.entries.append(Entry("notice", trouble, bad=True))
            case events.InboxClosed() | events.Undone():
                self.effects.append(event)
                self.entries.append(Entry("notice", _notice(body)))
            case _:
                text = _notice(body)
                if text:
                    self.entries.append(Entry("notice", text))

    def _quiet(self) -> None:
        self.saying = self.thinking = ""
        self.progress.clear()


def _said(message: AssistantMessage) -> list[Entry]:
    found = []
    for part in message.content:
        match part:
            case Text() if part.text.strip():
                found.append(Entry("assistant", part.text.strip("\n")))
            case Thinking() if part.text.strip():
                found.append(Entry("thinking", part.text.strip()))
            case ToolCall():
                found.append(Entry("tool", note=part.name, call=part))
            case _:
                pass
    if message.failure is not None:
        found.append(Entry("notice", message.failure.message, bad=True))
    return found


def _heard(message: UserMessage) -> Entry:
    if message.origin == "task":
        return Entry("user", message.text)
    if message.origin == "notification":
        return Entry("user", without_frames(message.text), message.origin)
    return Entry("user", message.text, message.origin)


def _ended(body: events.RunEnded) -> list[Entry]:
    outcome = body.outcome
    if outcome.truncated:
        return [Entry("notice", f"{outcome.ended}, {CUT_OFF}: the end is missing", bad=True)]
    if outcome.ok and outcome.ended == "completed":
        return []
    text: str = outcome.ended
    if outcome.failure is not None:
        text += f": {outcome.failure.message} {outcome.failure.remedy}".rstrip()
    return [Entry("notice", text, bad=not outcome.ok)]


def _notice(body: events.Body) -> str:
    match body:
        case events.Compacted():
            return f"⇊ shortened from {body.tokens_before:,} to {body.tokens_after:,} tokens ({body.reason})"
        case events.Warned(_, text):
            return text
        case events.LimitReached(_, _, detail):
            return detail
        case events.RunResumed():
            return "taken up again"
        case events.InboxOpened():
            return f"waits for an answer: {body.title}"
        case events.InboxClosed():
            return f"{body.choice or body.state}{optional(' by {}', body.by)}{optional(': {}', body.message)}"
        case events.Undone():
            return f"{len(body.restored) + len(body.removed)} files put back, {len(body.kept)} kept"
        case events.Rewound():
            return f"went back: from here it goes on after event {body.to}, and what lies between stays in the log"
        case _:
            return ""
