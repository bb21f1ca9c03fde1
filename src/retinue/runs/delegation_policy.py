"""When to delegate and to whom: a few lines for the prompt of the main agent.

Built from the catalog: only agents that can be started are named, a built-in route disappears
when the user has replaced the agent by one of their own, and agents whose descriptions ask to
be used proactively are named whoever wrote them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cache

from retinue.core.delegation import Vocabulary
from retinue.core.spec import AgentSpec
from retinue.runs.prompt import shipped

_TOOLS: dict[Vocabulary, str] = {"claude": "Agent", "devkit": "subagent", "codingcode": "dispatch_agent"}
_ROUTED: frozenset[Vocabulary] = frozenset({"devkit"})
"""Vocabularies whose policy names who is for what; elsewhere the list of agents says it."""
_PROACTIVE = re.compile(r"\bproactive(?:ly)?\b", re.IGNORECASE)
_MOST = 12


def delegation_policy(agents: Iterable[AgentSpec], vocabulary: Vocabulary = "claude") -> str:
    """The policy for `agents`, those that may be started; empty where there are none."""
    known = tuple(agents)
    if not known:
        return ""
    text, sections = _template()
    routes = _routes(known, sections[vocabulary]) if vocabulary in _ROUTED else []
    lines = [line for line in text.splitlines() if routes or "{{routes}}" not in line]
    filled = "\n".join(lines).replace("{{tool}}", _TOOLS[vocabulary]).replace("{{routes}}", "; ".join(routes))
    eager = [_safe(spec.name) for spec in known if _PROACTIVE.search(spec.description)]
    if not eager:
        return filled
    more = f" and {len(eager) - _MOST} more" if len(eager) > _MOST else ""
    return f"{filled}\n- Unasked, when they fit: {', '.join(eager[:_MOST])}{more}."


def _routes(agents: Sequence[AgentSpec], table: Sequence[tuple[str, str]]) -> list[str]:
    shipped_names = {spec.name for spec in agents if spec.source == "builtin"}
    return [f"{purpose}: {name}" for name, purpose in table if name in shipped_names]


def _safe(name: str) -> str:
    return " ".join(name.split())[:128]


@cache
def _template() -> tuple[str, dict[str, tuple[tuple[str, str], ...]]]:
    """The text of `delegation.md`, and its tables of routes by vocabulary."""
    text, *sections = shipped("delegation").split("\n## ")
    tables: dict[str, tuple[tuple[str, str], ...]] = {}
    for section in sections:
        name, _, body = section.partition("\n")
        pairs = (line.removeprefix("- ").partition(": ") for line in body.splitlines() if line.startswith("- "))
        tables[name.strip()] = tuple((agent, purpose) for agent, _, purpose in pairs)
    return text.strip(), tables
