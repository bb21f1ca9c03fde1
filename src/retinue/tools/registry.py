"""The built-in tools by name. Importing this module loads no tool; a tool is loaded when it is built.

A tool is two files: `tools/NAME.py` with a subclass of `BuiltinTool` whose `name` is NAME, and
`tools/prompts/NAME.md`, the description that models see.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from importlib import import_module

from retinue.core.tool import Tool

_SEVEN = ("read", "write", "edit", "bash", "grep", "find", "ls")
COMPANION_NAMES = ("todo", "bash_output", "ask_parent", "ask_user", "exit_plan")
"""Tools that affect only the run itself and the runs above it."""
_MADE_FOR_ONE_RUN = ("apply_patch", "tool_search")
"""Tools that need something of their run; the code that prepares the run builds them."""
_MODULES = {"ls": "find", **dict.fromkeys(("ask_parent", "ask_user", "exit_plan"), "questions")}
"""Modules of tools that do not have one of their own."""
_PROMPTS = os.path.join(os.path.dirname(__file__), "prompts")  # noqa: PTH118, PTH120 - before the first request

_built: dict[str, Tool] = {}


def builtin_names() -> tuple[str, ...]:
    """Return the names of the built-in tools. The seven keep their places: providers cache the list of tools."""
    known = {*_SEVEN, *COMPANION_NAMES, *_MADE_FOR_ONE_RUN}
    # Any other prompt belongs to a tool that somebody has added.
    prompts = {name.removesuffix(".md") for name in os.listdir(_PROMPTS)}  # noqa: PTH208 - before the first request
    return (*_SEVEN, *sorted(prompts - known))


def builtin_tools(names: Iterable[str] | None = None) -> dict[str, Tool]:
    """Return the built-in tools, or those of `names` that are built in. Tools have no state, so one
    of each serves every run."""
    wanted = builtin_names()
    if names is not None:
        asked = set(names)
        wanted = tuple(filter(asked.__contains__, wanted))
    return {name: _tool(name) for name in wanted}


def companion_tools() -> dict[str, Tool]:
    """Return the to-do list, background commands, questions to the parent or a person, and the end of plan mode."""
    return {name: _tool(name) for name in COMPANION_NAMES}


def _tool(name: str) -> Tool:
    if name not in _built:
        module = import_module(f"retinue.tools.{_MODULES.get(name, name)}")
        for made in vars(module).values():
            # Its own name, not an inherited one: a variant of a tool is built by those who choose it.
            if isinstance(made, type) and vars(made).get("name") == name:
                _built[name] = made()
    return _built[name]
