"""The guard of one run, assembled from its permissions, its hooks, and the people it may ask.

A child's permissions are forked from its parent's when it starts, so grants flow down and never
up or sideways. A child that starts or is resumed after its parent is gone gets the same bounds from
its own first event. What people allow beyond one call goes where they said: to the run, to every run
of the agent (kept in the log), or as a rule into the settings of the project.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field
from msgspec.structs import replace

from retinue.capabilities.hooks.attach import hooks_for
from retinue.capabilities.memory.attach import with_memory
from retinue.capabilities.permissions.attach import Patterns, classifier_for, permissions_for
from retinue.capabilities.web.attach import taint_of
from retinue.core.events import Body, Warned
from retinue.core.spec import PermissionRule
from retinue.core.tool import Preview, Tool
from retinue.core.toolnames import TOOLS
from retinue.errors import RetinueError
from retinue.guard.approval import Asker
from retinue.guard.gate import PermissionGate, gated
from retinue.guard.permissions.policy import PermissionPolicy

if TYPE_CHECKING:
    from retinue.core.permission import InboxAnswer
    from retinue.guard.permissions.modes import Taint
    from retinue.guard.permissions.policy import PermissionPolicy
    from retinue.runs.node import RunNode
    from retinue.runs.plan import Launch
    from retinue.runs.project import Project
    from retinue.runs.quote import Quote


class Bound(Struct, frozen=True):
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


_ABOUT = 60
"""Characters of a task that stand for a description where there is none."""
Wrap = Callable[[tuple[Tool, ...]], tuple[Tool, ...]]


class Guard(Struct, eq=False):
    """What stands between a run and its tools, while it lives."""

    node: RunNode
    permissions: PermissionPolicy
    asker: Asker
    taint: Taint | None = None
    recalled: set[str] = field(default_factory=set)

    def is_of(self, other: RunNode) -> bool:
        """Whether its run is one of the same agent: the same name, from the same source."""
        mine, its = self.node.handle.launch.request.spec, other.handle.launch.request.spec
        return (mine.name, mine.source) == (its.name, its.source)


def gatekeeper(node: RunNode, project: Project, inner: Wrap, *, resumed: bool = False) -> Wrap:
    """Put every tool of a run that begins behind its gate, outside of what `inner` puts around
    it. `resumed` runs may have asked something before: they take the answer when they ask it
    again."""
    guard = Guard(node, _permissions(node, project), _asker(node, project, resumed), taint_of(node, project))
    project.guards[node.id] = guard

    async def granted(rule: str, answer: InboxAnswer) -> None:
        await grant(guard, project, rule, answer)

    gate = PermissionGate(
        with_memory(guard.permissions, node.handle.launch, project),
        hooks_for(node, project),
        guard.asker,
        lambda: project.inbox_service,
        granted,
        recall=lambda: _recall(guard, project),
        redact=lambda text: project.redactor(text),
        classify=classifier_for(guard.permissions, project),
        previews=lambda name: _preview(node, name),
        taint=guard.taint,
    )
    isolation = node.handle.launch.isolation
    if isolation is None:
        return lambda tools: gated(inner(tools), gate)
    from retinue.capabilities.worktree.tools import kept_home

    return lambda tools: kept_home(gated(inner(tools), gate), isolation)


def _preview(node: RunNode, name: str) -> Preview | None:
    tool = next((tool for tool in node.handle.launch.tools if tool.spec.name == name), None)
    return getattr(tool, "preview", None)


def _permissions(node: RunNode, project: Project) -> PermissionPolicy:
    """Forked from those of the parent as they are now. A program vouches for tools of its own,
    unless a rule forbids or asks. What is wrong with the patterns of its
    file is said once: the rest of the notes the launch has said."""
    handle = node.handle
    launch, notes = handle.launch, list[str]()
    above = project.guards.get(node.parent.id) if node.parent is not None else None
    parent = above.permissions if above else None
    made = permissions_for(launch.request, project, parent, launch.patterns, notes, launch.bounds, launch.isolation)
    if above is None:
        for tool in project.custom_tools:
            if tool.spec.name not in TOOLS:
                with suppress(ValueError):  # a name that no rule can hold is asked about
                    made.grant(tool.spec.name)
    new = [note for note in notes if note not in launch.notes]
    if new:
        handle.launch = replace(launch, notes=(*launch.notes, *new))
        for note in new:
            project.log.append(handle.place, Warned("launch", note))
    return made


def _asker(node: RunNode, project: Project, resumed: bool) -> Asker:
    handle = node.handle

    def record(body: Body) -> None:
        project.log.append(handle.place, body)
        node.observe(body)

    about = node.description or " ".join(handle.launch.request.task.split())[:_ABOUT]
    asker = Asker(handle.place, handle.agent, handle.controls, record, description=about, resting=node.resting)
    if resumed:
        from retinue.log.inbox import leftovers

        asker.leftovers = leftovers(project.log.reader, handle.id)
    return asker


def withheld_from(run_id: str, project: Project) -> Callable[[str], bool] | None:
    """Which files a search of the run must leave out; None where all may be read."""
    guard = project.guards.get(run_id)
    return guard.permissions.withheld() if guard is not None else None


async def release(node: RunNode, project: Project) -> None:
    """The run is over: it has no rights any more, and what it had asked is withdrawn."""
    guard = project.guards.pop(node.id, None)
    if guard is not None and guard.asker.leftovers:
        with suppress(RetinueError):  # a log that cannot be written is reported by those who write runs
            await project.inbox_service.run_ended(guard.asker)


async def grant(guard: Guard, project: Project, rule: str, answer: InboxAnswer) -> None:
    """Grant `rule` to those the answer names, and let calls go on that wait for nothing else."""
    match answer.choice:
        case "allow-run":
            guard.permissions.grant(rule)
        case "allow-agent":
            await _keep(guard, project, rule, answer.by)
            for other in [each for each in project.guards.values() if each.is_of(guard.node)]:
                other.permissions.grant(rule)
        case "always":
            await _write(guard, project, rule)
            for other in list(project.guards.values()):
                other.permissions.grant(rule)
        case _:
            return
    await project.inbox_service.rejudge()


async def ask_quote(node: RunNode, project: Project, quote: Quote) -> bool:
    """Whether a person agrees that the run starts very many agents."""
    from retinue.core.permission import InboxItem
    from retinue.guard.inbox_service import new_item_id

    guard = project.guards.get(node.id)
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


async def _keep(guard: Guard, project: Project, rule: str, by: str) -> None:
    from retinue.log.inbox import grant as store

    spec = guard.node.handle.launch.request.spec
    await project.log.transact(lambda connection: store(connection, spec.name, spec.source, rule, by))


async def _write(guard: Guard, project: Project, rule: str) -> None:
    """The rule as a line of the project's local settings. A file that cannot be written leaves
    it to this session, and the run says so."""
    from retinue.capabilities.trust.attach import consent_stays
    from retinue.settings.write import Append, save_settings, target_file

    with consent_stays(project, target_file(project.cwd, "local", project.environment)):
        saved = await asyncio.to_thread(
            save_settings,
            {"permissions.allow": Append(rule)},
            cwd=project.cwd,
            target="local",
            environment=project.environment,
        )
    if saved.persisted:
        project.__dict__.pop("settings", None)
    else:
        text = f"{rule} is allowed for this session only: {saved.problem}"
        guard.asker.record(Warned("settings", text))


def _recall(guard: Guard, project: Project) -> bool:
    """What people allowed this agent, or an agent above it, in earlier runs or elsewhere."""
    from retinue.log.inbox import granted

    new = False
    node: RunNode | None = guard.node
    while node is not None:
        spec = node.handle.launch.request.spec
        for rule in granted(project.log.reader, spec.name, spec.source):
            if rule not in guard.recalled:
                guard.recalled.add(rule)
                guard.permissions.grant(rule)
                new = True
        node = node.parent
    return new
