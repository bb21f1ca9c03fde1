"""tool_search: loads the parameters of tools that a run knows by name only.

The parameters of all tools would fill the context window.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from typing import Any

from retinue.core.tool import Tool, ToolContext, ToolOutput, ToolSpec, failed, ok
from retinue.core.tool_names import TOOL_EFFECTS, served_alias
from retinue.tools.base import read_prompt

SELECT = "select:"
MAX_LOADED_AT_ONCE = 25
LOADED = "Loaded {} tool(s). Their full schemas are now available next turn:"


class Deferred:
    """The tools of one run that are not loaded yet or were loaded by a search. All have passed the run's policy."""

    def __init__(self, tools: Mapping[str, Tool]) -> None:
        self._tools = dict(tools)
        self._loaded: dict[str, Tool] = {}

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._tools)

    @property
    def loaded(self) -> tuple[Tool, ...]:
        """The loaded tools in loading order, so that tools which a model has seen keep their position."""
        return tuple(self._loaded.values())

    def offer(self, tools: Mapping[str, Tool]) -> None:
        """Add tools that became available. Tools already in the list do not change."""
        self._tools = {**tools, **self._tools}

    def load(self, query: str) -> tuple[list[Tool], int]:
        """Load the tools that contain every word of the query, ignoring case. Return them, and the number of further
        matches that exceed the limit."""
        if query.strip().lower().startswith(SELECT):
            matches = self._named(query.strip()[len(SELECT) :])
        else:
            words = query.lower().split()
            matches = [tool for tool in self._tools.values() if words and _has_all(tool, words)]
        loaded = matches[:MAX_LOADED_AT_ONCE]
        for tool in loaded:
            self._loaded.setdefault(tool.spec.name, tool)
        return loaded, len(matches) - len(loaded)

    def keep(self, names: Container[str]) -> None:
        """Remove all tools except those in `names`."""
        self._tools = {name: tool for name, tool in self._tools.items() if name in names}

    def recall(self, names: Iterable[str]) -> None:
        """Load again the tools that an earlier attempt of the run had loaded."""
        self._loaded |= {name: self._tools[name] for name in names if name in self._tools}

    def _named(self, listed: str) -> list[Tool]:
        names: dict[str, None] = {}
        for word in listed.replace(",", " ").split():
            exact = word if word in self._tools else served_alias(word)
            # An exact name must not also load a tool whose name merely ends like it.
            if exact in self._tools:
                names[exact] = None
            else:
                similar = (name for name in self._tools if name.lower() == word.lower() or name.endswith(f"__{word}"))
                names |= dict.fromkeys(similar)
        return [self._tools[name] for name in names]


def loaded_names(text: str) -> tuple[str, ...]:
    """Return the names of the tools that a result of tool_search lists as loaded."""
    head, _, listing = text.partition("\n")
    if not head.startswith("Loaded ") or not head.endswith("next turn:"):
        return ()
    lines = (line for line in listing.splitlines() if line.startswith("- "))
    return tuple(line[2:].partition(":")[0].strip() for line in lines)


def _has_all(tool: Tool, words: list[str]) -> bool:
    text = f"{tool.spec.name} {tool.spec.description}".lower()
    return all(word in text for word in words)


NAME = "tool_search"
_MAX_LINE_CHARACTERS = 160
_MAX_NAMES = 600
"""The most names in the description. A model finds the others by a search."""


class ToolSearchTool:
    """The tool of one run. Its description never changes, so tools that are added later can be found but are not named
    in it."""

    def __init__(self, deferred: Deferred) -> None:
        self._deferred = deferred
        prompt = read_prompt(type(self), "tool_search")
        names = deferred.names
        listed = ", ".join(names[:_MAX_NAMES]) or "none yet"
        if len(names) > _MAX_NAMES:
            listed += f", and {len(names) - _MAX_NAMES} more"
        query = {"type": "string", "description": "Words that must all occur, or select:NAME,NAME"}
        self.spec = ToolSpec(
            name=NAME,
            description=f"{prompt}\n{listed}",
            parameters={
                "type": "object",
                "properties": {"query": query},
                "required": ["query"],
                "additionalProperties": False,
            },
            effects=TOOL_EFFECTS[NAME],
        )

    def holds(self, name: str) -> bool:
        """Return whether a search can load the tool of this name."""
        return name in self._deferred.names

    async def run(self, call_id: str, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        query = str(arguments.get("query", ""))
        if not query.strip():
            return failed("tool_search needs a query: words of a tool's name or description, or select:NAME.")
        tools, unloaded = self._deferred.load(query)
        if not tools:
            return ok(f'No deferred tools matched "{query}".')
        lines = [LOADED.format(len(tools))]
        lines += [f"- {tool.spec.name}: {_first_line(tool.spec.description)}" for tool in tools]
        if unloaded:
            lines.append(f"{unloaded} more match; narrow the query to load them.")
        return ok("\n".join(lines))


def _first_line(text: str) -> str:
    line = next(iter(text.strip().splitlines()), "")
    return line if len(line) <= _MAX_LINE_CHARACTERS else f"{line[: _MAX_LINE_CHARACTERS - 1]}…"
