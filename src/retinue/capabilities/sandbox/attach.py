"""Which runs have their programs confined, and how: the sandbox as a part of a run.

A command that nobody said yes to, and every command of a read-only run, can change nothing and
reach nobody. A run in a worktree of its own can change only that. Other commands are confined to
their workspace where the settings say so; what rules about files forbid, they can never touch.
Children of a read-only run are read-only: a shell of theirs would be its hands.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from retinue.guard.sandbox.kernel import can_sandbox
from retinue.guard.sandbox.policy import can_mask
from retinue.runs.guard import RunGuards
from retinue.settings.places import home

if TYPE_CHECKING:
    from retinue.core.permission import Clearance
    from retinue.core.tool import ToolContext
    from retinue.guard.permissions.policy import PermissionPolicy
    from retinue.guard.sandbox.policy import Network, SandboxLimits
    from retinue.guard.sandbox.policy import SandboxPolicy as SandboxPolicy
    from retinue.runs.launch import Launch
    from retinue.runs.node import RunNode
    from retinue.runs.project import Project
    from retinue.settings.table import Settings

_MEGABYTE = 1024 * 1024


def put_up_walls(node: RunNode, context: ToolContext) -> None:
    """Give a run's shells their walls. Nothing is made before the first program starts."""
    project, launch = node.project, node.handle.launch
    if not can_sandbox(project.settings.settings):
        return
    from retinue.guard.walls import RunWalls

    def permissions() -> PermissionPolicy:
        return project.part(RunGuards)[context.run_id].permissions

    def make_policy(clearance: Clearance) -> SandboxPolicy | None:
        # The rights of the run grow when plan mode ends: its launch of this moment counts.
        if node.handle.launch.readonly or clearance == "walls":
            return _readonly_policy(launch, project, context)
        return _open_policy(launch, project, context, clearance)

    context.confine = RunWalls(context.run_id, permissions, make_policy, _objects_of(context))
    if launch.readonly:
        context.confinement = context.confine("walls")


def renew_walls(context: ToolContext) -> None:
    """The rights of the run are others now: the next command gets walls that fit."""
    from retinue.guard.walls import RunWalls

    if isinstance(context.confine, RunWalls):
        context.confine.renew()


def _readonly_policy(launch: Launch, project: Project, context: ToolContext) -> SandboxPolicy:
    from retinue.guard.sandbox.policy import SandboxPolicy as SandboxPolicy

    settings, isolation = project.settings.settings, launch.isolation
    more = (*isolation.writable, *isolation.shown) if isolation is not None else ()
    return SandboxPolicy(
        reach="system",
        hidden=(project.home, *_hidden(settings, project)),
        shown=(context.outputs, *context.roots, *more, *_shown(settings, project)),
        network=_network(settings),
        limits=_limits(settings),
        pass_environment=settings.sandbox_pass_environment,
        home=home(project.environment),
        path=project.tool_environment.get("PATH"),
    )


def _open_policy(launch: Launch, project: Project, context: ToolContext, clearance: Clearance) -> SandboxPolicy | None:
    """What a command may do that somebody said yes to: everything but what is hidden and kept."""
    from retinue.guard.sandbox.plan import protected_places
    from retinue.guard.sandbox.policy import SandboxPolicy as SandboxPolicy

    settings, isolation = project.settings.settings, launch.isolation
    whole = settings.sandbox_mode == "workspace"
    narrow = whole or isolation is not None
    if not narrow and not can_mask(settings):
        return None
    kept: tuple[Path, ...] = ()
    writable: tuple[Path, ...] = ()
    if isolation is not None:
        writable = isolation.writable
    elif whole:
        writable = context.roots
        kept = tuple(place for root in context.roots for place in protected_places(root))
    if clearance != "person":
        kept = (*kept, *_protected(launch, project, context))
    unasked = clearance == "mode" or narrow
    secret = clearance == "mode" or whole
    return SandboxPolicy(
        change="listed" if narrow else "all",
        writable=writable,
        readonly=kept,
        hidden=(*((project.home,) if unasked else ()), *_hidden(settings, project)),
        shown=(context.outputs, *context.roots, *writable, *(isolation.shown if isolation else ())),
        network=_network(settings) if whole else "on",
        limits=_limits(settings),
        pass_environment=settings.sandbox_pass_environment,
        home=home(project.environment) if secret else None,
    )


def _protected(launch: Launch, project: Project, context: ToolContext) -> tuple[Path, ...]:
    from retinue.guard.permissions.coverage import protected_paths

    rules = project.part(RunGuards)[context.run_id].permissions.allowing
    named = [rule.specifier.lower() for rule in rules if rule.specifier and "edit" in rule.tools]
    return protected_paths(context.roots, home(project.environment), named)


def _objects_of(context: ToolContext) -> Callable[[tuple[str, ...]], tuple[Path, ...]]:
    """Find the objects of the repository, if it holds a copy of one of these files."""
    # Not the context itself, which holds the walls that hold this: the circle would keep all three.
    root, environment = context.root, context.environment
    found: dict[tuple[str, ...], tuple[Path, ...]] = {}

    def objects(hidden: tuple[str, ...]) -> tuple[Path, ...]:
        if hidden not in found:
            from retinue.guard.git import tracked_objects

            found[hidden] = tracked_objects(root, hidden, environment)
        return found[hidden]

    return objects


async def remove_walls(context: ToolContext) -> None:
    """At the run's end: its scratch folders go, whatever is in them."""
    walls = context.confine
    if walls is None:
        return
    if walls.in_use:
        await asyncio.shield(asyncio.to_thread(walls.close))
    else:
        walls.close()  # nothing to remove, so no thread either


def _network(settings: Settings) -> Network:
    chosen = settings.sandbox_network
    if isinstance(chosen, str):
        return "on" if chosen == "on" else "off"
    return chosen or "off"


def _shown(settings: Settings, project: Project) -> tuple[Path, ...]:
    return tuple(project.cwd / Path(place).expanduser() for place in settings.sandbox_shown)


def _hidden(settings: Settings, project: Project) -> tuple[Path, ...]:
    return tuple(project.cwd / Path(place).expanduser() for place in settings.sandbox_hidden)


def _limits(settings: Settings) -> SandboxLimits:
    from retinue.guard.sandbox.policy import SandboxLimits

    memory = settings.sandbox_memory_mb
    return SandboxLimits(
        memory_bytes=None if memory is None else memory * _MEGABYTE,
        scratch_bytes=None if settings.sandbox_scratch_mb is None else settings.sandbox_scratch_mb * _MEGABYTE,
    )
