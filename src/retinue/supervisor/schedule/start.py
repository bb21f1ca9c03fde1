"""A job becomes a run: of the session it belongs to if that lives here, else one of its own."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from retinue.domain.delegation import Refusal, SpawnCall
from retinue.domain.request import RunRequest
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
    call = SpawnCall(
        prompt=job.prompt,
        description=job.name,
        agent=found.spec.name,
        model=job.options.get("model"),
        thinking=job.options.get("thinking"),
        max_turns=job.options.get("max_turns"),
        isolated=job.options.get("isolated"),
        isolation=job.options.get("isolation"),
    )
    options = merge(found.spec, call, crew.settings)
    spec = replace(found.spec, subagents=False) if options.isolated else found.spec
    request = RunRequest(
        spec=spec,
        task=f"{spec.initial_prompt}\n\n{job.prompt}" if spec.initial_prompt else job.prompt,
        cwd=parent.handle.launch.request.cwd if parent else crew.world.cwd,
        model=options.model if options.model != spec.model.name else None,
        thinking=options.thinking,
        limits={} if options.max_turns is None else {"max_turns": options.max_turns or None},
        schema=spec.output_schema,
        parent_id=parent.id if parent else None,
        root_id=parent.handle.place.root_id if parent else None,
        depth=parent.depth + 1 if parent else 1,
        isolation="worktree" if options.isolation else None,
        permission_mode=parent.handle.launch.request.permission_mode if parent else None,
    )
    notes = (f"started by the schedule {job.name} ({job.text})", *((found.note,) if found.note else ()))
    return await crew.start(
        request, parent=parent, description=job.name, background=True, notes=notes, run_id=run_id, queued=False
    )


def session_of(crew: Supervisor, job: Job) -> Member | None:
    """The main run the job belongs to, if it is at work in this process."""
    member = crew.members.get(job.session_id or "")
    return member if member is not None and member.live else None
