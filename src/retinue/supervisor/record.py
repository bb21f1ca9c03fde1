"""What a run is started with, to its first event and back: the reason a resume is faithful."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from retinue.domain.codec import from_data, to_data
from retinue.domain.events import RunCreated
from retinue.domain.request import EVERYTHING, RunRequest
from retinue.domain.spec import AgentSpec
from retinue.errors import LaunchError
from retinue.log.replay import Conversation
from retinue.log.rows import RunRow
from retinue.supervisor.launch import Launch

RESUME_PROMPT = "Go on with your task from where you were."


def created(launch: Launch) -> RunCreated:
    request = launch.request
    spec: Mapping[str, Any] = to_data(request.spec)
    options = {
        "transcript": launch.transcript,
        "model": request.model,
        "thinking": request.thinking,
        "limits": dict(request.limits),
        "schema": request.schema,
        "permission_mode": request.permission_mode,
    }
    return RunCreated(
        agent=request.spec.name,
        task=request.task,
        spec=spec,
        spec_hash=request.spec.hash,
        model=launch.model_name,
        cwd=str(request.cwd),
        depth=request.depth,
        options=options,
    )


def request_of(
    row: RunRow, past: Conversation, prompt: str | None, limits: Mapping[str, float | None] | None
) -> RunRequest:
    """The request as it was, from the run's first event."""
    first = past.created
    if first is None:
        raise LaunchError(f"Run {row.id} has no beginning in the log.", remedy="It cannot be taken up again.")
    options = first.options
    try:
        spec = from_data(AgentSpec, first.spec)
    except ValueError as error:
        raise LaunchError(f"Run {row.id} was written by a version that this one cannot read ({error}).") from error
    return RunRequest(
        spec=spec,
        task=prompt or RESUME_PROMPT,
        cwd=Path(first.cwd),
        model=past.started.model if past.started else first.model,
        thinking=options.get("thinking"),
        limits=options.get("limits") or {} if limits is None else limits,
        pinned=EVERYTHING,
        schema=options.get("schema"),
        permission_mode=options.get("permission_mode"),
        parent_id=row.parent_id,
        root_id=row.root_id,
        depth=first.depth,
    )
