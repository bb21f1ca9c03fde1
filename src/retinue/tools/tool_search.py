"""tool_search: tools that a run knows by name only until it asks for their parameters.

The parameters of many tools would fill the context window.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from typing import Any

from msgspec import Struct

from retinue.core.tool import Tool, ToolContext, ToolOutput, ToolSpec, failed, ok
from retinue.core.tool_names import TOOLS, served_alias
from retinue.tools.base import read_prompt

SELECT = "select:"
MOST_AT_ONCE = 25
LOADED = "Loaded {} tool(s). Their full schemas are now available next turn:"


class ToolMatches(Struct, frozen=True):
    """`left` counts matches that were not loaded because there were too many."""

    tools: tuple[Tool, ...]
    left: int = 0


class Deferred:
    """One per run. What is in here has passed the run's policy already."""

    def __init__(self, tools: Mapping[str, Tool]) -> None:
        self._tools = dict(tools)
        self._loaded: dict[str, Tool] = {}

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._tools)

    @property
    def loaded(self) -> tuple[Tool, ...]:
        """In the order in which they were loaded: what a model has seen keeps its place."""
        return tuple(self._loaded.values())

    def offer(self, tools: Mapping[str, Tool]) -> None:
        """Add tools that became available; those that are known stay as they are."""
        self._tools = {**tools, **self._tools}

    def load(self, query: str) -> ToolMatches:
        """Load what matches. Every word must occur, without regard to case."""
        if query.strip().lower().startswith(SELECT):
            matches = self._named(query.strip()[len(SELECT) :])
        else:
            words = query.lower().split()
            matches = [tool for tool in self._tools.values() if words and _has_all(tool, words)]
        kept = matches[:MOST_AT_ONCE]
        for tool in kept:
            self._loaded.setdefault(tool.spec.name, tool)
        return ToolMatches(tuple(kept), len(matches) - len(kept))

    def keep(self, names: Container[str]) -> None:
        """Take away what is not among `names`."""
        self._tools = {name: tool for name, tool in self._tools.items() if name in names}

    def recall(self, names: Iterable[str]) -> None:
        """Load again what an earlier attempt of the run had loaded."""
        for name in names:
            if name in self._tools:
                self._loaded[name] = self._tools[name]

    def _named(self, listed: str) -> list[Tool]:
        found: dict[str, Tool] = {}
        for word in listed.replace(",", " ").split():
            exact = served_alias(word) or ""
            if word in self._tools:
                exact = word
            # An exact name must not also load what merely ends like it.
            if exact in self._tools:
                found[exact] = self._tools[exact]
                continue
            for name, tool in self._tools.items():
                if name.lower() == word.lower() or name.endswith(f"__{word}"):
                    found[name] = tool
        return list(found.values())


def loaded_names(text: str) -> tuple[str, ...]:
    """Return the tools that an answer of tool_search says it has loaded."""
    head, _, rest = text.partition("\n")
    if not head.startswith("Loaded ") or not head.endswith("next turn:"):
        return ()
    names: list[str] = []
    for line in rest.splitlines():
        if line.startswith("- "):
            names.append(line[2:].partition(":")[0].strip())
    return tuple(names)


def _has_all(tool: Tool, words: list[str]) -> bool:
    text = f"{tool.spec.name} {tool.spec.description}".lower()
    return all(word in text for word in words)


NAME = "tool_search"
_SHOWN = 160
_NAMES = 600
"""Names in the description; beyond, a model has to search."""


class ToolSearchTool:
    """Belongs to one run. Its description never changes: tools that come later can be found, but
    are not named there."""

    def __init__(self, deferred: Deferred) -> None:
        self._deferred = deferred
        prompt = read_prompt(type(self), "tool_search")
        names = deferred.names
        listed = ", ".join(names[:_NAMES]) or "none yet"
        if len(names) > _NAMES:
            listed += f", and {len(names) - _NAMES} more"
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
            effects=TOOLS[NAME],
        )

    def holds(self, name: str) -> bool:
        """Return whether a search can load the tool of this name."""
        return name in self._deferred.names

    async def run(self, call_id: str, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        query = str(arguments.get("query", ""))
        if not query.strip():
            return failed("tool_search needs a query: words of a tool's name or description, or select:NAME.")
        found = self._deferred.load(query)
        if not found.tools:
            return ok(f'No deferred tools matched "{query}".')
        lines = [f"- {tool.spec.name}: {_first_line(tool.spec.description)}" for tool in found.tools]
        lines.insert(0, LOADED.format(len(lines)))
        if found.left:
            lines.append(f"{found.left} more match; narrow the query to load them.")
        return ok("\n".join(lines))


def _first_line(text: str) -> str:
    line = next(iter(text.strip().splitlines()), "")
    return line if len(line) <= _SHOWN else f"{line[: _SHOWN - 1]}…"
