"""Hooks that apply to all runs: those of the settings files, and functions of the program.

A script for Claude Code looks for `Bash` and `file_path`. Tool names and arguments are translated for
it, and its answer is translated back, so that a path it changes is the path that is used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from retinue.agents.dialects.tables import DIALECTS
from retinue.capabilities.hooks.sources import (
    GUARDS,
    HookReport,
    from_callable,
    hook_files,
    plugin_hooks,
    session_hooks,
)
from retinue.core.permission import HookEvent
from retinue.core.tool_names import canonical
from retinue.errors import LaunchError

if TYPE_CHECKING:
    from retinue.capabilities.hooks.sources import Dialect, Handler, HookSources
    from retinue.runs.project import Project
    from retinue.settings.load import Loaded


# Not the table of CodingCode's agent files: that lacks `todo` and has names under which its hooks hear of no call.
_CODINGCODE: Mapping[str, str] = {
    "read": "read_file",
    "write": "write_file",
    "edit": "edit_file",
    "bash": "execute_command",
    "grep": "search_code",
    "find": "search_files",
    "fetch_content": "fetch_url",
    "web_search": "web_search",
    "todo": "todo_write",
    "dispatch_agent": "dispatch_agent",
}
_OTHERS: Mapping[str, tuple[str, ...]] = {"edit": ("MultiEdit", "NotebookEdit"), "Agent": ("Task",)}
_FILES = frozenset({"read", "write", "edit"})
_EDIT = {"old": "old_string", "new": "new_string", "all": "replace_all"}
_BACK = {theirs: ours for ours, theirs in _EDIT.items()}


def _tool_names(dialect: Dialect) -> Mapping[str, str]:
    if dialect == "codingcode":
        return _CODINGCODE
    # Imported late: this module is loaded by every run, and most have no hooks.
    return DIALECTS["claude"].tool_names


def names_of(tool: str) -> tuple[str, ...]:
    """Return every name under which a matcher may know the tool."""
    known = (tool, _tool_names("claude").get(tool), _CODINGCODE.get(tool), *_OTHERS.get(tool, ()))
    return tuple(filter(None, dict.fromkeys(known)))


def own_name(tool: str) -> str:
    """Return Retinue's name of a tool that another system may have named."""
    found = canonical(tool)
    return found[0] if len(found) == 1 else tool


def to_dialect(payload: Mapping[str, Any], dialect: Dialect) -> dict[str, Any]:
    """Return the payload as a handler of that dialect expects it."""
    said = dict(payload)
    tool = said.get("tool_name")
    if not isinstance(tool, str) or dialect == "retinue":
        return said
    own = own_name(tool)
    said["tool_name"] = _tool_names(dialect).get(own, tool)
    given = said.get("tool_input")
    if dialect == "claude" and own in _FILES and isinstance(given, Mapping):
        said["tool_input"] = _to_claude(own, given)
        if own == "edit" and "edits" in said["tool_input"]:
            # Claude Code's Edit takes one change; scripts expect several under this name.
            said["tool_name"] = "MultiEdit"
    if dialect == "codingcode":
        said["toolName"], said["input"] = said["tool_name"], given
    return said


def from_dialect(tool: str, given: Mapping[str, Any], dialect: Dialect) -> dict[str, Any]:
    """Return an input that a handler of that dialect changed, with the argument names of our tool."""
    own = own_name(tool)
    found = dict(given)
    if dialect != "claude" or own not in _FILES:
        return found
    if "path" not in found and "file_path" in found:
        found["path"] = found.pop("file_path")
    if own == "edit":
        edits = found.pop("edits", None)
        if not edits:
            single = {}
            for key in _BACK:
                if key in found:
                    single[key] = found.pop(key)
            edits = [single]
        found["edits"] = [_rename(each, _BACK) for each in edits if each]
    return found


def _rename(edit: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    return {names.get(key, key): value for key, value in edit.items()}


def _to_claude(tool: str, given: Mapping[str, Any]) -> dict[str, Any]:
    found = dict(given)
    if "path" in found and "file_path" not in found:
        found["file_path"] = found.pop("path")
    edits = found.get("edits")
    if tool == "edit" and isinstance(edits, list) and all(isinstance(each, Mapping) for each in edits):
        renamed = [_rename(each, _EDIT) for each in found.pop("edits")]
        found |= renamed[0] if len(renamed) == 1 else {"edits": renamed}
    return found


Function = Callable[[dict[str, Any]], Any]
Handlers = Mapping[HookEvent, "tuple[Handler, ...]"]


class SessionHooks:
    """The hooks of all runs of a project: those of the settings files, and functions of the program.
    Files are read when the first run starts, and again after the settings were reloaded."""

    def __init__(self, project: Project) -> None:
        self._project = project
        self._functions: list[Handler] = []
        self._read: tuple[Loaded, HookSources] | None = None
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
        """Call `function` with the event's payload, a dict; what it returns (None, or a dict
        as a program would print it) is its answer. A coroutine function runs on this event loop,
        any other in a thread. Applies to runs that start later. Usable as a decorator; returns
        the function. Raise ValueError for an unknown event."""

        def register(function: Function) -> Function:
            made = from_callable(event, function, matcher=matcher, timeout=timeout, priority=priority)
            self._functions += made
            self._grouped = None
            return function

        return register if function is None else register(function)

    def off(self, function: Function) -> bool:
        """Remove a registered function. Return False when it was not registered."""
        kept = [each for each in self._functions if each.target is not function]
        found = len(kept) < len(self._functions)
        self._functions, self._grouped = kept, None
        return found

    @property
    def found(self) -> HookSources:
        """The hooks of the files, and what is wrong with them."""
        project = self._project
        if self._read is None or self._read[0] is not project.settings:
            found = session_hooks(project.cwd, project.settings, project.trust, project.environment)
            if project.extensions.has_hooks and not project.settings.settings.disable_all_hooks:
                report = HookReport(problems=list(found.problems), refusals=list(found.refusals))
                handlers = (*found.handlers, *plugin_hooks(project.extensions.hooks(), report))
                problems, refusals = tuple(report.problems), tuple(report.refusals)
                found = replace(found, handlers=handlers, problems=problems, refusals=refusals)
            self._read, self._grouped = (project.settings, found), None
        return self._read[1]

    def handlers(self, own: tuple[Handler, ...] = ()) -> Handlers:
        if not own and self.is_empty:
            return {}
        from retinue.capabilities.hooks.bus import group

        files = self.found.handlers
        if own:
            return group((*files, *self._functions, *own))
        if self._grouped is None:
            self._grouped = group((*files, *self._functions))
        return self._grouped

    @property
    def is_empty(self) -> bool:
        """Whether no hook applies to a run whose agent has none of its own."""
        return not self._functions and self._nothing_to_read()

    def require_readable(self) -> None:
        """Raise LaunchError for hooks of which nobody can tell what they guard."""
        if self._nothing_to_read():
            return
        for refusal in self.found.refusals:
            raise LaunchError(refusal.message, remedy=refusal.remedy)

    def notes(self) -> tuple[str, ...]:
        """Return what people should know of the files: hooks without consent, and mistakes."""
        if self._nothing_to_read():
            return ()
        return (*self.found.withheld, *self.found.problems)

    def _nothing_to_read(self) -> bool:
        """Look once, without loading anything: most projects have no hooks."""
        project = self._project
        if self._empty is not project.settings:
            if any(layer.values.get("hooks") for layer in project.settings.layers):
                return False
            if hook_files(project.cwd, project.environment) or project.extensions.has_hooks:
                return False
            self._empty = project.settings
        return True


def find_guard_sources(handlers: Handlers) -> frozenset[str]:
    """Return the files that bring handlers which can refuse something."""
    if not handlers:
        return frozenset()
    guards = [each for event in GUARDS for each in handlers.get(event, ())]
    return frozenset(each.source for each in guards if not each.observes)
