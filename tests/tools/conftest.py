"""A workspace with real files, and the seven tools working in it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from retinue.core.tool import ToolContext, ToolOutput
from retinue.tools.base import builtin_tools

Use = Callable[..., Awaitable[ToolOutput]]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path.resolve() / "work"
    folder.mkdir()
    return folder


@pytest.fixture
def context(root: Path) -> ToolContext:
    return ToolContext("run-1", (root,), root.parent / "outputs")


@pytest.fixture
def use(context: ToolContext) -> Use:
    """`await use("read", path="x")` calls a tool in the workspace."""

    async def call(name: str, /, **arguments: Any) -> ToolOutput:
        return await builtin_tools()[name].run("call-1", arguments, context)

    return call
