"""Every dialect that Retinue reads, as tables, and what each calls the tools."""

from __future__ import annotations

from collections.abc import Mapping

from retinue.agents.dialects.table import Dialect, FieldKind, FieldRow, Match
from retinue.agents.dialects.tables import TABLES
from retinue.core.spec import DialectName
from retinue.core.toolnames import canonical

DIALECTS: Mapping[DialectName, Dialect] = TABLES

_STARTING = frozenset({"Agent", "subagent", "dispatch_agent"})

__all__ = ["DIALECTS", "Dialect", "FieldKind", "FieldRow", "Match", "in_dialect", "is_foreign"]


def in_dialect(name: str, dialect: DialectName) -> tuple[str, ...]:
    """Return the names that the dialect has for `name`. A set of tools becomes its members unless the
    dialect has the set; names of servers' tools and unknown ones stay as they are."""
    own = DIALECTS[dialect].tool_names
    tools = canonical(name)
    if not own or not tools or name in own.values() or (dialect == "copilot" and len(tools) > 1):
        return (name,)
    rule = name[len(name.partition("(")[0]) :]
    found = []
    for tool in tools:
        said = _own_name(own, tool)
        found.append(f"{said}{rule}" if said else name)
    return tuple(found)


def _own_name(own: Mapping[str, str], tool: str) -> str | None:
    """Return what a dialect calls one of our tools; of those that start agents each has only one."""
    if tool not in own and tool in _STARTING:
        return own.get("Agent")
    return own.get(tool)


def is_foreign(name: str, dialect: DialectName) -> bool:
    """Return whether `name` is how another dialect calls a tool, and not how this one calls any."""
    own = DIALECTS[dialect].tool_names
    if not own or name.lower() in map(str.lower, own.values()):
        return False
    return any(name in table.tool_names.values() for table in DIALECTS.values())
