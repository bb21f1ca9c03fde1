"""The guard of one run, assembled from its permissions, its hooks, and the people it may ask.

A child's permissions are forked from its parent's when it starts, so a grant reaches descendants only. A child that
starts or is resumed after its parent is gone gets the same bounds from its own first event. A person may allow more
than one call: for the run, for every run of the agent (stored in the log), or as a rule in the settings of the project.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from retinue.agents.parse import file_stem
from retinue.capabilities.permissions import permissions_for
from retinue.core.delegation import Refusal, Vocabulary
from retinue.core.events import Warned
from retinue.core.messages import user
from retinue.core.permission import Decision, Permissions, ToolUse
from retinue.core.person_prompt import words_of
from retinue.core.tool import Preview
from retinue.core.tool_names import TOOL_EFFECTS
from retinue.errors import LaunchError, RetinueError
from retinue.guard.gate import Asker, PermissionGate, guard_tools
from retinue.guard.permissions.modes import Taint, classify_call
from retinue.log.activity import first_host
from retinue.log.inbox import grant as store
from retinue.log.inbox import granted, leftovers
from retinue.models.protocol import Finished, ModelRequest
from retinue.models.select import build_model, select_model
from retinue.runs.guard import RunGuard, RunGuards, identity_of
from retinue.runs.project import consent_stays
from retinue.runs.requests import resolve_type
from retinue.settings.places import home
from retinue.settings.write import Append, save_settings, target_file
from retinue.tools.paths import Reaching, ReachingWriter

if TYPE_CHECKING:
    from retinue.core.permission import InboxAnswer
    from retinue.core.spec import PermissionMode
    from retinue.core.tool import Wrap
    from retinue.guard.inbox_service import InboxService
    from retinue.guard.permissions.policy import PermissionPolicy
    from retinue.models.protocol import Model
    from retinue.runs.project import Project
    from retinue.runs.run import Run


_DESCRIPTION_CHARACTERS = 60
"""The length of the task that serves as description of a run without one."""

_TYPE_ARGUMENTS: dict[str, tuple[str, Vocabulary]] = {
    "Agent": ("subagent_type", "claude"),
    "subagent": ("agent", "devkit"),
    "dispatch_agent": ("agent", "codingcode"),
}
"""For each tool that starts agents, the argument that names the type, and its vocabulary."""
_WEB_TOOLS = frozenset({"web_search", "fetch_content", "get_search_content", "convert_content", "todo", "ask_user"})
"""The only tools of an agent that cannot read the project."""
_STRICTNESS = {"allow": 0, "confine": 1, "ask": 2, "deny": 3}


class PermissionsWrapper:
    """Permissions around others, with the same mode and grants."""

    def __init__(self, inner: Permissions) -> None:
        self._inner = inner

    @property
    def mode(self) -> PermissionMode:
        return self._inner.mode

    def grant(self, rule: str) -> None:
        self._inner.grant(rule)


class RulesOnAgents(PermissionsWrapper):
    """The permissions of a run, which judge a call by the agent that it would start: a rule `Agent(x)` also applies to
    a call that names x by its file name or that falls back to x, and x may be a file name."""

    def __init__(self, inner: Permissions, node: Run) -> None:
        super().__init__(inner)
        self._project = node.project
        self._nested = node.depth > 0

    def decide(self, use: ToolUse) -> Decision:
        if use.tool not in _TYPE_ARGUMENTS:
            return self._inner.decide(use)
        decisions = [self._inner.decide(variant) for variant in self._by_names(use)]
        return max(decisions, key=lambda decision: _STRICTNESS[decision.verdict])

    def _by_names(self, use: ToolUse) -> list[ToolUse]:
        """Return the call once for each name that rules may use for the agent that it would start."""
        key, vocabulary = _TYPE_ARGUMENTS[use.tool]
        if use.arguments.get("resume") or use.arguments.get("retry"):
            return [use]
        agent_type, settings = use.arguments.get(key), self._project.settings.settings
        if agent_type is not None and not isinstance(agent_type, str):
            return [use]
        agent = resolve_type(agent_type, self._project.catalog(), settings, vocabulary=vocabulary, strict=self._nested)
        if isinstance(agent, Refusal):
            return [use]
        names = [agent.spec.name]
        if agent.spec.dialect == "pi" and agent.spec.path:
            names.append(file_stem(agent.spec.path, (".md",)))
        return [replace(use, arguments={**use.arguments, key: name}) for name in dict.fromkeys(names)]


class OwnMemory(PermissionsWrapper):
    """The permissions of a run that may write its own memory by one of `tools` without asking. Deny and ask rules still
    apply, and children get the permissions without this."""

    def __init__(self, inner: Permissions, tools: Mapping[str, Reaching], node: Run) -> None:
        super().__init__(inner)
        self._tools = tools
        self._root = node.launch.request.cwd.resolve()
        self._house = str(home(node.project.environment))

    def decide(self, use: ToolUse) -> Decision:
        decision = self._inner.decide(use)
        tool = self._tools.get(use.tool)
        # The decision of a rule stays; only a question of the mode is skipped.
        if tool is None or decision.verdict == "allow" or decision.by != "mode" or self._inner.mode == "plan":
            return decision
        if tool.target(use.arguments, self._root, self._house) is None:
            return decision
        return Decision("allow", "It is the agent's own memory.", "mode")


def guard_run(node: Run, inner: Wrap, *, resumed: bool) -> Wrap:
    """Put every tool of a run that begins behind its gate, outside of the wrappers of `inner`. A `resumed` run may have
    asked a question before: it gets the answer when it asks again."""
    project, guards = node.project, node.project.part(RunGuards)
    above = None if node.parent is None else guards.get(node.parent.id)
    taint = None
    if project.settings.settings.web_taint != "off":
        # The taint of a resumed run includes what it, or its agents, read from the web before.
        taint = Taint(None if above is None else above.taint, first_host(project.log.reader, node.id))
    guard = RunGuard(node, _permissions(node, above, resumed), _asker(node, resumed), taint)
    guards.add(guard)

    permissions: Permissions = RulesOnAgents(guard.permissions, node)
    writers = {tool.spec.name: tool for tool in node.launch.tools if isinstance(tool, ReachingWriter)}
    if writers:
        permissions = OwnMemory(permissions, writers, node)
    answers = _GateAnswers(guard)
    gate = PermissionGate(
        permissions,
        node.hooks,
        guard.asker,
        answers.inbox_service,
        answers.granted,
        recall=answers.recall,
        redact=answers.redact,
        classify=_classifier(guard.permissions, project),
        previews=answers.preview,
        taint=taint,
    )
    return lambda tools: guard_tools(inner(tools), gate)


class _GateAnswers:
    """Answers the questions of a gate about its run."""

    __slots__ = ("_guard", "_project")

    def __init__(self, guard: RunGuard) -> None:
        self._guard = guard
        self._project = guard.node.project

    def inbox_service(self) -> InboxService:
        return self._project.inbox_service

    async def granted(self, rule: str, answer: InboxAnswer) -> None:
        await grant(self._guard, self._project, rule, answer)

    def recall(self) -> bool:
        return recall(self._guard, self._project)

    def redact(self, text: str) -> str:
        return self._project.redactor(text)

    def preview(self, name: str) -> Preview | None:
        tool = next((tool for tool in self._guard.node.tools if tool.spec.name == name), None)
        return getattr(tool, "preview", None)


def _permissions(node: Run, above: RunGuard | None, resumed: bool) -> PermissionPolicy:
    """Return permissions forked from the present ones of the parent. The embedding program's own tools are granted,
    unless a rule denies or asks. Mistakes in the patterns of the agent's file are noted, unless the launch has noted
    them."""
    launch, project, notes = node.launch, node.project, list[str]()
    parent = None if above is None else above.permissions
    policy = permissions_for(launch.request, project, parent, launch.patterns, notes, launch.bounds, launch.isolation)
    spec = launch.request.spec
    reads_only_web = {tool.spec.name for tool in launch.tools} <= _WEB_TOOLS and not (spec.memory or spec.servers)
    # A resumed run may have read a file before, and the task of a child may come from a run that reads.
    policy.web_unasked = launch.request.parent_id is None and not resumed and reads_only_web
    if above is None:
        for tool in project.custom_tools:
            if tool.spec.name not in TOOL_EFFECTS:
                # Calls of a tool whose name no rule can contain are asked about.
                with suppress(ValueError):
                    policy.grant(tool.spec.name)
    for note in notes:
        if note not in launch.notes:
            node.end_notes.append(note)
            project.log.append(node.place, Warned("launch", note))
    return policy


def _asker(node: Run, resumed: bool) -> Asker:
    about = node.state.description or " ".join(words_of(node.launch.request.task).split())[:_DESCRIPTION_CHARACTERS]
    asker = Asker(node.place, node.agent, node.controls, node.record, description=about, release_slot=node.release_slot)
    if resumed:
        asker.leftovers = leftovers(node.project.log.reader, node.id)
    return asker


async def release(node: Run) -> None:
    """Remove all rights of a run that has ended, and withdraw its questions."""
    guard = node.project.part(RunGuards).pop(node.id, None)
    if guard is not None and guard.asker.leftovers:
        # An error of the log is reported where runs are written.
        with suppress(RetinueError):
            await node.project.inbox_service.run_ended(guard.asker)


async def grant(guard: RunGuard, project: Project, rule: str, answer: InboxAnswer) -> None:
    """Grant `rule` to the runs that the answer names, and decide waiting calls again."""
    guards = project.part(RunGuards)
    match answer.choice:
        case "allow-run":
            guard.permissions.grant(rule)
        case "allow-agent":
            agent = identity_of(guard.node)
            await project.log.transact(lambda connection: store(connection, agent, rule, answer.by))
            for other in list(guards.values()):
                if other.is_of(guard.node):
                    other.permissions.grant(rule)
        case "always":
            await _write_rule(guard, project, rule)
            for other in list(guards.values()):
                other.permissions.grant(rule)
        case _:
            return
    await project.inbox_service.rejudge()


async def _write_rule(guard: RunGuard, project: Project, rule: str) -> None:
    """Write the rule into the project's local settings. If that fails, it applies to this session only, and the run
    gets a warning."""
    change: dict[str, Any] = {"permissions.allow": Append(rule)}
    with consent_stays(project, target_file(project.cwd, "local", project.environment)):
        saved = await asyncio.to_thread(
            save_settings, change, cwd=project.cwd, target="local", environment=project.environment
        )
    if saved.persisted:
        # Dropping the cached property makes its next use read the files again.
        project.__dict__.pop("settings", None)
    else:
        guard.asker.record(Warned("settings", f"{rule} is allowed for this session only: {saved.problem}"))


def recall(guard: RunGuard, project: Project) -> bool:
    """Grant the rules that people allowed for this agent, or an agent above it, in earlier runs or other processes.
    Return whether any was new."""
    new = False
    node: Run | None = guard.node
    while node is not None:
        for rule in granted(project.log.reader, identity_of(node)):
            if rule not in guard.recalled:
                guard.recalled += (rule,)
                guard.permissions.grant(rule)
                new = True
        node = node.parent
    return new


_VERDICT_SECONDS = 30.0
"""The time that a call waits for the model's verdict, retries included, before a person is asked."""
_VERDICT_TOKENS = 1_000
"""Enough for a short verdict, and for the minimal thinking that some models cannot turn off."""


Classify = Callable[[ToolUse, Decision], Awaitable[Decision]]


def _classifier(policy: PermissionPolicy, project: Project) -> Classify | None:
    """Return the function that lets the model of `permissions.autoModel` decide; None if no model decides. The model is
    connected at the first call."""
    name = project.settings.settings.permissions_auto_model
    if policy.mode != "auto" or name is None:
        return None
    model: Model | None = None

    async def ask(system: str, question: str) -> str:
        nonlocal model
        async with asyncio.timeout(_VERDICT_SECONDS):
            if model is None:
                model = await _connect_judge(name, project)
            # Thinking is on by default and would use up the limit.
            request = ModelRequest(
                system=system,
                messages=(user(question),),
                max_output=_VERDICT_TOKENS,
                thinking="off",
                tool_choice="none",
            )
            async with aclosing(model.stream(request)) as parts:
                async for event in parts:
                    if isinstance(event, Finished):
                        return event.message.text if event.message.failure is None else ""
        return ""

    async def classify(use: ToolUse, decision: Decision) -> Decision:
        return await classify_call(policy, use, decision, ask)

    return classify


async def _connect_judge(name: str, project: Project) -> Model:
    """Connect to the model that judges calls. It must not be on a server that the project configures: the calls to
    judge are made in that project."""
    selection = await select_model(
        name, settings=project.settings.settings, environment=project.environment, transport=project.transport
    )
    if not selection.provider.origin.personal and not project.trust.everything:
        raise LaunchError(f"{selection.provider.id} is a server of the project, which must not judge calls.")
    return build_model(selection, project.transport)
