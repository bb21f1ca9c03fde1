"""The built-in tools by name. Importing this costs nothing; a tool is loaded when it is built."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module

from retinue.core.tool import Tool

_CLASSES = {
    "read": "ReadTool",
    "write": "WriteTool",
    "edit": "EditTool",
    "bash": "BashTool",
    "grep": "GrepTool",
    "find": "FindTool",
    "ls": "LsTool",
}

_COMPANIONS = {
    "todo": "TodoTool",
    "bash_output": "BashOutputTool",
    "ask_parent": "AskParentTool",
    "ask_user": "AskUserTool",
    "exit_plan": "ExitPlanTool",
}
"""Tools that affect only the run itself and the runs above it."""

BUILTIN_NAMES = tuple(_CLASSES)
COMPANION_NAMES = tuple(_COMPANIONS)

_built: dict[str, Tool] = {}


def builtin_tools(names: Iterable[str] | None = None) -> dict[str, Tool]:
    """The built-in tools, or those of `names` that are built in. Tools have no state, so one
    of each serves every run."""
    wanted = BUILTIN_NAMES if names is None else [name for name in BUILTIN_NAMES if name in set(names)]
    return {name: _tool(name, _CLASSES[name]) for name in wanted}


def companion_tools() -> dict[str, Tool]:
    """The to-do list, background commands, questions to the parent or a person, and the end of plan mode."""
    return {name: _tool(name, made) for name, made in _COMPANIONS.items()}


def _tool(name: str, made: str) -> Tool:
    if name not in _built:
        _built[name] = getattr(import_module(f"retinue.tools.{name}"), made)()
    return _built[name]
