"""The conversation of a run as text: whole for `verbose`, as plain lines for peeking."""

from __future__ import annotations

from collections.abc import Iterable
from typing import assert_never

from retinue.domain.messages import AssistantMessage, Message, ToolMessage, UserMessage

RESULT_SHOWN = 200
"""Characters of a tool's result in a conversation."""


def conversation_text(messages: Iterable[Message]) -> str:
    """Who said what, in blocks with blank lines between them; tool results are cut short."""
    blocks: list[str] = []
    for message in messages:
        match message:
            case UserMessage():
                blocks += [f"[User]: {message.text}"] if message.text else []
            case AssistantMessage():
                blocks += _assistant(message)
            case ToolMessage():
                blocks += [f"[Tool Result ({each.name or 'unknown'})]: {_short(each.text)}" for each in message.results]
            case _:
                assert_never(message)
    return "\n\n".join(blocks)


def spoken_lines(messages: Iterable[Message]) -> list[str]:
    """What the agent said and its tools answered, line by line, without blank lines."""
    lines: list[str] = []
    for message in messages:
        match message:
            case AssistantMessage():
                lines += message.text.splitlines()
            case ToolMessage():
                for result in message.results:
                    lines += result.text.splitlines()
            case UserMessage():
                pass
            case _:
                assert_never(message)
    return [line for line in lines if line.strip()]


def _assistant(message: AssistantMessage) -> list[str]:
    blocks = [f"[Assistant]: {message.text}"] if message.text.strip() else []
    if message.tool_calls:
        names = "\n".join(f"  Tool: {call.name or 'unknown'}" for call in message.tool_calls)
        blocks.append(f"[Tool Calls]:\n{names}")
    return blocks


def _short(text: str) -> str:
    return text if len(text) <= RESULT_SHOWN else f"{text[:RESULT_SHOWN]}..."
