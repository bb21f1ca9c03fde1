"""A workspace, a site on loopback, and the tool as runs get it."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from retinue.core.tool import ToolContext, ToolOutput
from retinue.engine import open_project


class Converter:
    """`await converter(path="x.pdf")` converts in one run."""

    def __init__(self, root: Path, home: Path, **variables: str) -> None:
        self.root = root
        environment = {
            "HOME": str(home),
            "PATH": os.environ["PATH"],
            "RETINUE_HOME": str(home / "retinue"),
            "RETINUE_WEB_ALLOW_HOSTS": '["127.0.0.1"]',
        }
        self.project = open_project(root, environment={**environment, **variables})
        self.context = ToolContext("run-1", (root,), home / "outputs")

    def put(self, name: str, content: bytes | str) -> str:
        path = self.root / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return name

    async def __call__(self, **arguments: Any) -> ToolOutput:
        return await self.project.tools["convert_content"].run("call-1", arguments, self.context)

    async def content(self, **arguments: Any) -> str:
        output = await self(**arguments)
        assert not output.is_error, output.text
        return str(output.value["content"])

    async def error(self, **arguments: Any) -> str:
        output = await self(**arguments)
        assert output.is_error, output.text
        assert output.value["error"]["code"] == output.effect.code == output.text.partition(":")[0]
        return output.text


@pytest_asyncio.fixture
async def converters(tmp_path: Path) -> AsyncIterator[Callable[..., Converter]]:
    made: list[Converter] = []
    root, home = tmp_path.resolve() / "work", tmp_path.resolve() / "home"
    root.mkdir()
    home.mkdir()

    def make(**variables: str) -> Converter:
        made.append(Converter(root, home, **variables))
        return made[-1]

    yield make
    for each in made:
        await each.project.close()


@pytest.fixture
def converter(converters: Callable[..., Converter]) -> Converter:
    pytest.importorskip("markitdown", reason="pip install 'retinue[convert]'")
    return converters()
