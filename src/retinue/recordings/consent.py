"""Rights that test files and recordings bring: wide permission modes, answers to approvals, check commands.

A test file and its cassettes belong to a project that someone else may have written. A case with more rights than an
unattended run needs the user's consent to the content of the test file and of the cassette.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from retinue.core.files import read_file
from retinue.core.request import NO_OPTIONS
from retinue.errors import ConfigurationError
from retinue.guard.trust import WIDE_MODES, Trust, TrustSubject
from retinue.recordings.case_file import AgentTests, Case, CaseFileError, find_test_files, read_test_file, scenario_path
from retinue.recordings.cassette import Cassette, read_cassette
from retinue.recordings.recorded_people import recorded_answers


def case_rights(case: Case, cassette: Cassette | None) -> Iterator[str]:
    """Yield the rights of a case that need consent, a line each."""
    recorded = cassette.first.created.options if cassette is not None else NO_OPTIONS
    mode = case.permission_mode or recorded.permission_mode
    if mode in WIDE_MODES:
        yield f"case {case.name}: permission mode {mode}"
    answers = case.answers or (recorded_answers(cassette) if cassette is not None else None)
    approval = answers.approval if answers is not None else None
    approvals = [approval] if isinstance(approval, str) else approval or []
    allowing = [approval for approval in dict.fromkeys(approvals) if approval != "deny"]
    if allowing:
        yield f"case {case.name}: answers approvals with {', '.join(allowing)}"


def require_consent(tests: AgentTests, case: Case, cassette: Cassette | None, scenario: Path, trust: Trust) -> None:
    """Raise CaseFileError if a case needs consent that the user has not given."""
    rights = list(case_rights(case, cassette))
    if not rights:
        return
    files = [tests.path] if cassette is None else [tests.path, scenario]
    if all(trust.permits("permissions", "recording", tests.path, partial(read_file, file)) for file in files):
        return
    raise CaseFileError(
        f"{tests.path}: {'; '.join(rights)}: it is not trusted.",
        remedy=f"Read the file and its cassettes, then consent with: retinue trust add {tests.path}, or add --trust.",
    )


@contextmanager
def consent_kept(path: Path, trust: Trust) -> Iterator[None]:
    """Within this context the user's own command changes a test file or its cassettes. Consent to the new content,
    unless the old content had rights without consent."""
    before = _subject_at(path)
    agreed = before is None or before.answer(trust) == "trusted"
    yield
    after = _subject_at(path)
    if agreed and after is not None and not trust.everything:
        trust.grant(after.path, *after.contents, what=after.what)


def case_subjects(folder: Path) -> list[TrustSubject]:
    """Return the test files below a folder that need consent, with their cassettes, for `retinue trust`."""
    return [subject for path in find_test_files([folder]) if (subject := _subject_at(path)) is not None]


def _subject_at(path: Path) -> TrustSubject | None:
    try:
        return _subject(read_test_file(path))
    except (ConfigurationError, OSError):
        return None  # `retinue test` reports a file that cannot be used


def _subject(tests: AgentTests) -> TrustSubject | None:
    lines: list[str] = []
    contents = [read_file(tests.path)]
    for case in tests.file.cases:
        scenario = scenario_path(tests, case)
        cassette = read_cassette(scenario) if scenario.is_file() else None
        rights = list(case_rights(case, cassette))
        if rights and cassette is not None:
            contents.append(read_file(scenario))
        lines += rights
        if case.expect.check is not None:
            lines.append(f"case {case.name}: runs {case.expect.check}")
    return TrustSubject(tests.path, tuple(contents), tuple(lines)) if lines else None
