"""What agent files say about the calls of their tools (`Bash(git *)`), and how it binds the runs below.

A run keeps the patterns of its own file and of every agent above it: in its launch, and in its first event, so that
it has them when it is resumed after its parent is gone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

from retinue.core.spec import PermissionRule

if TYPE_CHECKING:
    from retinue.runs.launch import Launch


class Patterns(Struct, frozen=True):
    """What stood in parentheses in an agent's file, by tool."""

    allowed: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    denied: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    rules: tuple[PermissionRule, ...] = ()
    """Its `permission` map, in order."""

    def __bool__(self) -> bool:
        return bool(self.allowed or self.denied or self.rules)


NO_PATTERNS = Patterns()


class Bound(Struct, frozen=True):
    """The patterns of one agent's file. `agent` names it for people; patterns of paths start
    from `base`. With `presets`, what CodingCode forbids from the start is forbidden."""

    agent: str
    base: str
    patterns: Patterns
    presets: bool = False


def bounds_below(parent: Launch | None) -> tuple[Bound, ...]:
    """Return what binds runs that `parent` starts, from the outermost agent to itself."""
    if parent is None:
        return ()
    spec, patterns = parent.request.spec, parent.patterns
    presets = spec.dialect == "codingcode"
    if not (patterns or presets):
        return parent.bounds
    own = Bound(spec.path or f"agent {spec.name}", str(parent.request.cwd), patterns, presets)
    return (*parent.bounds, own)


def bounds_to_record(bounds: Iterable[Bound]) -> list[dict[str, Any]]:
    """Return the bounds as a run's first event keeps them."""
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


def bounds_from_record(data: object) -> tuple[Bound, ...]:
    """Return the bounds that a run's first event has. Logs of older versions have none."""
    if not isinstance(data, list):
        return ()
    return tuple(_read_bound(each) for each in data if isinstance(each, Mapping))


def _read_bound(data: Mapping[str, Any]) -> Bound:
    patterns = Patterns(
        _read_lists(data.get("allowed")), _read_lists(data.get("denied")), _read_rules(data.get("rules"))
    )
    return Bound(str(data.get("agent", "")), str(data.get("base", "/")), patterns, bool(data.get("presets")))


def _read_rules(data: object) -> tuple[PermissionRule, ...]:
    if not isinstance(data, list):
        return ()
    return tuple(PermissionRule(*map(str, each)) for each in data)  # type: ignore[arg-type]


def _read_lists(data: object) -> dict[str, tuple[str, ...]]:
    if not isinstance(data, Mapping):
        return {}
    return {str(tool): tuple(map(str, listed)) for tool, listed in data.items() if isinstance(listed, list | tuple)}
