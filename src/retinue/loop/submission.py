"""The tool `submit_result`, by which a run with an output schema hands in its result."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeGuard

import orjson

from retinue.core.messages import Text, ToolCall, ToolResult, UserMessage, user
from retinue.core.outcome import Failure
from retinue.core.tool import ToolContext, ToolOutput, ToolSpec, failed
from retinue.errors import UsageError
from retinue.loop.ending import Ending
from retinue.loop.prompts import prompt

SUBMIT = "submit_result"
MAX_ATTEMPTS = 5

_DEFINITION_KEYS = ("$defs", "definitions")
_COMBINING_KEYS = frozenset({"anyOf", "oneOf", "allOf", "not", "if", "$ref", "enum", "const"})
_FENCED_JSON = re.compile(r"```(?:json)?\s*\n(.*?)\n?```", re.DOTALL)
_MAX_PROBLEMS = 5
_MAX_PROBLEM_CHARACTERS = 300


def check_schema(schema: Any, name: str = "The output schema") -> None:
    """Raise UsageError, with `name` as its subject, unless `schema` is a JSON Schema that can be used offline."""
    _validator(schema, name)


def _validator(schema: Any, name: str = "The output schema") -> Any:
    # Its import takes 10 ms, which only runs with a schema need to spend.
    import jsonschema_rs

    try:
        return jsonschema_rs.validator_for(schema, offline=True)
    except ValueError as error:
        reason = getattr(error, "message", "") or str(error)
        raise UsageError(
            f"{name} cannot be used: {reason.rstrip('.')}.",
            remedy="Correct it: it must be a JSON Schema whose references point into itself.",
        ) from error


class Submission:
    """The tool `submit_result`, and the count of failed attempts to call it.

    Providers require an object at the top of a tool's parameters, so any other schema is offered as the parameter
    `value`. The result is always the bare value.
    """

    def __init__(self, schema: Mapping[str, Any] | bool, accept: Callable[[Any], object] | None = None) -> None:
        """`accept` raises ValueError for a result that matches the schema and is wrong for another reason."""
        self._validator = _validator(schema)
        self._accept = accept
        self._wrapped = not _is_plain_object(schema)
        parameters = _wrap(schema)
        if _is_plain_object(schema):
            parameters = schema
        self._attempts = 0
        self._last = ""
        self.spec = ToolSpec(
            SUBMIT,
            prompt("submit-description"),
            parameters,
            exclusive=True,
            ends_run=True,
        )

    async def run(self, call_id: str, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        value: Any = dict(arguments)
        if self._wrapped:
            value = value["value"]
        problem = self._problem(value)
        if problem:
            return failed(f"The result does not match its schema: {problem}")
        return ToolOutput((Text("Accepted."),), value=value)

    def judge(self, calls: Sequence[ToolCall], results: Sequence[ToolResult]) -> Ending | None:
        """Count the refused submissions of a turn. The fifth one ends the run."""
        for call, result in zip(calls, results, strict=True):
            if call.name == SUBMIT and result.is_error:
                self._attempts += 1
                self._last = result.text
        return self._failure() if self._attempts >= MAX_ATTEMPTS else None

    def take(self, text: str) -> ToolOutput | UserMessage | Ending:
        """Read an answer that came as text instead of a call.

        Text that is exactly the result as JSON is accepted. Any other text is an attempt: it is answered by a
        correction that names the problem, and the fifth attempt ends the run."""
        value, problem = self._parse(text.strip())
        if not problem:
            return ToolOutput((Text("Accepted."),), value=value)
        self._attempts += 1
        self._last = problem
        if self._attempts >= MAX_ATTEMPTS:
            return self._failure()
        return user(prompt("submit-reminder", problem=problem), "correction")

    def _parse(self, text: str) -> tuple[Any, str]:
        """Parse `text` as JSON. Return the value and its problem, or an empty problem."""
        if not text:
            return None, "there is no answer"
        fenced = _FENCED_JSON.fullmatch(text)
        try:
            value = orjson.loads(fenced[1] if fenced is not None else text)
        except ValueError:
            return None, "it is text, not JSON"
        return value, self._problem(value)

    def _failure(self) -> Ending:
        message = f"The run gave no result that matches its schema in {self._attempts} attempts."
        message += f" Last problem: {self._last}"
        return Ending("error", Failure("validation", message, "Simplify the schema, or use a stronger model."))

    def _problem(self, value: Any) -> str:
        try:
            errors = list(map(_line, self._validator.iter_errors(value)))
        except ValueError as error:  # JSON cannot represent this text or these keys
            return f"it is not JSON ({error})"
        if len(errors) > _MAX_PROBLEMS:
            errors[_MAX_PROBLEMS:] = [f"… and {len(errors) - _MAX_PROBLEMS} more"]
        if not errors and self._accept is not None:
            try:
                self._accept(value)
            except ValueError as error:
                errors.append(str(error))
        return "; ".join(errors)


def as_text(value: Any) -> str:
    """Return a structured result as the text of the outcome."""
    try:
        return orjson.dumps(value, default=str).decode()
    except TypeError:  # the value of a user's tool that is not JSON
        return str(value)


def _line(error: Any) -> str:
    position = ""
    for step in error.instance_path:
        if isinstance(step, int):
            position += f"[{step}]"
        else:
            position += f".{step}"
    # The message quotes the value, which may have megabytes.
    message = str(error.message)
    if len(message) > _MAX_PROBLEM_CHARACTERS:
        message = f"{message[: _MAX_PROBLEM_CHARACTERS // 2]} … {message[-_MAX_PROBLEM_CHARACTERS // 2 :]}"
    return f"{position.lstrip('.')}: {message}" if position else message


def _is_plain_object(schema: Mapping[str, Any] | bool) -> TypeGuard[Mapping[str, Any]]:
    return isinstance(schema, Mapping) and schema.get("type") == "object" and _COMBINING_KEYS.isdisjoint(schema)


def _wrap(schema: Mapping[str, Any] | bool) -> Mapping[str, Any]:
    """Return an object schema with `schema` as its only parameter `value`. Definitions move to the top, where
    `#/$defs/…` refers to."""
    if isinstance(schema, bool):
        return _wrap({} if schema else {"not": {}})
    above = {key: schema[key] for key in _DEFINITION_KEYS if key in schema}
    inner = {key: item for key, item in schema.items() if key not in (*_DEFINITION_KEYS, "$schema", "$id")}
    return {
        "type": "object",
        "properties": {"value": inner},
        "required": ["value"],
        "additionalProperties": False,
        **above,
    }
