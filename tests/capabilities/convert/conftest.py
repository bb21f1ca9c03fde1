"""A workspace, a site on loopback, and the tool as runs get it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from retinue.core.tool import ToolOutput
from retinue.testing import ToolBench


class Converter(ToolBench):
    """`await converter(path="x.pdf")` converts in one run."""

    def __init__(self, root: Path, **variables: str) -> None:
        super().__init__(root, environment={"RETINUE_WEB_ALLOW_HOSTS": '["127.0.0.1"]', **variables})

    def put(self, name: str, content: bytes | str) -> str:
        path = self.root / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return name

    async def __call__(self, **arguments: Any) -> ToolOutput:
        return await self.call("convert_content", **arguments)

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
    (tmp_path / "home").mkdir()

    def make(**variables: str) -> Converter:
        made.append(Converter(tmp_path / "work", **variables))
        return made[-1]

    yield make
    for each in made:
        await each.close()


@pytest.fixture
def converter(converters: Callable[..., Converter]) -> Converter:
    pytest.importorskip("markitdown", reason="pip install 'retinue[convert]'")
    return converters()
