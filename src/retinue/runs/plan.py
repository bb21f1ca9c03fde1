"""Planning of a run: from its request to its launch in one pass over limits, model, tools and prompt.

New and resumed runs are planned in the same way. An option that cannot be applied either fails the launch
(`LaunchError`) or adds a note to the outcome. Capabilities take part at fixed moments (`runs/capability.py`). A project
may have its own model source, which replaces all providers: no provider is asked then, and requests are not limited.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from retinue.agents.catalog import file_notes, require_startable
from retinue.agents.dialects.tables import DIALECTS
from retinue.agents.folders import may_be_devkits
from retinue.core.request import NO_OPTIONS, RunRequest
from retinue.core.spec import AgentSpec, ToolPolicy
from retinue.core.tool import Tool
from retinue.core.tool_names import canonical, is_read_only, split_entry
from retinue.core.usage import Limits
from retinue.errors import DisabledAgentError, LaunchError, RefusedAgentError, UnknownModelError
from retinue.guard.sandbox.kernel import can_sandbox
from retinue.models.inventory import with_real_window
from retinue.models.limiter import LimiterGate, account_of, process_limiters, shared_prefix
from retinue.models.providers import Providers
from retinue.models.select import ModelSelection, build_model, select_model, unsent_level
from retinue.runs.budget import BUDGET_LIMITS
from retinue.runs.guard import STARTING, Patterns, bounds_below, bounds_from_record, ceiling_of
from retinue.runs.launch import Launch, LaunchPlan
from retinue.runs.offer import (
    SPAWNING,
    has_only_builtins,
    leaves_plan_mode,
    offered_tools,
    suited,
    useful_tools,
    with_fitting_bash,
    with_patches,
)
from retinue.runs.project import with_consent
from retinue.runs.prompt import PromptPart, joined
from retinue.runs.record import restrict_to_past, transcript_of
from retinue.runs.requests import check_values
from retinue.runs.system_prompt import assemble, in_documentation, inherited, is_guide, prompt_above, restored_prompt
from retinue.settings.load import check_limits
from retinue.settings.table import SMALL_MODEL
from retinue.tools.filter import ToolSelection, select_tools
from retinue.tools.paths import Reaching

if TYPE_CHECKING:
    from retinue.core.spec import PermissionMode
    from retinue.models.protocol import Model
    from retinue.runs.project import Project
    from retinue.runs.run import Run
    from retinue.settings.table import Settings


async def choose_model(request: RunRequest, project: Project, notes: list[str], parent: Run | None) -> ModelSelection:
    """Return the model of a run. Asked again in the same tick of the event loop, it costs nothing."""
    if project.model_source is not None:
        return project.model_source.select(request)
    of_file = request.spec.model.name
    if "model" in request.pinned and request.model and of_file:
        notes.append(f"model {request.model} replaces {of_file} of the file")
        of_file = None
    requested, models = request.model, project.program_models
    if models.default is not None and not (requested and "model" in request.pinned):
        requested, of_file = models.default, None
    above = parent.launch.model.info if parent else None
    small = False
    if of_file is None and _is_explore(request.spec):
        preferred = project.settings.settings.explore_model
        small = preferred == SMALL_MODEL
        of_file = None if small or requested else preferred
    key = ("model", requested, of_file, small, request.spec.model.fallbacks, above.full_name if above else None)
    selection: ModelSelection | None = project.round.get(key)
    if selection is None:
        try:
            selection = await select_model(
                requested,
                file_model=of_file,
                fallbacks=request.spec.model.fallbacks,
                parent=above,
                settings=project.settings.settings,
                environment=project.environment,
                transport=project.transport,
                program_models=models,
                small=small,
            )
        except UnknownModelError as error:
            raise UnknownModelError(error.message, remedy=with_consent(error.remedy, "providers", project)) from None
        selection = await _with_real_window(selection, project)
        project.round.keep(key, selection)
    notes.extend(selection.warnings)
    return selection


def _is_explore(spec: AgentSpec) -> bool:
    """Return whether it is the shipped Explore, for whose model there is a setting."""
    return spec.source == "builtin" and spec.name == "Explore"


async def _with_real_window(selection: ModelSelection, project: Project) -> ModelSelection:
    """Return the selection with the context window that a server on this machine reports."""
    if not selection.provider.runs_models:
        return selection
    providers = Providers(project.settings.settings, project.environment)
    return await with_real_window(selection, providers, project.transport, project.on_wait)


def _gate(selection: ModelSelection, system: str, tools: tuple[Tool, ...]) -> LimiterGate | None:
    """Return the gate of a run. All runs of this process at one provider share a limiter; embedded models need none."""
    provider = selection.provider
    brought = selection.model is not None
    if brought or (provider.api == "embedded" and provider.id == "offline"):
        return None
    prefix = shared_prefix(provider, selection.info.id, system, [tool.spec for tool in tools])
    limiters = process_limiters()
    return limiters.gate_for(provider.id, account_of(provider), prefix)


SEARCHING_AGENTS = frozenset({"explore", "explorer"})
"""The search planner can also do the work of these agents."""


def _lacks_model(plan: LaunchPlan, selection: ModelSelection) -> bool:
    """Return whether a run would get the search planner for want of a model, although its agent does more than search.
    A person who has decided to work without a model has chosen the planner."""
    if selection.source != "offline" or plan.request.spec.name.lower() in SEARCHING_AGENTS:
        return False
    from retinue.models.setup import is_without_model

    return not is_without_model(plan.project.environment)


def build_for(
    plan: LaunchPlan, selection: ModelSelection, system: str, tools: tuple[Tool, ...]
) -> tuple[Model, LimiterGate | None]:
    """Return the model of a run that begins now, and the gate of its requests."""
    source = plan.project.model_source
    if source is not None:
        return source.build(plan.request, plan.run_id), None
    if _lacks_model(plan, selection):
        from retinue.models.offline.planner import MissingModel

        return MissingModel(), None
    gate = _gate(selection, system, tools)

    def gate_for(chosen: ModelSelection) -> LimiterGate | None:
        if chosen.provider.id == selection.provider.id:
            return gate
        other = _gate(chosen, system, tools)
        if gate is not None and other is not None:
            other.waiting = gate.waiting
        return other

    return build_model(selection, plan.project.transport, gate_for=gate_for), gate


@asynccontextmanager
async def launching(plan: LaunchPlan, check_open: Callable[[], None] = lambda: None) -> AsyncIterator[Launch]:
    """Plan a run, and yield its launch. The caller records the run inside of the context; if that fails, the launch is
    undone. Without a `run_id` nothing is created, and nobody is asked whether the run may start.

    Raise LaunchError when the agent must not start, UnknownModelError when the caller named a model that does not
    exist, and SpawnDeniedError or PromptBlockedError when a capability objects. `check_open` raises when the program is
    ending."""
    request, project = plan.request, plan.project
    check(request)
    check_limits(project.settings)
    if plan.parent is not None:
        plan.mode_above = plan.parent.mode
    if plan.run_id:
        plan.transcript = transcript_of(plan)
    plan.notes += file_notes(request.spec, project.catalog() if request.spec.path else None)
    try:
        await restrict(plan)
        selection = await choose_model(plan.request, project, plan.notes, plan.parent)
        plan.model_name, plan.window = selection.info.full_name, selection.info.window
        await choose_tools(plan)
        tools = with_patches(tuple(plan.tools.values()), selection.info.id)
        plan.tools = {tool.spec.name: tool for tool in tools}
        if plan.past is not None:
            restrict_to_past(plan, plan.past)
        yield await _launch(plan, selection, check_open)
    except BaseException:
        await plan.hooks.close()
        for discard in plan.discards:
            await discard()
        raise


async def _launch(plan: LaunchPlan, selection: ModelSelection, check_open: Callable[[], None]) -> Launch:
    project, parent = plan.project, plan.parent
    tools = tuple(plan.tools.values())
    plan.above = prompt_above(plan.request, project, parent)
    parts = write_prompt(plan)
    text = _past_prompt(plan) or joined(parts)
    # Runs that start together mostly have the same prompt, and share one string of many kilobytes.
    system = project.round.once(("system", text), lambda: text)
    model, gate = build_for(plan, selection, system, tools)
    thinking = _thinking(plan.request, plan.notes) or selection.thinking
    if thinking is not None and (unsent := unsent_level(selection, thinking)):
        plan.notes.append(unsent)
    if thinking is None and parent is not None:
        thinking = parent.launch.thinking
        # It is recorded with the run, because the run may be resumed without its parent.
        plan.request = replace(plan.request, thinking=thinking)
    if plan.run_id:
        check_open()
        for capability in project.capabilities.plan:
            await capability.admit(plan)
        # The program may have begun to shut down while a hook ran.
        check_open()
    options = plan.past.created.options if plan.past is not None and plan.past.created is not None else NO_OPTIONS
    return Launch(
        request=plan.request,
        model=model,
        gate=gate,
        model_name=plan.model_name,
        system=system,
        tools=tools,
        limits=plan.limits,
        thinking=thinking,
        transcript=plan.transcript,
        isolation=plan.isolation,
        readonly=plan.readonly,
        mode=plan.mode,
        patterns=plan.patterns,
        bounds=bounds_below(parent) or bounds_from_record(options.bounds),
        inherited=inherited(parts, parent),
        notes=tuple(plan.notes),
        missing=plan.missing,
        late=plan.late,
        state=plan.state,
    )


def _past_prompt(plan: LaunchPlan) -> str | None:
    """Return the prompt that a resumed run had; None if the log of this machine does not have it."""
    if plan.past is None or plan.project.moved is not None or not plan.past.messages:
        return None
    return restored_prompt(plan.project.log.reader, plan.past.created, plan.request.parent_id)


def check(request: RunRequest) -> None:
    """Raise LaunchError for a request that can be refused before anything is looked up or created."""
    spec = request.spec
    if not spec.enabled:
        raise DisabledAgentError(
            f"The agent '{spec.name}' is disabled.", remedy=f"Enable it with: retinue agents enable {spec.name}"
        )
    require_startable(spec)
    check_values(request)
    if not request.task.strip():
        raise LaunchError("The task is empty.", remedy="Describe what the agent should do.")


def check_folder(request: RunRequest) -> None:
    """Raise LaunchError when the folder that the run would work in does not exist."""
    if not request.cwd.is_dir():
        raise LaunchError(f"The working directory {request.cwd} does not exist.", remedy="Choose another with --cwd.")


async def restrict(plan: LaunchPlan) -> None:
    """Decide the limits, the mode, the workspace and the ceiling of the run, and whether it may change anything."""
    plan.limits = _limits(plan.request, plan.settings, plan.notes, plan.parent)
    plan.mode = plan.mode_above or plan.request.permission_mode or "default"
    for capability in plan.project.capabilities.plan:
        await capability.restrict(plan)
    check_folder(plan.request)
    plan.request = replace(plan.request, ceiling=ceiling_of(plan.request, plan.parent))
    plan.readonly = is_readonly(plan.request, plan.mode, plan.settings, plan.notes)


def is_readonly(request: RunRequest, mode: PermissionMode, settings: Settings, notes: list[str]) -> bool:
    """Return whether a run must be read-only: by its file or its mode, because a run above it is, or because its file
    may have been written for devkit-pi, whose agents write only with `allowWrite`."""
    if bool(request.spec.readonly) or mode == "plan":
        return True
    if request.ceiling.readonly:
        notes.append("It is read-only: the agent that started it can change nothing.")
        return True
    if settings.allow_write or not may_be_devkits(request.spec):
        return False
    if _asks_to_change(request.spec):
        notes.append(_ALLOW_WRITE_NOTES[request.spec.dialect == "devkit"])
    return True


_ALLOW_WRITE_NOTES = {
    True: "It runs read-only: agents written for devkit-pi write only with the setting allowWrite "
    "(retinue settings set allowWrite true).",
    False: "It runs read-only: by its keys it may have been written for devkit-pi, whose agents write only with the "
    "setting allowWrite (retinue settings set allowWrite true). A key that only pi has, such as prompt_mode: replace, "
    "makes it pi's.",
}
"""Notes about an agent that needs `allowWrite`, by whether its file certainly belongs to devkit-pi."""


def _asks_to_change(spec: AgentSpec) -> bool:
    """Return whether the file leaves its tools open, or lists one that could change something."""
    return spec.tools.allow is None or not all(is_read_only(tool) for tool in spec.tools.allow)


async def choose_tools(plan: LaunchPlan) -> None:
    """Set `plan.tools` by the agent's file, its rights and the rules. Raise LaunchError if the file's list leaves no
    tool."""
    spec, project = plan.spec, plan.project
    plan.may_spawn = plan.delegation is not None and _may_spawn(plan.request, plan.settings)
    plan.policy = _with_subagents(spec, may_spawn=plan.may_spawn)
    if not plan.readonly:
        plan.policy = _with_output(plan.policy, spec)
    suitable = suited(plan.request, project.tools, can_ask=project.can_ask, heard=plan.heard, mode=plan.mode)
    plan.available = dict(suitable)
    _fit_exit_plan(plan)
    if plan.may_spawn and plan.delegation is not None:
        plan.available |= offered_tools(plan.delegation, project, plan.request, plan.notes)
    for capability in project.capabilities.plan:
        await capability.offer(plan)
    _select(plan)
    if is_guide(spec):
        plan.beyond = in_documentation
    for capability in project.capabilities.plan:
        capability.equip(plan)
    _reach_beyond(plan)


def _fit_exit_plan(plan: LaunchPlan) -> None:
    """Let a run end with its plan if no person can approve it."""
    if "exit_plan" not in plan.available:
        return
    from retinue.tools.companions import FinalPlanTool, PlanAnswerTool

    if not leaves_plan_mode(plan.request, plan.mode):
        plan.available["exit_plan"] = PlanAnswerTool()
    elif not plan.project.can_ask:
        plan.available["exit_plan"] = FinalPlanTool()


def _select(plan: LaunchPlan) -> None:
    selection = select(plan, plan.available)
    if selection.refusal is not None:
        location = f" in {plan.spec.path}" if plan.spec.path else ""
        remedy = f"Correct `tools`{location}, or leave the key out."
        if selection.denies_unreadably:
            remedy = f"Correct what it denies{location}, or leave the entry out."
        raise RefusedAgentError(f"Agent '{plan.spec.name}' {selection.refusal}", remedy=remedy)
    if plan.spec.source != "builtin":
        plan.missing = selection.missing
    # Missing tools of a built-in agent need no note, because it can work without them.
    plan.notes += [note for note in selection.notes if note in plan.missing or note not in selection.missing]
    allowed = plan.permit(selection.tools, plan.notes)
    plan.tools = useful_tools({tool.spec.name: tool for tool in allowed}, plan.spec)
    plan.tools = with_fitting_bash(plan.tools, plan.limits.tool_seconds)
    plan.patterns = Patterns(selection.allowed_patterns, selection.denied_patterns, plan.spec.tools.rules)


def select(plan: LaunchPlan, tools: Mapping[str, Tool]) -> ToolSelection:
    """Select from `tools` by the policy of the run. Capabilities also select by it from tools that come later."""
    policy = plan.policy
    for change in plan.policy_changes:
        policy = change(policy)
    return select_tools(
        policy,
        tools,
        readonly=plan.readonly,
        shell_sandbox=plan.readonly and can_sandbox(plan.settings),
        denied_above=plan.request.ceiling.denied,
        allow_spawn=plan.may_spawn,
        agent=plan.spec.name,
        absent=plan.project.unavailable,
    )


def _reach_beyond(plan: LaunchPlan) -> None:
    """Allow the run's `read` the folders outside of its workspace that capabilities have named."""
    read = plan.tools.get("read")
    if read is not None and (plan.readable or plan.beyond is not None) and not isinstance(read, Reaching):
        plan.tools["read"] = Reaching(read, plan.readable, beyond=plan.beyond)


def write_prompt(plan: LaunchPlan) -> tuple[PromptPart, ...]:
    """Return the parts of the run's system prompt."""
    for capability in plan.project.capabilities.plan:
        capability.brief(plan)
    return assemble(plan)


def _may_spawn(request: RunRequest, settings: Settings) -> bool:
    """Return whether a run may start others. Main agents may. Other agents may by their file: if it has a list of
    agents, lists the tool `Agent`, or is that of a twin without a list of tools."""
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


def _with_subagents(spec: AgentSpec, *, may_spawn: bool) -> ToolPolicy:
    """Return the policy with the delegation tools. A file with a list of agents need not list the tool that starts
    them, and a file with that tool need not list the tools that read results, steer and so on. If the run may not start
    agents, nothing is added, so that only tools in the file are reported as missing."""
    allow = spec.tools.allow
    if not may_spawn or allow is None or "*" in allow:
        return spec.tools
    starts = any(STARTING.intersection(canonical(split_entry(entry)[0])) for entry in allow)
    if not spec.subagents and not starts:
        return spec.tools
    added = SPAWNING if spec.subagents else SPAWNING - STARTING
    return replace(spec.tools, allow=(*allow, *sorted(added)))


def _with_output(policy: ToolPolicy, spec: AgentSpec) -> ToolPolicy:
    """Return the policy with `bash_output` for a file that lists the shell. Reading and stopping its own background
    commands is not a separate right. pi has no such commands, and a read-only shell does not need them."""
    allow = policy.allow
    if allow is None or spec.dialect == "pi" or has_only_builtins(spec):
        return policy
    names = {name for entry in allow for name in canonical(split_entry(entry)[0])}
    if "bash" not in names or "bash_output" in names:
        return policy
    return replace(policy, allow=(*allow, "bash_output"))


def _limits(request: RunRequest, settings: Settings, notes: list[str], parent: Run | None) -> Limits:
    """Return the limits of a run, in increasing precedence: settings, the defaults of the file's dialect, then file and
    caller in the order that the request decides. A 0 in a file means no limit, as None of the caller does."""
    spec = request.spec
    file_values = {"max_turns": spec.max_turns, "seconds": spec.timeout_seconds}
    of_file = {name: value or None for name, value in file_values.items() if value is not None}
    weaker, stronger = (of_file, request.limits) if "limits" in request.pinned else (request.limits, of_file)
    for name in weaker.keys() & stronger.keys():
        if weaker[name] != stronger[name]:
            notes.append(f"{name} {stronger[name] or 'unlimited'} replaces {weaker[name] or 'unlimited'}")
    stronger = {name: value for name, value in stronger.items() if name not in BUDGET_LIMITS}
    weaker = {name: value for name, value in weaker.items() if name not in BUDGET_LIMITS}
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


def _limits_of_dialect(spec: AgentSpec, settings: Settings, parent: Run | None) -> dict[str, Any]:
    """Return the documented default limits of the file's dialect. They replace only our defaults, not settings of a
    person."""
    dialect = DIALECTS[spec.dialect]
    limits: dict[str, Any] = dict(dialect.limits)
    if parent is not None:
        limits |= {name: getattr(parent.launch.limits, name) for name in dialect.inherited_limits}
    return {name: value for name, value in limits.items() if settings.origin(_LIMIT_SETTINGS[name]).layer == "default"}


def _thinking(request: RunRequest, notes: list[str]) -> str | None:
    of_file, asked = request.spec.model.thinking, request.thinking
    if "thinking" not in request.pinned:
        return of_file or asked
    if asked and of_file and asked != of_file:
        notes.append(f"thinking {asked} replaces {of_file} of the file")
    return asked or of_file
