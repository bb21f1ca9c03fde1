"""Hooks that apply to all runs: those of the settings files, and functions of the program.

A script for Claude Code looks for `Bash` and `file_path`. Tool names and arguments are translated for
it, and its answer is translated back, so that a path it changes is the path that is used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from retinue.core.permission import HookEvent
from retinue.core.toolnames import canonical

if TYPE_CHECKING:
    from retinue.capabilities.hooks.handler import Dialect, Handler
    from retinue.capabilities.hooks.sources import HookSources
    from retinue.runs.project import Project
    from retinue.settings.load import Loaded


_CLAUDE: Mapping[str, str] = {
    "read": "Read",
    "write": "Write",
    "edit": "Edit",
    "bash": "Bash",
    "bash_output": "BashOutput",
    "grep": "Grep",
    "find": "Glob",
    "ls": "LS",
    "lsp": "LSP",
    "web_search": "WebSearch",
    "fetch_content": "WebFetch",
    "tool_search": "ToolSearch",
    "todo": "TodoWrite",
    "skill": "Skill",
    "ask_user": "AskUserQuestion",
    "Agent": "Agent",
}
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
_TABLES: Mapping[Dialect, Mapping[str, str]] = {"retinue": {}, "claude": _CLAUDE, "codingcode": _CODINGCODE}
_OTHERS: Mapping[str, tuple[str, ...]] = {"edit": ("MultiEdit", "NotebookEdit"), "Agent": ("Task",)}
_FILES = frozenset({"read", "write", "edit"})
_EDIT = {"old": "old_string", "new": "new_string", "all": "replace_all"}
_BACK = {theirs: ours for ours, theirs in _EDIT.items()}


def names_of(tool: str) -> tuple[str, ...]:
    """Every name under which a matcher may know the tool."""
    known = (tool, _CLAUDE.get(tool), _CODINGCODE.get(tool), *_OTHERS.get(tool, ()))
    return tuple(dict.fromkeys(name for name in known if name))


def own_name(tool: str) -> str:
    """Retinue's name of a tool that may come under another."""
    found = canonical(tool)
    return found[0] if len(found) == 1 else tool


def spoken(payload: Mapping[str, Any], dialect: Dialect) -> dict[str, Any]:
    """The payload as a handler of that dialect expects it."""
    said = dict(payload)
    tool = said.get("tool_name")
    if not isinstance(tool, str) or dialect == "retinue":
        return said
    own = own_name(tool)
    said["tool_name"] = _TABLES[dialect].get(own, tool)
    given = said.get("tool_input")
    if dialect == "claude" and own in _FILES and isinstance(given, Mapping):
        said["tool_input"] = _to_claude(own, given)
        if own == "edit" and "edits" in said["tool_input"]:
            said["tool_name"] = "MultiEdit"
    if dialect == "codingcode":
        said["toolName"], said["input"] = said["tool_name"], given
    return said


def understood(tool: str, given: Mapping[str, Any], dialect: Dialect) -> dict[str, Any]:
    """An input that a handler of that dialect gave back, in the words of our tool."""
    own = own_name(tool)
    found = dict(given)
    if dialect != "claude" or own not in _FILES:
        return found
    if "path" not in found and "file_path" in found:
        found["path"] = found.pop("file_path")
    if own == "edit":
        edits = found.pop("edits", None) or [{key: found.pop(key) for key in _BACK if key in found}]
        renamed = [{_BACK.get(key, key): value for key, value in each.items()} for each in edits if each]
        found["edits"] = renamed
    return found


def _to_claude(tool: str, given: Mapping[str, Any]) -> dict[str, Any]:
    found = dict(given)
    if "path" in found and "file_path" not in found:
        found["file_path"] = found.pop("path")
    edits = found.get("edits")
    if tool == "edit" and isinstance(edits, list) and all(isinstance(each, Mapping) for each in edits):
        renamed = [{_EDIT.get(key, key): value for key, value in each.items()} for each in edits]
        del found["edits"]
        found |= renamed[0] if len(renamed) == 1 else {"edits": renamed}
    return found


Function = Callable[[dict[str, Any]], Any]
Handlers = Mapping[HookEvent, "tuple[Handler, ...]"]


class SessionHooks:
    """What everyone's runs hear of: hooks of the settings files, and functions of the program.
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
        """Call `function` with the event's payload, a dict; what it gives back (None, or a dict
        as a program would print it) is its answer. A coroutine function runs on this event loop,
        any other in a thread. Applies to runs that start later. Usable as a decorator; gives
        the function back. Raise ValueError for an unknown event."""
        from retinue.capabilities.hooks.handler import from_callable

        def register(function: Function) -> Function:
            made = from_callable(event, function, matcher=matcher, timeout=timeout, priority=priority)
            self._functions += made
            self._grouped = None
            return function

        return register if function is None else register(function)

    def off(self, function: Function) -> bool:
        """Take a function away again. False when it was not there."""
        kept = [each for each in self._functions if each.target is not function]
        found = len(kept) < len(self._functions)
        self._functions, self._grouped = kept, None
        return found

    @property
    def found(self) -> HookSources:
        """What the files have, and what is wrong with them."""
        from retinue.capabilities.hooks.sources import plugin_hooks, session_hooks

        project = self._project
        if self._read is None or self._read[0] is not project.settings:
            found = session_hooks(project.cwd, project.settings, project.trust, project.environment)
            if project.extensions.has_hooks and not project.settings.settings.disable_all_hooks:
                problems = list(found.problems)
                handlers = (*found.handlers, *plugin_hooks(project.extensions.hooks(), problems))
                found = replace(found, handlers=handlers, problems=tuple(problems))
            self._read, self._grouped = (project.settings, found), None
        return self._read[1]

    def handlers(self, own: tuple[Handler, ...] = ()) -> Handlers:
        if not own and self.is_empty:
            return {}
        from retinue.capabilities.hooks.bus import grouped

        files = self.found.handlers
        if own:
            return grouped((*files, *self._functions, *own))
        if self._grouped is None:
            self._grouped = grouped((*files, *self._functions))
        return self._grouped

    @property
    def is_empty(self) -> bool:
        """Whether nobody listens to runs whose agents have no hooks of their own."""
        return not self._functions and self._nothing_to_read()

    def notes(self) -> tuple[str, ...]:
        """What people should know of the files: no effect for want of consent, or wrong."""
        return () if self._nothing_to_read() else (*self.found.withheld, *self.found.problems)

    def _nothing_to_read(self) -> bool:
        """Look once, without loading anything: most projects have no hooks."""
        from retinue.capabilities.hooks.sources import hook_files

        project = self._project
        if self._empty is not project.settings:
            said = any(layer.values.get("hooks") for layer in project.settings.layers)
            said = said or bool(hook_files(project.cwd, project.environment)) or project.extensions.has_hooks
            self._empty = None if said else project.settings
        return self._empty is not None
