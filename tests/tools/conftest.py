"""A workspace with real files, and the seven tools working in it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from retinue.core.tool import ToolContext, ToolOutput
from retinue.testing import ToolBench

Use = Callable[..., Awaitable[ToolOutput]]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path.resolve() / "work"
    folder.mkdir()
    return folder


@pytest.fixture
def bench(root: Path) -> ToolBench:
    return ToolBench(root)


@pytest.fixture
def context(bench: ToolBench) -> ToolContext:
    return bench.context


@pytest.fixture
def use(bench: ToolBench) -> Use:
    """`await use("read", path="x")` calls a tool in the workspace as a run does."""
    return bench.call


@pytest.fixture
def use_directly(bench: ToolBench) -> Use:
    """The same without a loop, which would refuse some of these calls before the tool sees them."""

    async def call(name: str, /, **arguments: Any) -> ToolOutput:
        return await bench.tool(name).run("call-1", arguments, bench.context)

    return call
