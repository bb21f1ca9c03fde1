"""The guard of one run, assembled from its permissions, its hooks, and the people it may ask.

A child's permissions are forked from its parent's when it starts, so grants flow down and never
up or sideways. A child that starts or is resumed after its parent is gone gets the same bounds from
its own first event. What people allow beyond one call goes where they said: to the run, to every run
of the agent (kept in the log), or as a rule into the settings of the project.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from msgspec.structs import replace

from retinue.agents.parse import file_stem
from retinue.capabilities.permissions.attach import classifier_for, permissions_for
from retinue.core.delegation import Refusal, Vocabulary
from retinue.core.events import Warned
from retinue.core.permission import Decision, Permissions
from retinue.core.person_prompt import words_of
from retinue.core.tool import Preview
from retinue.core.tool_names import TOOLS
from retinue.errors import RetinueError
from retinue.guard.gate import Asker, PermissionGate, guard_tools
from retinue.guard.permissions.modes import Taint
from retinue.log.activity import first_host
from retinue.log.inbox import grant as store
from retinue.log.inbox import granted, leftovers
from retinue.runs.guard import RunGuard, RunGuards, identity_of
from retinue.runs.project import consent_stays
from retinue.runs.requests import resolve_type
from retinue.settings.places import home
from retinue.settings.write import Append, save_settings, target_file
from retinue.tools.paths import Reaching, ReachingWriter

if TYPE_CHECKING:
    from retinue.core.permission import InboxAnswer, ToolUse
    from retinue.core.spec import PermissionMode
    from retinue.core.tool import Wrap
    from retinue.guard.permissions.modes import Taint
    from retinue.guard.permissions.policy import PermissionPolicy
    from retinue.runs.launch import Launch
    from retinue.runs.project import Project
    from retinue.runs.run import Run


_ABOUT = 60
"""Characters of a task that stand for a description where there is none."""

_TYPES: dict[str, tuple[str, Vocabulary]] = {
    "Agent": ("subagent_type", "claude"),
    "subagent": ("agent", "devkit"),
    "dispatch_agent": ("agent", "codingcode"),
}
"""The argument in which each tool that starts agents names the type, and its vocabulary."""
_WEB_TOOLS = frozenset({"web_search", "fetch_content", "get_search_content", "convert_content", "todo", "ask_user"})
"""Tools of an agent that cannot read the project."""
_STRICTNESS = {"allow": 0, "confine": 1, "ask": 2, "deny": 3}


class RulesOnAgents:
    """The permissions of a run, which judge a call by the agent that it would start: `Agent(x)` also holds for a call
    that names x by the name of its file, or that falls back to x, and where x is the name of its file."""

    def __init__(self, inner: Permissions, node: Run) -> None:
        self._inner = inner
        self._project = node.project
        self._nested = node.depth > 0

    @property
    def mode(self) -> PermissionMode:
        return self._inner.mode

    def decide(self, use: ToolUse) -> Decision:
        if use.tool not in _TYPES:
            return self._inner.decide(use)
        decisions = [self._inner.decide(each) for each in self._by_names(use)]
        return max(decisions, key=lambda decision: _STRICTNESS[decision.verdict])

    def grant(self, rule: str) -> None:
        self._inner.grant(rule)

    def _by_names(self, use: ToolUse) -> list[ToolUse]:
        """Return the call once for each name that rules may have for the agent that it would start."""
        key, vocabulary = _TYPES[use.tool]
        if use.arguments.get("resume") or use.arguments.get("retry"):
            return [use]
        wanted, settings = use.arguments.get(key), self._project.settings.settings
        if wanted is not None and not isinstance(wanted, str):
            return [use]
        found = resolve_type(wanted, self._project.catalog(), settings, vocabulary=vocabulary, strict=self._nested)
        if isinstance(found, Refusal):
            return [use]
        names = [found.spec.name]
        if found.spec.dialect == "pi" and found.spec.path:
            names.append(file_stem(found.spec.path, (".md",)))
        return [replace(use, arguments={**use.arguments, key: name}) for name in dict.fromkeys(names)]


class OwnMemory:
    """The permissions of a run, but that it need not ask before it writes its own memory by one of `tools`. What a
    rule forbids or wants asked stays so, and children have the permissions without this."""

    def __init__(self, inner: Permissions, tools: Mapping[str, Reaching], node: Run) -> None:
        self._inner = inner
        self._tools = tools
        self._root = node.launch.request.cwd.resolve()
        self._house = str(home(node.project.environment))

    @property
    def mode(self) -> PermissionMode:
        return self._inner.mode

    def decide(self, use: ToolUse) -> Decision:
        decision = self._inner.decide(use)
        tool = self._tools.get(use.tool)
        # A decision of a rule stays: only the mode's question is not worth asking.
        if tool is None or decision.verdict == "allow" or decision.by != "mode" or self._inner.mode == "plan":
            return decision
        if tool.target(use.arguments, self._root, self._house) is None:
            return decision
        return Decision("allow", "It is the agent's own memory.", "mode")

    def grant(self, rule: str) -> None:
        self._inner.grant(rule)


def guard_run(node: Run, inner: Wrap, *, resumed: bool) -> Wrap:
    """Put every tool of a run that begins behind its gate, outside of what `inner` puts around
    it. `resumed` runs may have asked something before: they take the answer when they ask it
    again."""
    project = node.project
    guard = RunGuard(node, _permissions(node, project, resumed), _asker(node, project, resumed), _taint(node, project))
    project.part(RunGuards).add(guard)

    async def granted(rule: str, answer: InboxAnswer) -> None:
        await grant(guard, project, rule, answer)

    permissions: Permissions = RulesOnAgents(guard.permissions, node)
    writers = {tool.spec.name: tool for tool in node.launch.tools if isinstance(tool, ReachingWriter)}
    if writers:
        permissions = OwnMemory(permissions, writers, node)
    gate = PermissionGate(
        permissions,
        node.hooks,
        guard.asker,
        lambda: project.inbox_service,
        granted,
        recall=lambda: _recall(guard, project),
        redact=lambda text: project.redactor(text),
        classify=classifier_for(guard.permissions, project),
        previews=lambda name: _preview(node, name),
        taint=guard.taint,
    )
    return lambda tools: guard_tools(inner(tools), gate)


def _preview(node: Run, name: str) -> Preview | None:
    tool = next((tool for tool in node.launch.tools if tool.spec.name == name), None)
    return getattr(tool, "preview", None)


def _permissions(node: Run, project: Project, resumed: bool) -> PermissionPolicy:
    """Return permissions forked from those of the parent as they are now. A program vouches for tools of its own,
    unless a rule forbids or asks. What is wrong with the patterns of the agent's file is noted, unless the launch
    has noted it already."""
    launch, notes = node.launch, list[str]()
    above = _guard_above(node, project)
    parent = None if above is None else above.permissions
    made = permissions_for(launch.request, project, parent, launch.patterns, notes, launch.bounds, launch.isolation)
    # A resumed run may have read a file before, and a child has words of a run that reads.
    made.web_unasked = launch.request.parent_id is None and not resumed and _reads_only_web(launch)
    if above is None:
        for tool in project.custom_tools:
            if tool.spec.name not in TOOLS:
                # A name that no rule can hold is asked about.
                with suppress(ValueError):
                    made.grant(tool.spec.name)
    new = [note for note in notes if note not in launch.notes]
    if new:
        node.end_notes += new
        for note in new:
            project.log.append(node.place, Warned("launch", note))
    return made


def _reads_only_web(launch: Launch) -> bool:
    """Return whether nothing but the web, and documents it is told to convert, can be read by a run."""
    spec = launch.request.spec
    names = {tool.spec.name for tool in launch.tools}
    return names <= _WEB_TOOLS and not (spec.memory or spec.servers)


def _asker(node: Run, project: Project, resumed: bool) -> Asker:
    about = node.state.description or " ".join(words_of(node.launch.request.task).split())[:_ABOUT]
    asker = Asker(node.place, node.agent, node.controls, node.record, description=about, resting=node.resting)
    if resumed:
        asker.leftovers = leftovers(project.log.reader, node.id)
    return asker


def _taint(node: Run, project: Project) -> Taint | None:
    """Return what is known of the strangers a run has listened to; None where nobody wants to know. A
    resumed run remembers, and so does one whose agents listened."""
    if project.settings.settings.web_taint == "off":
        return None
    above = _guard_above(node, project)
    inherited = None if above is None else above.taint
    return Taint(inherited, first_host(project.log.reader, node.id))


def _guard_above(node: Run, project: Project) -> RunGuard | None:
    return None if node.parent is None else project.part(RunGuards).get(node.parent.id)


async def release(node: Run) -> None:
    """Take all rights from a run that is over, and withdraw what it had asked."""
    project = node.project
    guard = project.part(RunGuards).pop(node.id, None)
    if guard is not None and guard.asker.leftovers:
        # A log that cannot be written is reported by those who write runs.
        with suppress(RetinueError):
            await project.inbox_service.run_ended(guard.asker)


async def grant(guard: RunGuard, project: Project, rule: str, answer: InboxAnswer) -> None:
    """Grant `rule` to those the answer names, and let calls go on that wait for nothing else."""
    match answer.choice:
        case "allow-run":
            guard.permissions.grant(rule)
        case "allow-agent":
            await _keep(guard, project, rule, answer.by)
            for other in list(project.part(RunGuards).values()):
                if other.is_of(guard.node):
                    other.permissions.grant(rule)
        case "always":
            await _write(guard, project, rule)
            for other in list(project.part(RunGuards).values()):
                other.permissions.grant(rule)
        case _:
            return
    await project.inbox_service.rejudge()


async def _keep(guard: RunGuard, project: Project, rule: str, by: str) -> None:
    agent = identity_of(guard.node)
    await project.log.transact(lambda connection: store(connection, agent, rule, by))


async def _write(guard: RunGuard, project: Project, rule: str) -> None:
    """Write the rule into the project's local settings. Where that fails it counts for this session only, and
    the run says so."""
    with consent_stays(project, target_file(project.cwd, "local", project.environment)):
        saved = await asyncio.to_thread(
            save_settings,
            {"permissions.allow": Append(rule)},
            cwd=project.cwd,
            target="local",
            environment=project.environment,
        )
    if saved.persisted:
        # Dropping the cached property makes its next use read the files again.
        project.__dict__.pop("settings", None)
    else:
        text = f"{rule} is allowed for this session only: {saved.problem}"
        guard.asker.record(Warned("settings", text))


def _recall(guard: RunGuard, project: Project) -> bool:
    """Grant what people allowed this agent, or an agent above it, in earlier runs or other processes. Return whether
    anything was new."""
    new = False
    node: Run | None = guard.node
    while node is not None:
        for rule in granted(project.log.reader, identity_of(node)):
            if rule not in guard.recalled:
                guard.recalled.add(rule)
                guard.permissions.grant(rule)
                new = True
        node = node.parent
    return new
