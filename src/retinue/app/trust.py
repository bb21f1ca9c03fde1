"""Consent to the effects of a project's files: hooks, MCP servers, allowing rules, wider modes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from retinue.capabilities.trust import git_subject, subjects
from retinue.cluster import open_project
from retinue.errors import UsageError
from retinue.recordings.consent import case_subjects

if TYPE_CHECKING:
    from retinue.guard.trust import TrustSubject
    from retinue.runs.project import Project

TrustAction = Literal["list", "add", "remove"]


class ConsentFile(Struct, frozen=True):
    """A file that needs consent, and its effects."""

    path: str
    state: str
    brings: Sequence[str]


class ConsentReport(Struct, frozen=True):
    """The files of a project that need consent."""

    folder: str
    files: list[ConsentFile]


def change_trust(cwd: Path, action: TrustAction = "list", paths: Sequence[str] = ()) -> ConsentReport:
    """Return the files that need consent, after granting or revoking it. `paths` are files or folders; by default all
    files are meant. Raise UsageError for paths that need no consent, or never had it."""
    project = open_project(cwd)
    candidates = [*_subjects(project), *_inner_repositories(project, paths)]
    chosen = [subject for subject in candidates if _is_below(subject, paths, project)]
    if paths and not chosen and action == "add":
        raise UsageError("None of these files brings anything that needs consent.", remedy="See: retinue trust")
    if action == "add":
        for subject in chosen:
            project.trust.grant(subject.path, *subject.contents, what=subject.what)
    elif action == "remove":
        if not paths:
            for subject in chosen:
                project.trust.revoke(subject.path)
        # A file without effects may still have consent, so search by path.
        unknown = [path for path in paths if not project.trust.revoke(project.cwd / path)]
        if unknown:
            raise UsageError(f"No consent was given to {', '.join(unknown)}.", remedy="See: retinue trust")
    files = [ConsentFile(str(subject.path), subject.answer(project.trust), subject.what) for subject in chosen]
    return ConsentReport(str(project.cwd), files)


def _subjects(project: Project) -> list[TrustSubject]:
    return [*subjects(project), *case_subjects(project.cwd)]


def _inner_repositories(project: Project, paths: Sequence[str]) -> list[TrustSubject]:
    """Return the git settings among `paths` that belong to other repositories than the project's own."""
    folders = dict.fromkeys((project.cwd / path).expanduser().parent for path in paths)
    own = git_subject(project.cwd)
    inner = [subject for subject in map(git_subject, folders) if subject is not None]
    return [subject for subject in inner if own is None or subject.path.resolve() != own.path.resolve()]


def _is_below(subject: TrustSubject, paths: Sequence[str], project: Project) -> bool:
    if not paths:
        return True
    real = subject.path.resolve()
    chosen = [(project.cwd / path).expanduser().resolve() for path in paths]
    return any(real == path or path in real.parents for path in chosen)


class PendingConsent:
    """The files of a project without a decision, and the decision."""

    def __init__(self, cwd: Path) -> None:
        self._project = open_project(cwd)
        self._subjects = [
            subject for subject in subjects(self._project) if subject.answer(self._project.trust) == "unknown"
        ]

    @property
    def files(self) -> list[ConsentFile]:
        return [ConsentFile(str(subject.path), "unknown", subject.what) for subject in self._subjects]

    def decide(self, *, allow: bool) -> None:
        """Store the decision for the current content of the files."""
        store = self._project.trust
        for subject in self._subjects:
            (store.grant if allow else store.refuse)(subject.path, *subject.contents, what=subject.what)
