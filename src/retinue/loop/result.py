"""The result object that programs read: `{"content": […], "details": {…}}`.

Success carries the answer, sanitised and cut to the size that a parent can take, with the full text beside it. Failure
carries a report that names the error and keeps partial output under its own heading, so that nothing unfinished reads
like an answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from retinue.core.format import format_bytes
from retinue.core.messages import AssistantMessage, Text, Thinking, ToolCall
from retinue.core.outcome import CUT_OFF, Ended, Outcome
from retinue.core.usage import LimitName, Usage

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

MAX_OUTPUT_LINES = 5_000
MAX_OUTPUT_BYTES = 200 * 1024
NO_OUTPUT_TEXT = "No output."


class TruncatedText(NamedTuple):
    """The beginning of a text that was cut, and how many of its lines are shown."""

    text: str
    shown: int
    total: int


class ResultText(Struct, frozen=True, tag_field="type", tag="text"):
    """Text that an agent wrote."""

    text: str


class ResultCall(Struct, frozen=True, tag_field="type", tag="toolCall"):
    """A call that an agent made."""

    name: str
    args: Mapping[str, Any]


DisplayItem = ResultText | ResultCall


class ResultUsage(Struct, frozen=True, kw_only=True, rename="camel"):
    """`cost` is null if it is unknown. It is never zero, which would read as free."""

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
    """One run that has ended. `tree_usage` is the total of the run and of the runs that it started. Fields without a
    value are left out."""

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
    """The part of the result object for programs. `run_id` is missing if no run was started."""

    mode: str = "single"
    run_id: str | UnsetType = UNSET
    results: list[RunResult] = []
    error: ResultError | UnsetType = UNSET


class ResultDocument(Struct, frozen=True):
    """The result object. `content` is for models and people, `details` for programs."""

    content: tuple[ResultText, ...]
    details: ResultDetails


def refused(code: ErrorCode, message: str, *, mode: str = "single", run_id: str | None = None) -> ResultDocument:
    """Return the object for a call that started no run: the same message in both places, no results. `run_id` names a
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
    """Return the object for a run that has ended. `sanitise` removes secrets and paths."""
    output = sanitise(outcome.text)
    error: ResultError | UnsetType = UNSET
    if outcome.ok:
        text = output or NO_OUTPUT_TEXT
        truncated = truncate_output(text)
        if truncated is not None:
            text = truncated.text
            message = f"Output truncated: showing {truncated.shown} of {truncated.total} lines"
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
    """Return the texts and calls of the model in order, for people."""
    items: list[DisplayItem] = []
    for message in messages:
        for block in message.content:
            match block:
                case Text() if block.text:
                    items.append(ResultText(block.text))
                case ToolCall():
                    items.append(ResultCall(block.name, block.arguments))
                case Text() | Thinking():
                    pass
    return tuple(items)


def truncate_output(text: str) -> TruncatedText | None:
    """Return the first 5,000 lines or 200 KiB under a heading that says so; None if `text` is shorter."""
    total, size = text.count("\n") + 1, len(text.encode("utf-8", "replace"))
    if total <= MAX_OUTPUT_LINES and size <= MAX_OUTPUT_BYTES:
        return None
    beginning = "\n".join(text.split("\n", MAX_OUTPUT_LINES)[:MAX_OUTPUT_LINES])
    # A character that the cut splits is left out.
    beginning = beginning.encode("utf-8", "replace")[:MAX_OUTPUT_BYTES].decode("utf-8", "ignore")
    shown = beginning.count("\n") + 1
    sizes = f"{format_bytes(len(beginning.encode('utf-8', 'replace')))} of {format_bytes(size)}"
    return TruncatedText(f"[TRUNCATED: showing first {shown} of {total} lines, {sizes}]\n{beginning}", shown, total)


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
