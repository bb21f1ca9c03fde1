"""What a project's files bring takes effect only with consent; until then a run goes without it.

This is where a run loses what nobody has consented to, and says so. The run's own record keeps
the whole definition, so that it has it when it is resumed after consent was given.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

if TYPE_CHECKING:
    from retinue.core.spec import AgentSpec
    from retinue.guard.trust_subjects import TrustSubject
    from retinue.runs.launch import LaunchPlan
    from retinue.runs.project import Project


def withhold_rights(plan: LaunchPlan) -> None:
    """Take from the run what nobody has consented to. Costs nothing for an agent that brings nothing."""
    request, project, spec = plan.request, plan.project, plan.spec
    if request.parent_id is None:
        plan.notes += _withheld(project)
    if not _may_bring(spec):
        return
    from retinue.guard.trust_subjects import brings, without_rights

    what = brings(spec)
    if not what or project.trust.trusts(spec):
        return
    if spec.source == "plugin":
        plan.note(f"An agent of a plugin cannot bring these, they have no effect: {'; '.join(what)}.")
    else:
        plan.note(
            f"{spec.path} is not trusted, so it runs without: {'; '.join(what)}. "
            f"Consent with: retinue trust add {spec.path}"
        )
    plan.request = replace(request, spec=without_rights(spec))


def _may_bring(spec: AgentSpec) -> bool:
    return bool(spec.hooks or spec.servers or spec.permission_mode)


def _withheld(project: Project) -> tuple[str, ...]:
    """What the settings would bring and what could not be read of them, said by the run a person
    starts. What permissions lose by it, they say themselves."""
    settings: tuple[str, ...] = ()
    if project.settings.problems:
        from retinue.guard.trust_subjects import untrusted

        theirs = [each for each in project.settings.problems if not each.field or each.field.startswith("permissions.")]
        settings = (
            *untrusted(project.settings),
            *(str(each) for each in project.settings.problems if each not in theirs),
        )
    return tuple(dict.fromkeys(settings))


def subjects(project: Project) -> list[TrustSubject]:
    """Every file of the project that would bring something, whatever was answered about it."""
    from retinue.guard.gitconfig import git_programs
    from retinue.guard.trust_subjects import TrustSubject, agent_subjects, settings_subject
    from retinue.settings.foreign import foreign_files, parse_object
    from retinue.settings.load import settings_files

    found: list[TrustSubject] = []
    files = [(foreign.layer, Path(foreign.path)) for foreign in foreign_files(project.cwd, project.environment)]
    for layer, path in (*files, *settings_files(project.cwd, project.environment)):
        if layer in ("pi project", "project", "local") and path.is_file():
            content = path.read_bytes()
            subject = settings_subject(path, parse_object(content)[0], content)
            found += [subject] if subject else []
    git = git_programs(project.cwd, checkout=True)
    found += [TrustSubject(git.path, (git.content,), git.what)] if git is not None else []
    for subjects_of in project.capabilities.each("trust_subjects"):
        found += subjects_of(project)
    return [*found, *agent_subjects([entry.spec for entry in project.catalog().winners])]
