"""`Agent(schedule=…)`: a model asks for a run at a time."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from retinue.capabilities.schedule.start import request_for, rights_of
from retinue.capabilities.schedule.times import zone_of
from retinue.core.delegation import Refusal, Scheduled, SpawnCall
from retinue.errors import RetinueError
from retinue.runs.ceiling import startable_types
from retinue.runs.launch import prepare
from retinue.runs.resolution import resolve_type

if TYPE_CHECKING:
    from retinue.runs.crew import Supervisor
    from retinue.runs.member import Member


async def schedule_call(crew: Supervisor, me: Member, call: SpawnCall) -> Scheduled | Refusal:
    """Type, model and tools are checked as for a run that starts now. The job belongs to the
    session of `me`: its main agent hears of the ends while it lives."""
    refusal = _refusal(crew, me, call)
    if refusal is not None:
        return refusal
    found = resolve_type(
        call.agent,
        crew.world.catalog(),
        crew.settings,
        strict=me.depth > 0,
        allowed=startable_types(me.handle.launch.request.spec),
    )
    if isinstance(found, Refusal):
        return found
    options = {
        name: getattr(call, name)
        for name in ("model", "thinking", "max_turns", "isolated", "isolation")
        if getattr(call, name) is not None
    }
    try:
        request = request_for(crew, found.spec, call.prompt, options, me)
        await prepare(request, crew.world, None, me.handle.launch)
        job = await crew.schedules.add(
            found.spec.name,
            call.prompt,
            call.schedule or "",
            name=call.name or call.description,
            session_id=me.handle.place.root_id,
            options={**options, "rights": rights_of(me, request)},
        )
    except RetinueError as error:
        return Refusal(code=error.code, message=str(error))
    crew.schedules.begin()  # whatever kind of session this is, it fires while it runs
    due = datetime.fromtimestamp(job.next_at, zone_of(job.zone)).isoformat() if job.next_at else "(unknown)"
    return Scheduled(id=job.id, name=job.name, kind=job.kind, next_run=due, notes=(found.note,) if found.note else ())


def _refusal(crew: Supervisor, me: Member, call: SpawnCall) -> Refusal | None:
    if not crew.settings.scheduling_enabled:
        return Refusal(code="UNSUPPORTED", message="Scheduling is switched off in this project: leave out `schedule`.")
    for given, name in ((call.resume, "resume"), (call.inherit_context, "inherit_context")):
        if given:
            return Refusal(code="INVALID_INPUT", message=f"`schedule` cannot be combined with `{name}`.")
    if call.background is False:
        message = "A scheduled agent always works in the background: leave out `run_in_background: false`."
        return Refusal(code="INVALID_INPUT", message=message)
    if me.depth + 1 > crew.settings.max_subagent_depth:
        deepest = crew.settings.max_subagent_depth
        return Refusal(code="SUBAGENT_DEPTH_EXCEEDED", message=f"Agents may be nested {deepest} deep at most.")
    return None
