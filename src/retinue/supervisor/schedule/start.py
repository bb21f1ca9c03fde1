"""A job becomes a run: of the session it belongs to if that lives here, else one of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from retinue.domain.delegation import Refusal, SpawnCall
from retinue.domain.request import RunRequest
from retinue.domain.spec import AgentSpec
from retinue.errors import LaunchError
from retinue.log.schedules import Job
from retinue.supervisor.resolution import merge, resolve_type

if TYPE_CHECKING:
    from retinue.supervisor.crew import Supervisor
    from retinue.supervisor.member import Member


async def start_job(crew: Supervisor, job: Job, run_id: str) -> Member:
    """In the background and past the queue. Its end is announced to the session's main agent
    where that is at work here. Raises RetinueError when it cannot start."""
    found = resolve_type(job.agent, crew.world.catalog(), crew.settings)
    if isinstance(found, Refusal):
        raise LaunchError(found.message, remedy=f"Correct the job: retinue schedule list. It is named {job.name}.")
    parent = session_of(crew, job)
    request = request_for(crew, found.spec, job.prompt, job.options, parent)
    notes = (f"started by the schedule {job.name} ({job.text})", *((found.note,) if found.note else ()))
    return await crew.start(
        request, parent=parent, description=job.name, background=True, notes=notes, run_id=run_id, queued=False
    )


def session_of(crew: Supervisor, job: Job) -> Member | None:
    """The main run the job belongs to, if it is at work in this process."""
    member = crew.members.get(job.session_id or "")
    return member if member is not None and member.live else None


def request_for(
    crew: Supervisor, spec: AgentSpec, prompt: str, options: Mapping[str, Any], parent: Member | None
) -> RunRequest:
    """What a job asks for, as a call of the Agent tool would: the file decides first."""
    call = SpawnCall(prompt=prompt, agent=spec.name, **options)
    merged = merge(spec, call, crew.settings)
    if merged.isolated:
        spec = replace(spec, subagents=False)
    above = parent.handle.launch.request if parent else None
    return RunRequest(
        spec=spec,
        task=f"{spec.initial_prompt}\n\n{prompt}" if spec.initial_prompt else prompt,
        cwd=above.cwd if above else crew.world.cwd,
        model=merged.model if merged.model != spec.model.name else None,
        thinking=merged.thinking,
        limits={} if merged.max_turns is None else {"max_turns": merged.max_turns or None},
        schema=spec.output_schema,
        parent_id=parent.id if parent else None,
        root_id=parent.handle.place.root_id if parent else None,
        depth=parent.depth + 1 if parent else 1,
        isolation="worktree" if merged.isolation else None,
        permission_mode=above.permission_mode if above else None,
    )
