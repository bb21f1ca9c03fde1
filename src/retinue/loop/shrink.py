"""Ways to make a conversation smaller, as pure functions. None splits a call from its result,
and none loses the task or what people said."""

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
from retinue.core.tool_names import TOOLS, canonical

_WORTH_PRUNING = 400
_DONE_KEPT = 300
"""Characters that stay of the output of a call that must not be made again just to see it: its beginning, where ids
stand, and its end, where exit codes do."""
_CUTS = ((4_000, 4_000), (1_000, 4_000), (300, 2_000), (300, 1_000), (160, 400))
"""Characters per message in a transcript: of the older half, and of the newer one."""
_CHANGING = frozenset({"edit", "write", "apply_patch", "notebook_edit"})
_ARGUMENT_KEPT = 2_000
_PEOPLE: frozenset[str] = frozenset({"task", "steer", "follow-up"})


def is_repeatable(name: str) -> bool:
    """Return whether a tool may be called again only to see its output: it looks, and does nothing."""
    meant = canonical(name)
    return bool(meant) and all(each in _TELLING or (TOOLS[each] and TOOLS[each] <= _LOOKING) for each in meant)


_LOOKING = frozenset({"read", "network"})
_TELLING = frozenset({"get_subagent_result", "get_search_content", "list_subagents"})


def tail_start(messages: Sequence[Message], turns: int) -> int:
    """Return where the newest `turns` turns begin: always at a message of the model."""
    starts = [index for index, message in enumerate(messages) if isinstance(message, AssistantMessage)]
    if 0 < turns <= len(starts):
        return starts[-turns]
    if starts and turns:
        return starts[0]
    return len(messages)


def prune(messages: Sequence[Message], end: int, repeatable: Callable[[str], bool] = is_repeatable) -> list[Message]:
    """Old tool outputs before `end` become one line each; so do very long arguments. Of tools that
    are not `repeatable`, the beginning and the end of the output stay: an id, an exit code."""
    return [*(_pruned(message, repeatable) for message in messages[:end]), *messages[end:]]


def cut_outputs(messages: Sequence[Message], characters: int) -> list[Message]:
    """Every tool output keeps only its beginning and end. The last resort before dropping."""
    return [_cut_message(message, characters) for message in messages]


def split(messages: Sequence[Message], tail: int) -> tuple[list[Message], list[Message], list[Message]]:
    """The conversation as (kept words of people, what may go, newest turns).

    The first message of the kept is the task; later instructions follow in order.
    """
    middle = messages[:tail]
    people = [message for message in middle if isinstance(message, UserMessage)]
    # A fork has no task of its own: what people said first stands for it.
    task = next(iter(people), None)
    for said in people:
        if said.origin == "task":
            task = said
            break
    kept: list[Message] = [] if task is None else [task]
    gone: list[Message] = []
    for message in middle:
        if message is not task:
            by_people = isinstance(message, UserMessage) and message.origin in _PEOPLE
            if by_people:
                kept.append(message)
            else:
                gone.append(message)
    return kept, gone, list(messages[tail:])


def transcript(messages: Sequence[Message], characters: int) -> str:
    """The conversation as plain text of at most about `characters`, for a summary."""
    half = len(messages) // 2
    text = ""
    for older, newer in _CUTS:
        lines: list[str] = []
        for index, message in enumerate(messages):
            most = older if index < half else newer
            lines += _lines(message, most)
        text = "\n\n".join(lines)
        if len(text) <= characters:
            return text
    return cut(text, characters)


def calls_made(messages: Sequence[Message], characters: int) -> str:
    """One line per tool call, newest last; what a run knows when no summary can be made."""
    lines: list[str] = []
    for message in messages:
        if isinstance(message, AssistantMessage):
            lines += [f"- {describe(call)}" for call in message.tool_calls]
    return cut("\n".join(lines), characters) or "- none"


def describe(call: ToolCall, characters: int = 160) -> str:
    """A call on one line, for people and for models."""
    arguments = call.broken if call.broken is not None else _json(call.arguments)
    return cut(f"{call.name} {arguments}", characters)


def cut(text: str, characters: int) -> str:
    """`text`, or its beginning and end with the number of characters left out between."""
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
            if any(len(_json(call.arguments)) > _ARGUMENT_KEPT for call in message.tool_calls):
                content = list(message.content)
                for index, part in enumerate(content):
                    if isinstance(part, ToolCall):
                        content[index] = _shorter(part)
                return replace(message, content=tuple(content))
            return message
        case UserMessage():
            return message


def _stub(result: ToolResult, repeatable: bool) -> ToolResult:
    images = sum(isinstance(part, Image) for part in result.content)
    documents = sum(isinstance(part, Document) for part in result.content)
    text = result.text
    if len(text) <= _WORTH_PRUNING and not images and not documents:
        return result
    what = f"{len(text)} characters"
    if images:
        what += f" and {images} image(s)"
    if documents:
        what += f" and {documents} document(s)"
    # An error is short and tells what not to try again.
    if repeatable and not result.is_error:
        return replace(result, content=(Text(f"[Output removed to save space: {what}. {_AGAIN}]"),))
    advice = "" if result.is_error else f" {_DONE}"
    stub = f"{cut(text, _DONE_KEPT)}\n[Of {what} only the beginning and the end are left, to save space.{advice}]"
    # Of an output that is only a little longer than what stays of it, nothing would be saved.
    if len(stub) >= len(text) and not images and not documents:
        return result
    return replace(result, content=(Text(stub),))


_AGAIN = "Call the tool again if you need it."
_DONE = "The call was made: do not repeat it to see the output."


def _shorter(call: ToolCall) -> ToolCall:
    return replace(call, arguments={key: _short_value(value) for key, value in call.arguments.items()})


def _short_value(value: Any) -> Any:
    if isinstance(value, str):
        return cut(value, _WORTH_PRUNING)
    if len(_json({"value": value})) > _ARGUMENT_KEPT:
        return f"[{type(value).__name__} removed to save space]"
    return value


def _cut_message(message: Message, characters: int) -> Message:
    if not isinstance(message, ToolMessage):
        return message
    results = []
    for result in message.results:
        if len(result.text) > characters or any(isinstance(part, (Image, Document)) for part in result.content):
            result = replace(result, content=(Text(cut(result.text, characters)),))
        results.append(result)
    return ToolMessage(tuple(results))


def _lines(message: Message, characters: int) -> list[str]:
    match message:
        case UserMessage():
            return [f"[{message.origin}] {cut(message.text, max(characters, 1_000))}"]
        case AssistantMessage():
            said = [f"[agent] {cut(message.text, max(characters, 300))}"] if message.text.strip() else []
            return said + [f"[call] {describe(call, max(characters // 4, 160))}" for call in message.tool_calls]
        case ToolMessage():
            return [_result_line(result, characters) for result in message.results]


def _result_line(result: ToolResult, characters: int) -> str:
    """Errors and changes of files are cut later than what can be looked up again."""
    matters = result.is_error or not _CHANGING.isdisjoint(canonical(result.name))
    kind = "error" if result.is_error else "output"
    return f"[{kind} of {result.name}] {cut(result.text, max(characters, 600) if matters else characters)}"


def _json(value: Mapping[str, Any]) -> str:
    return orjson.dumps(value, default=dict).decode()
