"""A run from its place in the line to its end: it waits for a slot, works, and frees the slot."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from retinue.capabilities.mcp.attach import serving
from retinue.core.outcome import Ended, Failure, Outcome
from retinue.runs.runner import execute, finish

if TYPE_CHECKING:
    from retinue.log.replay import Conversation
    from retinue.loop.controls import Controls
    from retinue.runs.member import Member
    from retinue.runs.queue import Queue
    from retinue.runs.world import World

Place = asyncio.Future[None]


def take_place(member: Member, queue: Queue) -> Place | None:
    """A place in the line, or None for who needs none: whoever waits for a nested or a
    foreground run may hold a slot."""
    place = None
    if member.background and member.queues and member.depth <= 1 and not member.handle.controls.stopping:
        place = queue.join(member.id)
    member.queue = queue if place is not None else None
    member.status = "queued" if place is not None and not place.done() else "starting"
    return place


async def attend(
    member: Member, world: World, queue: Queue, place: Place | None, past: Conversation | None, post: str
) -> None:
    """Everything of one leg. However it ends, the run has its ending and the slot is free."""
    controls, cwd = member.handle.controls, member.handle.launch.request.cwd
    waits = place is not None and not place.done()
    try:
        if place is not None:
            await _slot(controls, place)
        if controls.stopping:
            await _never_started(member, world, "stopped", Failure("stopped", "Stopped before it had started."))
        elif waits and not cwd.is_dir():  # it may have waited for long
            gone = f"The working directory {cwd} does not exist any more."
            await _never_started(member, world, "error", Failure("not_found", gone, "Make it again and resume."))
        else:
            member.status = "starting"
            with serving(member.handle.launch):
                await execute(member, world, past, post)
    finally:
        queue.leave(member.id)


async def abandon(member: Member, world: World) -> None:
    """Whoever asked for the run is gone before it began: it ends where it is."""
    member.stopped_by = "agent"
    failure = Failure("stopped", "Stopped with the call that asked for it, before it had started.")
    await _never_started(member, world, "stopped", failure)
    member.account.close()


async def _slot(controls: Controls, place: Place) -> None:
    """Waits in the line. A run that is stopped there leaves it, which ends the wait."""
    try:
        await place
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if not controls.stopping or (task is not None and task.cancelling()):
            raise


async def _never_started(member: Member, world: World, ended: Ended, failure: Failure) -> None:
    await finish(member, world, Outcome(ended, failure=failure, model=member.handle.launch.model_name))
