"""The permission rules of a project with their sources, and changes to the rules in the settings."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from retinue.app.settings import save_setting
from retinue.capabilities.permissions import project_rules
from retinue.errors import StateError
from retinue.guard.permissions.rule import Kind as Kind
from retinue.guard.permissions.rule import Rule as Rule
from retinue.guard.permissions.rule import parse_rule
from retinue.runs.guard import RunGuards
from retinue.settings.write import Append, Remove, target_file
from retinue.settings.write import Target as Target

if TYPE_CHECKING:
    from retinue.app.retinue import Retinue
    from retinue.runs.project import Project

SETTINGS_TARGETS: tuple[Target, ...] = ("user", "local", "project")


def rules_of(project: Project) -> list[Rule]:
    """Return the rules in effect, each with the file that contains it."""
    return project_rules(project).rules


def rule_problem(text: str) -> str:
    """Return why a text is not a valid rule; empty if it is."""
    rule = parse_rule(text, "allow")
    if isinstance(rule, Rule):
        return ""
    return f"It {rule}."


def target_of(rule: Rule, project: Project) -> Target | None:
    """Return which of our settings files contains the rule; None if it belongs to another program or an
    administrator."""
    for target in SETTINGS_TARGETS:
        if Path(rule.source) == target_file(project.cwd, target, project.environment):
            return target
    return None


def add_rule(retinue: Retinue, kind: Kind, text: str, target: Target) -> None:
    """Write a rule. An allowing rule also applies to running runs. Raise StateError if it cannot be written."""
    _write(retinue, kind, Append(text), target)
    if kind == "allow":
        for guard in list(retinue.supervisor.project.part(RunGuards).values()):
            guard.permissions.grant(text)


def remove_rule(retinue: Retinue, rule: Rule, target: Target) -> None:
    """Remove a rule from the settings file that contains it. Raise StateError if the file cannot be written."""
    _write(retinue, rule.kind, Remove(rule.text), target)


def _write(retinue: Retinue, kind: Kind, change: Append | Remove, target: Target) -> None:
    saved = save_setting(retinue.supervisor.project, f"permissions.{kind}", change, target)
    if not saved.persisted:
        raise StateError(saved.problem or f"{saved.path} cannot be written.", remedy="Nothing was changed.")
    retinue.supervisor.reload_settings(persisted=True)
