"""Permissions: the rules, the mode and the grants of a run, and the gate before its tools.

The permissions of a run are assembled from settings, files of rules, mode, parent and the agent's file.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from retinue.core.format import as_sentence
from retinue.core.lazy import LazyModule
from retinue.core.request import RunRequest
from retinue.core.spec import AgentSpec, PermissionMode
from retinue.core.tool_names import canonical, entry_problem
from retinue.errors import RefusedAgentError
from retinue.guard.permissions.locations import RunFolders
from retinue.guard.permissions.modes import effective_mode, preset_rules
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
from retinue.runs.capability import Capability, Rules, RunPart
from retinue.runs.guard import NO_PATTERNS, RunGuards
from retinue.settings.foreign import line_of

if TYPE_CHECKING:
    from retinue.capabilities.permissions import gatekeeper as _gatekeeper
    from retinue.core.outcome import Outcome
    from retinue.core.tool import Tool
    from retinue.runs.guard import Bound, Isolation, Patterns
    from retinue.runs.launch import LaunchPlan
    from retinue.runs.project import Project
    from retinue.runs.run import Run
else:
    _gatekeeper = LazyModule("retinue.capabilities.permissions.gatekeeper")


class PermissionsCapability(Capability):
    """The mode of a run, the tools that its rules permit, and the gate before every call."""

    async def restrict(self, plan: LaunchPlan) -> None:
        plan.mode = mode_for(plan.request, plan.project, plan.mode_above, plan.notes)

    async def offer(self, plan: LaunchPlan) -> None:
        plan.permit = partial(permit_tools, plan.request, plan.project)

    async def running(self, node: Run, *, resumed: bool) -> RunPart:
        return RunPart(wrap=lambda inner: _gatekeeper.guard_run(node, inner, resumed=resumed), close=_forget_guard)

    async def finish(self, node: Run, outcome: Outcome) -> Outcome:
        if node.id in node.project.part(RunGuards):
            await _gatekeeper.release(node)
        return outcome


async def _forget_guard(node: Run) -> None:
    node.project.part(RunGuards).pop(node.id, None)


class ProjectRules(Rules):
    """The rules of all files that apply to the project."""

    def denied_agents(self) -> frozenset[str]:
        from retinue.guard.permissions.match import named_agents

        names: set[str] = set()
        for rule in project_rules(self.project).rules:
            if rule.kind == "deny" and rule.specifier is not None and rule.effect == "spawn":
                names |= named_agents(rule)
        return frozenset(names)

    def permissions(self, grants: Sequence[str], mode: PermissionMode | None) -> PermissionPolicy:
        request = RunRequest(spec=AgentSpec(name="main"), task="", cwd=self.project.cwd, permission_mode=mode)
        policy = permissions_for(request, self.project, None, NO_PATTERNS, [])
        for rule in grants:
            with suppress(ValueError):
                policy.grant(rule)
        return policy


_RULE_KEYS = {
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
    """Return the permissions of a run. `parent` is the present policy of the run that started it: a child gets all its
    restrictions and its present grants. Notes for the outcome are added to `notes` (as in `mode_for`); for a child
    only those that its parent does not have. `bounds` are those of the runs above it, for a run whose parent is gone.
    Rules about the checkout also apply in the worktree of `isolation`."""
    spec, where = request.spec, str(request.cwd)
    copied = (str(isolation.top), str(isolation.main)) if isolation is not None else None
    rules, limits = _rules_of_agent(spec.path or f"agent {spec.name}", patterns, where, notes)
    presets = spec.dialect == "codingcode"
    for bound in bounds if parent is None else ():
        bound_rules, bound_limits = _rules_of_agent(bound.agent, bound.patterns, bound.base, notes)
        rules, limits = (*rules, *bound_rules), (*limits, *bound_limits)
        presets = presets or bound.presets
    if presets:
        rules += preset_rules()
    if parent is not None:
        mode = mode_for(request, project, parent.mode, notes)
        above = parent.folders
        others = above.roots if above.roots[0] == where else above.roots[1:]
        inherited = RunFolders.of(where, others, above.home, copied, above.programs, above.consented, project.real)
        return parent.fork(mode, rules, folders=inherited, limits=limits, presets=presets)
    mode = mode_for(request, project, None, notes)
    sources = project_rules(project)
    extra = (*project.settings.settings.extra_roots, *sources.directories)
    home = project.environment.get("HOME") or str(Path.home())
    roots, programs = [str(project.cwd / folder) for folder in extra], project.environment.get("PATH", "")

    def consented(path: Path, content: bytes) -> bool:
        return project.trust.permits("git", "project", path, lambda: content)

    folders = RunFolders.of(where, roots, home, copied, programs, consented, project.real)
    rules = (*sources.rules, *rules)
    masks = _can_mask(project, rules, notes)
    walls = can_sandbox(project.settings.settings)
    return PermissionPolicy(mode, folders, rules, limits=limits, presets=presets, walls=walls, masks=masks)


def _can_mask(project: Project, rules: Sequence[Rule], notes: list[str]) -> bool:
    """Return whether rules are about files and commands can be kept from these. Add a note if they cannot."""
    rule = next((rule for rule in rules if rule.kind != "allow" and is_about_files(rule)), None)
    if rule is None:
        return False
    if can_mask(project.settings.settings):
        return True
    notes.append(
        f"Rules about files ({rule.text}) apply to the file tools and to commands that name a file; other "
        "commands of a shell cannot be kept from files here (see: retinue doctor)."
    )
    return False


def mode_for(request: RunRequest, project: Project, above: PermissionMode | None, notes: list[str]) -> PermissionMode:
    """Return the mode that the policy of the run will have. `above` is the parent's mode; None for a run without a
    parent, which also gets notes on mistakes in the rules. Raise LaunchError if a file of rules cannot be read."""
    sources, spec = project_rules(project), request.spec
    for why in sources.refused:
        raise RefusedAgentError(
            f"{as_sentence(why)} It may contain deny rules, so nothing is started.",
            remedy="Correct the file, or remove it.",
        )
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
    """Return the tools that are not always denied: a model need not see the others."""
    denied = [rule for rule in project_rules(project).rules if rule.kind == "deny" and rule.bare]
    if not denied:
        return tuple(tools.values())
    permitted = []
    for name, tool in tools.items():
        rule = next((rule for rule in denied if takes_away(rule, name, tool.spec.effects)), None)
        if rule is None:
            permitted.append(tool)
        elif request.parent_id is None:
            notes.append(f"{name} is withheld: {rule.source} denies {rule.text}")
    return tuple(permitted)


def _rules_of_agent(
    source: str, patterns: Patterns, base: str, notes: list[str]
) -> tuple[tuple[Rule, ...], tuple[Limit, ...]]:
    """Return the patterns of an agent's file as rules and limits. A pattern that cannot be read allows nothing."""
    rules: tuple[Rule, ...] = ()
    for tool, listed in patterns.denied.items():
        rules += _rules(tool, listed, "deny", source, base, notes)
    limits = []
    for tool, listed in patterns.allowed.items():
        limits.append(Limit(tool, _rules(tool, listed, "allow", source, base, notes), source))
    if patterns.rules:
        file_rules, file_limits = rules_of_file(patterns.rules, source=source, base=base)
        rules, limits = (*rules, *file_rules), [*limits, *file_limits]
    return rules, tuple(limits)


def _rules(tool: str, patterns: Iterable[str], kind: Any, source: str, base: str, notes: list[str]) -> tuple[Rule, ...]:
    rules: list[Rule] = []
    for pattern in patterns:
        rule = rule_of_pattern(tool, pattern, kind, source=source, base=base)
        if not isinstance(rule, Rule):
            effect = "every call of it is denied" if kind == "deny" else "it allows nothing"
            notes.append(f"{source}: {tool}({pattern}) {rule}; {effect}")
            if kind == "deny":
                # A deny pattern that cannot be parsed must not deny less than was meant.
                rule = parse_rule(tool, kind, source=source, base=base)
        if isinstance(rule, Rule):
            rules.append(rule)
    return tuple(rules)


def project_rules(project: Project) -> Sources:
    """Return the rules of all files, read once for runs that start together. A changed file takes effect at the next
    run."""
    sources: Sources | None = project.round.get("permissions")
    if sources is None:
        notes: list[str] = []
        blocks = [
            *claude_blocks(project.cwd, project.environment, notes),
            *_own_blocks(project, notes),
            *policy_blocks(notes),
        ]
        sources = gather(blocks, lambda path: project.trust.permits("permissions", "project", path))
        sources.notes[:0] = [*notes, *_unknown_tools(sources, project)]
        project.round.keep("permissions", sources)
    return sources


def _unknown_tools(sources: Sources, project: Project) -> list[str]:
    """Return notes about rules for tools that do not exist. A deny or ask rule whose tool name is almost one of ours
    prevents runs, because it would protect nothing."""
    notes = []
    for rule in sources.rules:
        name = next(iter(rule.tools), "")
        if len(rule.tools) != 1 or name.startswith("mcp__") or canonical(name):
            continue
        if any(name.lower() == own.lower() for own in project.tools):
            continue
        from retinue.agents.lint.checks import OTHER_PROGRAM_TOOLS

        problem = entry_problem(name)
        if problem is not None and rule.kind != "allow":
            line = line_of(Path(rule.source), f"permissions.{rule.kind}")
            position = f"{rule.source}:{line}" if line else rule.source
            sources.refused.append(f"{position}: the {rule.kind} rule {rule.text!r} {problem.why}. {problem.remedy}")
        # The tool may be one of another program, or of a plugin that is not imported yet.
        elif problem is not None or not (name.lower() in OTHER_PROGRAM_TOOLS or project.extensions.has_code):
            lost = "it allows nothing" if rule.kind == "allow" else "it protects nothing"
            notes.append(f"{rule.source}: the {rule.kind} rule {rule.text!r} names a tool that does not exist ({lost})")
    return notes


def _own_blocks(project: Project, notes: list[str]) -> list[Block]:
    """Return the rules of our own settings, layer by layer, and add notes on mistakes in them."""
    blocks = []
    for layer in project.settings.layers:
        content = {}
        for key, name in _RULE_KEYS.items():
            if key in layer.values:
                content[name] = layer.values[key]
        if content:
            base = project.cwd
            if layer.origin.layer in ("user", "project", "local"):
                base = Path(layer.origin.where).parent.parent
            blocks.append(Block(layer.origin.where, os.fspath(base), content, not layer.origin.personal))
    for problem in project.settings.problems:
        if problem.limits:
            # Runs are refused earlier (`settings.limits`); this block refuses calls outside of runs.
            blocks.append(Block(problem.where, os.fspath(project.cwd), DENY_EVERYTHING, refused=str(problem)))
        elif problem.field.startswith("permissions."):
            notes.append(str(problem))
    return blocks
