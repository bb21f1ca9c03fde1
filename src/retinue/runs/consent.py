"""Consent to what a project's files bring: the settings without what nobody consented to, and consent that stays.

What runs lose for want of consent is decided by the capability `trust`; this is what everybody else needs of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from retinue.core.files import read_file
from retinue.settings.foreign import parse_object

if TYPE_CHECKING:
    from retinue.core.request import RunRequest
    from retinue.runs.project import Project


@contextmanager
def consent_stays(project: Project, path: Path) -> Iterator[None]:
    """A person changes a settings file of the project through us, in here: what they put there
    is theirs. Consent is given to the new content, unless there was something in the old one
    that nobody had consented to."""
    from retinue.guard.trust_subjects import settings_subject

    def content() -> bytes:
        try:
            return read_file(path)
        except OSError:
            return b""

    before = content()
    subject = settings_subject(path, parse_object(before)[0], before)
    agreed = subject is None or project.trust.permits("settings", "project", path, lambda: before)
    yield
    after = content()
    brought = settings_subject(path, parse_object(after)[0], after) if agreed and after != before else None
    if brought is not None and path.parent != project.home:
        project.trust.grant(path, after, what=brought.what)


def with_consent(remedy: str, setting: str, project: Project) -> str:
    """What to do about something that is missing, where a setting without consent may be why."""
    from retinue.guard.trust_subjects import untrusted

    lines = [remedy] if remedy else []
    lines += untrusted(project.settings, setting)
    return "\n  ".join(lines)


def has_git_consent(project: Project, folder: Path) -> bool:
    """Whether someone has consented to all programs that git would start in the repository of
    `folder`, as its files are now."""
    from retinue.guard.gitconfig import git_programs

    if project.trust.everything:
        return True
    found = git_programs(folder, checkout=True)
    return found is not None and project.trust.permits("git", "project", found.path, lambda: found.content)


def recorded(request: RunRequest, asked: RunRequest) -> RunRequest:
    """The request as the log keeps it: with the definition as the file has it."""
    return request if request.spec is asked.spec else replace(request, spec=asked.spec)
