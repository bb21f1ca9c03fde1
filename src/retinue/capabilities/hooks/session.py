"""Who listens to everyone's runs: hooks of the settings files, and functions of the program."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from retinue.core.hook import HookEvent

if TYPE_CHECKING:
    from retinue.capabilities.hooks.handler import Handler
    from retinue.capabilities.hooks.sources import Found
    from retinue.runs.world import World
    from retinue.settings.load import Loaded

Function = Callable[[dict[str, Any]], Any]
Handlers = Mapping[HookEvent, "tuple[Handler, ...]"]


class SessionHooks:
    """What everyone's runs hear of: hooks of the settings files, and functions of the program.
    Files are read when the first run starts, and again after the settings were reloaded."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._functions: list[Handler] = []
        self._read: tuple[Loaded, Found] | None = None
        self._grouped: Handlers | None = None
        self._empty: Loaded | None = None

    def on(
        self,
        event: str,
        function: Function | None = None,
        *,
        matcher: str = "",
        timeout: float | None = None,
        priority: int = 0,
    ) -> Any:
        """Calls `function` with the event's payload, a dict; what it gives back (None, or a dict
        as a program would print it) is its answer. A coroutine function runs on this event loop,
        any other in a thread. Applies to runs that start later. Usable as a decorator; gives
        the function back. Raises ValueError for an unknown event."""
        from retinue.capabilities.hooks.handler import from_callable

        def register(function: Function) -> Function:
            made = from_callable(event, function, matcher=matcher, timeout=timeout, priority=priority)
            self._functions += made
            self._grouped = None
            return function

        return register if function is None else register(function)

    def off(self, function: Function) -> bool:
        """Takes a function away again. False when it was not there."""
        kept = [each for each in self._functions if each.target is not function]
        found = len(kept) < len(self._functions)
        self._functions, self._grouped = kept, None
        return found

    @property
    def found(self) -> Found:
        """What the files have, and what is wrong with them."""
        from retinue.capabilities.hooks.sources import session_hooks

        world = self._world
        if self._read is None or self._read[0] is not world.settings:
            found = session_hooks(world.cwd, world.settings, world.trust, world.environment)
            if world.extensions.has_hooks and not world.settings.settings.disable_all_hooks:
                problems = list(found.problems)
                handlers = (*found.handlers, *world.extensions.hooks(problems))
                found = replace(found, handlers=handlers, problems=tuple(problems))
            self._read, self._grouped = (world.settings, found), None
        return self._read[1]

    def handlers(self, own: tuple[Handler, ...] = ()) -> Handlers:
        if not own and not self._functions and self._nothing_to_read():
            return {}
        from retinue.capabilities.hooks.bus import grouped

        files = self.found.handlers
        if own:
            return grouped((*files, *self._functions, *own))
        if self._grouped is None:
            self._grouped = grouped((*files, *self._functions))
        return self._grouped

    def notes(self) -> tuple[str, ...]:
        """What people should know of the files: no effect for want of consent, or wrong."""
        return () if self._nothing_to_read() else (*self.found.withheld, *self.found.problems)

    def _nothing_to_read(self) -> bool:
        """Looks once, without loading anything: most projects have no hooks."""
        from retinue.capabilities.hooks.places import hook_files

        world = self._world
        if self._empty is not world.settings:
            said = any(layer.values.get("hooks") for layer in world.settings.layers)
            said = said or bool(hook_files(world.cwd, world.environment)) or world.extensions.has_hooks
            self._empty = None if said else world.settings
        return self._empty is not None
