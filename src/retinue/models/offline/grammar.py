"""Tool calls for models whose chat template knows no tools.

The tools are described in the system prompt, a call is one JSON object, and a grammar leaves
the model no way to write a broken one: under "required" only a call of an offered tool with
arguments of its schema, under "auto" that or plain text, told apart by the first character.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

import orjson

from retinue.core.messages import AssistantMessage, Message, Text, ToolCall, ToolMessage
from retinue.core.tool import ToolSpec
from retinue.models.draft import parse_arguments
from retinue.models.protocol import result_text, sent_arguments

_INTRODUCTION = (
    "# Tools\n"
    'To use a tool, answer with one JSON object and nothing else: {"tool": NAME, "arguments": {…}}\n'
    "You will then be given its result. To answer without a tool, write plain text.\n"
)


def describe(tools: Sequence[ToolSpec]) -> str:
    """Return a part of the system prompt: one line for each tool, as short as can be."""
    return _INTRODUCTION + "\n".join(f"- {tool.name} {_parameters(tool)}: {_first_line(tool)}" for tool in tools)


def conversation(system: str, messages: Iterable[Message]) -> list[dict[str, str]]:
    """Turns of two speakers, in turn: calls as the model writes them, results as told by the
    user. Templates without tools know no other roles, and some insist on the alternation."""
    turns: list[dict[str, str]] = [{"role": "system", "content": system}] if system else []
    for message in messages:
        role, text = _turn(message)
        if not text:
            continue
        if turns and turns[-1]["role"] == role:
            turns[-1]["content"] += f"\n\n{text}"
        else:
            turns.append({"role": role, "content": text})
    return turns


def call_schema(tools: Iterable[ToolSpec]) -> dict[str, Any]:
    return {
        "anyOf": [
            {
                "type": "object",
                "properties": {"tool": {"const": tool.name}, "arguments": _object(tool.parameters)},
                "required": ["tool", "arguments"],
                "additionalProperties": False,
            }
            for tool in tools
        ]
    }


def grammar(
    tools: Iterable[ToolSpec], choice: Literal["auto", "required"], to_grammar: Callable[[dict[str, Any]], str]
) -> str:
    """`to_grammar` is the engine's own translation of a JSON Schema; its two dialects, Lark for
    llguidance and GBNF, are extended by the alternative of plain text."""
    made = to_grammar(call_schema(tools))
    if choice == "required":
        return made
    if made.startswith("%llguidance"):
        called = re.sub(r"(?m)^start:", "call:", made, count=1)
        return f"{called.rstrip()}\nstart: call | text\ntext: /[^{{\\s][\\s\\S]*/\n"
    called = re.sub(r"(?m)^root ::=", "call ::=", made, count=1)
    return f"{called.rstrip()}\nroot ::= call | text\ntext ::= [^{{ \\t\\n] [^\\x00]*\n"


class CallReader:
    """Tells a call from plain text while it streams: text is handed on piece by piece, a call
    is kept until it is whole."""

    def __init__(self) -> None:
        self._kept = ""
        self._is_text = False

    def feed(self, piece: str) -> str:
        """Return the text that may be shown now."""
        if self._is_text:
            return piece
        self._kept += piece
        if not self._kept.strip() or self._kept.lstrip().startswith("{"):
            return ""
        self._is_text = True
        kept, self._kept = self._kept, ""
        return kept

    def end(self, names: Iterable[str]) -> tuple[str, str] | str:
        """Return the call as (name, arguments), or the rest of the text when it was none after all."""
        if not self._kept.strip():
            return ""
        value, broken = parse_arguments(self._kept.strip())
        name, arguments = value.get("tool"), value.get("arguments")
        if broken is not None or name not in set(names):
            return self._kept
        return str(name), orjson.dumps(arguments if isinstance(arguments, Mapping) else {}).decode()


def _turn(message: Message) -> tuple[str, str]:
    if isinstance(message, ToolMessage):
        results = []
        for r in message.results:
            results.append(f"Result of {r.name}{' (failed)' if r.is_error else ''}:\n{result_text(r)}")
        return "user", "\n\n".join(results)
    if isinstance(message, AssistantMessage):
        parts = [_part(part) for part in message.content if isinstance(part, (Text, ToolCall))]
        return "assistant", "\n".join(part for part in parts if part)
    return "user", message.text


def _part(part: Text | ToolCall) -> str:
    if isinstance(part, Text):
        return part.text
    return orjson.dumps({"tool": part.name, "arguments": sent_arguments(part)}).decode()


def _object(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """A schema of an object, whatever was given. An object that says nothing about other keys
    is closed: a small model would fill them forever."""
    if parameters.get("type") != "object":
        return {"type": "object", "additionalProperties": False}
    return {"additionalProperties": False, **parameters}


def _parameters(tool: ToolSpec) -> str:
    required = tool.parameters.get("required") or ()
    properties = tool.parameters.get("properties")
    parts = []
    for name, schema in properties.items() if isinstance(properties, Mapping) else ():
        kind = "any"
        if isinstance(schema, Mapping):
            kind = schema.get("type", "any")
        parts.append(f'"{name}"{"" if name in required else "?"}: {kind}')
    return "{" + ", ".join(parts) + "}"


def _first_line(tool: ToolSpec) -> str:
    return tool.description.strip().partition("\n")[0][:200]
