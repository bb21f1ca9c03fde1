"""What `retinue doctor` looks at. A new check is one row in `CHECKS`: a category and a function.

A check takes a `Patient` and yields findings. It is imported when the doctor runs, may take its
time, and changes nothing. One that raises is reported as a finding, so that it hides no other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from retinue.core.lean import dataclass

if TYPE_CHECKING:
    from retinue.settings.load import Loaded

Grade = Literal["ok", "info", "warning", "failure"]


@dataclass(frozen=True, slots=True)
class Finding:
    """`remedy` is there for every warning and failure."""

    category: str
    name: str
    grade: Grade
    detail: str
    remedy: str = ""


class Patient:
    """The installation as seen from one folder."""

    def __init__(self, cwd: Path, environment: Mapping[str, str]) -> None:
        self.cwd = cwd
        self.environment = environment

    @cached_property
    def loaded(self) -> Loaded:
        from retinue.capabilities.trust.attach import settings_in_effect

        return settings_in_effect(self.cwd, self.environment)


_HERE = "retinue.faces.cli"
CHECKS: list[tuple[str, str]] = [
    ("system", f"{_HERE}.doctor_system:python"),
    ("system", f"{_HERE}.doctor_system:terminal"),
    ("programs", f"{_HERE}.doctor_system:git"),
    ("programs", f"{_HERE}.doctor_system:ripgrep"),
    ("sandbox", f"{_HERE}.doctor_sandbox:layers"),
    ("sandbox", f"{_HERE}.doctor_sandbox:walls"),
    ("settings", f"{_HERE}.doctor_state:settings"),
    ("agents", f"{_HERE}.doctor_state:agents"),
    ("plugins", f"{_HERE}.doctor_plugins:plugins"),
    ("log", f"{_HERE}.doctor_state:log"),
    ("models", f"{_HERE}.doctor_models:models"),
    ("web", f"{_HERE}.doctor_web:search"),
    ("web", f"{_HERE}.doctor_web:pages"),
    ("convert", f"{_HERE}.doctor_eyes:converter"),
    ("lsp", f"{_HERE}.doctor_eyes:language_servers"),
    ("permissions", f"{_HERE}.doctor_eyes:results_folder"),
]


def examine(patient: Patient, categories: Iterable[str] = ()) -> Iterator[Finding]:
    """Everything found, check by check; only `categories`, if any are named."""
    wanted = set(categories)
    for category, place in CHECKS:
        if wanted and category not in wanted:
            continue
        module, _, function = place.partition(":")
        try:
            for grade, name, detail, *remedy in getattr(import_module(module), function)(patient):
                yield Finding(category, name, grade, detail, *remedy)
        except Exception as error:  # noqa: BLE001 - a broken part must not hide the others
            said = f"could not be checked: {type(error).__name__}: {error}"
            yield Finding(category, function, "failure", said, "Please report this, with the output of --json.")
