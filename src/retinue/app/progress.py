"""The state and progress of the main agent, computed from its events."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from retinue.core.events import (
    AssistantEnded,
    Body,
    Event,
    Retrying,
    RunCreated,
    RunEnded,
    RunResumed,
    TextDelta,
    ThinkingDelta,
    TurnEnded,
    TurnStarted,
)
from retinue.core.format import format_count

State = Literal["idle", "working", "holding"]
# Estimates streamed tokens until the provider has counted them.
_CHARACTERS_PER_TOKEN = 4


class Phase:
    """Tracks whether the main agent works, or has answered and only waits for its background agents."""

    def __init__(self) -> None:
        self._answered = False

    def take(self, body: Body) -> State | None:
        """Return the state that an event starts, if any."""
        match body:
            case TurnStarted():
                return "working"
            case AssistantEnded(message=message):
                self._answered = not message.tool_calls and message.failure is None
            case TurnEnded() if self._answered:
                return "holding"
            case RunEnded():
                return "idle"
            case _:
                pass
        return None


@dataclass(slots=True)
class WorkProgress:
    """The work of the main agent since the last message to it. Takes every event of the main run, in order."""

    began: float = 0.0
    sent: int = 0
    received: int = 0
    streamed: int = 0
    """Characters of the answer that is being streamed."""
    retry_at: float = 0.0
    retry_reason: str = ""

    def take(self, event: Event) -> None:
        match event.body:
            case RunCreated() | RunResumed():
                self.began, self.sent, self.received, self.streamed = event.at, 0, 0, 0
                self.retry_reason = ""
            case TextDelta(text) | ThinkingDelta(text):
                self.streamed += len(text)
                self.retry_reason = ""
            case TurnEnded():
                self.sent += event.body.usage.input + event.body.usage.cache_write
                self.received += event.body.usage.output
                self.streamed, self.retry_reason = 0, ""
            case Retrying(_, delay, failure):
                self.streamed = 0
                self.retry_at, self.retry_reason = event.at + delay, failure.message
            case _:
                pass

    def tokens(self) -> str:
        """Return `↑ 4.1k ↓ 380 tokens`; empty before the first count."""
        received = self.received + self.streamed // _CHARACTERS_PER_TOKEN
        if not self.sent and not received:
            return ""
        return f"↑ {format_count(self.sent)} ↓ {format_count(received)} tokens"
