"""Which runs have their programs confined, and how: the sandbox as a part of a run.

A read-only run's shell can change nothing and reach nobody, or the run has no shell. A run in a
worktree of its own can change only that. Other runs are confined to their workspace where the
settings say so. Children of a read-only run are read-only: a shell of theirs would be its hands.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from retinue.settings.places import home

if TYPE_CHECKING:
    from retinue.domain.request import RunRequest
    from retinue.domain.spec import PermissionMode
    from retinue.domain.tool import Confinement, ToolContext
    from retinue.guard.sandbox.policy import Limits, Network
    from retinue.settings.table import Settings
    from retinue.supervisor.launch import Launch
    from retinue.supervisor.world import World

_MEGABYTE = 1024 * 1024


def is_readonly(request: RunRequest, mode: PermissionMode, settings: Settings, notes: list[str]) -> bool:
    """Whether a run may change nothing: because its file or mode says so, no run above it could
    let it, or it was written for devkit-pi, whose agents write only with `allowWrite`."""
    if bool(request.spec.readonly) or mode == "plan":
        return True
    if request.ceiling.readonly:
        notes.append("It is read-only: the agent that started it can change nothing.")
        return True
    if request.spec.dialect != "devkit" or settings.allow_write:
        return False
    notes.append(
        "It runs read-only: agents written for devkit-pi write only with the setting allowWrite "
        "(retinue settings set allowWrite true)."
    )
    return True


def can_sandbox(settings: Settings) -> bool:
    """Whether a read-only run can have a shell here. Quick: nothing is started for it."""
    if settings.sandbox_mode == "off":
        return False
    from retinue.guard.sandbox.probe import can_confine

    return can_confine()


def confinement_for(
    launch: Launch,
    world: World,
    context: ToolContext,
    *,
    writable: tuple[Path, ...] = (),
    readonly: tuple[Path, ...] = (),
    hidden: tuple[Path, ...] = (),
    shown: tuple[Path, ...] = (),
) -> Confinement | None:
    """How programs of this run are started; None without a sandbox. `writable` is what a run in a
    worktree may change instead of its workspace; `readonly` and `hidden` narrow either, `shown` is
    seen though it is in what is hidden. Nothing is made before the first program starts."""
    settings = world.settings.settings
    whole = settings.sandbox_mode == "workspace"
    wanted = launch.readonly or whole or bool(writable)
    if not wanted or not any(tool.spec.confinable for tool in launch.tools) or not can_sandbox(settings):
        return None
    from retinue.guard.sandbox.box import Box
    from retinue.guard.sandbox.policy import Policy, protected_places

    if launch.readonly:
        changing: tuple[Path, ...] = ()
    elif writable:
        changing = writable
    else:
        changing = context.roots
        readonly = (*readonly, *(place for root in context.roots for place in protected_places(root)))
    guarded = launch.readonly or whole
    policy = Policy(
        writable=changing,
        readonly=readonly,
        hidden=(world.home, *hidden, *_hidden(settings, world)),
        shown=(context.outputs, *context.roots, *writable, *shown),
        network=_network(settings) if guarded else "on",
        limits=_limits(settings),
        pass_environment=settings.sandbox_pass_environment,
        home=home(world.environment) if guarded else None,
    )
    return Box(policy, context.run_id)


async def put_away(context: ToolContext) -> None:
    """At the run's end: its scratch folder goes, whatever is in it."""
    if context.confinement is not None:
        await asyncio.shield(asyncio.to_thread(context.confinement.close))


def _network(settings: Settings) -> Network:
    chosen = settings.sandbox_network
    if isinstance(chosen, str):
        return "on" if chosen == "on" else "off"
    return chosen or "off"


def _hidden(settings: Settings, world: World) -> tuple[Path, ...]:
    return tuple(world.cwd / Path(place).expanduser() for place in settings.sandbox_hidden)


def _limits(settings: Settings) -> Limits:
    from retinue.guard.sandbox.policy import Limits

    memory, largest = settings.sandbox_memory_mb, settings.sandbox_file_mb
    return Limits(
        processes=settings.sandbox_processes,
        memory_bytes=None if memory is None else memory * _MEGABYTE,
        cpu_seconds=settings.sandbox_cpu_seconds,
        file_bytes=None if largest is None else largest * _MEGABYTE,
        scratch_bytes=None if settings.sandbox_scratch_mb is None else settings.sandbox_scratch_mb * _MEGABYTE,
    )
