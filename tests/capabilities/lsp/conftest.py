"""Worlds with language servers, closed after the test."""

from __future__ import annotations

import shutil
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import pytest_asyncio

from tests.capabilities.lsp.bench import Bench, write_package


@pytest_asyncio.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Callable[..., Bench]]:
    """`bench()` makes a project in a folder `work`, with settings as environment variables."""
    made: list[Bench] = []

    def make(**variables: str) -> Bench:
        made.append(Bench(tmp_path / "work", environment=variables))
        return made[-1]

    (tmp_path / "home").mkdir()
    yield make
    for each in made:
        await each.close()


@pytest.fixture
def shop(bench: Callable[..., Bench]) -> Bench:
    """The package with a server that really understands it."""
    if shutil.which("ty", path=str(Path(sys.executable).parent)) is None:
        pytest.skip("ty is not installed: pip install 'retinue[lsp]'")
    made = bench()
    write_package(made.root)
    return made
