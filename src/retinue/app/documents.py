"""The documents that `run` and `-p` print: of a run that has ended, of one that was refused, of words delivered."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from retinue.core.encode import dump
from retinue.core.events import AssistantEnded
from retinue.core.outcome import Outcome
from retinue.errors import RetinueError
from retinue.models.keys import environment as process_environment

if TYPE_CHECKING:
    from retinue.loop.finish import ErrorCode
    from retinue.runs.run import Run

# text: the answer. result: the object of `--json`. events: every event as a line, the outcome last.
# summary: the object of `--output-format json`.
Output = Literal["text", "result", "events", "summary"]


def run_document(run: Run, outcome: Outcome, output: Output) -> str:
    """Return the document of a run that has ended."""
    if output == "result":
        return result_document(run, outcome)
    return summary_document(run, outcome)


def result_document(run: Run, outcome: Outcome) -> str:
    """Return the object of `retinue run --json`."""
    from retinue.guard.redact import Redactor, sanitise
    from retinue.loop.finish import RunReport, display_items, result_object

    redactor = Redactor(process_environment())
    types = ("assistant.ended",)
    messages = [event.body.message for event in run.recorded(types=types) if isinstance(event.body, AssistantEnded)]
    report = RunReport(
        agent=run.agent,
        task=run.launch.request.task,
        outcome=outcome,
        session_file=run.launch.transcript,
        display_items=display_items(messages),
    )
    return _text(
        result_object(report, run_id=run.id, sanitise=lambda text: sanitise(text, process_environment(), redactor))
    )


def refusal(error: RetinueError, output: Output) -> str:
    """Return what stands on stdout instead of the result of a run that never started, or that lost its log."""
    status = "interrupted" if error.run_id else "refused"
    if output == "result":
        from retinue.loop.finish import refused

        codes: dict[str, ErrorCode] = {"UNKNOWN_AGENT": "UNKNOWN_AGENT", "AGENT_DISABLED": "SUBAGENT_DISABLED"}
        other: ErrorCode = "INVALID_INPUT" if error.exit_code == 2 else "SUBAGENT_FAILED"
        return _text(refused(codes.get(error.code, other), str(error), run_id=error.run_id))
    if output == "events":
        # The last and only line of a stream of events.
        place = {"run_id": error.run_id, "parent_id": None, "root_id": None, "seq": 0, "at": time.time()}
        failure = {"kind": error.code, "message": error.message, "remedy": error.remedy}
        return _text({"type": "outcome", **place, "ended": status, "failure": failure})
    refusal = {"code": error.code, "message": error.message, "remedy": error.remedy}
    return _text({"type": "result", "run_id": error.run_id, "status": status, "is_error": True, "error": refusal})


def delivered_summary(run_id: str, agent: str) -> str:
    """Return the same where an agent of another process was told something."""
    return _text({"type": "result", "run_id": run_id, "agent": agent, "status": "delivered", "is_error": False})


def summary_document(run: Run, outcome: Outcome) -> str:
    """Return the object of `retinue -p --output-format json`."""
    error = None
    if outcome.failure is not None:
        failure = outcome.failure
        error = {"code": failure.kind, "message": failure.message, "remedy": failure.remedy}
    return _text(
        {
            "type": "result",
            "run_id": run.id,
            "agent": run.agent,
            "status": outcome.ended,
            "is_error": not outcome.ok,
            "result": outcome.text,
            "partial": outcome.partial,
            "truncated": outcome.truncated,
            "shortfall": outcome.shortfall or None,
            "value": outcome.value,
            "error": error,
            "limit": outcome.limit,
            "model": outcome.model or run.launch.model_name,
            "turns": outcome.turns,
            "tool_uses": outcome.tool_uses,
            "duration_ms": outcome.duration_ms,
            "usage": outcome.usage,
            "usage_known": outcome.usage.is_counted(outcome.turns, outcome.model),
            "tree_usage": outcome.tree_usage,
            "evidence": outcome.evidence,
            "branch": outcome.branch,
            "notes": outcome.notes,
            "transcript": run.launch.transcript,
        }
    )


def _text(document: Mapping[str, Any]) -> str:
    return dump(document).decode()
