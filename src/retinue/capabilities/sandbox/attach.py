"""The sandbox of a run: which of its programs are confined, and how.

A command that nobody approved, and every command of a read-only run, can change nothing and reach nobody. A run in a
worktree of its own can change only that worktree. Other commands are confined to their workspace if the settings say
so; files that rules forbid are out of reach in any case. Children of a read-only run are read-only, because their
shells would otherwise act for it.

On a worker whoever approves a command is at another machine, so no approval shows a command more of this one than its
worktree, the system and its tools.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable, Mapping
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
    from retinue.guard.sandbox.sockets import RuntimeSockets
    from retinue.runs.launch import Launch
    from retinue.runs.node import RunNode
    from retinue.runs.project import Project
    from retinue.settings.table import Settings

_MEGABYTE = 1024 * 1024


def put_up_walls(node: RunNode, context: ToolContext) -> None:
    """Confine the programs of a run. Nothing is created before the first program starts."""
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

    sockets = _sockets_of(permissions, context.environment, home(project.environment))
    context.confine = RunWalls(context.run_id, permissions, make_policy, _objects_of(context), sockets)
    if launch.readonly:
        context.confinement = context.confine("walls")


def renew_walls(context: ToolContext) -> None:
    """Let the next command get walls that fit the changed rights of the run."""
    from retinue.guard.walls import RunWalls

    if isinstance(context.confine, RunWalls):
        context.confine.renew()


def _readonly_policy(launch: Launch, project: Project, context: ToolContext) -> SandboxPolicy:
    from retinue.guard.sandbox.policy import SandboxPolicy as SandboxPolicy

    settings, isolation = project.settings.settings, launch.isolation
    more: tuple[Path, ...] = ()
    if isolation is not None:
        more = (*isolation.writable, *isolation.shown)
    return SandboxPolicy(
        reach="system",
        hidden=(*project.own_folders, *_paths(settings.sandbox_hidden, project)),
        shown=(context.outputs, *context.roots, *more, *_paths(settings.sandbox_shown, project)),
        network=_network(settings),
        limits=_limits(settings),
        pass_environment=settings.sandbox_pass_environment,
        home=home(project.environment),
        path=project.tool_environment.get("PATH"),
    )


def _open_policy(launch: Launch, project: Project, context: ToolContext, clearance: Clearance) -> SandboxPolicy | None:
    """Return the walls of a command that somebody approved; None where it needs none."""
    from retinue.guard.sandbox.plan import protected_places
    from retinue.guard.sandbox.policy import SandboxPolicy as SandboxPolicy

    settings, isolation = project.settings.settings, launch.isolation
    whole = settings.sandbox_mode == "workspace"
    on_worker = project.moved is not None
    narrow = whole or on_worker or isolation is not None
    if not narrow and not can_mask(settings):
        return None
    kept: tuple[Path, ...] = ()
    writable: tuple[Path, ...] = ()
    more: tuple[Path, ...] = ()
    if isolation is not None:
        writable, more = isolation.writable, isolation.shown
    elif whole:
        writable = context.roots
        for root in context.roots:
            kept += tuple(protected_places(root))
    # A person has seen the command itself; a rule or a mode has not, so it cannot allow changes of protected files.
    if clearance != "person":
        kept = (*kept, *_protected(launch, project, context))
    hidden = _paths(settings.sandbox_hidden, project)
    if clearance == "mode" or narrow:
        hidden = (*project.own_folders, *hidden)
    shown = (context.outputs, *context.roots, *writable, *more)
    if on_worker:
        shown += _paths(settings.sandbox_shown, project)
    secret = clearance == "mode" or whole or on_worker
    # The operator's own setting also limits what commands reach that a sender has approved.
    limited = whole or (on_worker and settings.origin("sandbox_network").layer != "default")
    return SandboxPolicy(
        reach="system" if on_worker else "all",
        change="listed" if narrow else "all",
        writable=writable,
        readonly=kept,
        hidden=hidden,
        shown=shown,
        network=_network(settings) if limited else "on",
        limits=_limits(settings),
        pass_environment=settings.sandbox_pass_environment,
        home=home(project.environment) if secret else None,
        path=project.tool_environment.get("PATH"),
    )


def _protected(launch: Launch, project: Project, context: ToolContext) -> tuple[Path, ...]:
    from retinue.guard.permissions.protected import protected_paths

    rules = project.part(RunGuards)[context.run_id].permissions.allowing
    named = [rule.specifier.lower() for rule in rules if rule.specifier and "edit" in rule.tools]
    return protected_paths(context.roots, home(project.environment), named)


def _objects_of(context: ToolContext) -> Callable[[tuple[str, ...]], tuple[Path, ...]]:
    """Find the objects of the repository, if it holds a copy of one of these files; for a worktree, also those of the
    checkout that it is a copy of."""
    # Not the context itself, which holds the walls that hold this: the circle would keep all three.
    folders, environment = [context.root], context.environment
    if context.instead is not None:
        folders.append(context.instead[0])
    found: dict[tuple[str, ...], tuple[Path, ...]] = {}

    def find_objects(hidden: tuple[str, ...]) -> tuple[Path, ...]:
        if hidden not in found:
            from retinue.guard.gitobjects import tracked_objects

            objects = [path for folder in folders for path in tracked_objects(folder, hidden, environment)]
            found[hidden] = tuple(dict.fromkeys(objects))
        return found[hidden]

    return find_objects


def _sockets_of(
    permissions: Callable[[], PermissionPolicy], environment: Mapping[str, str], home: Path
) -> Callable[[], RuntimeSockets]:
    """Find the sockets of services that no allow rule of the run names."""

    def find() -> RuntimeSockets:
        from retinue.guard.sandbox.sockets import find_sockets

        rules = [rule.specifier for rule in permissions().allowing if rule.specifier and "bash" in rule.tools]
        # `docker:*`, `docker compose up`, `/usr/bin/docker ps`
        words = (re.split(r"[\s:*]", specifier.strip(), maxsplit=1)[0] for specifier in rules)
        return find_sockets(environment, home, {word.rpartition("/")[2] for word in words})

    return find


async def remove_walls(context: ToolContext) -> None:
    """Remove the scratch folders of a run at its end."""
    walls = context.confine
    if walls is None:
        return
    # Shielded, so that a cancelled run leaves no folders. Walls that were never used have none, and need no thread.
    if walls.in_use:
        await asyncio.shield(asyncio.to_thread(walls.close))
    else:
        walls.close()


def _network(settings: Settings) -> Network:
    chosen = settings.sandbox_network
    if isinstance(chosen, str):
        return "on" if chosen == "on" else "off"
    return chosen or "off"


def _paths(named: Iterable[str], project: Project) -> tuple[Path, ...]:
    # `/` keeps a path that is absolute after its `~` was expanded.
    return tuple(project.cwd / Path(text).expanduser() for text in named)


def _limits(settings: Settings) -> SandboxLimits:
    from retinue.guard.sandbox.policy import SandboxLimits

    return SandboxLimits(
        memory_bytes=_to_bytes(settings.sandbox_memory_mb), scratch_bytes=_to_bytes(settings.sandbox_scratch_mb)
    )


def _to_bytes(megabytes: int | None) -> int | None:
    return None if megabytes is None else megabytes * _MEGABYTE
