"""Compaction: shorten a conversation so that it fits into the window of the agent's model.

The cheapest way comes first: old tool outputs become one line each, if that frees enough. Otherwise the same model
summarises everything but the task, the messages of people and the newest turns. If the summary fails, the old turns
are dropped, with a list of their calls. The system prompt and the task always stay.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

from retinue.core.events import Compacted
from retinue.core.messages import AssistantMessage, Message, UserMessage, user
from retinue.core.usage import NOTHING, Usage
from retinue.loop import shrink
from retinue.loop.answer import ModelTurn, aside
from retinue.loop.job import Interrupt, Job
from retinue.loop.limits import Countdown
from retinue.loop.prompts import prompt
from retinue.models.protocol import MeasuredConversation, Model, ModelRequest, estimate

Reason = Literal["threshold", "overflow", "manual"]

MAX_OVERFLOWS = 3
_TARGET_SHARE = 0.5
_OVERFLOW_TARGET_SHARES = (0.5, 0.3, 0.15)
_INSTRUCTIONS_SHARE = 0.1
_TAIL_SHARE = 0.6
_OUTPUT_CHARACTERS = (8_000, 2_000, 500, 200)
_TARGET_SHARE_OF_THRESHOLD = 0.6
_CONTEXT_SHARE = 0.25
_SUMMARY_HEADING = "[The earlier part of this conversation was replaced by this summary of it.]"
_REMINDER_HEADING = "[Older output was removed from this conversation. As things stand:]"


class Compactor:
    """Decides when a conversation is compacted, and compacts it."""

    def __init__(
        self, job: Job, model: Model, interrupt: Interrupt, idle: Countdown, files: Callable[[], str] = str
    ) -> None:
        """`files` returns the files that the run has read and changed, as text."""
        self._job = job
        self._files = files
        self._model = model
        self._interrupt = interrupt
        self._idle = idle
        self._not_before = 0.0
        self.overflows = 0
        self._usage = NOTHING
        self._wish = ""

    def is_due(self, conversation: MeasuredConversation) -> bool:
        share = self._job.compaction.at
        if share is None or self._model.info.window <= 0:
            return False
        return conversation.tokens >= max(share * self._model.info.window, self._not_before)

    def take_usage(self) -> Usage:
        """Return the usage of its own requests since the last call."""
        usage, self._usage = self._usage, NOTHING
        return usage

    def is_asked(self, wish: str | None) -> bool:
        """Return whether a person asked for a compaction. Their wish is kept for the summary."""
        self._wish = wish or ""
        return wish is not None

    async def compact(self, conversation: MeasuredConversation, reason: Reason) -> Compacted | None:
        """Shorten the conversation in place. Return None if nothing could be gained or the run was interrupted."""
        before = conversation.tokens
        estimated = await aside(estimate, conversation.messages)
        shortened = await self._shorter(conversation, estimated, reason)
        if shortened is None or self._interrupt.ending is not None:
            # Without this, each turn would try again at the cost of a request.
            self._not_before = before * 1.1
            return None
        method, messages = shortened
        saved = estimated - estimate(messages)
        after = max(round(before - saved * conversation.scale(estimated)), 1)
        # A conversation that stays above the threshold must not be compacted every turn.
        self._not_before = after * 1.25
        conversation.replace(messages, after)
        return Compacted(reason, method, before, after, tuple(messages))

    async def _shorter(
        self, conversation: MeasuredConversation, estimated: int, reason: Reason
    ) -> tuple[Literal["pruned", "summarised"], list[Message]] | None:
        messages, scale = _without_reminders(conversation.messages), conversation.scale(estimated)
        target = self._target(conversation.tokens, reason) / scale
        fixed = conversation.tokens / scale - estimated
        if reason != "manual":
            start = shrink.tail_start(messages, self._job.compaction.keep_turns)
            pruned = await aside(shrink.prune, messages, start, self._repeatable)
            if fixed + await aside(estimate, pruned) <= target and pruned != messages:
                return "pruned", self._reminded(pruned, start)
        instructions, removable, tail = await aside(self._split, messages, target)
        if not removable:
            shorter = [*instructions, *tail]
            if estimate(shorter) < estimate(messages):
                return ("pruned", shorter)
            return None
        summary = await self._summary(removable, [*instructions, *tail])
        note = summary
        if not note:
            calls = await aside(shrink.calls_made, removable, max(int(target), 400))
            note = prompt("dropped", count=_turns(removable), calls=calls)
        shorter = [*instructions, user("\n\n".join(filter(None, (note, self._reminder()))), "summary"), *tail]
        # A summary can be longer than the messages that it replaces.
        if estimate(shorter) >= estimated:
            return None
        return ("summarised" if summary else "pruned"), shorter

    def _reminded(self, messages: list[Message], start: int) -> list[Message]:
        """Add a reminder before the newest turns, with facts that may only have been in the outputs that were cut."""
        reminder = self._reminder()
        if not reminder:
            return messages
        return [*messages[:start], user(f"{_REMINDER_HEADING}\n\n{reminder}", "summary"), *messages[start:]]

    def _reminder(self) -> str:
        return "\n\n".join(filter(None, (self._job.remind(), self._files())))

    def _repeatable(self, name: str) -> bool:
        """Return whether a call of this tool may be repeated only to see its output."""
        for tool in self._job.tools:
            if tool.spec.name == name and tool.spec.effects:
                return tool.spec.effects <= {"read", "network"}
        return shrink.is_repeatable(name)

    def _target(self, tokens: int, reason: Reason) -> float:
        window = self._model.info.window
        match reason:
            case "threshold":  # well below the threshold, so that the next turn does not reach it again
                share = self._job.compaction.at
                return min(_TARGET_SHARE, _TARGET_SHARE_OF_THRESHOLD * (share or 1.0)) * window
            case "manual":
                return _TARGET_SHARE * min(window, tokens)
            case "overflow":
                return _OVERFLOW_TARGET_SHARES[min(self.overflows, MAX_OVERFLOWS) - 1] * min(window, tokens)

    def _split(self, messages: Sequence[Message], target: float) -> tuple[list[Message], list[Message], list[Message]]:
        """Return the messages that stay, those to remove, and the newest turns that fit. At least one turn stays, with
        its outputs cut if necessary."""
        start = 0
        for turns in range(max(self._job.compaction.keep_turns, 1), 0, -1):
            start = shrink.tail_start(messages, turns)
            if estimate(messages[start:]) <= _TAIL_SHARE * target:
                instructions, removable, tail = shrink.split(messages, start)
                return *self._bounded(instructions, removable, target), tail
        tail = list(messages[start:])
        for characters in _OUTPUT_CHARACTERS:
            tail = shrink.cut_outputs(tail, characters)
            if estimate(tail) <= _TAIL_SHARE * target:
                break
        instructions, removable, _ = shrink.split(messages, start)
        return *self._bounded(instructions, removable, target), tail

    def _bounded(
        self, instructions: list[Message], removable: list[Message], target: float
    ) -> tuple[list[Message], list[Message]]:
        """Move older instructions to the removable messages if they take too much room. The task always stays."""
        room = _INSTRUCTIONS_SHARE * target
        recent: list[Message] = []
        for message in reversed(instructions[1:]):
            room -= estimate((message,))
            if room < 0:
                break
            recent.insert(0, message)
        folded = instructions[1 : len(instructions) - len(recent)]
        return [*instructions[:1], *recent], [*folded, *removable]

    async def _summary(self, removed: Sequence[Message], stays: Sequence[Message]) -> str:
        """Return what the model makes of `gone`, knowing what `stays`; empty if it could not."""
        info = self._model.info
        words = min(max(info.window // 40, 150), 1_500)
        text = _framed("conversation", await aside(shrink.transcript, removed, info.window * 2))
        context_text = _framed("stays", shrink.transcript(stays, int(info.window * _CONTEXT_SHARE)))
        system = prompt("summary", words=words)
        if self._wish:
            system += f"\n\nThe person wants this kept above all: {self._wish}"
        request = ModelRequest(
            system=system,
            messages=(_data(f"{context_text}\n\n{text}"),),
            max_output=min(words * 3, info.max_output),
            thinking="off",  # thinking counts towards the limit and would leave no room for the summary
            temperature=self._job.temperature,
        )
        ask = ModelTurn(self._model, request, self._interrupt, self._idle, self._job.clock)
        try:
            while await ask.next() is not None:
                pass
        finally:
            await ask.close()
        self._usage += ask.message.usage
        summary = ask.message.text.strip()
        if not summary or ask.message.stop in ("error", "refusal", "aborted"):
            return ""
        return f"{_SUMMARY_HEADING}\n\n{summary}"


def _without_reminders(messages: Sequence[Message]) -> list[Message]:
    """Return `messages` without earlier reminders, whose facts may be outdated."""
    return [
        message
        for message in messages
        if not (isinstance(message, UserMessage) and message.text.startswith(_REMINDER_HEADING))
    ]


def _framed(name: str, text: str) -> str:
    """Return `text` between tags that nothing in it can close."""
    for frame in ("conversation", "stays"):
        text = text.replace(f"</{frame}", f"< /{frame}")
    return f"<{name}>\n{text}\n</{name}>"


def _data(text: str) -> UserMessage:
    return user(text, "context")


def _turns(messages: Sequence[Message]) -> int:
    return sum(isinstance(message, AssistantMessage) for message in messages)
