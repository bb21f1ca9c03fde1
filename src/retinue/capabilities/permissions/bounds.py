"""What the files of the runs above a run forbid it, kept with the run.

A child is forked from its parent's permissions while the parent lives. One that starts, or is
taken up again, when its parent is gone has the same bounds from here: they are in its first event.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from retinue.capabilities.permissions.attach import Patterns
from retinue.core.lean import dataclass
from retinue.core.spec import PermissionRule

if TYPE_CHECKING:
    from retinue.runs.launch import Launch


@dataclass(frozen=True, slots=True)
class Bound:
    """The patterns of one agent's file. `agent` names it for people; patterns of paths start
    from `base`. `presets`: what CodingCode forbids from the start is forbidden."""

    agent: str
    base: str
    patterns: Patterns
    presets: bool = False


def bounds_below(parent: Launch | None) -> tuple[Bound, ...]:
    """What binds runs that `parent` starts, from the outermost agent to itself."""
    if parent is None:
        return ()
    spec, patterns = parent.request.spec, parent.patterns
    presets = spec.dialect == "codingcode"
    if not (patterns or presets):
        return parent.bounds
    own = Bound(spec.path or f"agent {spec.name}", str(parent.request.cwd), patterns, presets)
    return (*parent.bounds, own)


def to_record(bounds: Iterable[Bound]) -> list[dict[str, Any]]:
    return [
        {
            "agent": each.agent,
            "base": each.base,
            "allowed": {tool: list(listed) for tool, listed in each.patterns.allowed.items()},
            "denied": {tool: list(listed) for tool, listed in each.patterns.denied.items()},
            "rules": [[rule.tool, rule.pattern, rule.verdict] for rule in each.patterns.rules],
            "presets": each.presets,
        }
        for each in bounds
    ]


def from_record(data: object) -> tuple[Bound, ...]:
    """Logs of older versions have none."""
    if not isinstance(data, list):
        return ()
    return tuple(
        Bound(
            str(each.get("agent", "")),
            str(each.get("base", "/")),
            Patterns(_listed(each.get("allowed")), _listed(each.get("denied")), _rules(each.get("rules"))),
            bool(each.get("presets")),
        )
        for each in data
        if isinstance(each, Mapping)
    )


def _rules(data: object) -> tuple[PermissionRule, ...]:
    if not isinstance(data, list):
        return ()
    return tuple(PermissionRule(*map(str, each)) for each in data)  # type: ignore[arg-type]


def _listed(data: object) -> dict[str, tuple[str, ...]]:
    if not isinstance(data, Mapping):
        return {}
    return {str(tool): tuple(map(str, listed)) for tool, listed in data.items() if isinstance(listed, list | tuple)}
