"""The settings that limit what runs may do, and the refusal to run while one of them cannot be read.

A value that is dropped leaves the default or a weaker file in force, which may allow more. So a problem with one of
these settings, with a name that was probably meant to be one, or with a file that may hold one, keeps every run from
being started. What only grants may be dropped and reported.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from retinue.core.format import as_sentence
from retinue.errors import ConfigurationError
from retinue.settings.foreign import line_of
from retinue.settings.table import fields, find, groups

if TYPE_CHECKING:
    from retinue.settings.load import Loaded, SettingsProblem

LIMITS = frozenset(field.name for field in fields().values() if field.limits)
"""By name. Some of them grant as well: where a weaker file grants, the value that cannot be read may have taken it
back."""

_ONLY_LIMITS = ("budget", "hooks", "permissions")
"""Groups in which a name that nobody knows is taken for a limit."""
_FORMER = frozenset({"sandbox.cpuSeconds", "sandbox.fileMb", "sandbox.processes"})
_FORMER_VARIABLES = frozenset(f"RETINUE_SANDBOX_{name}" for name in ("CPU_SECONDS", "FILE_MB", "PROCESSES"))
_ENTRY = re.compile(r"[\[].*\Z")


def is_limit(name: str) -> bool:
    """Return whether a setting, an entry of one (`permissions.deny[2]`), an alias or a group limits."""
    name = _ENTRY.sub("", name)
    while name:
        field = find(name)
        if field is not None:
            return field.limits
        if name in groups():
            return any(limit.startswith(f"{name}.") for limit in LIMITS)
        name = name.rpartition(".")[0]
    return False


def may_limit(name: str) -> bool:
    """Return whether a name that is no setting was probably meant to limit."""
    from retinue.settings.suggest import RETIRED, nearest_name

    if name in _FORMER or name.partition(".")[0] in _ONLY_LIMITS:
        return True
    meant = None if name in RETIRED else nearest_name(name)
    return meant is not None and is_limit(meant)


def variable_may_limit(name: str) -> bool:
    """Return whether a variable that sets nothing was probably meant to limit."""
    from retinue.settings.suggest import nearest_variable

    if name in _FORMER_VARIABLES or name.startswith(("RETINUE_BUDGET_", "RETINUE_PERMISSIONS_")):
        return True
    meant = nearest_variable(name)
    return any(meant in field.variables for field in fields().values() if field.limits)


def check_limits(loaded: Loaded) -> None:
    """Raise ConfigurationError, with file, line and remedy, where a limit in the settings does not hold."""
    problems = [problem for problem in loaded.problems if problem.limits]
    if problems:
        reasons = "; ".join(dict.fromkeys(map(_describe, problems)))
        raise ConfigurationError(
            f"A limit cannot be applied, and nothing runs without it: {as_sentence(reasons)}",
            remedy="Correct it, or remove it. The settings that exist: retinue settings list",
        )


def _describe(problem: SettingsProblem) -> str:
    line = line_of(Path(problem.where), problem.field) if problem.field else None
    if line is None:
        return str(problem)
    return str(problem._replace(where=f"{problem.where}:{line}"))
