"""The tools that are offered to a run, and the main agent's delegation policy.

The policy is a few lines of the prompt about when to delegate and to whom. It is made from the catalog: it names only
agents that can be started, omits a built-in route if the user has replaced the agent, and always names agents whose
descriptions ask to be used proactively.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING

from retinue.agents.catalog import startable_types, unknown_types
from retinue.core.delegation import Delegation, Vocabulary
from retinue.core.events import AssistantEnded
from retinue.core.lazy import LazyModule
from retinue.core.request import RunRequest
from retinue.core.spec import AgentSpec
from retinue.core.tool import Tool, Wrap
from retinue.core.tool_names import BUILT_IN_SEVEN, BY_NAME_ONLY, canonical
from retinue.guard.redact import sanitise
from retinue.loop.result import display_items
from retinue.models.efforts import version_of
from retinue.runs.capability import Rules
from retinue.runs.guard import STARTING
from retinue.runs.prompt import shipped
from retinue.runs.requests import GENERAL_PURPOSE
from retinue.settings.places import home
from retinue.tools.base import COMPANION_NAMES
from retinue.tools.delegation.base import DELEGATION_TOOL_NAMES, Live, delegation_tools
from retinue.tools.delegation.describe import Wording, find_template, type_lines

if TYPE_CHECKING:
    from retinue.core.spec import PermissionMode
    from retinue.loop.result import DisplayItem
    from retinue.runs.project import Project
    from retinue.runs.run import Run
    from retinue.settings.table import Settings
    from retinue.tools import apply_patch as _apply_patch
else:
    _apply_patch = LazyModule("retinue.tools.apply_patch")


_SPAWN_TOOLS: dict[Vocabulary, str] = {"claude": "Agent", "devkit": "subagent", "codingcode": "dispatch_agent"}
_ROUTED_VOCABULARIES: frozenset[Vocabulary] = frozenset({"devkit"})
"""Vocabularies whose policy names the purposes of agents. In the others the list of agents describes them."""
_PROACTIVE = re.compile(r"\bproactive(?:ly)?\b", re.IGNORECASE)
_MAX_PROACTIVE_AGENTS = 12
_DEFAULT_TOOL_SECONDS = 600.0
"""The limit in the schema of bash, which is the default of `toolTimeoutSeconds`."""


def delegation_policy(agents: Sequence[AgentSpec], vocabulary: Vocabulary = "claude") -> str:
    """Return the policy for the `agents` that may be started; empty if there are none."""
    if not agents:
        return ""
    text, sections = _template()
    routes = _routes(agents, sections[vocabulary]) if vocabulary in _ROUTED_VOCABULARIES else []
    lines = [line for line in text.splitlines() if routes or "{{routes}}" not in line]
    filled = "\n".join(lines).replace("{{tool}}", _SPAWN_TOOLS[vocabulary]).replace("{{routes}}", "; ".join(routes))
    names = [_safe(spec.name) for spec in agents if _PROACTIVE.search(spec.description)]
    if not names:
        return filled
    unnamed = len(names) - _MAX_PROACTIVE_AGENTS
    suffix = f" and {unnamed} more" if unnamed > 0 else ""
    return f"{filled}\n- Unasked, when they fit: {', '.join(names[:_MAX_PROACTIVE_AGENTS])}{suffix}."


def _routes(agents: Sequence[AgentSpec], table: Sequence[tuple[str, str]]) -> list[str]:
    shipped_names = {spec.name for spec in agents if spec.source == "builtin"}
    return [f"{purpose}: {name}" for name, purpose in table if name in shipped_names]


def _safe(name: str) -> str:
    return " ".join(name.split())[:128]


@cache
def _template() -> tuple[str, dict[str, tuple[tuple[str, str], ...]]]:
    """Return the text of `delegation.md`, and its tables of routes by vocabulary."""
    text, *sections = shipped("delegation").split("\n## ")
    tables: dict[str, tuple[tuple[str, str], ...]] = {}
    for section in sections:
        name, _, body = section.partition("\n")
        pairs = (line.removeprefix("- ").partition(": ") for line in body.splitlines() if line.startswith("- "))
        tables[name.strip()] = tuple((agent, purpose) for agent, _, purpose in pairs)
    return text.strip(), tables


STEER_TOOL = "steer_subagent"
"""The tool with which a run answers questions of its agents."""
SPAWNING = frozenset(name for names in DELEGATION_TOOL_NAMES.values() for name in names)
"""The delegation tools of all vocabularies."""


_LAST_TOOLS = ("ask_user", "ask_parent")
"""The tools in which a twin differs from its parent. Providers cache tools before the prompt, so these come last, and
all others are shared."""


def can_answer(run: Run | None) -> bool:
    """Return whether the run can answer questions of its agents."""
    return run is not None and any(tool.spec.name == STEER_TOOL for tool in run.tools)


def useful_tools(tools: Mapping[str, Tool], spec: AgentSpec) -> dict[str, Tool]:
    """Return the tools in the order of requests, without those that would only cost tokens."""
    named = {name for entry in spec.tools.allow or () for name in canonical(entry)}
    dropped = {name for name, instead in BY_NAME_ONLY.items() if not instead or instead in tools}
    if not STARTING & tools.keys():
        dropped |= SPAWNING
    useful = {name: tool for name, tool in tools.items() if name not in dropped - named}
    last = {name: useful.pop(name) for name in _LAST_TOOLS if name in useful}
    return {**useful, **last}


def suited(
    request: RunRequest,
    tools: Mapping[str, Tool],
    *,
    can_ask: bool = False,
    heard: bool = False,
    mode: PermissionMode = "default",
) -> Mapping[str, Tool]:
    """Return the tools that a run of this kind can use. A main agent asks a person if there is one (`can_ask`). Other
    agents ask the person, or the run that started them if that can answer (`heard`). Only main agents in plan mode and
    agents that plan for others hand in a plan. Isolated agents, agents whose `extensions` are none or named, and agents
    of pi with `tools: "*"` have only the seven built-in tools of pi."""
    spec, dropped = request.spec, set[str]()
    if has_only_builtins(spec) or _asks_for_seven(spec):
        dropped = set(tools) - set(BUILT_IN_SEVEN)
    elif spec.dialect == "pi" and spec.tools.allow is None:
        dropped = set(companions(tools)) | {"ask_user"}
    if request.depth == 0 or not (can_ask or heard):
        dropped |= {"ask_parent"} & companions(tools)
    if request.depth > 0 or not can_ask:
        dropped.add("ask_user")
    if not leaves_plan_mode(request, mode) and not _plans_for_others(spec):
        dropped.add("exit_plan")
    if "bash" not in tools:
        dropped.add("bash_output")
    return {name: tool for name, tool in tools.items() if name not in dropped} if dropped else tools


def leaves_plan_mode(request: RunRequest, mode: PermissionMode) -> bool:
    """Return whether a person can end the run's plan mode by approving its plan."""
    return mode == "plan" and request.depth == 0


def _plans_for_others(spec: AgentSpec) -> bool:
    """Return whether the file lists `exit_plan` for an agent that changes nothing: its plan is its answer."""
    listed = any("exit_plan" in canonical(entry) for entry in spec.tools.allow or ())
    return listed and (bool(spec.readonly) or spec.permission_mode == "plan")


def _asks_for_seven(spec: AgentSpec) -> bool:
    """Return whether a file of pi has `tools: "*"`. A file without `tools` gives the same tools as other dialects."""
    has_key = any(fate.to == "tools.allow" for fate in spec.fates.values())
    return spec.dialect == "pi" and spec.tools.allow is None and has_key


def has_only_builtins(spec: AgentSpec) -> bool:
    """Return whether the agent has no tools of extensions, to which pi's web and language tools belong: because of
    `isolated: true`, or because `extensions` is false or a list without `*` and `tools` names no others."""
    if spec.isolated:
        return True
    listed = spec.tools.extensions
    loads_all = listed is None or listed is True or (isinstance(listed, tuple) and "*" in listed)
    return not loads_all and (spec.tools.allow is None or spec.dialect == "pi")


def companions(tools: Mapping[str, Tool]) -> frozenset[str]:
    """Return the names of tools that affect only the run itself, except tools of a program that replace them."""
    return frozenset(name for name in COMPANION_NAMES if name in tools and not tools[name].spec.effects)


def with_fitting_bash(tools: dict[str, Tool], seconds: float | None) -> dict[str, Tool]:
    """Return the tools with a bash whose schema has the time limit of this run's calls, and allows background commands
    if the run can read their output."""
    background = "bash_output" in tools
    if "bash" not in tools or (seconds == _DEFAULT_TOOL_SECONDS and not background):
        return tools
    from retinue.tools.bash import BashTool, bash_within

    # A program may have replaced the tool.
    if type(tools["bash"]) is not BashTool:
        return tools
    return {**tools, "bash": bash_within(seconds, background=background)}


def writes_patches(model: str) -> bool:
    """Return whether a model was trained on apply_patch: GPT from 4.1 on, gpt-oss and Codex."""
    name = model.lower()
    return (version_of(name, "gpt-") or (0, 0)) >= (4, 1) or "gpt-oss" in name or "codex" in name


def with_patches(tools: tuple[Tool, ...], model: str) -> tuple[Tool, ...]:
    """Return the tools with apply_patch for models that write patches, if the run may edit and write files: each file
    of a patch is changed with those two tools. It is shown in place of edit (`shown_specs`)."""
    names = {tool.spec.name for tool in tools}
    if not {"edit", "write"} <= names or "apply_patch" in names or not writes_patches(model):
        return tools
    return (*tools, _apply_patch.ApplyPatchTool())


def connect_patches(own: tuple[Tool, ...], tools: tuple[Tool, ...]) -> None:
    """Give the apply_patch among the `own` tools of a run its read, edit and write tools, each behind its gate."""
    if not any(tool.spec.name == "apply_patch" for tool in own):
        return
    for tool in own:
        if isinstance(tool, _apply_patch.ApplyPatchTool):
            tool.tools = _file_tools(tools)


def with_hidden_patches(tools: tuple[Tool, ...], wrap: Wrap) -> tuple[Tool, ...]:
    """Return the tools with a hidden apply_patch, if the run may edit files, because models call it by habit. `tools`
    are behind their gates, which `wrap` adds to the new tool."""
    file_tools = _file_tools(tools)
    if "edit" not in file_tools or any(tool.spec.name == "apply_patch" for tool in tools):
        return tools
    patch_tool = _apply_patch.ApplyPatchTool(shown=False)
    patch_tool.tools = file_tools
    return (*tools, *wrap((patch_tool,)))


def _file_tools(tools: tuple[Tool, ...]) -> dict[str, Tool]:
    return {tool.spec.name: tool for tool in tools if tool.spec.name in ("read", "edit", "write")}


def offered_tools(delegation: Delegation, project: Project, request: RunRequest, notes: list[str]) -> dict[str, Tool]:
    """Return the delegation tools of the run of `request`."""
    settings = project.settings.settings
    template = None
    if settings.tool_description_mode == "custom":
        custom = find_template(request.cwd, project.environment)
        notes.extend(custom.warnings)
        template = custom.text
    notes.extend(sentence for _, sentence in unknown_types(request.spec, project.catalog().names))
    wording = Wording(
        types=type_lines(_listed(project, request), frozenset(project.tools)),
        mode=settings.tool_description_mode,
        template=template,
        agent_dir=_agent_dir(project),
        depth=request.depth,
        max_depth=settings.max_subagent_depth,
        background=settings.background_by_default,
        default=_default_type(settings, nested=request.depth > 0),
        schedules=settings.scheduling_enabled,
        worktrees=settings.worktree_isolation,
    )
    return delegation_tools(
        delegation,
        vocabulary=settings.delegation_vocabulary,
        wording=wording,
        live=lambda: _live(project.settings.settings),
        enabled=settings.subagents_enabled,
        sanitise=lambda text: sanitise(text, project.environment),
        items=lambda run_id: _items(run_id, project),
    )


def _agent_dir(project: Project) -> str:
    """Return the folder of a person's own agents, abbreviated with `~` if possible."""
    folder = project.home / "agents"
    return Wording().agent_dir if folder == home(project.environment) / ".retinue" / "agents" else str(folder)


def _default_type(settings: Settings, *, nested: bool) -> str | None:
    """Return the type that `resolve_type` uses for calls without a type; None if there is none."""
    fallback = settings.fallback_subagent
    if nested or fallback is None:
        return GENERAL_PURPOSE
    return None if fallback is False else fallback


def _live(settings: Settings) -> Live:
    return Live(
        wait_seconds=settings.wait_timeout_seconds,
        max_concurrent=settings.max_concurrent,
        show_cost=settings.show_cost,
    )


def _items(run_id: str, project: Project) -> tuple[DisplayItem, ...]:
    """Return the answers and calls of an ended run, from the log."""
    bodies = (event.body for event in project.log.reader.stream(run_id, types=("assistant.ended",)))
    return display_items(body.message for body in bodies if isinstance(body, AssistantEnded))


def policy_text(project: Project, request: RunRequest) -> str:
    """Return the section of the main agent's prompt about delegation."""
    specs = _listed(project, request)
    named = {line.name for line in type_lines(specs, frozenset(project.tools))}
    return delegation_policy(
        [spec for spec in specs if spec.name in named], project.settings.settings.delegation_vocabulary
    )


UNLISTED_AGENTS = {
    "claude": frozenset({"explorer", "implementer", "statusline-setup", "retinue-guide"}),
    "devkit": frozenset({"statusline-setup", "retinue-guide"}),
    "codingcode": frozenset({"explorer", "implementer", "statusline-setup", "retinue-guide"}),
}
"""Built-in agents that duplicate a listed one, or that commands start. They can be called by name."""


def _listed(project: Project, request: RunRequest) -> tuple[AgentSpec, ...]:
    """Return the agents for the lists that a run gets: those that its file names, or else the listed ones."""
    agents = _startable(project, request)
    if startable_types(request.spec) is not None:
        return agents
    unlisted = UNLISTED_AGENTS[project.settings.settings.delegation_vocabulary]
    return tuple(spec for spec in agents if spec.source != "builtin" or spec.name not in unlisted)


def _startable(project: Project, request: RunRequest) -> tuple[AgentSpec, ...]:
    named = startable_types(request.spec)
    allowed = None if named is None else {name.casefold() for name in named}
    entries = project.catalog().offered(project.settings.settings.delegation_vocabulary)
    denied = project.part(Rules).denied_agents()
    agents = (entry.spec for entry in entries if entry.name.lower() not in denied)
    return tuple(spec for spec in agents if allowed is None or spec.name.casefold() in allowed)
