"""What a run has said and seen, as text: for peeking into it and for reading it whole."""

from __future__ import annotations

from collections.abc import Iterable

from retinue.core.events import AssistantEnded, Event, MessageAdded, ToolsEnded
from retinue.core.messages import AssistantMessage, ToolMessage

RESULT_CHARACTERS = 200


def spoken_lines(events: Iterable[Event]) -> list[str]:
    """Text of the agent and of its tool results, line by line, without blank lines."""
    lines: list[str] = []
    for event in events:
        match event.body:
            case AssistantEnded(_, message):
                lines += message.text.splitlines()
            case ToolsEnded(message):
                for result in message.results:
                    lines += result.text.splitlines()
            case _:
                pass
    return [line for line in lines if line.strip()]


def conversation_text(events: Iterable[Event]) -> str:
    """The conversation in blocks with a blank line between; tool results are shortened."""
    blocks: list[str] = []
    for event in events:
        match event.body:
            case MessageAdded(message):
                blocks.append(f"[User]: {message.text.strip()}")
            case AssistantEnded(_, answer):
                blocks += _answer(answer)
            case ToolsEnded(results):
                blocks += _results(results)
            case _:
                pass
    return "\n\n".join(blocks)


def _answer(message: AssistantMessage) -> list[str]:
    blocks = [f"[Assistant]: {message.text.strip()}"] if message.text.strip() else []
    if message.tool_calls:
        names = "\n".join(f"  Tool: {call.name or 'unknown'}" for call in message.tool_calls)
        blocks.append(f"[Tool Calls]:\n{names}")
    return blocks


def _results(message: ToolMessage) -> list[str]:
    return [f"[Tool Result ({result.name})]: {_cut(result.text.strip())}" for result in message.results]


def _cut(text: str) -> str:
    return text if len(text) <= RESULT_CHARACTERS else text[:RESULT_CHARACTERS] + "…"
