"""Every check on one file. Light: what a launch needs to say what is wrong with an agent's file."""

from __future__ import annotations

from collections.abc import Iterator

from retinue.agents.lint.files import check_bytes
from retinue.agents.lint.finding import Found
from retinue.agents.lint.keys import check_problems, check_unknown_keys, check_unused_keys
from retinue.agents.lint.subject import Subject
from retinue.agents.lint.tools import check_tools
from retinue.agents.lint.values import check_values

CHECKS = (check_problems, check_bytes, check_unknown_keys, check_unused_keys, check_values, check_tools)


def lint_subject(subject: Subject) -> Iterator[Found]:
    """What every check finds in one file."""
    for check in CHECKS:
        yield from check(subject)
