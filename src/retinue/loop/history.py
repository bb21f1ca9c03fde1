"""The conversation of a run kept valid, and its counters.

A conversation is valid when every tool call has exactly one result, in call order, in the message
right after it, and no two calls share an id.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import orjson

from retinue.core.messages import AssistantMessage, Message, ToolCall
from retinue.core.outcome import CUT_OFF, SUCCESS, Failure, Outcome
from retinue.core.usage import Usage
from retinue.log.replay import closed
from retinue.loop.finish import Collector, Ending
from retinue.loop.job import Job


class Tally:
    """Lifetime counters: they begin with what the run had used before it was resumed."""

    def __init__(self, job: Job, model: str) -> None:
        self._job = job
        self._began = job.clock.monotonic()
        self._model = model
        self._text = ""
        self._continues = False
        self.truncated = False
        """Whether the newest answer was cut off at the output limit."""
        self.usage: Usage = job.prior.usage
        self.turns = job.prior.turns
        self.tool_uses = job.prior.tool_uses
        self.compactions = job.prior.compactions
        self.evidence = Collector()
        self.notes: list[str] = []

    @property
    def text(self) -> str:
        """The last text of this attempt: the answer, or what is left of it."""
        return self._text

    def answered(self, message: AssistantMessage, shown: str) -> None:
        """Remember the last text of this attempt of the run: the answer, or what is left of it."""
        self.usage += message.usage
        self.turns += 1
        said = message.text
        self.truncated = message.stop == "length" and not message.tool_calls
        continued, self._continues = self._continues, False
        if said.strip():
            self._text = self._text + said if continued else said
        elif message.failure is not None and shown.strip():
            self._text = shown

    def continues(self) -> None:
        """The next answer goes on where the newest one was cut off."""
        self._continues = True

    def not_continued(self, failure: Failure) -> None:
        """The answer stays as it was cut off."""
        self.truncated = True
        self.notes.append(f"The rest of its answer could not be had: {failure.message}")

    def outcome(self, ending: Ending) -> Outcome:
        text = self._text if ending.text is None else ending.text
        truncated = self.truncated and ending.ended in SUCCESS and ending.text is None
        notes = [*self.notes, *([f"Its answer was {CUT_OFF}: the end is missing."] if truncated else [])]
        return Outcome(
            ended=ending.ended,
            text=text,
            partial=bool(text) and ending.ended not in SUCCESS,
            truncated=truncated,
            value=ending.value,
            failure=ending.failure,
            limit=ending.limit,
            usage=self.usage,
            turns=self.turns,
            tool_uses=self.tool_uses,
            compactions=self.compactions,
            duration_ms=round((self._job.clock.monotonic() - self._began) * 1000),
            model=self._model,
            evidence=self.evidence.evidence(),
            notes=tuple(notes),
        )


def failure_of(message: AssistantMessage) -> Failure | None:
    """Why a message is not an answer; None if it is one, even an empty one."""
    match message.stop:
        case "error":
            return message.failure or Failure("server", "The provider failed without saying why.")
        case "refusal":
            said = "The model or a safety system of its provider declined to answer."
            return message.failure or Failure("refused", said, "Rephrase the task, or use another model.")
        case "length" if not message.text.strip() and not message.tool_calls:
            said = "The run hit the output token limit before producing any text."
            return Failure("length", said, "Raise the output limit, or lower the thinking level.")
        case "aborted":
            return message.failure or Failure("stopped", "The answer was cut off.")
        case _:
            return None


def mend(messages: Sequence[Message]) -> list[Message]:
    """A history that a model accepts: every call answered, no message of the model empty."""
    return closed(m for m in messages if not isinstance(m, AssistantMessage) or m.content)


def used_ids(messages: Iterable[Message]) -> set[str]:
    return {call.id for message in messages if isinstance(message, AssistantMessage) for call in message.tool_calls}


def settled(message: AssistantMessage, used: set[str]) -> AssistantMessage:
    """The message as it may enter a conversation: no tool calls if it failed, no call id that
    is empty or was used before, no arguments that could not be written down again. `used`
    learns the ids of this message."""
    calls = message.tool_calls
    if not calls:
        return message
    if message.stop in ("error", "aborted", "refusal"):
        return replace(message, content=tuple(part for part in message.content if not isinstance(part, ToolCall)))
    ids = [call.id for call in calls]
    distinct = "" not in ids and len(set(ids)) == len(ids) and used.isdisjoint(ids)
    if distinct and all(_is_json(call.arguments) for call in calls):
        used.update(ids)
        return message
    content = tuple(_settled(part, used) if isinstance(part, ToolCall) else part for part in message.content)
    return replace(message, content=content)


def _settled(call: ToolCall, used: set[str]) -> ToolCall:
    renamed = _renamed(call, used)
    if _is_json(call.arguments):
        return renamed
    return replace(renamed, arguments={}, broken=call.broken or "(nested too deeply, or not text)")


def _is_json(arguments: Mapping[str, Any]) -> bool:
    try:
        orjson.dumps(arguments, default=dict)
    except TypeError:
        return False
    return True


def _renamed(call: ToolCall, used: set[str]) -> ToolCall:
    name, number = call.id or "call", 1
    while name in used or not name:
        number += 1
        name = f"{call.id or 'call'}-{number}"
    used.add(name)
    return call if name == call.id else replace(call, id=name)
