"""From a request to everything a run needs: model, tools, prompt, limits.

This is the one place where they are decided, for fresh and for resumed runs alike. What cannot
be honoured is refused with a reason (`LaunchError`), or noted so that the outcome can say it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from retinue.agents.report import file_notes, require_startable
from retinue.capabilities.mcp.attach import Served, serve
from retinue.capabilities.memory.attach import memory_for, reaching, spare_tools
from retinue.capabilities.permissions.attach import NO_PATTERNS, Patterns, mode_for, permitted
from retinue.capabilities.permissions.gatekeeper import Bound, bounds_below
from retinue.capabilities.plugins.tools import Extended, extend, has_only_builtins, suited
from retinue.capabilities.sandbox.attach import can_sandbox, is_readonly
from retinue.capabilities.skills.attach import SKILL, files_of_skills, skill_tools, with_skills
from retinue.capabilities.trust.attach import consented, with_consent
from retinue.core.delegation import Delegation
from retinue.core.request import RunRequest
from retinue.core.spec import AgentSpec, PermissionMode, ToolPolicy
from retinue.core.tool import Tool
from retinue.core.toolnames import canonical
from retinue.core.usage import Limits
from retinue.errors import DisabledAgentError, LaunchError, UnknownModelError
from retinue.models.limiter import LimiterGate, account_of, process_limiters, shared_prefix
from retinue.models.select import ModelSelection, build_model, select_model
from retinue.runs.account import BUDGETED
from retinue.runs.assembling import assemble, in_documentation, inherited, is_guide, prompt_above
from retinue.runs.ceiling import STARTING, ceiling_of
from retinue.runs.checking import well_formed
from retinue.runs.offer import SPAWNING, offered_tools, useful_tools, with_patches
from retinue.runs.prompt import joined
from retinue.tools.filter import ToolSelection as Chosen
from retinue.tools.filter import select_tools, split_entry

if TYPE_CHECKING:
    from retinue.capabilities.memory.block import Memory
    from retinue.capabilities.worktree.attach import Isolation
    from retinue.models.protocol import Model
    from retinue.runs.project import Project
    from retinue.settings.table import Settings


class Launch(Struct, frozen=True):
    """Decided once, before the run exists. `notes` reach the outcome; nothing is silent."""

    request: RunRequest
    model: Model
    model_name: str
    system: str
    tools: tuple[Tool, ...]
    limits: Limits
    thinking: str | None
    gate: LimiterGate | None = None
    """Where requests wait while the provider has had enough of us."""
    transcript: str | None = None
    isolation: Isolation | None = None
    """The worktree it works in, its own or that of a run above it."""
    readonly: bool = False
    """It may change nothing, and neither may its children."""
    mode: PermissionMode = "default"
    patterns: Patterns = NO_PATTERNS
    """What its file lets its tools do, where it says more than their names."""
    bounds: tuple[Bound, ...] = ()
    """The same of the runs above it."""
    served: Served | None = None
    """The MCP servers it may use, and those of their tools that it gets later."""
    memory: Memory | None = None
    """What it remembers from earlier runs."""
    inherited: int = 0
    """How many characters of `system` are its parent's."""
    notes: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    """Those of the notes that name tools which its file asks for and which are not there."""


class ChosenTools(Struct, frozen=True):
    """The tools of a run, and what came of deciding them."""

    tools: tuple[Tool, ...]
    patterns: Patterns
    memory: Memory | None
    missing: tuple[str, ...]
    """What is to be said of tools that its file asks for and that there are none of here."""


async def prepare(
    request: RunRequest,
    project: Project,
    delegation: Delegation | None = None,
    parent: Launch | None = None,
    isolation: Isolation | None = None,
    *,
    heard: bool = False,
) -> Launch:
    """`delegation` is the run's way to other runs, offered as tools where its file allows it;
    `parent` bounds what it may have, and answers its questions if it is `heard`. Raises
    LaunchError when the agent must not start, and UnknownModelError when the caller named a model
    that does not exist."""
    check(request.spec, request)
    notes: list[str] = []
    notes += file_notes(request.spec, project.catalog() if request.spec.path else None)
    request = replace(consented(request, project, notes), ceiling=ceiling_of(request, parent))
    selection = await choose_model(request, project, notes, parent)
    served = await serve(request, project, notes, has_parent=parent is not None)
    extended = await extend(request, project, notes)
    mode = mode_for(request, project, parent.mode if parent else None, notes)
    readonly = is_readonly(request, mode, project.settings.settings, notes)
    kit = choose_tools(request, project, notes, delegation, served, extended, readonly, mode, heard=heard)
    tools = kit.tools if served is None else served.settle(kit.tools, selection.info.window)
    tools = with_patches(tools, selection.info.id)
    named = {tool.spec.name: tool for tool in tools}
    above = prompt_above(request, project, parent)
    parts = assemble(request, project, above, named, notes, mode=mode, isolation=isolation, memory=kit.memory)
    system = joined(parts)
    gate = _gate(selection, system, tools)

    def gate_for(chosen: ModelSelection) -> LimiterGate | None:
        if chosen.provider.id == selection.provider.id:
            return gate
        other = _gate(chosen, system, tools)
        if gate is not None and other is not None:
            other.waiting = gate.waiting
        return other

    thinking = _thinking(request) or selection.thinking
    if thinking is None and parent is not None:
        thinking = parent.thinking
        request = replace(request, thinking=thinking)  # recorded with the run, which may go on without its parent
    return Launch(
        request=request,
        model=build_model(selection, project.transport, gate_for=gate_for),
        gate=gate,
        model_name=selection.info.full_name,
        system=system,
        tools=tools,
        limits=_limits(request, project.settings.settings, notes, parent),
        thinking=thinking,
        isolation=isolation,
        served=served,
        readonly=readonly,
        mode=mode,
        patterns=kit.patterns,
        bounds=bounds_below(parent),
        memory=kit.memory,
        inherited=inherited(parts, parent),
        notes=tuple(notes),
        missing=kit.missing,
    )


def check(spec: AgentSpec, request: RunRequest) -> None:
    """What can be refused before anything is looked up or made."""
    if not spec.enabled:
        raise DisabledAgentError(
            f"The agent '{spec.name}' is disabled.", remedy=f"Enable it with: retinue agents enable {spec.name}"
        )
    require_startable(spec)
    well_formed(request)
    if not request.task.strip():
        raise LaunchError("The task is empty.", remedy="Say what the agent should do.")
    if not request.cwd.is_dir():
        raise LaunchError(f"The working directory {request.cwd} does not exist.", remedy="Choose another with --cwd.")


async def choose_model(
    request: RunRequest, project: Project, notes: list[str], parent: Launch | None
) -> ModelSelection:
    """The model of the run. Asked again in the same moment, it costs nothing."""
    of_file = request.spec.model.name
    if "model" in request.pinned and request.model and of_file:
        notes.append(f"model {request.model} replaces {of_file} of the file")
        of_file = None
    above = parent.model.info if parent else None
    key = ("model", request.model, of_file, request.spec.model.fallbacks, above.full_name if above else None)
    selection: ModelSelection | None = project.round.get(key)
    if selection is None:
        try:
            selection = await select_model(
                request.model,
                file_model=of_file,
                fallbacks=request.spec.model.fallbacks,
                parent=above,
                settings=project.settings.settings,
                environment=project.environment,
                transport=project.transport,
            )
        except UnknownModelError as error:
            raise UnknownModelError(error.message, remedy=with_consent(error.remedy, "providers", project)) from None
        selection = await _with_real_window(selection, project)
        project.round.keep(key, selection)
    notes.extend(selection.warnings)
    return selection


async def _with_real_window(selection: ModelSelection, project: Project) -> ModelSelection:
    """A server on this machine is asked how much its model can hold there."""
    if not selection.provider.runs_models:
        return selection
    from retinue.models.local_window import with_local_window
    from retinue.models.providers import Providers

    described = Providers(project.settings.settings, project.environment).has_window(
        selection.provider, selection.info.id
    )
    tell = project.on_wait
    info, note = await with_local_window(selection.provider, selection.info, project.transport, described, tell)
    warnings = (*selection.warnings, note) if note else selection.warnings
    return selection._replace(info=info, warnings=warnings)


def _gate(selection: ModelSelection, system: str, tools: tuple[Tool, ...]) -> LimiterGate | None:
    """All runs of this process at one provider share one limiter; embedded models need none."""
    provider = selection.provider
    if provider.api == "embedded" and provider.id in ("offline", "local"):
        return None
    prefix = shared_prefix(provider, selection.info.id, system, [tool.spec for tool in tools])
    limiters = process_limiters()
    return limiters.gate_for(provider.id, account_of(provider), prefix)


def choose_tools(
    request: RunRequest,
    project: Project,
    notes: list[str],
    delegation: Delegation | None,
    served: Served | None,
    extended: Extended,
    readonly: bool,
    mode: PermissionMode = "default",
    *,
    heard: bool = False,
) -> ChosenTools:
    """What the run may use, by its file, its rights and the rules. `heard` says that the run above
    it can answer questions. Raise LaunchError for a file
    whose list leaves nothing."""
    spec, settings = request.spec, project.settings.settings
    may_spawn = delegation is not None and _may_spawn(request, settings)
    policy = with_skills(_with_subagents(spec), spec)
    scoped, brought = extended.scoped(spec, policy if readonly else _with_output(policy, spec))
    notes.extend(scoped.notes)
    available = {**suited(request, project.tools, can_ask=project.can_ask, heard=heard, mode=mode), **brought}
    if "exit_plan" in available and not project.can_ask:
        from retinue.tools.questions import FinalPlanTool

        available["exit_plan"] = FinalPlanTool()
    if may_spawn and delegation is not None:
        available = {**available, **offered_tools(delegation, project, request, notes)}
    if SKILL not in available:  # a program may have one of its own
        available = {**available, **skill_tools(request, project, spawns=may_spawn)}

    def choose(tools: Mapping[str, Tool]) -> Chosen:
        return select_tools(
            served.policy(scoped.policy) if served else scoped.policy,
            tools,
            readonly=readonly,
            shell_sandbox=readonly and can_sandbox(settings),
            denied_above=request.ceiling.denied,
            allow_spawn=may_spawn,
            agent=spec.name,
            absent=project.unavailable,
        )

    if served is not None:
        available = {**available, **served.tools}
        served.choose = choose
    selection = choose(available)
    if selection.refusal is not None:
        raise LaunchError(
            f"Agent '{spec.name}' {selection.refusal}", remedy="Correct the file's `tools`, or leave the key out."
        )
    # What a shipped agent can do without is left out of its tools and not worth a note.
    missing = () if spec.source == "builtin" else selection.missing
    notes.extend(note for note in selection.notes if note in missing or note not in selection.missing)
    allowed = permitted(selection.tools, request, project, notes)
    offered = useful_tools({tool.spec.name: tool for tool in allowed}, spec)
    spare = spare_tools(request, project, lambda tools: permitted(tools, request, project, []))
    memory = memory_for(request, project, offered, spare, notes, readonly=readonly)
    beyond = in_documentation if is_guide(spec) else files_of_skills(request, project, offered)
    reached = reaching(offered, memory, spare, beyond)
    patterns = Patterns(selection.allowed_patterns, selection.denied_patterns, spec.tools.rules)
    return ChosenTools(reached, patterns, memory, missing)


def _may_spawn(request: RunRequest, settings: Settings) -> bool:
    """Main agents may. Others may if their file says so: a list of agents, `Agent` among the
    tools, or no list of tools at all in a twin of the parent."""
    spec = request.spec
    if not settings.subagents_enabled or request.depth >= settings.max_subagent_depth or spec.isolated:
        return False
    if spec.subagents is not None:
        return bool(spec.subagents)
    if has_only_builtins(spec):
        return False
    if spec.tools.allow is not None:
        return any(name in SPAWNING for entry in spec.tools.allow for name in canonical(split_entry(entry)[0]))
    return request.depth == 0 or spec.prompt_mode == "append"


def _with_subagents(spec: AgentSpec) -> ToolPolicy:
    """A file that lists agents it may start need not list the tool that starts them, and one that
    lists that tool need not list those that read results, steer and so on."""
    allow = spec.tools.allow
    if allow is None or "*" in allow:
        return spec.tools
    starts = any(STARTING.intersection(canonical(split_entry(entry)[0])) for entry in allow)
    if not spec.subagents and not starts:
        return spec.tools
    more = SPAWNING if spec.subagents else SPAWNING - STARTING
    return replace(spec.tools, allow=(*allow, *sorted(more)))


def _with_output(policy: ToolPolicy, spec: AgentSpec) -> ToolPolicy:
    """A file that lists the shell need not list what reads and stops its commands in the background:
    that is no right of its own. pi has no such commands, and a read-only shell only looks."""
    allow = policy.allow
    if allow is None or spec.dialect == "pi" or has_only_builtins(spec):
        return policy
    names = {name for entry in allow for name in canonical(split_entry(entry)[0])}
    if "bash" not in names or "bash_output" in names:
        return policy
    return replace(policy, allow=(*allow, "bash_output"))


def _limits(request: RunRequest, settings: Settings, notes: list[str], parent: Launch | None) -> Limits:
    """Settings and what the file's dialect promises, then file and caller, of whom the stronger
    comes last. A 0 of a file lifts a limit, as a None of the caller does."""
    spec = request.spec
    of_file = {"max_turns": spec.max_turns, "seconds": spec.timeout_seconds}
    said = {name: value or None for name, value in of_file.items() if value is not None}
    weaker, stronger = (said, request.limits) if "limits" in request.pinned else (request.limits, said)
    for name in weaker.keys() & stronger.keys():
        if weaker[name] != stronger[name]:
            notes.append(f"{name} {stronger[name] or 'unlimited'} replaces {weaker[name] or 'unlimited'}")
    stronger = {name: value for name, value in stronger.items() if name not in BUDGETED}
    weaker = {name: value for name, value in weaker.items() if name not in BUDGETED}
    values: dict[str, Any] = {name: getattr(settings, setting) for name, setting in _LIMIT_SETTINGS.items()}
    values |= _limits_of_dialect(spec, settings, parent)
    values |= weaker
    values |= stronger
    return Limits(**values)


_LIMIT_SETTINGS = {
    "max_turns": "default_max_turns",
    "grace_turns": "grace_turns",
    "seconds": "timeout_seconds",
    "idle_seconds": "idle_timeout_seconds",
    "tool_seconds": "tool_timeout_seconds",
}


def _limits_of_dialect(spec: AgentSpec, settings: Settings, parent: Launch | None) -> dict[str, Any]:
    """The limits that the documents of the file's dialect promise. What a person has set counts
    more: these stand in the place of our defaults only."""
    from retinue.agents.dialects import DIALECTS

    dialect = DIALECTS[spec.dialect]
    limits: dict[str, Any] = dict(dialect.limits)
    if parent is not None:
        limits |= {name: getattr(parent.limits, name) for name in dialect.inherited_limits}
    return {name: value for name, value in limits.items() if settings.origin(_LIMIT_SETTINGS[name]).layer == "default"}


def _thinking(request: RunRequest) -> str | None:
    of_file, asked = request.spec.model.thinking, request.thinking
    return (asked or of_file) if "thinking" in request.pinned else (of_file or asked)
