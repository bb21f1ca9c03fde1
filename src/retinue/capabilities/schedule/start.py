"""The start of a job as a run, and `Agent(schedule=…)`, with which a model schedules a run.

A job starts in the session it belongs to if that lives in this process, otherwise as a main run.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from retinue.agents.catalog import startable_types
from retinue.capabilities.schedule.times import zone_of
from retinue.core.delegation import Refusal, Scheduled, SpawnCall
from retinue.core.request import Ceiling, RunRequest
from retinue.core.spec import AgentSpec
from retinue.errors import LaunchError, RetinueError
from retinue.log.schedules import ScheduledJob
from retinue.runs.guard import bounds_below, ceiling_of
from retinue.runs.launch import LaunchPlan
from retinue.runs.plan import launching
from retinue.runs.requests import merge, request_of_call, resolve_type

if TYPE_CHECKING:
    from retinue.capabilities.schedule.scheduler import Scheduler
    from retinue.runs.run import Run
    from retinue.runs.supervisor import Supervisor


KEPT_OPTIONS = ("model", "thinking", "max_turns", "isolated", "isolation")
"""The options of a call that are stored with the job."""


async def start_job(supervisor: Supervisor, job: ScheduledJob, run_id: str) -> Run:
    """Start a job in the background, past the queue. Raise RetinueError when it cannot start.

    The main agent of the session is told of the end: at once if it runs in this process, otherwise when the session
    is resumed.
    """
    agent = resolve_type(job.agent, supervisor.project.catalog(), supervisor.settings)
    if isinstance(agent, Refusal):
        raise LaunchError(agent.message, remedy=f"Correct the job: retinue schedule list. It is named {job.name}.")
    parent = session_of(supervisor, job)
    options = dict(job.options)
    rights = options.pop("rights", None)
    request = await request_for(supervisor, agent.spec, job.prompt, options, parent)
    if parent is None:
        request = _of_absent_session(supervisor, job, request, rights)
    notes = tuple(filter(None, (f"started by the schedule {job.name} ({job.text})", agent.note)))
    return await supervisor.start(
        request, parent=parent, description=job.name, background=True, notes=notes, run_id=run_id, queued=False
    )


def session_of(supervisor: Supervisor, job: ScheduledJob) -> Run | None:
    """Return the main run that the job belongs to, if it is a run of this process, at work or idle."""
    return supervisor.members.get(job.session_id or "")


def rights_of(parent_run: Run, request: RunRequest) -> dict[str, Any]:
    """Return the limits that a job inherits from the run that schedules it, for the time after that run."""
    ceiling = ceiling_of(request, parent_run)
    # Patterns can be checked only while their run exists; without it the job is read-only.
    if bounds_below(parent_run):
        ceiling = replace(ceiling, readonly=True)
    return {"ceiling": ceiling.as_dict(), "mode": parent_run.mode}


def _of_absent_session(supervisor: Supervisor, job: ScheduledJob, request: RunRequest, rights: Any) -> RunRequest:
    """Make the request a child of its session, with no more rights than the run that asked for the job. The main
    agent of the session is told when the session is resumed."""
    if isinstance(rights, Mapping):
        ceiling = Ceiling.read(rights.get("ceiling"))
        request = replace(request, ceiling=ceiling, permission_mode=rights.get("mode"))
    if not job.session_id:
        return request
    try:
        row = supervisor.project.log.reader.run(job.session_id)
    except RetinueError:
        # The session may have been deleted; its jobs still run.
        return request
    return replace(request, parent_id=row.id, root_id=row.root_id)


async def request_for(
    supervisor: Supervisor, spec: AgentSpec, prompt: str, options: Mapping[str, Any], parent: Run | None
) -> RunRequest:
    """Return the request of a job. As in a call of the Agent tool, the agent's file decides first."""
    call, _ = merge(spec, SpawnCall(prompt=prompt, agent=spec.name, **options), supervisor.settings)
    return await request_of_call(spec, call, supervisor.project, parent)


async def schedule_call(
    scheduler: Scheduler, supervisor: Supervisor, parent_run: Run, call: SpawnCall
) -> Scheduled | Refusal:
    """Add the job that a call of the Agent tool asks for. It belongs to the session of `parent_run`.

    Type, model and tools are checked as for a run that starts now.
    """
    refusal = _refusal(supervisor, parent_run, call)
    if refusal is not None:
        return refusal
    agent = resolve_type(
        call.agent,
        supervisor.project.catalog(),
        supervisor.settings,
        strict=parent_run.depth > 0,
        allowed=startable_types(parent_run.launch.request.spec),
    )
    if isinstance(agent, Refusal):
        return agent
    options = {name: value for name in KEPT_OPTIONS if (value := getattr(call, name)) is not None}
    try:
        request = await request_for(supervisor, agent.spec, call.prompt, options, parent_run)
        # A job that could not start now is refused now.
        async with launching(LaunchPlan(request, supervisor.project, parent_run)):
            pass
        job = await scheduler.add(
            agent.spec.name,
            call.prompt,
            call.schedule or "",
            name=call.name or call.description,
            session_id=parent_run.place.root_id,
            options={**options, "rights": rights_of(parent_run, request)},
        )
    except RetinueError as error:
        return Refusal(code=error.code, message=str(error))
    # Only some commands start the scheduler by themselves; a session with jobs needs it in any case.
    scheduler.begin()
    due = "(unknown)"
    if job.next_at:
        due = datetime.fromtimestamp(job.next_at, zone_of(job.zone)).isoformat()
    notes = tuple(filter(None, (agent.note,)))
    return Scheduled(id=job.id, name=job.name, kind=job.kind, next_run=due, notes=notes)


def _refusal(supervisor: Supervisor, parent_run: Run, call: SpawnCall) -> Refusal | None:
    if not supervisor.settings.scheduling_enabled:
        return Refusal(code="UNSUPPORTED", message="Scheduling is switched off in this project: leave out `schedule`.")
    for name in ("resume", "inherit_context"):
        if getattr(call, name):
            return Refusal(code="INVALID_INPUT", message=f"`schedule` cannot be combined with `{name}`.")
    if call.background is False:
        message = "A scheduled agent always works in the background: leave out `run_in_background: false`."
        return Refusal(code="INVALID_INPUT", message=message)
    if parent_run.depth + 1 > supervisor.settings.max_subagent_depth:
        deepest = supervisor.settings.max_subagent_depth
        return Refusal(code="SUBAGENT_DEPTH_EXCEEDED", message=f"Agents may be nested {deepest} deep at most.")
    return None
