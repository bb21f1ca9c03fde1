"""The sandboxes that programs of a project start in: which policy follows from a clearance.

A command that nobody approved, and every command of a read-only run, can change nothing and reach nobody. A run in a
worktree of its own can change only that worktree. Other commands are confined to their workspace if the settings say
so; files that rules forbid are out of reach in any case.

On a worker whoever approves a command is at another machine, so no approval shows a command more of this one than its
worktree, the system and its tools.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from retinue.guard.sandbox.kernel import can_sandbox
from retinue.guard.sandbox.policy import SandboxLimits, SandboxPolicy, can_mask
from retinue.guard.walls import RunWalls
from retinue.settings.places import home

if TYPE_CHECKING:
    from retinue.core.clearance import Clearance
    from retinue.guard.permissions.policy import PermissionPolicy
    from retinue.guard.sandbox.policy import Network
    from retinue.guard.sandbox.sockets import RuntimeSockets
    from retinue.runs.bounds import Isolation
    from retinue.runs.project import Project
    from retinue.settings.table import Settings

_MEGABYTE = 1024 * 1024


class SandboxScope(Struct, frozen=True):
    """The folders that the sandboxes of one run show. `instead` is a folder that must not be touched, and the copy
    where the run works."""

    roots: tuple[Path, ...]
    outputs: Path
    isolation: Isolation | None = None
    instead: tuple[Path, Path] | None = None


def make_walls(
    project: Project,
    run_id: str,
    scope: SandboxScope,
    permissions: Callable[[], PermissionPolicy],
    environment: Mapping[str, str],
    is_readonly: Callable[[], bool] = lambda: False,
) -> RunWalls | None:
    """Return the sandboxes for programs of a run, or of a prompt before there is a run; None where nothing is
    confined. Nothing is created before the first program starts. `is_readonly`: whether at this moment nothing may
    change anything, whoever approves it."""
    if not can_sandbox(project.settings.settings):
        return None

    def make_policy(clearance: Clearance) -> SandboxPolicy | None:
        if is_readonly() or clearance == "inside":
            return _readonly_policy(project, scope)
        return _open_policy(project, scope, clearance, permissions)

    sockets = _sockets_of(permissions, environment, home(project.environment))
    objects = _objects_of(scope, environment)
    foreign = project.moved is not None
    return RunWalls(run_id, permissions, make_policy, objects, sockets, is_readonly, foreign=foreign)


def _readonly_policy(project: Project, scope: SandboxScope) -> SandboxPolicy:
    settings, isolation = project.settings.settings, scope.isolation
    more: tuple[Path, ...] = ()
    if isolation is not None:
        more = (*isolation.writable, *isolation.shown)
    return SandboxPolicy(
        reach="system",
        hidden=(*project.own_folders, *_paths(settings.sandbox_hidden, project)),
        shown=(scope.outputs, *scope.roots, *more, *_paths(settings.sandbox_shown, project)),
        network=_network(settings),
        limits=_limits(settings),
        pass_environment=settings.sandbox_pass_environment,
        home=home(project.environment),
        path=project.tool_environment.get("PATH"),
    )


def _open_policy(
    project: Project, scope: SandboxScope, clearance: Clearance, permissions: Callable[[], PermissionPolicy]
) -> SandboxPolicy | None:
    """Return the walls of a command that somebody approved; None where it needs none."""
    from retinue.guard.sandbox.plan import protected_places

    settings, isolation = project.settings.settings, scope.isolation
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
        writable = scope.roots
        for root in scope.roots:
            kept += tuple(protected_places(root))
    # A person has seen the command itself; a rule or a mode has not, so it cannot allow changes of protected files.
    if clearance != "person":
        kept = (*kept, *_protected(project, scope, permissions()))
    hidden = _paths(settings.sandbox_hidden, project)
    if clearance == "mode" or narrow:
        hidden = (*project.own_folders, *hidden)
    shown = (scope.outputs, *scope.roots, *writable, *more)
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


def _protected(project: Project, scope: SandboxScope, permissions: PermissionPolicy) -> tuple[Path, ...]:
    from retinue.guard.permissions.modes import protected_paths

    named = [rule.specifier.lower() for rule in permissions.allowing if rule.specifier and "edit" in rule.tools]
    return protected_paths(scope.roots, home(project.environment), named)


def _objects_of(scope: SandboxScope, environment: Mapping[str, str]) -> Callable[[tuple[str, ...]], tuple[Path, ...]]:
    """Find the objects of the repository, if it holds a copy of one of these files; for a worktree, also those of the
    checkout that it is a copy of."""
    folders = [scope.roots[0]]
    if scope.instead is not None:
        folders.append(scope.instead[0])
    found: dict[tuple[str, ...], tuple[Path, ...]] = {}

    def find_objects(hidden: tuple[str, ...]) -> tuple[Path, ...]:
        if hidden not in found:
            from retinue.guard.git import tracked_objects

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


def _network(settings: Settings) -> Network:
    chosen = settings.sandbox_network
    if isinstance(chosen, str):
        return "on" if chosen == "on" else "off"
    return chosen or "off"


def _paths(named: Iterable[str], project: Project) -> tuple[Path, ...]:
    # `/` keeps a path that is absolute after its `~` was expanded.
    return tuple(project.cwd / Path(text).expanduser() for text in named)


def _limits(settings: Settings) -> SandboxLimits:
    return SandboxLimits(
        memory_bytes=_to_bytes(settings.sandbox_memory_mb), scratch_bytes=_to_bytes(settings.sandbox_scratch_mb)
    )


def _to_bytes(megabytes: int | None) -> int | None:
    return None if megabytes is None else megabytes * _MEGABYTE
