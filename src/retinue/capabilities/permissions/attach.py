"""The permissions of a run, assembled from settings, files, mode, parent and the agent's file."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from retinue.core.format import as_sentence
from retinue.core.messages import user
from retinue.core.permission import Decision, ToolUse
from retinue.core.request import RunRequest
from retinue.core.spec import AgentSpec, PermissionMode
from retinue.core.tool_names import canonical, entry_problem
from retinue.errors import LaunchError, RefusedAgentError
from retinue.guard.permissions.locations import RunFolders
from retinue.guard.permissions.modes import classify_call, effective_mode, preset_rules
from retinue.guard.permissions.policy import (
    DENY_EVERYTHING,
    Block,
    PermissionPolicy,
    Sources,
    claude_blocks,
    gather,
    policy_blocks,
)
from retinue.guard.permissions.rule import (
    Limit,
    Rule,
    is_about_files,
    parse_rule,
    rule_of_pattern,
    rules_of_file,
    takes_away,
)
from retinue.guard.sandbox.kernel import can_sandbox
from retinue.guard.sandbox.policy import can_mask
from retinue.models.protocol import Finished, ModelRequest
from retinue.models.select import build_model, select_model
from retinue.runs.guard import NO_PATTERNS
from retinue.settings.foreign import line_of

if TYPE_CHECKING:
    from retinue.core.request import RunRequest
    from retinue.core.tool import Tool
    from retinue.guard.permissions.policy import PermissionPolicy
    from retinue.models.protocol import Model
    from retinue.runs.guard import Bound, Isolation, Patterns
    from retinue.runs.project import Project


LONGEST_SECONDS = 30.0
"""How long a call waits for the model's opinion, retries included, before a person is asked."""
VERDICT_TOKENS = 1_000
"""Room for a short verdict, and for the little that models think which cannot be told not to."""
Classify = Callable[[ToolUse, Decision], Awaitable[Decision]]


def classifier_for(policy: PermissionPolicy, project: Project) -> Classify | None:
    """Return what asks the model of `permissions.autoModel` to decide; None where no model decides. The model is
    connected for the first question."""
    name = project.settings.settings.permissions_auto_model
    if policy.mode != "auto" or name is None:
        return None
    known: list[Model] = []

    async def ask(system: str, question: str) -> str:
        async with asyncio.timeout(LONGEST_SECONDS):
            if not known:
                known.append(await _model(name, project))
            # Thinking counts towards the limit and is on by default: it would leave no room for the verdict.
            request = ModelRequest(
                system=system, messages=(user(question),), max_output=VERDICT_TOKENS, thinking="off", tool_choice="none"
            )
            async with aclosing(known[0].stream(request)) as parts:
                async for part in parts:
                    if isinstance(part, Finished):
                        return part.message.text if part.message.failure is None else ""
        return ""

    async def classify(use: ToolUse, decision: Decision) -> Decision:
        return await classify_call(policy, use, decision, ask)

    return classify


async def _model(name: str, project: Project) -> Model:
    selection = await select_model(
        name,
        settings=project.settings.settings,
        environment=project.environment,
        transport=project.transport,
    )
    if not selection.provider.origin.personal and not project.trust.everything:
        # A server that a project names must not be the one that judges what is done in it.
        raise LaunchError(f"{selection.provider.id} is a server of the project's: it does not judge calls.")
    return build_model(selection, project.transport)


_NAMES = {
    "permissions_allow": "allow",
    "permissions_ask": "ask",
    "permissions_deny": "deny",
    "permissions_default_mode": "defaultMode",
    "permissions_additional_directories": "additionalDirectories",
    "permissions_disable_bypass": "disableBypass",
}


def permissions_for(
    request: RunRequest,
    project: Project,
    parent: PermissionPolicy | None,
    patterns: Patterns,
    notes: list[str],
    bounds: Sequence[Bound] = (),
    isolation: Isolation | None = None,
) -> PermissionPolicy:
    """Return the permissions of a run. `parent` is the policy of the run that started it, as it is now: a child has
    all its restrictions, and the grants of this moment. What the outcome should tell is added to `notes` (as
    `mode_for` does); of a child only what its parent has not said. `bounds` are those of the runs above it, for one
    whose parent is gone. Rules about the checkout hold in the worktree of `isolation`."""
    spec, where = request.spec, str(request.cwd)
    copied = (str(isolation.top), str(isolation.main)) if isolation is not None else None
    rules, limits = _of_file(spec.path or f"agent {spec.name}", patterns, where, notes)
    presets = spec.dialect == "codingcode"
    for bound in bounds if parent is None else ():
        more, narrower = _of_file(bound.agent, bound.patterns, bound.base, notes)
        rules, limits, presets = (*rules, *more), (*limits, *narrower), presets or bound.presets
    if presets:
        rules += preset_rules()
    if parent is not None:
        mode = mode_for(request, project, parent.mode, notes)
        above = parent.folders
        others = above.roots if above.roots[0] == where else above.roots[1:]
        inherited = RunFolders.of(where, others, above.home, copied, above.programs, above.consented, project.real)
        return parent.fork(mode, rules, folders=inherited, limits=limits, presets=presets)
    mode = mode_for(request, project, None, notes)
    sources = _sources(project)
    extra = (*project.settings.settings.extra_roots, *sources.directories)
    home = project.environment.get("HOME") or str(Path.home())
    roots, programs = [str(project.cwd / each) for each in extra], project.environment.get("PATH", "")

    def consented(path: Path, content: bytes) -> bool:
        return project.trust.permits("git", "project", path, lambda: content)

    folders = RunFolders.of(where, roots, home, copied, programs, consented, project.real)
    every = (*sources.rules, *rules)
    walls, masks = _walls(project, every, notes)
    return PermissionPolicy(mode, folders, every, limits=limits, presets=presets, walls=walls, masks=masks)


def _require_readable(sources: Sources) -> None:
    """Raise RefusedAgentError for rules that nobody can read."""
    for why in sources.refused:
        raise RefusedAgentError(
            f"{as_sentence(why)} It may hold deny rules, so nothing is started.",
            remedy="Correct the file, or remove it.",
        )


def _walls(project: Project, rules: Sequence[Rule], notes: list[str]) -> tuple[bool, bool]:
    """Return whether commands that nobody allowed can be walled in here, and whether files that rules
    deny can be kept from all others. What cannot be enforced is noted."""
    settings = project.settings.settings
    walls = can_sandbox(settings)
    about = next((rule for rule in rules if rule.kind != "allow" and is_about_files(rule)), None)
    if about is None:
        return walls, False
    masks = can_mask(settings)
    if not masks:
        notes.append(
            f"Rules about files ({about.text}) hold for the file tools and for commands that name a file; other "
            "commands of a shell cannot be kept from files here (see: retinue doctor)."
        )
    return walls, masks


def mode_for(request: RunRequest, project: Project, above: PermissionMode | None, notes: list[str]) -> PermissionMode:
    """Return the mode that the run's policy will have, for those who decide before there is one.
    `above` is the parent's mode; None for a run without a parent, which then also notes what is
    wrong with the rules. Raise LaunchError where a file of rules cannot be read at all."""
    sources, spec = _sources(project), request.spec
    _require_readable(sources)
    if above is None:
        notes += sources.notes
    mode = effective_mode(
        above or request.permission_mode or sources.mode or "default",
        spec,
        trusted=spec.permission_mode is None or project.trust.trusts(spec, "permissions"),
        bypass_disabled=sources.bypass_disabled,
        notes=notes,
    )
    if mode == "auto" and above != "auto" and not project.settings.settings.permissions_auto_model:
        notes.append("The mode auto has no model to judge calls (permissions.autoModel): it asks as default does.")
    return mode


def permit_tools(
    request: RunRequest, project: Project, tools: Mapping[str, Tool], notes: list[str]
) -> tuple[Tool, ...]:
    """Return the tools that no rule takes away: a model need not see what is always denied."""
    denied = [rule for rule in _sources(project).rules if rule.kind == "deny" and rule.bare]
    if not denied:
        return tuple(tools.values())
    kept = []
    for name, tool in tools.items():
        rule = next((rule for rule in denied if takes_away(rule, name, tool.spec.effects)), None)
        if rule is None:
            kept.append(tool)
        elif request.parent_id is None:
            notes.append(f"{name} is withheld: {rule.source} denies {rule.text}")
    return tuple(kept)


def denied_agents(project: Project) -> frozenset[str]:
    """Return the agents, in small letters, that a rule such as `Agent(Plan)` keeps every run from starting."""
    from retinue.guard.permissions.match import named_agents

    found: set[str] = set()
    for rule in _sources(project).rules:
        if rule.kind == "deny" and rule.specifier is not None and rule.effect == "spawn":
            found |= named_agents(rule)
    return frozenset(found)


def gather_rules(project: Project) -> Sources:
    """Return the rules of all files, each with its source, as the next run will have them."""
    return _sources(project)


def session_mode(project: Project) -> PermissionMode:
    """Return the mode that all files together give to a main agent that names none."""
    return _sources(project).mode or "default"


def permissions_before_run(project: Project, grants: Sequence[str], mode: PermissionMode | None) -> PermissionPolicy:
    """Return the permissions of calls that a prompt makes before there is a run. `grants` are further rules that
    allow; one that cannot be read allows nothing."""
    spec = AgentSpec(name="main")
    request = RunRequest(spec=spec, task="", cwd=project.cwd, permission_mode=mode)
    policy = permissions_for(request, project, None, NO_PATTERNS, [])
    for rule in grants:
        with suppress(ValueError):
            policy.grant(rule)
    return policy


def rule_notes(project: Project) -> tuple[str, ...]:
    """Return what is wrong with the permission rules of all files, one sentence each."""
    sources = _sources(project)
    return (*sources.refused, *sources.notes)


def _of_file(
    source: str, patterns: Patterns, base: str, notes: list[str]
) -> tuple[tuple[Rule, ...], tuple[Limit, ...]]:
    """Return the patterns of an agent's file as rules. One that cannot be read allows nothing."""
    rules: tuple[Rule, ...] = ()
    for tool, listed in patterns.denied.items():
        rules += _rules(tool, listed, "deny", source, base, notes)
    limits = []
    for tool, listed in patterns.allowed.items():
        limits.append(Limit(tool, _rules(tool, listed, "allow", source, base, notes), source))
    if patterns.rules:
        more, narrower = rules_of_file(patterns.rules, source=source, base=base)
        rules, limits = (*rules, *more), [*limits, *narrower]
    return rules, tuple(limits)


def _rules(tool: str, patterns: Iterable[str], kind: Any, source: str, base: str, notes: list[str]) -> tuple[Rule, ...]:
    rules: list[Rule] = []
    for pattern in patterns:
        made = rule_of_pattern(tool, pattern, kind, source=source, base=base)
        if not isinstance(made, Rule) and kind != "deny":
            notes.append(f"{source}: {tool}({pattern}) {made}; it allows nothing")
        elif not isinstance(made, Rule):
            # A denial that cannot be understood must not deny less than was meant.
            notes.append(f"{source}: {tool}({pattern}) {made}; every call of it is denied")
            made = parse_rule(tool, kind, source=source, base=base)
        if isinstance(made, Rule):
            rules.append(made)
    return tuple(rules)


def _sources(project: Project) -> Sources:
    """Read the rules once for runs that start together; files that change count for the next."""
    found: Sources | None = project.round.get("permissions")
    if found is None:
        notes: list[str] = []
        blocks = [
            *claude_blocks(project.cwd, project.environment, notes),
            *_own_blocks(project, notes),
            *policy_blocks(notes),
        ]
        found = gather(blocks, lambda path: project.trust.permits("permissions", "project", path))
        found.notes[:0] = [*notes, *_unknown_tools(found, project)]
        project.round.keep("permissions", found)
    return found


def _unknown_tools(sources: Sources, project: Project) -> list[str]:
    """Return notes about rules for tools that do not exist. One that forbids, or wants to be asked, and whose tool is
    almost one of ours keeps runs from being started: it would protect nothing."""
    notes = []
    for rule in sources.rules:
        name = next(iter(rule.tools), "")
        if len(rule.tools) != 1 or name.startswith("mcp__") or canonical(name):
            continue
        if any(name.lower() == own.lower() for own in project.tools):
            continue
        problem = entry_problem(name)
        if problem is not None and rule.kind != "allow":
            place = _line(rule)
            sources.refused.append(f"{place}: the {rule.kind} rule {rule.text!r} {problem.why}. {problem.remedy}")
        elif problem is not None or not _is_elsewhere(name, project):
            lost = "it allows nothing" if rule.kind == "allow" else "it protects nothing"
            notes.append(f"{rule.source}: the {rule.kind} rule {rule.text!r} names a tool that does not exist ({lost})")
    return notes


def _line(rule: Rule) -> str:
    """Return the file of a rule with its line."""
    line = line_of(Path(rule.source), f"permissions.{rule.kind}")
    return f"{rule.source}:{line}" if line else rule.source


def _is_elsewhere(name: str, project: Project) -> bool:
    """Return whether another program has such a tool, or a plugin may have it, which is known only when it is
    imported."""
    from retinue.agents.lint.checks import ELSEWHERE

    return name.lower() in ELSEWHERE or project.extensions.has_code


def _own_blocks(project: Project, notes: list[str]) -> list[Block]:
    """Return our own settings, layer by layer, and note what is wrong with them."""
    blocks = []
    for layer in project.settings.layers:
        content = {}
        for key, name in _NAMES.items():
            if key in layer.values:
                content[name] = layer.values[key]
        if content:
            base = project.cwd
            if layer.origin.layer in ("user", "project", "local"):
                base = Path(layer.origin.where).parent.parent
            blocks.append(Block(layer.origin.where, os.fspath(base), content, not layer.origin.personal))
    for problem in project.settings.problems:
        if problem.limits:
            # Runs are refused before this (`settings.limits`); calls outside of runs are refused by it.
            blocks.append(Block(problem.where, os.fspath(project.cwd), DENY_EVERYTHING, refused=str(problem)))
        elif problem.field.startswith("permissions."):
            notes.append(str(problem))
    return blocks
