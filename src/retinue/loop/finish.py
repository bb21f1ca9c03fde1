"""The end of a run: why it ends, what it really touched, and how its answer is recognised.

An `Ending` is made where the reason is known and becomes an outcome in one place. Evidence is
collected from effects, bounded, in order of first appearance.

The result object that programs read: `{"content": […], "details": {…}}`.

Success carries the answer, sanitised and cut to what a parent can take, with the whole beside
it; failure carries a report that names the error and keeps partial output under its own
heading, so that nothing unfinished reads like an answer.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeGuard

import orjson
from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from retinue.core.format import format_bytes
from retinue.core.messages import AssistantMessage, Text, Thinking, ToolCall, ToolResult, UserMessage, user
from retinue.core.outcome import CUT_OFF, Ended, Evidence, Failure, Outcome
from retinue.core.permission import ToolEffect
from retinue.core.tool import ToolContext, ToolOutput, ToolSpec, failed
from retinue.core.usage import LimitName, Usage
from retinue.errors import UsageError
from retinue.loop.prompts import prompt
from retinue.loop.shrink import describe


class Ending(Struct, frozen=True):
    """`text` replaces the answer found in the conversation (structured output has its own)."""

    ended: Ended
    failure: Failure | None = None
    limit: LimitName | None = None
    value: Any = None
    text: str | None = None


def stopped(reason: str) -> Ending:
    return Ending("stopped", Failure("stopped", reason))


def out_of_time(seconds: float) -> Ending:
    message = f"The run exceeded maximum runtime after {seconds * 1000:.0f}ms."
    return Ending("timeout", Failure("limit", message, "Raise the time limit, or give it a smaller task."), "time")


def gone_quiet(seconds: float) -> Ending:
    message = f"The run timed out after {seconds * 1000:.0f}ms without activity."
    remedy = "The model sent nothing for that long: check the provider, or raise the idle limit."
    return Ending("timeout", Failure("limit", message, remedy), "idle")


_MOST = 200
_LONGEST = 500
_NAMED = 40


class Collector:
    """Cheap while the run goes on; `evidence` cuts the lists and says how much it left out."""

    def __init__(self) -> None:
        # As dictionaries, which keep the order of first appearance.
        self._entries: dict[str, dict[str, None]] = {name: {} for name in Evidence.__struct_fields__}

    def add(self, call: ToolCall, effect: ToolEffect) -> None:
        self._put("files_read", effect.reads)
        self._put("files_written", (touched.path for touched in effect.writes))
        self._put("hosts", effect.hosts)
        if effect.command is not None:
            self._put("commands", (effect.command,))
        if effect.denied is not None:
            self._put("denials", (f"{describe(call)}: {effect.denied}",))
        if effect.status in ("unknown", "started"):
            self._put("unknown_effects", (describe(call),))

    def _put(self, name: str, entries: Iterable[str]) -> None:
        self._entries[name].update(dict.fromkeys(entries))

    def files(self) -> str:
        """Return the files that were changed and read, for a conversation that may have forgotten them."""
        changed = list(self._entries["files_written"])
        only_read = [path for path in self._entries["files_read"] if path not in changed]
        lines = []
        if changed:
            lines.append(f"Files you changed: {_listed(changed)}")
        if only_read:
            lines.append(f"Files you read: {_listed(only_read)}")
        return "\n".join(lines)

    def evidence(self) -> Evidence:
        return Evidence(**{name: _bounded(entries) for name, entries in self._entries.items()})


def _listed(paths: list[str]) -> str:
    """The newest of `paths`."""
    text = ", ".join(paths[-_NAMED:])
    if len(paths) > _NAMED:
        text += f" and {len(paths) - _NAMED} earlier ones"
    return text


def _bounded(entries: Iterable[str]) -> tuple[str, ...]:
    shown: list[str] = []
    for entry in entries:
        if len(entry) > _LONGEST:
            entry = entry[: _LONGEST - 1] + "…"
        shown.append(entry)
    if len(shown) > _MOST:
        shown = [*shown[:_MOST], f"… and {len(shown) - _MOST} more"]
    return tuple(shown)


SUBMIT = "submit_result"
ATTEMPTS = 5

_DEFINITIONS = ("$defs", "definitions")
_COMBINED = frozenset({"anyOf", "oneOf", "allOf", "not", "if", "$ref", "enum", "const"})
_FENCED = re.compile(r"```(?:json)?\s*\n(.*?)\n?```", re.DOTALL)
_SHOWN = 5
_LONGEST_TEXT = 300


def check_schema(schema: Any, name: str = "The output schema") -> None:
    """Raise UsageError, with `name` as its subject, unless `schema` is a JSON Schema that can be used offline."""
    _validator(schema, name)


def _validator(schema: Any, name: str = "The output schema") -> Any:
    # 10 ms that only runs with a schema need to spend.
    import jsonschema_rs

    try:
        return jsonschema_rs.validator_for(schema, offline=True)
    except ValueError as error:
        reason = getattr(error, "message", "") or str(error)
        raise UsageError(
            f"{name} cannot be used: {reason.rstrip('.')}.",
            remedy="Correct it: a JSON Schema is wanted, whose references point into itself.",
        ) from error


class Submission:
    """The tool `submit_result`, and the count of attempts to call it well.

    Providers want an object at the top of a tool's parameters, so any other schema is offered
    as the parameter `value`; the value checked and returned is always the bare one.
    """

    def __init__(self, schema: Mapping[str, Any] | bool, accept: Callable[[Any], object] | None = None) -> None:
        """`accept` raises ValueError for a result that matches the schema and is wrong all the same."""
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
        """Count the refused submissions of a turn; the fifth ends the run."""
        for call, result in zip(calls, results, strict=True):
            if call.name == SUBMIT and result.is_error:
                self._attempts += 1
                self._last = result.text
        return self._failure() if self._attempts >= ATTEMPTS else None

    def take(self, text: str) -> ToolOutput | UserMessage | Ending:
        """Return what an answer in text amounts to: the result, where it is that as JSON and nothing else, or a
        correction that says what is wrong with it. It counts as an attempt; the fifth ends the run."""
        value, problem = self._read(text.strip())
        if not problem:
            return ToolOutput((Text("Accepted."),), value=value)
        self._attempts += 1
        self._last = problem
        if self._attempts >= ATTEMPTS:
            return self._failure()
        return user(prompt("submit-reminder", problem=problem), "correction")

    def _read(self, text: str) -> tuple[Any, str]:
        """Return the value that `text` is as JSON, and what is wrong with it."""
        if not text:
            return None, "there is no answer"
        fenced = _FENCED.fullmatch(text)
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
        except ValueError as error:  # text or keys that no JSON can hold
            return f"it is not JSON ({error})"
        if len(errors) > _SHOWN:
            errors[_SHOWN:] = [f"… and {len(errors) - _SHOWN} more"]
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
    except TypeError:  # a value of someone's own tool that is no JSON
        return str(value)


def _line(error: Any) -> str:
    position = ""
    for step in error.instance_path:
        if isinstance(step, int):
            position += f"[{step}]"
        else:
            position += f".{step}"
    # The message quotes the value, which can be megabytes long.
    message = str(error.message)
    if len(message) > _LONGEST_TEXT:
        message = f"{message[: _LONGEST_TEXT // 2]} … {message[-_LONGEST_TEXT // 2 :]}"
    return f"{position.lstrip('.')}: {message}" if position else message


def _is_plain_object(schema: Mapping[str, Any] | bool) -> TypeGuard[Mapping[str, Any]]:
    return isinstance(schema, Mapping) and schema.get("type") == "object" and _COMBINED.isdisjoint(schema)


def _wrap(schema: Mapping[str, Any] | bool) -> Mapping[str, Any]:
    """Return `schema` as the one parameter `value`. Definitions move up, where `#/$defs/…` finds them."""
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
    "api_error authentication_error internal_server_error invalid_request_error overloaded_error permission_error"
    " rate_limit_error server_error timeout_error".split()
)


def error_in_disguise(message: AssistantMessage) -> Failure | None:
    """Return a gateway's error that arrived as the model's words. Only the exact shapes gateways use
    count, and only as the whole text: an answer may well be about timeouts or rate limits."""
    text = message.text
    # No gateway sends so long an error, and parsing it would cost time.
    if len(text) > 4_000:
        return None
    if _ERROR_LINE.match(text) or _is_error_envelope(text):
        return Failure("server", f"The provider sent an error in place of an answer: {text.strip()[:_LONGEST_TEXT]}")
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


ErrorCode = Literal[
    "INVALID_INPUT",  # agent or task is missing
    "SUBAGENTS_DISABLED",  # switched off altogether
    "UNKNOWN_AGENT",  # no agent of that name; the message lists those there are
    "SUBAGENT_DISABLED",  # this agent is switched off, or not trusted
    "SUBAGENT_DEPTH_EXCEEDED",  # nested too deeply
    "SUBAGENT_TIMEOUT",  # out of time, or idle for too long; exit code 124
    "SUBAGENT_FAILED",  # any other failure
    "SUBAGENT_OUTPUT_TRUNCATED",  # the answer was cut, or a hard limit on output was hit
]

MOST_LINES = 5_000
MOST_BYTES = 200 * 1024
NO_OUTPUT = "No output."


class Cut(NamedTuple):
    """A text that was cut: what is left of it, in how many of its lines."""

    text: str
    shown: int
    total: int


class ResultText(Struct, frozen=True, tag_field="type", tag="text"):
    """Words of an agent."""

    text: str


class ResultCall(Struct, frozen=True, tag_field="type", tag="toolCall"):
    """A call that an agent made."""

    name: str
    args: Mapping[str, Any]


DisplayItem = ResultText | ResultCall


class ResultUsage(Struct, frozen=True, kw_only=True, rename="camel"):
    """`cost` is null while it is not known: never a zero that reads as free."""

    input: int
    output: int
    cache_read: int
    cache_write: int
    cost: float | None
    turns: int | UnsetType = UNSET


class ResultError(Struct, frozen=True):
    code: ErrorCode
    message: str


class RunResult(Struct, frozen=True, kw_only=True, rename="camel"):
    """One ended run. `tree_usage` is what it and the runs that it started have used together; fields that say nothing
    are left out."""

    agent: str
    task: str
    exit_code: int
    status: Ended
    usage: ResultUsage
    session_file: str | None
    output: str
    display_items: Sequence[DisplayItem] | UnsetType
    error: str | UnsetType = UNSET
    timeout_reason: Literal["idle", "runtime"] | UnsetType = UNSET
    tree_usage: ResultUsage | UnsetType = UNSET
    truncated: bool | UnsetType = UNSET
    usage_known: bool | UnsetType = UNSET
    shortfall: str | UnsetType = UNSET
    value: Any = UNSET
    limit: LimitName | UnsetType = UNSET
    branch: str | UnsetType = UNSET
    denials: Sequence[str] | UnsetType = UNSET
    notes: Sequence[str] | UnsetType = UNSET


class ResultDetails(Struct, frozen=True, kw_only=True, rename="camel"):
    """What programs read. `run_id` is missing where no run was started."""

    mode: str = "single"
    run_id: str | UnsetType = UNSET
    results: list[RunResult] = []
    error: ResultError | UnsetType = UNSET


class ResultDocument(Struct, frozen=True):
    """The result object: `content` is for models and people."""

    content: tuple[ResultText, ...]
    details: ResultDetails


def refused(code: ErrorCode, message: str, *, mode: str = "single", run_id: str | None = None) -> ResultDocument:
    """Return the object for a call that started no run: the same words in both places, no results. `run_id` names a
    run that was interrupted instead."""
    details = ResultDetails(mode=mode, run_id=run_id or UNSET, error=ResultError(code, message))
    return ResultDocument((ResultText(message),), details)


def result_document(
    outcome: Outcome,
    *,
    agent: str,
    task: str,
    run_id: str,
    session_file: str | None = None,
    display_items: Sequence[DisplayItem] | UnsetType = (),
    sanitise: Callable[[str], str] = str,
) -> ResultDocument:
    """Return the object for a run that has ended. `sanitise` takes out secrets and paths."""
    output = sanitise(outcome.text)
    error: ResultError | UnsetType = UNSET
    if outcome.ok:
        text = output or NO_OUTPUT
        cut = first_part(text)
        if cut is not None:
            text = cut.text
            message = f"Output truncated: showing {cut.shown} of {cut.total} lines"
            error = ResultError("SUBAGENT_OUTPUT_TRUNCATED", message)
        if outcome.truncated:
            message = f"The answer was {CUT_OFF}: the end is missing"
            text = f"{text}\n\n[{message}]"
            error = ResultError("SUBAGENT_OUTPUT_TRUNCATED", message)
    else:
        text = sanitise(_failure_report(outcome, session_file))
        error = ResultError("SUBAGENT_TIMEOUT" if outcome.exit_code == 124 else "SUBAGENT_FAILED", text)
    timeout: Literal["idle", "runtime"] | UnsetType = UNSET
    if outcome.limit in ("time", "idle"):
        timeout = "idle" if outcome.limit == "idle" else "runtime"
    result = RunResult(
        agent=agent,
        task=task,
        exit_code=outcome.exit_code,
        status=outcome.ended,
        usage=replace(_usage(outcome.usage), turns=outcome.turns),
        session_file=session_file,
        output=output,
        display_items=display_items and [_clean_item(item, sanitise) for item in display_items],
        error=UNSET if outcome.ok else sanitise(_error_text(outcome)),
        timeout_reason=timeout,
        tree_usage=UNSET if outcome.tree_usage is None else _usage(outcome.tree_usage),
        truncated=outcome.truncated or UNSET,
        usage_known=UNSET if outcome.usage.is_counted(outcome.turns, outcome.model) else False,
        shortfall=outcome.shortfall or UNSET,
        value=UNSET if outcome.value is None else outcome.value,
        limit=outcome.limit or UNSET,
        branch=UNSET if outcome.branch is None else outcome.branch,
        denials=[*map(sanitise, outcome.evidence.denials)] or UNSET,
        notes=[*map(sanitise, outcome.notes)] or UNSET,
    )
    return ResultDocument((ResultText(text),), ResultDetails(run_id=run_id, results=[result], error=error))


def display_items(messages: Iterable[AssistantMessage]) -> tuple[DisplayItem, ...]:
    """Return what the model said and called, in order, for people to look at."""
    items: list[DisplayItem] = []
    for message in messages:
        for part in message.content:
            match part:
                case Text() if part.text:
                    items.append(ResultText(part.text))
                case ToolCall():
                    items.append(ResultCall(part.name, part.arguments))
                case Text() | Thinking():
                    pass
    return tuple(items)


def first_part(text: str) -> Cut | None:
    """The first 5,000 lines or 200 KiB under a heading that says so; None if it is all of it."""
    total, size = text.count("\n") + 1, len(text.encode("utf-8", "replace"))
    if total <= MOST_LINES and size <= MOST_BYTES:
        return None
    kept = "\n".join(text.split("\n", MOST_LINES)[:MOST_LINES])
    # Cutting bytes may split a character, which is then left out.
    kept = kept.encode("utf-8", "replace")[:MOST_BYTES].decode("utf-8", "ignore")
    shown = kept.count("\n") + 1
    sizes = f"{format_bytes(len(kept.encode('utf-8', 'replace')))} of {format_bytes(size)}"
    return Cut(f"[TRUNCATED: showing first {shown} of {total} lines, {sizes}]\n{kept}", shown, total)


def _error_text(outcome: Outcome) -> str:
    failure = outcome.failure
    if failure is None:
        return f"The run ended as {outcome.ended}."
    return f"{failure.message} {failure.remedy}".strip()


def _failure_report(outcome: Outcome, session_file: str | None) -> str:
    error, partial = _error_text(outcome), outcome.text.strip()
    sections = [f"Subagent failed with exit code {outcome.exit_code}.", f"Error:\n{error}"]
    if partial and partial != error:
        sections.append(f"Partial output:\n{partial}")
    if session_file:
        sections.append(f"Session file:\n{session_file}")
    return "\n\n".join(sections)


def _usage(usage: Usage) -> ResultUsage:
    return ResultUsage(
        input=usage.input,
        output=usage.output,
        cache_read=usage.cache_read,
        cache_write=usage.cache_write,
        cost=usage.cost_usd,
    )


def _clean_item(item: DisplayItem, sanitise: Callable[[str], str]) -> DisplayItem:
    if isinstance(item, ResultText):
        return ResultText(sanitise(item.text))
    return ResultCall(sanitise(item.name), _clean(item.args, sanitise))


def _clean(value: Any, sanitise: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return sanitise(value)
    if isinstance(value, Mapping):
        return {key: _clean(item, sanitise) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_clean(item, sanitise) for item in value]
    return value
