"""The tools that a run of a kind is offered, and the main agent's delegation policy.

The policy is a few lines of prompt that say when to delegate and to whom. It is built from the catalog: only agents
that can be started are named, a built-in route disappears when the user has replaced the agent, and agents whose
descriptions ask to be used proactively are always named.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
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
from retinue.runs.requests import GENERAL
from retinue.settings.places import home
from retinue.tools.base import COMPANION_NAMES
from retinue.tools.delegation.base import NAMES, Live, delegation_tools
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


_TOOLS: dict[Vocabulary, str] = {"claude": "Agent", "devkit": "subagent", "codingcode": "dispatch_agent"}
_ROUTED: frozenset[Vocabulary] = frozenset({"devkit"})
"""Vocabularies whose policy names who is for what; elsewhere the list of agents says it."""
_PROACTIVE = re.compile(r"\bproactive(?:ly)?\b", re.IGNORECASE)
_MOST = 12
_USUAL_TOOL_SECONDS = 600.0
"""The limit of which bash speaks in its schema: the default of `toolTimeoutSeconds`."""


def delegation_policy(agents: Iterable[AgentSpec], vocabulary: Vocabulary = "claude") -> str:
    """The policy for `agents`, those that may be started; empty where there are none."""
    known = tuple(agents)
    if not known:
        return ""
    text, sections = _template()
    routes = _routes(known, sections[vocabulary]) if vocabulary in _ROUTED else []
    lines = [line for line in text.splitlines() if routes or "{{routes}}" not in line]
    filled = "\n".join(lines).replace("{{tool}}", _TOOLS[vocabulary]).replace("{{routes}}", "; ".join(routes))
    eager = [_safe(spec.name) for spec in known if _PROACTIVE.search(spec.description)]
    if not eager:
        return filled
    more = f" and {len(eager) - _MOST} more" if len(eager) > _MOST else ""
    return f"{filled}\n- Unasked, when they fit: {', '.join(eager[:_MOST])}{more}."


def _routes(agents: Sequence[AgentSpec], table: Sequence[tuple[str, str]]) -> list[str]:
    shipped_names = {spec.name for spec in agents if spec.source == "builtin"}
    return [f"{purpose}: {name}" for name, purpose in table if name in shipped_names]


def _safe(name: str) -> str:
    return " ".join(name.split())[:128]


@cache
def _template() -> tuple[str, dict[str, tuple[tuple[str, str], ...]]]:
    """The text of `delegation.md`, and its tables of routes by vocabulary."""
    text, *sections = shipped("delegation").split("\n## ")
    tables: dict[str, tuple[tuple[str, str], ...]] = {}
    for section in sections:
        name, _, body = section.partition("\n")
        pairs = (line.removeprefix("- ").partition(": ") for line in body.splitlines() if line.startswith("- "))
        tables[name.strip()] = tuple((agent, purpose) for agent, _, purpose in pairs)
    return text.strip(), tables


STEER = "steer_subagent"
"""What a run answers the questions of its agents with."""
SPAWNING = frozenset(name for names in NAMES.values() for name in names)
"""Every tool that has to do with other runs, in all vocabularies."""


_LAST = ("ask_user", "ask_parent")
"""Where a twin differs from its parent. Providers cache the tools before the prompt, so what
differs stands last and the rest is shared."""


def can_answer(run: Run | None) -> bool:
    """Whether the run can answer what its agents ask."""
    return run is not None and any(tool.spec.name == STEER for tool in run.tools)


def useful_tools(tools: Mapping[str, Tool], spec: AgentSpec) -> dict[str, Tool]:
    """The tools of a run without those that would only cost tokens, in the order a model sees them."""
    named = {name for entry in spec.tools.allow or () for name in canonical(entry)}
    dropped = {name for name, instead in BY_NAME_ONLY.items() if not instead or instead in tools}
    if not STARTING & tools.keys():
        dropped |= SPAWNING
    kept = {name: tool for name, tool in tools.items() if name not in dropped - named}
    last = {name: kept.pop(name) for name in _LAST if name in kept}
    return {**kept, **last}


def suited(
    request: RunRequest,
    tools: Mapping[str, Tool],
    *,
    can_ask: bool = False,
    heard: bool = False,
    mode: PermissionMode = "default",
) -> Mapping[str, Tool]:
    """Without what a run of this kind has no use for: a main agent asks the person, if there is one
    (`can_ask`), and others the person or the run that started them, if that can answer (`heard`);
    only main in plan mode and agents that plan for others hand in a plan; an isolated one, one whose
    `extensions` are none or named, and one of pi with `tools: "*"` has the seven built-in tools of pi
    and no more."""
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
    """Whether the run is one that a person lets out of plan mode after it has handed in its plan."""
    return mode == "plan" and request.depth == 0


def _plans_for_others(spec: AgentSpec) -> bool:
    """Return whether the file lists `exit_plan` for an agent that changes nothing: its plan is its answer."""
    listed = any("exit_plan" in canonical(entry) for entry in spec.tools.allow or ())
    return listed and (bool(spec.readonly) or spec.permission_mode == "plan")


def _asks_for_seven(spec: AgentSpec) -> bool:
    """Return whether a file of pi says `tools: "*"`. One that says nothing of tools has what others have."""
    said = any(fate.to == "tools.allow" for fate in spec.fates.values())
    return spec.dialect == "pi" and spec.tools.allow is None and said


def has_only_builtins(spec: AgentSpec) -> bool:
    """Whether the agent lacks what others have from extensions, pi's web and language tools among it:
    `isolated: true`, or `extensions` that is false or a list without `*`, where `tools` does not ask
    for more by name."""
    if spec.isolated:
        return True
    listed = spec.tools.extensions
    loads_all = listed is None or listed is True or (isinstance(listed, tuple) and "*" in listed)
    return not loads_all and (spec.tools.allow is None or spec.dialect == "pi")


def companions(tools: Mapping[str, Tool]) -> frozenset[str]:
    """Tools that touch nothing but the run itself; not what a program put in their place."""
    found = (name for name in COMPANION_NAMES if name in tools and not tools[name].spec.effects)
    return frozenset(found)


def with_fitting_bash(tools: dict[str, Tool], seconds: float | None) -> dict[str, Tool]:
    """With a bash whose schema says how long one call may take in this run, and that commands may stay in the
    background where the run can read their output."""
    background = "bash_output" in tools
    if "bash" not in tools or (seconds == _USUAL_TOOL_SECONDS and not background):
        return tools
    from retinue.tools.bash import BashTool, bash_within

    # A program may have put another tool in its place.
    if type(tools["bash"]) is not BashTool:
        return tools
    return {**tools, "bash": bash_within(seconds, background=background)}


def writes_patches(model: str) -> bool:
    """Return whether a model was trained on apply_patch: GPT from 4.1 on, gpt-oss and Codex."""
    name = model.lower()
    return (version_of(name, "gpt-") or (0, 0)) >= (4, 1) or "gpt-oss" in name or "codex" in name


def with_patches(tools: tuple[Tool, ...], model: str) -> tuple[Tool, ...]:
    """With apply_patch for models that write patches, where the run may edit and write files: each
    file of a patch goes through those two tools. It is shown in the place of edit (`shown_specs`)."""
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
    """With an apply_patch that is not shown, where the run may edit files: models call it by habit. `tools` are
    behind their gates, which `wrap` puts around the new one."""
    found = _file_tools(tools)
    if "edit" not in found or any(tool.spec.name == "apply_patch" for tool in tools):
        return tools
    patches = _apply_patch.ApplyPatchTool(shown=False)
    patches.tools = found
    return (*tools, *wrap((patches,)))


def _file_tools(tools: tuple[Tool, ...]) -> dict[str, Tool]:
    return {tool.spec.name: tool for tool in tools if tool.spec.name in ("read", "edit", "write")}


def offered_tools(delegation: Delegation, project: Project, request: RunRequest, notes: list[str]) -> dict[str, Tool]:
    """The tools with which the run of `request` may start others."""
    settings = project.settings.settings
    template = None
    if settings.tool_description_mode == "custom":
        found = find_template(request.cwd, project.environment)
        notes.extend(found.warnings)
        template = found.text
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
    """Where a person's own agents are, as they would write it."""
    folder = project.home / "agents"
    return Wording().agent_dir if folder == home(project.environment) / ".retinue" / "agents" else str(folder)


def _default_type(settings: Settings, *, nested: bool) -> str | None:
    """What is started when no type is named, as `resolve_type` has it."""
    fallback = settings.fallback_subagent
    if nested or fallback is None:
        return GENERAL
    return None if fallback is False else fallback


def _live(settings: Settings) -> Live:
    return Live(
        wait_seconds=settings.wait_timeout_seconds,
        max_concurrent=settings.max_concurrent,
        show_cost=settings.show_cost,
    )


def _items(run_id: str, project: Project) -> tuple[DisplayItem, ...]:
    """What a run that has ended said and called, from the log."""
    bodies = (event.body for event in project.log.reader.stream(run_id, types=("assistant.ended",)))
    return display_items(body.message for body in bodies if isinstance(body, AssistantEnded))


def policy_text(project: Project, request: RunRequest) -> str:
    """The lines in the main agent's prompt that say when to delegate, and to whom."""
    specs = _listed(project, request)
    named = {line.name for line in type_lines(specs, frozenset(project.tools))}
    return delegation_policy(
        [spec for spec in specs if spec.name in named], project.settings.settings.delegation_vocabulary
    )


UNLISTED = {
    "claude": frozenset({"explorer", "implementer", "statusline-setup", "retinue-guide"}),
    "devkit": frozenset({"statusline-setup", "retinue-guide"}),
    "codingcode": frozenset({"explorer", "implementer", "statusline-setup", "retinue-guide"}),
}
"""Shipped agents that double one of the list, or that commands start. They can be called by name."""


def _listed(project: Project, request: RunRequest) -> tuple[AgentSpec, ...]:
    """The agents that a run is told of, unless it may start only those that its file names."""
    found = _startable(project, request)
    if startable_types(request.spec) is not None:
        return found
    unlisted = UNLISTED[project.settings.settings.delegation_vocabulary]
    return tuple(spec for spec in found if spec.source != "builtin" or spec.name not in unlisted)


def _startable(project: Project, request: RunRequest) -> tuple[AgentSpec, ...]:
    named = startable_types(request.spec)
    allowed = None if named is None else {name.casefold() for name in named}
    entries = project.catalog().offered(project.settings.settings.delegation_vocabulary)
    denied = project.part(Rules).denied_agents()
    found = [entry.spec for entry in entries if entry.name.lower() not in denied]
    return tuple(spec for spec in found if allowed is None or spec.name.casefold() in allowed)
