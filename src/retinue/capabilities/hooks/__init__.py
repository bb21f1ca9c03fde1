"""Hooks: programs of the user that are called on events of a run and may deny or change what it does."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from retinue.core.foreign import Provenance
from retinue.core.lazy import LazyModule
from retinue.core.permission import NO_HOOKS, HookEvent
from retinue.runs.capability import Capability, RunPart
from retinue.settings.places import home, repository_root

if TYPE_CHECKING:
    from retinue.capabilities.hooks import attach as _attach
    from retinue.capabilities.hooks import sources as _sources
    from retinue.capabilities.hooks.sources import Handler, HookSources
    from retinue.core.outcome import Outcome
    from retinue.guard.trust import TrustSubject
    from retinue.runs.launch import LaunchPlan
    from retinue.runs.project import Project
    from retinue.runs.run import Run
    from retinue.settings.load import Loaded
else:
    _attach = LazyModule("retinue.capabilities.hooks.attach")
    _sources = LazyModule("retinue.capabilities.hooks.sources")

HOOK_FILES: Mapping[str, tuple[str, ...]] = {
    ".claude": ("settings.json", "settings.local.json"),
    ".codingcode": ("hooks.yaml", "hooks.yml"),
}
HookFunction = Callable[[dict[str, Any]], Any]
HandlersByEvent = Mapping[HookEvent, "tuple[Handler, ...]"]


class HooksCapability(Capability):
    """The hooks of a run, from before it is recorded until it has ended."""

    async def restrict(self, plan: LaunchPlan) -> None:
        hooks = plan.project.part(SessionHooks)
        hooks.require_readable()
        if plan.request.parent_id is None:
            plan.notes += hooks.notes()

    async def admit(self, plan: LaunchPlan) -> None:
        if plan.spec.hooks or not plan.project.part(SessionHooks).is_empty:
            await _attach.admit(plan)

    async def running(self, node: Run, *, resumed: bool) -> RunPart | None:
        if node.hooks is NO_HOOKS:
            return None
        assert isinstance(node.hooks, _attach.RunHooks)
        hooks = node.hooks
        await hooks.begin(node)
        return RunPart(
            introduce=hooks.introduce,
            watch=hooks.watch if hooks.watches else None,
            before_end=hooks.before_end,
            before_compact=hooks.before_compact,
        )

    async def finish(self, node: Run, outcome: Outcome) -> Outcome:
        if node.hooks is not NO_HOOKS and isinstance(node.hooks, _attach.RunHooks):
            await node.hooks.end(outcome)
        return outcome

    def trust_subjects(self, project: Project) -> Sequence[TrustSubject]:
        return _sources.project_subjects(project.cwd, project.environment)


class HookFile(NamedTuple):
    """A file of another program that may contain hooks. `folder` is the name of the settings folder it is in."""

    path: Path
    provenance: Provenance
    folder: str


def hook_files(cwd: Path, environment: Mapping[str, str]) -> list[HookFile]:
    """Return the existing files, the user's own first. A project's files are those of the nearest folder that has any,
    from `cwd` up to the root of the repository."""
    files: list[HookFile] = []
    root = repository_root(cwd) or cwd
    for folder, names in HOOK_FILES.items():
        own = home(environment) / folder
        files += [HookFile(path, "person", folder) for path in _existing(own, names)]
        for level in (cwd, *cwd.parents):
            here = _existing(level / folder, names)
            # In the user's home folder both are the same files, and personal.
            if here and (level / folder).resolve() != own.resolve():
                files += [HookFile(path, "project", folder) for path in here]
            if here or level == root:
                break
    return files


def _existing(folder: Path, names: Iterable[str]) -> list[Path]:
    return [folder / name for name in names if (folder / name).is_file()]


class SessionHooks:
    """The hooks of all runs of a project: those of the settings files, and functions of the program.
    Files are read when the first run starts, and again after the settings were reloaded."""

    def __init__(self, project: Project) -> None:
        self._project = project
        self._functions: list[Handler] = []
        self._sources_read: tuple[Loaded, HookSources] | None = None
        self._by_event: HandlersByEvent | None = None
        self._settings_without_hooks: Loaded | None = None

    def on(
        self,
        event: str,
        function: HookFunction | None = None,
        *,
        matcher: str = "",
        timeout: float | None = None,
        priority: int = 0,
    ) -> Any:
        """Call `function` with the event's payload, a dict. Its answer is its return value: None, or a dict of the form
        that a program prints. A coroutine function runs on this event loop, any other in a thread. Applies to runs that
        start later. Usable as a decorator; returns the function. Raise ValueError for an unknown event."""

        def register(function: HookFunction) -> HookFunction:
            self._functions += _sources.from_callable(
                event, function, matcher=matcher, timeout=timeout, priority=priority
            )
            self._by_event = None
            return function

        return register if function is None else register(function)

    def off(self, function: HookFunction) -> bool:
        """Remove a registered function. Return False when it was not registered."""
        before = len(self._functions)
        self._functions = [handler for handler in self._functions if handler.target is not function]
        self._by_event = None
        return len(self._functions) < before

    @property
    def sources(self) -> HookSources:
        """The hooks of the files, and the mistakes in them."""
        project = self._project
        if self._sources_read is None or self._sources_read[0] is not project.settings:
            sources = _sources.session_hooks(project.cwd, project.settings, project.trust, project.environment)
            if project.extensions.has_hooks and not project.settings.settings.disable_all_hooks:
                sources.handlers += _sources.plugin_hooks(project.extensions.hooks(), sources)
            self._sources_read, self._by_event = (project.settings, sources), None
        return self._sources_read[1]

    def handlers(self, own: Sequence[Handler] = ()) -> HandlersByEvent:
        if not own and self.is_empty:
            return {}
        handlers = (*self.sources.handlers, *self._functions, *own)
        if own:
            return _sources.group(handlers)
        if self._by_event is None:
            self._by_event = _sources.group(handlers)
        return self._by_event

    @property
    def is_empty(self) -> bool:
        """Whether no hook applies to a run whose agent has none of its own."""
        return not self._functions and self._has_no_files()

    def require_readable(self) -> None:
        """Raise LaunchError if it is unknown what some hooks guard."""
        if not self._has_no_files():
            self.sources.require_readable()

    def notes(self) -> Sequence[str]:
        """Return notes for people about the files: hooks without consent, and mistakes."""
        return () if self._has_no_files() else (*self.sources.withheld, *self.sources.problems)

    def _has_no_files(self) -> bool:
        """Return whether no file has hooks, without loading anything: most projects have none."""
        project = self._project
        if self._settings_without_hooks is not project.settings:
            if any(layer.values.get("hooks") for layer in project.settings.layers):
                return False
            if hook_files(project.cwd, project.environment) or project.extensions.has_hooks:
                return False
            self._settings_without_hooks = project.settings
        return True
