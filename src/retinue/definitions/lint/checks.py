"""Every check on one file. Light: what a launch needs to say what is wrong with an agent's file."""

from __future__ import annotations

from collections.abc import Iterator

from retinue.definitions.lint.files import check_bytes
from retinue.definitions.lint.finding import Found
from retinue.definitions.lint.keys import check_problems, check_unknown_keys, check_unused_keys
from retinue.definitions.lint.subject import Subject
from retinue.definitions.lint.tools import check_tools
from retinue.definitions.lint.values import check_values

CHECKS = (check_problems, check_bytes, check_unknown_keys, check_unused_keys, check_values, check_tools)


def lint_subject(subject: Subject) -> Iterator[Found]:
    """What every check finds in one file."""
    for check in CHECKS:
        yield from check(subject)
