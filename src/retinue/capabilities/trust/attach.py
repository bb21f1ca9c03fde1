"""What a project's files bring takes effect only with consent; until then a run goes without it.

This is where a run loses what nobody has consented to, and says so. The run's own record keeps
the whole definition, so that it has it when it is resumed after consent was given.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from retinue.core.request import RunRequest
from retinue.settings.load import load_settings
from retinue.settings.places import retinue_home

if TYPE_CHECKING:
    from retinue.core.spec import AgentSpec
    from retinue.guard.trust import Trust
    from retinue.guard.trust_subjects import TrustSubject
    from retinue.runs.project import Project
    from retinue.settings.load import Loaded


def consented(request: RunRequest, project: Project, notes: list[str]) -> RunRequest:
    """The request with what may take effect. Costs nothing for an agent that brings nothing."""
    if request.parent_id is None:
        notes += _withheld(project)
    spec = request.spec
    if not _may_bring(spec):
        return request
    from retinue.guard.trust_subjects import brings, without_rights

    what = brings(spec)
    if not what or project.trust.trusts(spec):
        return request
    if spec.source == "plugin":
        notes.append(f"An agent of a plugin cannot bring these, they have no effect: {'; '.join(what)}.")
    else:
        notes.append(
            f"{spec.path} is not trusted, so it runs without: {'; '.join(what)}. "
            f"Consent with: retinue trust add {spec.path}"
        )
    return replace(request, spec=without_rights(spec))


def recorded(request: RunRequest, asked: RunRequest) -> RunRequest:
    """The request as the log keeps it: with the definition as the file has it."""
    return request if request.spec is asked.spec else replace(request, spec=asked.spec)


@contextmanager
def consent_stays(project: Project, path: Path) -> Iterator[None]:
    """A person changes a settings file of the project through us, in here: what they put there
    is theirs. Consent is given to the new content, unless there was something in the old one
    that nobody had consented to."""
    from retinue.guard.trust_subjects import settings_subject
    from retinue.settings.foreign import parse_object

    def content() -> bytes:
        try:
            return path.read_bytes()
        except OSError:
            return b""

    before = content()
    subject = settings_subject(path, parse_object(before)[0], before)
    agreed = subject is None or project.trust.is_trusted(path, before)
    yield
    after = content()
    brought = settings_subject(path, parse_object(after)[0], after) if agreed and after != before else None
    if brought is not None and path.parent != project.home:
        project.trust.grant(path, after, what=brought.what)


def effective(loaded: Loaded, trust: Callable[[], Trust]) -> Loaded:
    """The settings without what a project's files give and nobody consented to."""
    if all(layer.origin.personal for layer in loaded.layers):
        return loaded
    from retinue.guard.trust_subjects import withhold

    return withhold(loaded, trust())


def with_consent(remedy: str, setting: str, project: Project) -> str:
    """What to do about something that is missing, where a setting without consent may be why."""
    from retinue.guard.trust_subjects import untrusted

    return "\n  ".join(filter(None, [remedy, *(text for text in untrusted(project.settings) if setting in text)]))


def settings_in_effect(cwd: Path, environment: Mapping[str, str]) -> Loaded:
    """The settings as runs that start in `cwd` have them. What is taken out is a problem."""
    from retinue.guard.trust import Trust

    return effective(load_settings(cwd, environment=environment), lambda: Trust(retinue_home(environment)))


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
    return (*dict.fromkeys(settings), *project.hooks.notes())


def has_git_consent(project: Project, folder: Path) -> bool:
    """Whether someone has consented to all programs that git would start in the repository of
    `folder`, as its files are now."""
    from retinue.guard.gitconfig import git_programs

    if project.trust.everything:
        return True
    found = git_programs(folder, checkout=True)
    return found is not None and project.trust.is_trusted(found.path, found.content)


def subjects(project: Project) -> list[TrustSubject]:
    """Every file of the project that would bring something, whatever was answered about it."""
    from retinue.capabilities.hooks.sources import project_subjects
    from retinue.capabilities.mcp.servers import server_subjects
    from retinue.capabilities.skills.attach import skill_subjects
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
    found += project_subjects(project.cwd, project.environment)
    git = git_programs(project.cwd, checkout=True)
    found += [TrustSubject(git.path, (git.content,), git.what)] if git is not None else []
    found += server_subjects(project)
    found += skill_subjects(project)
    specs = [entry.spec for entry in project.catalog().winners]
    return [*found, *project.extensions.subjects(specs), *agent_subjects(specs)]
