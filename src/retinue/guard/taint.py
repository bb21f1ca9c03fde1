"""Runs that have read text of strangers, and what they may no longer do without being asked.

A page may hold instructions that a model follows. So, where the setting wants it (`web.taint`), a
run is tainted from the moment it got something from another host. Taint spreads to every run above,
which will read its answer, and to every run started from then on, whose task the page may have
written. It never goes away.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from retinue.core.permission import Decision, EffectKind, Permissions, ToolEffect, ToolUse

if TYPE_CHECKING:
    from retinue.core.spec import PermissionMode


_OUTWARD: frozenset[EffectKind] = frozenset({"execute", "spawn"})
_READING_THE_WEB = frozenset({"web_search", "fetch_content", "convert_content", "get_search_content"})
"""Tools that talk to other hosts, but send them no more than an address."""


class Taint:
    """Whether one run is tainted, and by whom first."""

    def __init__(self, above: Taint | None = None, source: str | None = None) -> None:
        self._above = above
        self.source: str | None = source or (above.source if above else None)

    def mark(self, source: str) -> None:
        """Record that the run has received something from `source`."""
        self.source = self.source or source
        if self._above is not None and self._above.source is None:
            self._above.mark(source)

    def observe(self, effect: ToolEffect) -> None:
        if effect.hosts:
            self.mark(effect.hosts[0])


class Wary:
    """The permissions of a run that may be tainted: what they allow and what reaches outward is
    asked about, each call by itself, in every mode."""

    def __init__(self, inner: Permissions, taint: Taint) -> None:
        self._inner = inner
        self._taint = taint

    @property
    def mode(self) -> PermissionMode:
        return self._inner.mode

    def grant(self, rule: str) -> None:
        self._inner.grant(rule)

    def decide(self, use: ToolUse) -> Decision:
        decision = self._inner.decide(use)
        source = self._taint.source
        inside = decision.verdict == "allow" and decision.by == "walls"
        if decision.verdict != "allow" or inside or source is None or not reaches_outward(use):
            return decision
        reason = f"This run has read text from {source}, which may have told it to do this."
        if self.mode == "dontAsk":
            return Decision("deny", f"{reason} The mode is dontAsk.", "taint", "web.taint", "high")
        return Decision("ask", reason, "taint", "web.taint", "high")


def reaches_outward(use: ToolUse) -> bool:
    """Whether a call can do harm beyond the files of the workspace, which can be put back."""
    if use.confined or use.tool in _READING_THE_WEB:
        return False
    return bool(use.effects & (_OUTWARD | {"network"})) or use.tool.startswith("mcp__")
