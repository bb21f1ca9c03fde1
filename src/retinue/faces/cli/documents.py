"""The JSON documents that a finished run prints: nothing else reaches stdout in a JSON mode."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from retinue.core.events import AssistantEnded
from retinue.core.outcome import Outcome
from retinue.errors import RetinueError
from retinue.log.encode import dump
from retinue.loop.result import ErrorCode, RunReport, display_items, refused, result_object
from retinue.models.keys import environment as process_environment

if TYPE_CHECKING:
    from retinue.faces.api import Run
    from retinue.faces.cli.foreground import Output


def result_document(run: Run, outcome: Outcome) -> str:
    """The object of `retinue run --json`."""
    from retinue.guard.redact import Redactor, sanitise

    redactor = Redactor(process_environment())
    request = run.launch.request
    report = RunReport(
        agent=run.agent,
        task=request.task,
        outcome=outcome,
        session_file=run.launch.transcript,
        display_items=display_items(
            event.body.message for event in run.recorded() if isinstance(event.body, AssistantEnded)
        ),
    )
    return _text(
        result_object(report, run_id=run.id, sanitise=lambda text: sanitise(text, process_environment(), redactor))
    )


def refusal(error: RetinueError, output: Output) -> str:
    """What stands on stdout instead of the result of a run that never started."""
    if output == "result":
        return _refused_result(error)
    return refused_line(error) if output == "events" else refused_summary(error)


def refused_line(error: RetinueError) -> str:
    """The last and only line of a stream of events."""
    place = {"run_id": None, "parent_id": None, "root_id": None, "seq": 0, "at": time.time()}
    failure = {"kind": error.code, "message": error.message, "remedy": error.remedy}
    return _text({"type": "outcome", **place, "ended": "refused", "failure": failure})


def _refused_result(error: RetinueError) -> str:
    """The object of `retinue run --json`."""
    codes: dict[str, ErrorCode] = {"UNKNOWN_AGENT": "UNKNOWN_AGENT", "AGENT_DISABLED": "SUBAGENT_DISABLED"}
    code = codes.get(error.code, "INVALID_INPUT" if error.exit_code == 2 else "SUBAGENT_FAILED")
    return _text(refused(code, str(error)))


def refused_summary(error: RetinueError) -> str:
    """The object of `retinue -p --output-format json` for a run that never started."""
    refusal = {"code": error.code, "message": error.message, "remedy": error.remedy}
    return _text({"type": "result", "run_id": None, "status": "refused", "is_error": True, "error": refusal})


def delivered_summary(run_id: str, agent: str) -> str:
    """The same where an agent of another process was told something."""
    return _text({"type": "result", "run_id": run_id, "agent": agent, "status": "delivered", "is_error": False})


def summary_document(run: Run, outcome: Outcome) -> str:
    """The object of `retinue -p --output-format json`."""
    failure = outcome.failure
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
            "value": outcome.value,
            "error": {"code": failure.kind, "message": failure.message, "remedy": failure.remedy} if failure else None,
            "limit": outcome.limit,
            "model": outcome.model or run.launch.model_name,
            "turns": outcome.turns,
            "tool_uses": outcome.tool_uses,
            "duration_ms": outcome.duration_ms,
            "usage": outcome.usage,
            "tree_usage": outcome.tree_usage,
            "evidence": outcome.evidence,
            "branch": outcome.branch,
            "notes": outcome.notes,
            "transcript": run.launch.transcript,
        }
    )


def _text(document: dict[str, Any]) -> str:
    return dump(document).decode()
