"""The documents of `run` and `-p`: of a run that has ended, of one that was refused, and of a delivered message."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct

from retinue.core.encode import dump
from retinue.core.events import AssistantEnded
from retinue.core.outcome import Evidence, Outcome
from retinue.core.usage import LimitName, Usage
from retinue.errors import RetinueError
from retinue.guard.redact import Redactor, sanitise
from retinue.loop.result import ErrorCode, display_items, refused, result_document
from retinue.models.keys import environment

if TYPE_CHECKING:
    from retinue.runs.run import Run

# text: the answer. result: the object of `--json`. events: every event as a line, the outcome last.
# summary: the object of `--output-format json`.
Output = Literal["text", "result", "events", "summary"]

_RESULT_CODE_OF_ERROR: dict[str, ErrorCode] = {"UNKNOWN_AGENT": "UNKNOWN_AGENT", "AGENT_DISABLED": "SUBAGENT_DISABLED"}


class ErrorSummary(Struct, frozen=True):
    """The reason why a run failed or was not started."""

    code: str
    message: str
    remedy: str


class ErrorDocument(Struct, frozen=True):
    """The document of a command that was refused."""

    error: ErrorSummary


class DeliveredSummary(Struct, frozen=True, kw_only=True, tag_field="type", tag="result"):
    """A message was delivered to an agent of another process."""

    run_id: str
    agent: str
    status: Literal["delivered"] = "delivered"
    is_error: bool = False


class RefusalSummary(Struct, frozen=True, kw_only=True, tag_field="type", tag="result"):
    """A run that was not started, or whose log was lost."""

    run_id: str | None
    status: Literal["refused", "interrupted"]
    is_error: bool = True
    error: ErrorSummary


class RunSummary(Struct, frozen=True, kw_only=True, tag_field="type", tag="result"):
    """A run that has ended: the object of `--output-format json`."""

    run_id: str
    agent: str
    status: str
    is_error: bool
    result: str
    partial: bool
    truncated: bool
    shortfall: str | None
    value: Any
    error: ErrorSummary | None
    limit: LimitName | None
    model: str | None
    turns: int
    tool_uses: int
    duration_ms: int
    usage: Usage
    usage_known: bool
    tree_usage: Usage | None
    evidence: Evidence
    branch: str | None
    notes: Sequence[str]
    transcript: str | None


class FailureLine(Struct, frozen=True):
    """Why a run, or a model that was tried, failed."""

    kind: str
    message: str
    remedy: str


class RefusalLine(Struct, frozen=True, kw_only=True, tag_field="type", tag="outcome"):
    """The only line of an event stream without a run."""

    run_id: str | None
    parent_id: str | None = None
    root_id: str | None = None
    seq: int = 0
    at: float
    ended: Literal["refused", "interrupted"]
    failure: FailureLine


def run_document(run: Run, outcome: Outcome, output: Output) -> bytes:
    """Return the JSON document of a run that has ended."""
    if output == "summary":
        return dump(_summary(run, outcome))
    redactor = Redactor(environment())
    types = ("assistant.ended",)
    messages = [event.body.message for event in run.recorded(types=types) if isinstance(event.body, AssistantEnded)]
    document = result_document(
        outcome,
        agent=run.agent,
        task=run.launch.request.task,
        run_id=run.id,
        session_file=run.launch.transcript,
        display_items=display_items(messages),
        sanitise=lambda text: sanitise(text, environment(), redactor),
    )
    return dump(document)


def refusal_document(error: RetinueError, output: Output) -> bytes:
    """Return the JSON document that replaces the result if a run was not started or its log was lost."""
    status: Literal["refused", "interrupted"] = "interrupted" if error.run_id else "refused"
    if output == "result":
        other: ErrorCode = "INVALID_INPUT" if error.exit_code == 2 else "SUBAGENT_FAILED"
        return dump(refused(_RESULT_CODE_OF_ERROR.get(error.code, other), str(error), run_id=error.run_id))
    if output == "events":
        failure = FailureLine(error.code, error.message, error.remedy)
        return dump(RefusalLine(run_id=error.run_id, at=time.time(), ended=status, failure=failure))
    summary = ErrorSummary(error.code, error.message, error.remedy)
    return dump(RefusalSummary(run_id=error.run_id, status=status, error=summary))


def delivery_document(run_id: str, agent: str) -> bytes:
    """Return the JSON document for a message that was delivered to an agent of another process."""
    return dump(DeliveredSummary(run_id=run_id, agent=agent))


def _summary(run: Run, outcome: Outcome) -> RunSummary:
    failure = outcome.failure
    return RunSummary(
        run_id=run.id,
        agent=run.agent,
        status=outcome.ended,
        is_error=not outcome.ok,
        result=outcome.text,
        partial=outcome.partial,
        truncated=outcome.truncated,
        shortfall=outcome.shortfall or None,
        value=outcome.value,
        error=None if failure is None else ErrorSummary(failure.kind, failure.message, failure.remedy),
        limit=outcome.limit,
        model=outcome.model or run.launch.model_name,
        turns=outcome.turns,
        tool_uses=outcome.tool_uses,
        duration_ms=outcome.duration_ms,
        usage=outcome.usage,
        usage_known=outcome.usage.is_counted(outcome.turns, outcome.model),
        tree_usage=outcome.tree_usage,
        evidence=outcome.evidence,
        branch=outcome.branch,
        notes=outcome.notes,
        transcript=run.launch.transcript,
    )
