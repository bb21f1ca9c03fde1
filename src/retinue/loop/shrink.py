"""Pure functions that make a conversation smaller. None of them separates a call from its result, and none loses the
task or the messages of people."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import orjson
from msgspec.structs import replace

from retinue.core.messages import (
    AssistantMessage,
    Document,
    Image,
    Message,
    Text,
    ToolCall,
    ToolMessage,
    ToolResult,
    UserMessage,
)
from retinue.core.tool_names import TOOL_EFFECTS, canonical

_MIN_PRUNED_CHARACTERS = 400
_KEPT_OUTPUT_CHARACTERS = 300
"""Characters that stay of an output whose call must not be repeated: the beginning, which contains ids, and the end,
which contains exit codes."""
_TRANSCRIPT_CHARACTERS = ((4_000, 4_000), (1_000, 4_000), (300, 2_000), (300, 1_000), (160, 400))
"""Characters per message in a transcript, for the older and the newer half. The first pair that fits is used."""
_CHANGING_TOOLS = frozenset({"edit", "write", "apply_patch", "notebook_edit"})
_MAX_ARGUMENT_CHARACTERS = 2_000
_ORIGINS_OF_PEOPLE: frozenset[str] = frozenset({"task", "steer", "follow-up"})


def is_repeatable(name: str) -> bool:
    """Return whether a call of this tool may be repeated only to see its output, because it changes nothing."""
    meant = canonical(name)
    return bool(meant) and all(
        candidate in _REPORTING_TOOLS or (TOOL_EFFECTS[candidate] and TOOL_EFFECTS[candidate] <= _READING_EFFECTS)
        for candidate in meant
    )


_READING_EFFECTS = frozenset({"read", "network"})
_REPORTING_TOOLS = frozenset({"get_subagent_result", "get_search_content", "list_subagents"})


def tail_start(messages: Sequence[Message], turns: int) -> int:
    """Return where the newest `turns` turns begin: always at a message of the model."""
    starts = [index for index, message in enumerate(messages) if isinstance(message, AssistantMessage)]
    if 0 < turns <= len(starts):
        return starts[-turns]
    if starts and turns:
        return starts[0]
    return len(messages)


def prune(messages: Sequence[Message], end: int, repeatable: Callable[[str], bool] = is_repeatable) -> list[Message]:
    """Replace old tool outputs and very long arguments before `end` by one line each.

    Of an output whose tool is not `repeatable`, the beginning and the end stay: an id, an exit code.
    """
    return [*(_pruned(message, repeatable) for message in messages[:end]), *messages[end:]]


def cut_outputs(messages: Sequence[Message], characters: int) -> list[Message]:
    """Cut every tool output to its beginning and end. This is the last step before turns are dropped."""
    return [_cut_message(message, characters) for message in messages]


def split(messages: Sequence[Message], tail: int) -> tuple[list[Message], list[Message], list[Message]]:
    """Split a conversation into (instructions of people, messages that may be removed, newest turns).

    The first instruction is the task; later ones follow in order.
    """
    middle = messages[:tail]
    people = [message for message in middle if isinstance(message, UserMessage)]
    # A fork has no task of its own: the first message of a person takes its place.
    task = next(iter(people), None)
    for user_message in people:
        if user_message.origin == "task":
            task = user_message
            break
    instructions: list[Message] = [] if task is None else [task]
    removable: list[Message] = []
    for message in middle:
        if message is not task:
            by_people = isinstance(message, UserMessage) and message.origin in _ORIGINS_OF_PEOPLE
            if by_people:
                instructions.append(message)
            else:
                removable.append(message)
    return instructions, removable, list(messages[tail:])


def transcript(messages: Sequence[Message], characters: int) -> str:
    """Return the conversation as plain text of about `characters` at most, for a summary."""
    half = len(messages) // 2
    text = ""
    for older, newer in _TRANSCRIPT_CHARACTERS:
        lines: list[str] = []
        for index, message in enumerate(messages):
            lines += _lines(message, older if index < half else newer)
        text = "\n\n".join(lines)
        if len(text) <= characters:
            return text
    return cut(text, characters)


def calls_made(messages: Sequence[Message], characters: int) -> str:
    """Return one line per tool call, newest last, for use where no summary could be written."""
    lines: list[str] = []
    for message in messages:
        if isinstance(message, AssistantMessage):
            lines += [f"- {describe(call)}" for call in message.tool_calls]
    return cut("\n".join(lines), characters) or "- none"


def describe(call: ToolCall, characters: int = 160) -> str:
    """Return a call on one line, for people and for models."""
    arguments = call.broken if call.broken is not None else _json(call.arguments)
    return cut(f"{call.name} {arguments}", characters)


def cut(text: str, characters: int) -> str:
    """Return `text`, or its beginning and end with the number of characters left out between them."""
    if len(text) <= characters:
        return text
    head = characters * 2 // 3
    foot = characters - head
    return f"{text[:head]}\n[… {len(text) - characters} characters left out …]\n{text[len(text) - foot :]}"


def _pruned(message: Message, repeatable: Callable[[str], bool]) -> Message:
    match message:
        case ToolMessage():
            return ToolMessage(tuple(_stub(result, repeatable(result.name)) for result in message.results))
        case AssistantMessage():
            if any(len(_json(call.arguments)) > _MAX_ARGUMENT_CHARACTERS for call in message.tool_calls):
                content = list(message.content)
                for index, block in enumerate(content):
                    if isinstance(block, ToolCall):
                        content[index] = _shorter(block)
                return replace(message, content=tuple(content))
            return message
        case UserMessage():
            return message


def _stub(result: ToolResult, repeatable: bool) -> ToolResult:
    images = sum(isinstance(block, Image) for block in result.content)
    documents = sum(isinstance(block, Document) for block in result.content)
    text = result.text
    if len(text) <= _MIN_PRUNED_CHARACTERS and not images and not documents:
        return result
    size = f"{len(text)} characters"
    if images:
        size += f" and {images} image(s)"
    if documents:
        size += f" and {documents} document(s)"
    # An error is short and shows the model what not to repeat.
    if repeatable and not result.is_error:
        return replace(result, content=(Text(f"[Output removed to save space: {size}. {_CALL_AGAIN_ADVICE}]"),))
    advice = "" if result.is_error else f" {_DO_NOT_REPEAT_ADVICE}"
    removed = f"[Of {size} only the beginning and the end are left, to save space.{advice}]"
    stub = f"{cut(text, _KEPT_OUTPUT_CHARACTERS)}\n{removed}"
    # An output that is only a little longer than its replacement stays.
    if len(stub) >= len(text) and not images and not documents:
        return result
    return replace(result, content=(Text(stub),))


_CALL_AGAIN_ADVICE = "Call the tool again if you need it."
_DO_NOT_REPEAT_ADVICE = "The call was made: do not repeat it to see the output."


def _shorter(call: ToolCall) -> ToolCall:
    return replace(call, arguments={key: _short_value(value) for key, value in call.arguments.items()})


def _short_value(value: Any) -> Any:
    if isinstance(value, str):
        return cut(value, _MIN_PRUNED_CHARACTERS)
    if len(_json({"value": value})) > _MAX_ARGUMENT_CHARACTERS:
        return f"[{type(value).__name__} removed to save space]"
    return value


def _cut_message(message: Message, characters: int) -> Message:
    if not isinstance(message, ToolMessage):
        return message
    results = []
    for result in message.results:
        if len(result.text) > characters or any(isinstance(block, (Image, Document)) for block in result.content):
            result = replace(result, content=(Text(cut(result.text, characters)),))
        results.append(result)
    return ToolMessage(tuple(results))


def _lines(message: Message, characters: int) -> list[str]:
    match message:
        case UserMessage():
            return [f"[{message.origin}] {cut(message.text, max(characters, 1_000))}"]
        case AssistantMessage():
            lines = [f"[agent] {cut(message.text, max(characters, 300))}"] if message.text.strip() else []
            return lines + [f"[call] {describe(call, max(characters // 4, 160))}" for call in message.tool_calls]
        case ToolMessage():
            return [_result_line(result, characters) for result in message.results]


def _result_line(result: ToolResult, characters: int) -> str:
    """Return one result as text. Errors and changes of files keep more characters than outputs that can be read
    again."""
    matters = result.is_error or not _CHANGING_TOOLS.isdisjoint(canonical(result.name))
    kind = "error" if result.is_error else "output"
    return f"[{kind} of {result.name}] {cut(result.text, max(characters, 600) if matters else characters)}"


def _json(value: Mapping[str, Any]) -> str:
    return orjson.dumps(value, default=dict).decode()
