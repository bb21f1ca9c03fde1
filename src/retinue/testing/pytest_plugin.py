"""Fixtures for pytest, available wherever Retinue is installed; their modules are imported on use. Tests of agents
(`NAME.test.yaml`) are collected like any others.

scripted_model   makes scripted models, and fails the test if one was not played to its end
fake_clock       a clock that moves only when told
repository       a real git repository with one commit, in the test's own folder
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from retinue.testing.fixtures import FakeClock, Repository
    from retinue.testing.model import ScriptedModel
    from retinue.testing.scripts import Turn


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that consents to the rights of agents' test files, for one call of pytest."""
    group = parser.getgroup("retinue")
    group.addoption("--retinue-trust", action="store_true", help="let agents' test files have the rights they ask for")


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Collect the tests of agents beside their files."""
    if not file_path.name.endswith(".test.yaml"):
        return None
    from retinue.testing.agent_cases import AgentTestFile, is_test_file

    if not is_test_file(file_path):
        return None
    return AgentTestFile.from_parent(parent, path=file_path)


@pytest.fixture
def scripted_model() -> Iterator[Callable[..., ScriptedModel]]:
    """A function that takes turns, or `lines` of a script."""
    from retinue.testing.model import ScriptedModel

    models: list[ScriptedModel] = []

    def make(*turns: Turn | str, lines: str | None = None) -> ScriptedModel:
        model = ScriptedModel(*turns) if lines is None else ScriptedModel.parse(lines)
        models.append(model)
        return model

    yield make
    for model in models:
        model.assert_exhausted()


@pytest.fixture
def fake_clock() -> FakeClock:
    from retinue.testing.fixtures import FakeClock

    return FakeClock()


@pytest.fixture
def repository(tmp_path: Path) -> Iterator[Repository]:
    from retinue.testing.fixtures import temporary_repository

    with temporary_repository(path=tmp_path / "repository") as repository:
        yield repository
