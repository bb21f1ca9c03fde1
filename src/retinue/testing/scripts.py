"""The steps of a scripted model: the parts of a turn, and a way to write them as text.

    think: it should be in the settings
    say: Let me look.
    call: read {"path": "settings.py"}
    ---
    say: It is in line 12.

A line is `word: argument`; `---` ends a turn; a line that starts with two blanks continues the line
before it. Words: say, think, call, fail, usage, stop, hang, expect.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, get_args

from msgspec import Struct, field

from retinue.core.messages import StopReason
from retinue.core.outcome import FailureKind
from retinue.core.usage import Usage
from retinue.models.protocol import ModelRequest


class Say(Struct, frozen=True):
    """Text. `chunks` is the number of deltas in which it is streamed; with 0 it is in the final message only."""

    text: str
    chunks: int = 1


class Think(Struct, frozen=True):
    text: str
    signature: str | None = None


class Call(Struct, frozen=True):
    """A tool call. Ids count up through the script unless given; `broken` is the raw text of arguments that are not a
    JSON object."""

    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    id: str | None = None
    broken: str | None = None


class Fail(Struct, frozen=True):
    """A failure of the request. Earlier text of the turn is kept as partial text."""

    kind: FailureKind = "server"
    message: str = "scripted failure"
    retry_after: float | None = None


class Retry(Struct, frozen=True):
    """A new attempt of the model layer. Text that was streamed before it is discarded."""

    kind: FailureKind = "overloaded"
    delay: float = 0.0
    attempt: int = 1


class Wait(Struct, frozen=True):
    """A pause until `event` is set: a moment that the test chooses, instead of a sleep."""

    event: asyncio.Event


class Pulse(Struct, frozen=True):
    """A sign of life that shows nothing, such as a piece of a long argument."""


class Hang(Struct, frozen=True):
    """A stream that never continues. It can be cancelled, like a dead connection."""


class Do(Struct, frozen=True):
    """A function that is called in the middle of the stream: to steer, to stop, to move a clock."""

    action: Callable[[], object]


class Expect(Struct, frozen=True):
    """A check of the request to the model: a text that the newest message must contain, or a function of the whole
    request that returns False or raises if it is wrong."""

    what: str | Callable[[ModelRequest], object]


class Stop(Struct, frozen=True):
    """The stop reason, where it is not the usual one."""

    reason: StopReason


class Spend(Struct, frozen=True):
    """The usage the provider reports for this turn."""

    usage: Usage


Step = Say | Think | Call | Fail | Retry | Wait | Pulse | Hang | Do | Expect | Stop | Spend


@dataclass(frozen=True, slots=True, init=False)
class Turn:
    """One answer of the model. A plain string is a `Say`."""

    steps: tuple[Step, ...]

    # By hand, so that a turn takes its steps as arguments and plain strings among them.
    def __init__(self, *steps: Step | str) -> None:
        object.__setattr__(self, "steps", tuple(Say(step) if isinstance(step, str) else step for step in steps))


def script(text: str) -> list[Turn]:
    """Return the turns of a script. Raise ValueError, which names the line that cannot be read."""
    turns: list[Turn] = []
    steps: list[Step] = []
    for number, line in _join_lines(text):
        if line.strip() == "---":
            turns.append(Turn(*steps))
            steps = []
            continue
        word, _, argument = line.partition(":")
        try:
            steps.append(_step(word.strip(), argument.strip()))
        except (ValueError, TypeError) as error:
            raise ValueError(f"line {number} of the script: {error}") from error
    if steps:
        turns.append(Turn(*steps))
    return turns


def _join_lines(text: str) -> list[tuple[int, str]]:
    lines: list[tuple[int, str]] = []
    for number, line in enumerate(text.strip("\n").split("\n"), 1):
        if line.startswith("  ") and lines:
            first, before = lines[-1]
            lines[-1] = (first, f"{before}\n{line[2:]}")
        elif line.strip():
            lines.append((number, line))
    return lines


def _step(word: str, argument: str) -> Step:
    match word:
        case "say":
            return Say(argument)
        case "think":
            return Think(argument)
        case "call":
            return _call(argument)
        case "fail":
            kind, _, message = argument.partition(" ")
            return Fail(_one_of(FailureKind, kind), message.strip() or "scripted failure")
        case "usage":
            return Spend(Usage(**json.loads(argument)))
        case "stop":
            return Stop(_one_of(StopReason, argument))
        case "hang":
            return Hang()
        case "expect":
            return Expect(argument)
        case _:
            raise ValueError(f"there is no step {word!r}; steps are say, think, call, fail, usage, stop, hang, expect")


def _call(argument: str) -> Call:
    name, _, arguments = argument.partition(" ")
    if not arguments.strip():
        return Call(name)
    try:
        data = json.loads(arguments)
    except ValueError:
        return Call(name, broken=arguments)
    return Call(name, data) if isinstance(data, dict) else Call(name, broken=arguments)


def _one_of(literal: Any, word: str) -> Any:
    if word not in get_args(literal):
        raise ValueError(f"{word!r} is none of {', '.join(get_args(literal))}")
    return word
