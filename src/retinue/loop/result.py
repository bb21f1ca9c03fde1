"""The result object that programs read: `{"content": […], "details": {…}}`.

Success carries the answer, sanitised and cut to what a parent can take, with the whole beside
it; failure carries a report that names the error and keeps partial output under its own
heading, so that nothing unfinished reads like an answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, NamedTuple

from msgspec import Struct

from retinue.core.format import format_bytes
from retinue.core.messages import AssistantMessage, Text, Thinking, ToolCall
from retinue.core.outcome import CUT_OFF, Outcome
from retinue.core.usage import Usage

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


class RunReport(Struct, frozen=True, kw_only=True):
    """One ended run, with what its outcome does not know. `output_limit` names the hard limit
    on output that stopped it, where runs are processes that have one."""

    agent: str
    task: str
    outcome: Outcome
    session_file: str | None = None
    display_items: tuple[Mapping[str, Any], ...] = ()
    attempts: int = 1
    output_limit: str = ""


def refused(code: ErrorCode, message: str, *, mode: str = "single", run_id: str | None = None) -> dict[str, Any]:
    """The object for a call that started no run: the same words in both places, no results. `run_id` names a run that
    was interrupted instead."""
    details = {"mode": mode, "results": [], "error": {"code": code, "message": message}}
    if run_id is not None:
        details["runId"] = run_id
    return {"content": [{"type": "text", "text": message}], "details": details}


def result_object(
    report: RunReport,
    *,
    run_id: str,
    sanitise: Callable[[str], str] = str,
    truncate: Callable[[str], Cut | None] | None = None,
    mode: str = "single",
) -> dict[str, Any]:
    """The object for a run. `sanitise` takes out secrets and paths; `truncate` returns None
    for a text that may stay whole."""
    outcome = report.outcome
    output = sanitise(outcome.text)
    error: dict[str, str] | None = None
    if outcome.ok and not report.output_limit:
        text = output or NO_OUTPUT
        cut = (truncate or first_part)(text)
        if cut is not None:
            text = cut.text
            message = f"Output truncated: showing {cut.shown} of {cut.total} lines"
            error = {"code": "SUBAGENT_OUTPUT_TRUNCATED", "message": message}
        if outcome.truncated:
            message = f"The answer was {CUT_OFF}: the end is missing"
            text = f"{text}\n\n[{message}]"
            error = {"code": "SUBAGENT_OUTPUT_TRUNCATED", "message": message}
    else:
        text = sanitise(_failure_report(report))
        error = {"code": _code(report), "message": text}
    details: dict[str, Any] = {"mode": mode, "runId": run_id, "results": [_result(report, output, sanitise)]}
    if error is not None:
        details["error"] = error
    return {"content": [{"type": "text", "text": text}], "details": details}


def display_items(messages: Iterable[AssistantMessage]) -> tuple[dict[str, Any], ...]:
    """Return what the model said and called, in order, for people to look at."""
    items: list[dict[str, Any]] = []
    for message in messages:
        for part in message.content:
            match part:
                case Text() if part.text:
                    items.append({"type": "text", "text": part.text})
                case ToolCall():
                    items.append({"type": "toolCall", "name": part.name, "args": dict(part.arguments)})
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


def _result(report: RunReport, output: str, sanitise: Callable[[str], str]) -> dict[str, Any]:
    outcome = report.outcome
    result: dict[str, Any] = {
        "agent": report.agent,
        "task": report.task,
        "exitCode": _exit_code(report),
        "status": outcome.ended,
        "usage": {**_usage(outcome.usage), "turns": outcome.turns},
        "sessionFile": report.session_file,
        "output": output,
        "displayItems": [_clean(item, sanitise) for item in report.display_items],
    }
    if not outcome.ok or report.output_limit:
        result["error"] = sanitise(_error(report))
    if outcome.limit in ("time", "idle"):
        result["timeoutReason"] = "idle" if outcome.limit == "idle" else "runtime"
    # It has started others: what all of them have used together.
    if outcome.tree_usage is not None:
        result["treeUsage"] = _usage(outcome.tree_usage)
    if outcome.truncated:
        result["truncated"] = True
    if not outcome.usage.is_counted(outcome.turns, outcome.model):
        result["usageKnown"] = False
    if outcome.shortfall:
        result["shortfall"] = outcome.shortfall
    extra = {"value": outcome.value, "limit": outcome.limit, "branch": outcome.branch}
    result.update({key: value for key, value in extra.items() if value is not None})
    if outcome.evidence.denials:
        result["denials"] = [sanitise(denial) for denial in outcome.evidence.denials]
    if outcome.notes:
        result["notes"] = [sanitise(note) for note in outcome.notes]
    return result


def _exit_code(report: RunReport) -> int:
    return 1 if report.output_limit else report.outcome.exit_code


def _code(report: RunReport) -> ErrorCode:
    if report.output_limit:
        return "SUBAGENT_OUTPUT_TRUNCATED"
    if report.outcome.exit_code == 124:
        return "SUBAGENT_TIMEOUT"
    return "SUBAGENT_FAILED"


def _error(report: RunReport) -> str:
    if report.output_limit:
        return report.output_limit
    failure = report.outcome.failure
    if failure is None:
        return f"The run ended as {report.outcome.ended}."
    return f"{failure.message} {failure.remedy}".strip()


def _failure_report(report: RunReport) -> str:
    error, partial = _error(report), report.outcome.text.strip()
    sections = [f"Subagent failed with exit code {_exit_code(report)}."]
    if report.attempts > 1:
        sections.append(f"Attempts: {report.attempts}.")
    sections.append(f"Error:\n{error}")
    if partial and partial != error:
        sections.append(f"Partial output:\n{partial}")
    if report.session_file:
        sections.append(f"Session file:\n{report.session_file}")
    return "\n\n".join(sections)


def _usage(usage: Usage) -> dict[str, Any]:
    """`cost` is null while it is not known: never a zero that reads as free."""
    return {
        "input": usage.input,
        "output": usage.output,
        "cacheRead": usage.cache_read,
        "cacheWrite": usage.cache_write,
        "cost": usage.cost_usd,
    }


def _clean(value: Any, sanitise: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return sanitise(value)
    if isinstance(value, Mapping):
        return {key: _clean(item, sanitise) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_clean(item, sanitise) for item in value]
    return value
