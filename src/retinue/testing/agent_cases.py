"""`NAME.test.yaml` as pytest collects them: one item for each case, run offline as `retinue test` does."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from retinue.agents.folders import by_place
from retinue.core.files import read_head
from retinue.errors import ConfigurationError
from retinue.models.keys import environment as process_environment
from retinue.recordings.case_file import SUFFIX, AgentTests, read_test_file
from retinue.recordings.case_run import RunCase, SuiteOptions, Trial


def is_test_file(path: Path) -> bool:
    """Return whether a file has tests of an agent: one that is beside an agent's file, in a folder of agents, or that
    names its agent. Other programs have files of such names."""
    stem = path.name.removesuffix(SUFFIX)
    if path.with_name(f"{stem}.md").is_file() or by_place(str(path.with_name(f"{stem}.md").absolute())) is not None:
        return True
    try:
        return read_head(path, 4096).startswith(b"agent:")
    except OSError:
        return False


class AgentTestFile(pytest.File):
    """A test file. One that cannot be used is an error of the collection."""

    def collect(self) -> Iterator[AgentCase]:
        try:
            tests = read_test_file(self.path)
        except ConfigurationError as error:
            raise self.CollectError(str(error)) from error
        for number, case in enumerate(tests.file.cases):
            yield AgentCase.from_parent(self, name=case.name, tests=tests, number=number)


class UnmetError(Exception):
    """Assertions of a case that do not hold."""


class AgentCase(pytest.Item):
    """One case."""

    def __init__(self, *, tests: AgentTests, number: int, **options: Any) -> None:
        super().__init__(**options)
        self._tests = tests
        self._number = number

    def runtest(self) -> None:
        options = SuiteOptions(trust=self.config.getoption("--retinue-trust"))
        run = RunCase(self._tests, self._number, options, process_environment())
        trial = asyncio.run(run.run())
        if trial.status == "skipped":
            pytest.skip("; ".join(trial.notes))
        if trial.status == "failed" and self._tests.file.cases[self._number].policy != "tracked":
            raise UnmetError(_describe(trial))

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        if isinstance(excinfo.value, (UnmetError, ConfigurationError)):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int, str]:
        return self.path, self._tests.line_of(self._number) - 1, f"{self._tests.agent}: {self.name}"


def _describe(trial: Trial) -> str:
    lines = []
    for unmet in trial.unmet:
        lines.append(f"{unmet.assertion}: {unmet.reason}")
        lines += [f"  ledger: {line}" for line in unmet.ledger]
    return "\n".join(lines)
