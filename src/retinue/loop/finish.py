"""How a run's answer is recognised: structured results, and errors that look like answers."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeGuard

import orjson

from retinue.core.failure import Failure
from retinue.core.messages import AssistantMessage, Text, ToolCall, ToolResult, UserMessage, user
from retinue.core.tool import ToolContext, ToolOutput, ToolSpec, failed
from retinue.errors import UsageError
from retinue.loop.ending import Ending
from retinue.loop.prompts import prompt

SUBMIT = "submit_result"
ATTEMPTS = 5

_DEFINITIONS = ("$defs", "definitions")
_COMBINED = frozenset({"anyOf", "oneOf", "allOf", "not", "if", "$ref", "enum", "const"})
_FENCED = re.compile(r"```(?:json)?\s*\n(.*?)\n?```", re.DOTALL)
_SHOWN = 5
_LONGEST = 300


def check_schema(schema: Any) -> None:
    """Raises UsageError unless `schema` is a JSON Schema that can be used offline."""
    _validator(schema)


def _validator(schema: Any) -> Any:
    import jsonschema_rs  # 10 ms that only runs with a schema need to spend

    try:
        return jsonschema_rs.validator_for(schema, offline=True)
    except ValueError as error:
        reason = getattr(error, "message", "") or str(error)
        raise UsageError(
            f"The output schema cannot be used: {reason}",
            remedy="Give a JSON Schema whose references point into itself.",
        ) from error


class Submission:
    """The tool `submit_result`, and the count of attempts to call it well.

    Providers want an object at the top of a tool's parameters, so any other schema is offered
    as the parameter `value`; the value checked and returned is always the bare one.
    """

    def __init__(self, schema: Mapping[str, Any] | bool) -> None:
        self._validator = _validator(schema)
        self._wrapped = not _is_plain_object(schema)
        parameters = schema if _is_plain_object(schema) else _wrap(schema)
        self._attempts = 0
        self._reminded = False
        self._last = ""
        self.spec = ToolSpec(
            SUBMIT,
            prompt("submit-description"),
            parameters,
            exclusive=True,
            ends_run=True,
        )

    async def run(self, call_id: str, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        value = arguments["value"] if self._wrapped else dict(arguments)
        problem = self._problem(value)
        if problem:
            return failed(f"The result does not match its schema: {problem}")
        return ToolOutput((Text("Accepted."),), value=value)

    def judge(self, calls: Sequence[ToolCall], results: Sequence[ToolResult]) -> Ending | None:
        """Counts the refused submissions of a turn; the fifth ends the run."""
        for call, result in zip(calls, results, strict=True):
            if call.name == SUBMIT and result.is_error:
                self._attempts += 1
                self._last = result.text
        return self._failure() if self._attempts >= ATTEMPTS else None

    def read(self, text: str) -> ToolOutput | None:
        """An answer in text that is the result, as JSON and nothing else; None for any other text."""
        fenced = _FENCED.fullmatch(text.strip())
        try:
            value = orjson.loads(fenced[1] if fenced is not None else text.strip())
        except ValueError:
            return None
        return None if self._problem(value) else ToolOutput((Text("Accepted."),), value=value)

    def remind(self) -> UserMessage | Ending:
        """For a run that ends without a result: one reminder, which is an attempt too."""
        self._attempts += 1
        if self._reminded or self._attempts >= ATTEMPTS:
            return self._failure()
        self._reminded = True
        return user(prompt("submit-reminder"), "correction")

    def _failure(self) -> Ending:
        said = f"Last problem: {self._last}" if self._last else f"It ended without calling {SUBMIT}."
        message = f"The run gave no result that matches its schema in {self._attempts} attempts. {said}"
        return Ending("error", Failure("validation", message, "Simplify the schema, or use a stronger model."))

    def _problem(self, value: Any) -> str:
        try:
            errors = [_line(error) for error in self._validator.iter_errors(value)]
        except ValueError as error:  # text or keys that no JSON can hold
            return f"it is not JSON ({error})"
        more = f"; … and {len(errors) - _SHOWN} more" if len(errors) > _SHOWN else ""
        return "; ".join(errors[:_SHOWN]) + more


def as_text(value: Any) -> str:
    """A structured result as the text of the outcome."""
    try:
        return orjson.dumps(value, default=str).decode()
    except TypeError:  # a value of someone's own tool that is no JSON
        return str(value)


def _line(error: Any) -> str:
    place = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in error.instance_path)
    message = str(error.message)
    if len(message) > _LONGEST:
        message = f"{message[: _LONGEST // 2]} … {message[-_LONGEST // 2 :]}"
    return f"{place.lstrip('.')}: {message}" if place else message


def _is_plain_object(schema: Mapping[str, Any] | bool) -> TypeGuard[Mapping[str, Any]]:
    return isinstance(schema, Mapping) and schema.get("type") == "object" and _COMBINED.isdisjoint(schema)


def _wrap(schema: Mapping[str, Any] | bool) -> Mapping[str, Any]:
    """`schema` as the one parameter `value`. Definitions move up, where `#/$defs/…` finds them."""
    if isinstance(schema, bool):
        return _wrap({} if schema else {"not": {}})
    above = {key: schema[key] for key in _DEFINITIONS if key in schema}
    inner = {key: item for key, item in schema.items() if key not in (*_DEFINITIONS, "$schema", "$id")}
    return {
        "type": "object",
        "properties": {"value": inner},
        "required": ["value"],
        "additionalProperties": False,
        **above,
    }


_ERROR_LINE = re.compile(r"\s*(?:API Error|Error code)\s*:?\s*[45]\d\d\b", re.IGNORECASE)
_ERROR_TYPES = frozenset(
    {
        "api_error",
        "authentication_error",
        "internal_server_error",
        "invalid_request_error",
        "overloaded_error",
        "permission_error",
        "rate_limit_error",
        "server_error",
        "timeout_error",
    }
)


def error_in_disguise(message: AssistantMessage) -> Failure | None:
    """A gateway's error that arrived as the model's words. Only the exact shapes gateways use
    count, and only as the whole text: an answer may well be about timeouts or rate limits."""
    text = message.text
    if len(text) > 4_000:
        return None
    if _ERROR_LINE.match(text) or _is_error_envelope(text):
        return Failure("server", f"The provider sent an error in place of an answer: {text.strip()[:_LONGEST]}")
    return None


def _is_error_envelope(text: str) -> bool:
    stripped = text.strip()
    if not (stripped.startswith("{") and stripped.endswith("}") and '"error"' in stripped):
        return False
    try:
        data = orjson.loads(stripped)
    except ValueError:
        return False
    error = data.get("error")
    return (
        isinstance(error, dict)
        and {"error", *data} <= {"type", "error", "request_id"}
        and error.get("type") in _ERROR_TYPES
    )
