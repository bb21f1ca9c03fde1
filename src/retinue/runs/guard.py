"""What stands between a run and its tools while it lives: its permissions, whom it may ask, and what it has read.

The capability `permissions` makes it when the run begins. Other parts of a run only look at it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from msgspec import Struct, field

from retinue.agents.parse import seal
from retinue.core.permission import InboxItem
from retinue.core.spec import AgentIdentity

if TYPE_CHECKING:
    from retinue.guard.approval import Asker
    from retinue.guard.permissions.modes import Taint
    from retinue.guard.permissions.policy import PermissionPolicy
    from retinue.runs.fanout import Quote
    from retinue.runs.project import Project
    from retinue.runs.run import Run


class RunGuard(Struct, eq=False):
    """What stands between a run and its tools, while it lives."""

    node: Run
    permissions: PermissionPolicy
    asker: Asker
    taint: Taint | None = None
    recalled: set[str] = field(default_factory=set)

    def is_of(self, other: Run) -> bool:
        """Whether its run is one of the same agent."""
        return identity_of(self.node) == identity_of(other)


def identity_of(node: Run) -> AgentIdentity:
    """Return which agent a run is of. A run that is taken up again is of the agent as its file was."""
    spec = seal(node.launch.request.spec)
    return AgentIdentity(spec.name, spec.source, spec.hash)


class RunGuards(dict[str, RunGuard]):
    """The guards of the runs of a project that live, by run."""

    def __init__(self, project: Project) -> None:
        super().__init__()
        self._later: dict[str, list[str]] = {}

    def add(self, guard: RunGuard) -> None:
        """Add the guard of a run that begins, with the rules that were granted to it before."""
        self[guard.node.id] = guard
        self.grant(guard.node.id, self._later.pop(guard.node.id, []))

    def grant(self, run_id: str, rules: Sequence[str]) -> None:
        """Allow a run what `rules` say for the rest of it: now, or when it begins. One that is no rule allows
        nothing."""
        guard = self.get(run_id)
        if guard is None:
            if rules:
                self._later[run_id] = list(rules)
            return
        for rule in rules:
            with suppress(ValueError):
                guard.permissions.grant(rule)


def withheld_from(run_id: str, project: Project) -> Callable[[str], bool] | None:
    """Which files a search of the run must leave out; None where all may be read."""
    guard = project.part(RunGuards).get(run_id)
    return guard.permissions.withheld() if guard is not None else None


async def ask_quote(node: Run, project: Project, quote: Quote) -> bool:
    """Whether a person agrees that the run starts very many agents."""
    from retinue.guard.inbox_service import new_item_id

    guard = project.part(RunGuards).get(node.id)
    if guard is None:
        return False
    place = guard.asker.place
    item = InboxItem(
        id=new_item_id(),
        kind="quote",
        run_id=place.run_id,
        root_id=place.root_id,
        agent=guard.asker.agent,
        description=guard.asker.description,
        title=f"start {quote.agents} more agents" if quote.agents != 1 else "start 1 more agent",
        detail=quote.text,
        payload={"agents": quote.agents, "text": quote.text},
        reason="This run has started as many agents as it may without being asked (quoteAbove).",
        options=("allow", "deny"),
    )
    answer = await project.inbox_service.ask(item, guard.asker)
    return answer.choice == "allow"
