"""Consent: programs and rights in a project's files take effect only when a person has agreed to them.

A run gets notes on the parts that are withheld. Its record keeps the complete definition, so that a run that is resumed
after consent has all parts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from retinue.core.files import read_file
from retinue.core.lazy import LazyModule
from retinue.runs.capability import Capability
from retinue.settings.foreign import foreign_files, parse_object
from retinue.settings.load import settings_files

if TYPE_CHECKING:
    from retinue.core.foreign import Right
    from retinue.core.spec import AgentSpec
    from retinue.guard import trust as _trust
    from retinue.guard.trust import Trust, TrustSubject
    from retinue.runs.launch import LaunchPlan
    from retinue.runs.project import Project
else:
    _trust = LazyModule("retinue.guard.trust")


class TrustCapability(Capability):
    """Withholds from a run every part without consent, with a note."""

    async def restrict(self, plan: LaunchPlan) -> None:
        request, project, spec = plan.request, plan.project, plan.spec
        # Only for the run that a person started: its children would repeat the notes.
        if request.parent_id is None and project.settings.problems:
            plan.notes += _withheld_settings(project)
        # Most agents have nothing that needs consent, and load nothing here.
        if not (spec.hooks or spec.servers or spec.permission_mode):
            return
        withheld = {right: what for right, what in _trust.brings(spec).items() if not project.trust.trusts(spec, right)}
        if withheld:
            plan.notes += _explain_withheld(spec, withheld, project.trust)
            plan.request = replace(request, spec=_trust.without_rights(spec, withheld))


def _explain_withheld(spec: AgentSpec, withheld: Mapping[Right, Sequence[str]], trust: Trust) -> list[str]:
    """Return notes on the withheld parts of a run, with the remedies."""
    everything = "; ".join(line for lines in withheld.values() for line in lines)
    match spec.provenance:
        case "plugin":
            return [f"An agent of a plugin cannot have these parts, which have no effect: {everything}."]
        case "machine":
            where = spec.path or f"the file of '{spec.name}'"
            return [
                f"'{spec.name}' came from another machine, so it runs here without: {'; '.join(lines)}. "
                f"{trust.remedy(right, where)}"
                for right, lines in withheld.items()
            ]
        case _:
            remedies = dict.fromkeys(trust.remedy(right, spec.path or "") for right in withheld)
            return [f"{spec.path} is not trusted, so it runs without: {everything}. {' '.join(remedies)}"]


def _withheld_settings(project: Project) -> Iterable[str]:
    """Return notes on settings that have no effect without consent, and on settings that could not be read."""
    notes = list(_trust.untrusted(project.settings))
    for problem in project.settings.problems:
        # The permissions report their own problems.
        if problem.field and not problem.field.startswith("permissions."):
            notes.append(str(problem))
    return dict.fromkeys(notes)


def git_subject(folder: Path) -> TrustSubject | None:
    """Return the git settings of the repository of `folder`, if they start programs, as a subject of consent."""
    from retinue.guard.gitconfig import git_programs

    programs = git_programs(folder, checkout=True, aliases=lambda name: True)
    if programs is None:
        return None
    return _trust.TrustSubject(programs.path, (programs.content,), programs.what)


def subjects(project: Project) -> list[TrustSubject]:
    """Return every file of the project that needs consent, whether or not it has been given."""
    trust_subjects: list[TrustSubject] = []
    foreign = [(file.layer, Path(file.path)) for file in foreign_files(project.cwd, project.environment)]
    for layer, path in (*foreign, *settings_files(project.cwd, project.environment)):
        if layer in ("pi project", "project", "local"):
            try:
                content = read_file(path)
            except OSError:
                continue  # the settings' own reader reports it
            subject = _trust.settings_subject(path, parse_object(content)[0], content)
            if subject:
                trust_subjects.append(subject)
    git = git_subject(project.cwd)
    if git is not None:
        trust_subjects.append(git)
    for capability in project.capabilities.plan:
        trust_subjects += capability.trust_subjects(project)
    return [*trust_subjects, *_trust.agent_subjects([entry.spec for entry in project.catalog().winners])]
