"""What a run really touched, collected from effects: bounded, in order of first appearance."""

from __future__ import annotations

from collections.abc import Iterable

from retinue.core.effects import ToolEffect
from retinue.core.messages import ToolCall
from retinue.core.outcome import Evidence
from retinue.loop.shrink import describe

_MOST = 200
_LONGEST = 500
_NAMED = 40


class Collector:
    """Cheap while the run goes on; `evidence` cuts the lists and says how much it left out."""

    __slots__ = ("_commands", "_denials", "_hosts", "_read", "_unknown", "_written")

    def __init__(self) -> None:
        self._read: dict[str, None] = {}
        self._written: dict[str, None] = {}
        self._commands: dict[str, None] = {}
        self._hosts: dict[str, None] = {}
        self._denials: dict[str, None] = {}
        self._unknown: dict[str, None] = {}

    def add(self, call: ToolCall, effect: ToolEffect) -> None:
        self._read.update(dict.fromkeys(effect.reads))
        self._written.update(dict.fromkeys(touched.path for touched in effect.writes))
        self._hosts.update(dict.fromkeys(effect.hosts))
        if effect.command is not None:
            self._commands[effect.command] = None
        if effect.denied is not None:
            self._denials[f"{describe(call)}: {effect.denied}"] = None
        if effect.status in ("unknown", "started"):
            self._unknown[describe(call)] = None

    def files(self) -> str:
        """The files that were changed and read, for a conversation that may have forgotten them."""
        changed = list(self._written)
        only_read = [path for path in self._read if path not in self._written]
        lines = []
        if changed:
            lines.append(f"Files you changed: {_listed(changed)}")
        if only_read:
            lines.append(f"Files you read: {_listed(only_read)}")
        return "\n".join(lines)

    def evidence(self) -> Evidence:
        return Evidence(
            _bounded(self._read),
            _bounded(self._written),
            _bounded(self._commands),
            _bounded(self._hosts),
            _bounded(self._denials),
            _bounded(self._unknown),
        )


def _listed(paths: list[str]) -> str:
    """The newest of `paths`."""
    left = len(paths) - _NAMED
    return ", ".join(paths[-_NAMED:]) + (f" and {left} earlier ones" if left > 0 else "")


def _bounded(entries: Iterable[str]) -> tuple[str, ...]:
    shown = [entry if len(entry) <= _LONGEST else entry[: _LONGEST - 1] + "…" for entry in entries]
    if len(shown) > _MOST:
        shown = [*shown[:_MOST], f"… and {len(shown) - _MOST} more"]
    return tuple(shown)
