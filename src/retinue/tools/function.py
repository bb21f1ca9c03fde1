"""A Python function as a tool: `@tool` reads its name, docstring and annotations.

    @tool
    async def weather(city: str, days: int = 1) -> str:
        "The forecast for a city."

Types with a JSON Schema are str, int, float, bool, list[...], dict, Literal, Optional, and unions of those. Any other
type raises UsageError when the tool is made, not when it runs.
"""

from __future__ import annotations

import asyncio
import inspect
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, overload

import orjson
from msgspec import Struct

from retinue.core.permission import EffectKind
from retinue.core.tool import ToolContext, ToolOutput, ToolSpec, failed, ok
from retinue.errors import UsageError

_JSON_TYPES: dict[Any, str] = {
    str: "string",
    int: "integer",
    float: "number",
    bool: "boolean",
    dict: "object",
    list: "array",
}


class FunctionTool(Struct, frozen=True):
    """A tool around a function. Plain functions run in a thread, so they never block the loop."""

    function: Callable[..., Any]
    spec: ToolSpec
    wants_context: bool = False

    async def run(self, call_id: str, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        keywords = dict(arguments)
        if self.wants_context:
            keywords["context"] = context
        try:
            # A plain function may block: it gets a thread.
            if inspect.iscoroutinefunction(self.function):
                value = await self.function(**keywords)
            else:
                value = await asyncio.to_thread(self.function, **keywords)
        except Exception as error:  # noqa: BLE001 - whatever a user's function raises is its result
            return failed(f"{self.spec.name} failed: {type(error).__name__}: {error}")
        return value if isinstance(value, ToolOutput) else ok(_text(value))


@overload
def tool(function: Callable[..., Any], /) -> FunctionTool: ...
@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    effects: Iterable[EffectKind] = ...,
    paths: Iterable[str] | None = ...,
) -> Callable[[Callable[..., Any]], FunctionTool]: ...
def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    effects: Iterable[EffectKind] = ("execute",),
    paths: Iterable[str] | None = None,
) -> FunctionTool | Callable[[Callable[..., Any]], FunctionTool]:
    """Make a tool of `function`. `effects` states what it may do. Without it, the tool is treated as able to do
    anything, so a read-only agent does not get it. `paths` are the parameters that are paths of files or folders,
    which rules about files are compared with. Without it, any text of a call is treated as a path."""

    def make(target: Callable[..., Any]) -> FunctionTool:
        summary = description or inspect.getdoc(target) or ""
        if not summary:
            raise UsageError(f"{target.__name__} has no docstring.", remedy="A model needs to know what the tool does.")
        parameters, wants_context = _parameters(target)
        declared = None if paths is None else tuple(paths)
        spec = ToolSpec(name or target.__name__, summary, parameters, frozenset(effects), paths=declared)
        return FunctionTool(target, spec, wants_context)

    return make(function) if function is not None else make


def _parameters(function: Callable[..., Any]) -> tuple[dict[str, Any], bool]:
    hints = typing.get_type_hints(function, include_extras=True)
    properties: dict[str, Any] = {}
    required: list[str] = []
    wants_context = False
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            raise UsageError(f"{function.__name__}: parameter {name} cannot be given by name.")
        if hints.get(name) is ToolContext and name == "context":
            wants_context = True
            continue
        properties[name] = _schema(hints.get(name, str), f"{function.__name__}({name})")
        if parameter.default is parameter.empty:
            required.append(name)
    schema: dict[str, Any] = {"type": "object", "properties": properties, "additionalProperties": False}
    if required:
        schema["required"] = required
    return schema, wants_context


def _schema(hint: Any, label: str) -> dict[str, Any]:
    if typing.get_origin(hint) is typing.Annotated:
        base, *notes = typing.get_args(hint)
        schema = _schema(base, label)
        for note in notes:
            if isinstance(note, str) and note:
                schema.setdefault("description", note)
        return schema
    if hint is Any:
        return {}
    if hint in _JSON_TYPES:
        return {"type": _JSON_TYPES[hint]}
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is list:
        return {"type": "array", "items": _schema(args[0], label)}
    if origin is dict:
        return {"type": "object", "additionalProperties": _schema(args[1], label)}
    if origin is Literal:
        return {"enum": list(args)}
    if origin in (typing.Union, types.UnionType):
        # `X | None` is the schema of X: a parameter that may be left out needs no null.
        options = [_schema(arg, label) for arg in args if arg is not type(None)]
        if len(options) == 1:
            return options[0]
        return {"anyOf": options}
    raise UsageError(f"{label}: {hint!r} has no JSON form.", remedy="Use str, int, float, bool, list, dict or Literal.")


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    try:
        return orjson.dumps(value, option=orjson.OPT_INDENT_2).decode()
    except TypeError:
        return str(value)
