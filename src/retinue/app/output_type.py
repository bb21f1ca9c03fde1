"""Python types as schemas of a run's result: pydantic models, dataclasses, TypedDicts, msgspec structs, and types
composed of them, such as `list[Finding]`.

The model receives the JSON Schema of the type. Its answer is converted to the type before it is accepted, so that
errors of checks which no schema can express (a validator of a pydantic model) are returned to the model for another
attempt.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Generic

import msgspec
from msgspec import Struct

from retinue.core.outcome import Value
from retinue.errors import UsageError

Schema = type[Value] | Mapping[str, Any]


class OutputType(Struct, Generic[Value], frozen=True):
    """`read` converts JSON to the type, and raises ValueError if it cannot."""

    schema: Mapping[str, Any]
    read: Callable[[Any], Any] | None = None


def output_type(schema: Any) -> OutputType[Any]:
    """Return the schema that `schema=` means: a JSON Schema unchanged, or that of a type. Raise UsageError for anything
    else."""
    if isinstance(schema, Mapping):
        return OutputType(schema)
    if hasattr(schema, "model_json_schema"):
        return OutputType(schema.model_json_schema(), schema.model_validate)
    try:
        return _of_msgspec(schema)
    except (TypeError, NameError) as error:
        return _of_pydantic(schema, error)


def _of_msgspec(kind: Any) -> OutputType[Any]:
    schema = msgspec.json.schema(kind)
    # A top-level reference would become one parameter `value`. The object itself is clearer to a model.
    target = schema.get("$ref", "").removeprefix("#/$defs/")
    if target:
        parts = schema["$defs"]
        schema = {**parts[target], "$defs": parts}

    def read(value: Any) -> Any:
        try:
            return msgspec.convert(value, kind)
        except msgspec.ValidationError as error:
            raise ValueError(str(error)) from None

    return OutputType(schema, read)


def _of_pydantic(kind: Any, why: Exception) -> OutputType[Any]:
    """Return the schema of a type that holds pydantic models, such as `list[Finding]`."""
    try:
        from pydantic import TypeAdapter

        adapter: Any = TypeAdapter(kind)
        return OutputType(adapter.json_schema(), adapter.validate_python)
    except Exception as error:
        raise UsageError(
            f"schema={kind!r} is not a type that a result can have: {why}.",
            remedy="Give a pydantic model, a dataclass, a TypedDict, a list of one of them, or a JSON Schema.",
        ) from error
