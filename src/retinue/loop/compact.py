"""Compaction: making room in the window of the agent's own model.

Cheap first: old tool outputs become one line each, if that frees enough. Otherwise the same
model writes a summary of everything but the task, people's words and the newest turns. If even
that fails, the old turns are dropped with a list of the calls they made. The system prompt and
the task always stay.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

from retinue.core.events import Compacted
from retinue.core.messages import AssistantMessage, Message, UserMessage, user
from retinue.core.usage import Usage
from retinue.loop import shrink
from retinue.loop.answer import ModelTurn, aside
from retinue.loop.job import Interrupt, Job
from retinue.loop.limits import Countdown
from retinue.loop.prompts import prompt
from retinue.models.protocol import MeasuredConversation, Model, ModelRequest, estimate

Reason = Literal["threshold", "overflow", "manual"]

MOST_OVERFLOWS = 3
_ROOM_AFTER = 0.5
_OVERFLOW_ROOM = (0.5, 0.3, 0.15)
_PEOPLES_SHARE = 0.1
_TAIL_SHARE = 0.6
_OUTPUT_CUTS = (8_000, 2_000, 500, 200)
_TARGET_OF_THRESHOLD = 0.6
_STAYS_SHARE = 0.25
_SUMMARY_HEADING = "[The earlier part of this conversation was replaced by this summary of it.]"
_REMINDER_HEADING = "[Older output was removed from this conversation. As things stand:]"


class Compactor:
    """Decides when to compact, and compacts."""

    def __init__(
        self, job: Job, model: Model, interrupt: Interrupt, idle: Countdown, files: Callable[[], str] = str
    ) -> None:
        """`files` names the files that the run has read and changed."""
        self._job = job
        self._files = files
        self._model = model
        self._interrupt = interrupt
        self._idle = idle
        self._not_before = 0.0
        self.overflows = 0
        self._usage = Usage()
        self._wish = ""

    def is_due(self, conversation: MeasuredConversation) -> bool:
        share = self._job.compaction.at
        if share is None or self._model.info.window <= 0:
            return False
        return conversation.tokens >= max(share * self._model.info.window, self._not_before)

    def take_usage(self) -> Usage:
        """Return what its own requests have cost since the last time it was asked."""
        usage, self._usage = self._usage, Usage()
        return usage

    def is_asked(self, wish: str | None) -> bool:
        """Return whether a person asked for shortening, whose wish for the summary is kept until it is made."""
        self._wish = wish or ""
        return wish is not None

    async def compact(self, conversation: MeasuredConversation, reason: Reason) -> Compacted | None:
        """Shorten the conversation in place. None if there was nothing to gain, or the run was
        interrupted meanwhile."""
        before = conversation.tokens
        whole = await aside(estimate, conversation.messages)
        made = await self._shorter(conversation, whole, reason)
        if made is None or self._interrupt.ending is not None:
            # Trying again before the conversation has grown would cost a request each turn.
            self._not_before = before * 1.1
            return None
        method, messages = made
        saved = whole - estimate(messages)
        after = max(round(before - saved * conversation.scale(whole)), 1)
        # A conversation that cannot get smaller than the threshold must not be compacted every turn.
        self._not_before = after * 1.25
        conversation.replace(messages, after)
        return Compacted(reason, method, before, after, tuple(messages))

    async def _shorter(
        self, conversation: MeasuredConversation, whole: int, reason: Reason
    ) -> tuple[Literal["pruned", "summarised"], list[Message]] | None:
        messages, scale = _without_reminders(conversation.messages), conversation.scale(whole)
        target = self._target(conversation.tokens, reason) / scale
        fixed = conversation.tokens / scale - whole
        if reason != "manual":
            start = shrink.tail_start(messages, self._job.compaction.keep_turns)
            pruned = await aside(shrink.prune, messages, start, self._repeatable)
            if fixed + await aside(estimate, pruned) <= target and pruned != messages:
                return "pruned", self._reminded(pruned, start)
        kept, gone, tail = await aside(self._parts, messages, target)
        if not gone:
            shorter = [*kept, *tail]
            if estimate(shorter) < estimate(messages):
                return ("pruned", shorter)
            return None
        summary = await self._summary(gone, [*kept, *tail])
        note = summary
        if not note:
            calls = await aside(shrink.calls_made, gone, max(int(target), 400))
            note = prompt("dropped", count=_turns(gone), calls=calls)
        shorter = [*kept, user("\n\n".join(filter(None, (note, self._reminder()))), "summary"), *tail]
        # A summary can be longer than what it replaces.
        if estimate(shorter) >= whole:
            return None
        return ("summarised" if summary else "pruned"), shorter

    def _reminded(self, messages: list[Message], start: int) -> list[Message]:
        """Add, before the newest turns, facts that only the outputs now cut may have held."""
        reminder = self._reminder()
        if not reminder:
            return messages
        return [*messages[:start], user(f"{_REMINDER_HEADING}\n\n{reminder}", "summary"), *messages[start:]]

    def _reminder(self) -> str:
        return "\n\n".join(filter(None, (self._job.remind(), self._files())))

    def _repeatable(self, name: str) -> bool:
        """Return whether a call of a tool of this run may be made again only to see its output."""
        for tool in self._job.tools:
            if tool.spec.name == name and tool.spec.effects:
                return tool.spec.effects <= {"read", "network"}
        return shrink.is_repeatable(name)

    def _target(self, tokens: int, reason: Reason) -> float:
        window = self._model.info.window
        match reason:
            case "threshold":  # well below the threshold, or the next turn would reach it again
                share = self._job.compaction.at
                return min(_ROOM_AFTER, _TARGET_OF_THRESHOLD * (share or 1.0)) * window
            case "manual":
                return _ROOM_AFTER * min(window, tokens)
            case "overflow":
                return _OVERFLOW_ROOM[min(self.overflows, MOST_OVERFLOWS) - 1] * min(window, tokens)

    def _parts(self, messages: Sequence[Message], target: float) -> tuple[list[Message], list[Message], list[Message]]:
        """Return what stays, what goes, and as many of the newest turns as fit; one at least, if need be with its
        outputs cut."""
        start = 0
        for turns in range(max(self._job.compaction.keep_turns, 1), 0, -1):
            start = shrink.tail_start(messages, turns)
            if estimate(messages[start:]) <= _TAIL_SHARE * target:
                kept, gone, tail = shrink.split(messages, start)
                return *self._bounded(kept, gone, target), tail
        tail = list(messages[start:])
        for characters in _OUTPUT_CUTS:
            tail = shrink.cut_outputs(tail, characters)
            if estimate(tail) <= _TAIL_SHARE * target:
                break
        kept, gone, _ = shrink.split(messages, start)
        return *self._bounded(kept, gone, target), tail

    def _bounded(self, kept: list[Message], gone: list[Message], target: float) -> tuple[list[Message], list[Message]]:
        """The task stays whatever its size; of later words only as many as leave room."""
        room = _PEOPLES_SHARE * target
        words: list[Message] = []
        for message in reversed(kept[1:]):
            room -= estimate((message,))
            if room < 0:
                break
            words.insert(0, message)
        folded = kept[1 : len(kept) - len(words)]
        return [*kept[:1], *words], [*folded, *gone]

    async def _summary(self, gone: Sequence[Message], stays: Sequence[Message]) -> str:
        """Return what the model makes of `gone`, knowing what `stays`; empty if it could not."""
        info = self._model.info
        words = min(max(info.window // 40, 150), 1_500)
        text = _framed("conversation", await aside(shrink.transcript, gone, info.window * 2))
        known = _framed("stays", shrink.transcript(stays, int(info.window * _STAYS_SHARE)))
        system = prompt("summary", words=words)
        if self._wish:
            system += f"\n\nThe person wants this kept above all: {self._wish}"
        request = ModelRequest(
            system=system,
            messages=(_data(f"{known}\n\n{text}"),),
            max_output=min(words * 3, info.max_output),
            thinking="off",  # it counts towards the limit and would leave no room for the summary
            temperature=self._job.temperature,
        )
        ask = ModelTurn(self._model, request, self._interrupt, self._idle, self._job.clock)
        try:
            while await ask.next() is not None:
                pass
        finally:
            await ask.close()
        self._usage += ask.message.usage
        said = ask.message.text.strip()
        if not said or ask.message.stop in ("error", "refusal", "aborted"):
            return ""
        return f"{_SUMMARY_HEADING}\n\n{said}"


def _without_reminders(messages: Sequence[Message]) -> list[Message]:
    """An earlier reminder is replaced by the next: what it said may not be true any more."""
    return [
        message
        for message in messages
        if not (isinstance(message, UserMessage) and message.text.startswith(_REMINDER_HEADING))
    ]


def _framed(name: str, text: str) -> str:
    """`text` between tags that nothing in it can close."""
    for frame in ("conversation", "stays"):
        text = text.replace(f"</{frame}", f"< /{frame}")
    return f"<{name}>\n{text}\n</{name}>"


def _data(text: str) -> UserMessage:
    return user(text, "context")


def _turns(messages: Sequence[Message]) -> int:
    return sum(isinstance(message, AssistantMessage) for message in messages)
