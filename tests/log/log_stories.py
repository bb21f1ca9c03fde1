"""Small true-to-life runs, as the bodies a loop would yield."""

from retinue.core.events import (
    AssistantEnded,
    MessageAdded,
    RunCreated,
    RunEnded,
    RunStarted,
    TextDelta,
    ToolEnded,
    ToolsEnded,
    ToolStarted,
    TurnEnded,
    TurnStarted,
)
from retinue.core.messages import AssistantMessage, Text, ToolCall, ToolMessage, ToolResult, user
from retinue.core.outcome import Outcome
from retinue.core.permission import ToolEffect
from retinue.core.usage import Usage

MODEL = "scripted/one"


def created(task="Find it", **changes):
    fields = {"agent": "Explore", "spec": {"name": "Explore"}, "spec_hash": "h", "model": MODEL, "cwd": "/project"}
    return RunCreated(task=task, **{**fields, **changes})


def opening(task="Find it", transcript=None, **changes):
    body = created(task, **changes)
    return [body, RunStarted(MODEL, ("read", "bash"), body.cwd, transcript), MessageAdded(user(task))]


def call(number, name="read", **arguments):
    return ToolCall(f"call_{number}", name, arguments or {"path": f"file_{number}.py"})


def result(made, text="content", is_error=False):
    return ToolResult(made.id, made.name, (Text(text),), is_error)


def answer(text="", calls=(), usage=None):
    content = (*((Text(text),) if text else ()), *calls)
    return AssistantMessage(content, "tool_use" if calls else "end", usage or Usage(10, 5, 2, 1, 0.01), MODEL)


def asking(number, calls, total=None):
    """A whole turn in which the model calls tools."""
    results = [result(made) for made in calls]
    yield TurnStarted(number)
    yield AssistantEnded(number, answer(f"Turn {number}.", calls))
    for made in calls:
        yield ToolStarted(made)
    for made, given in zip(calls, results, strict=True):
        yield ToolEnded(made.id, made.name, given, ToolEffect(reads=("file.py",)), 3)
    yield ToolsEnded(ToolMessage(tuple(results)))
    yield TurnEnded(number, Usage(10, 5, 2, 1, 0.01), total or Usage(10 * number, 5 * number, 2 * number, number, 0.01))


def saying(number, text, pieces=()):
    """A whole turn in which the model answers."""
    yield TurnStarted(number)
    for piece in pieces:
        yield TextDelta(piece)
    yield AssistantEnded(number, answer(text))
    yield TurnEnded(number, Usage(10, 5, 2, 1, 0.01), Usage(10 * number, 5 * number, 2 * number, number, 0.01))


def ending(text="Here it is.", ended="completed", **fields):
    return RunEnded(Outcome(ended, text, usage=Usage(20, 10, 4, 2, 0.02), turns=2, tool_uses=1, **fields))


def whole(task="Find it", transcript=None):
    """A run of two turns, from its creation to its end."""
    return [
        *opening(task, transcript),
        *asking(1, [call(1)]),
        *saying(2, "Here it is.", ("Here ", "it ", "is.")),
        ending(),
    ]
