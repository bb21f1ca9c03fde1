"""The built-in tools by name. Importing this costs nothing; a tool is loaded when it is built."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module

from retinue.domain.tool import Tool

_CLASSES = {
    "read": "ReadTool",
    "write": "WriteTool",
    "edit": "EditTool",
    "bash": "BashTool",
    "grep": "GrepTool",
    "find": "FindTool",
    "ls": "LsTool",
}

BUILTIN_NAMES = tuple(_CLASSES)

_built: dict[str, Tool] = {}


def builtin_tools(names: Iterable[str] | None = None) -> dict[str, Tool]:
    """The built-in tools, or those of `names` that are built in. Tools have no state, so one
    of each serves every run."""
    wanted = BUILTIN_NAMES if names is None else [name for name in BUILTIN_NAMES if name in set(names)]
    for name in wanted:
        if name not in _built:
            module = import_module(f"retinue.tools.{name}.tool")
            _built[name] = getattr(module, _CLASSES[name])()
    return {name: _built[name] for name in wanted}
