"""A pool of servers whose processes the test can count, and what to fill it with."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from retinue.capabilities.mcp.config import ServerConfig, read_server
from retinue.capabilities.mcp.connection import PoolOptions
from retinue.capabilities.mcp.pool import Server, ServerPool, loop_pool
from retinue.capabilities.mcp.tool_list import ListingCache

HERE = Path(__file__).parent


class Scene:
    """`sdk` and `raw` are servers of this test's own; their starts are counted."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.starts = folder / "starts"
        self.roots = (folder,)
        self.options = PoolOptions(
            folder, os.environ, folder / "logs", ListingCache(folder / "cache"), start_seconds=60, linger_seconds=60
        )

    @property
    def pool(self) -> ServerPool:
        return loop_pool()

    def config(self, program: str, *arguments: str, name: str = "", **more: Any) -> ServerConfig:
        path = str(HERE / f"{program}_server.py")
        env = {"STARTS": str(self.starts), **more.pop("env", {})}
        raw = {"command": sys.executable, "args": [path, *arguments], "env": env, **more}
        found = read_server(name or program, raw, os.environ, origin="test", provenance="person")
        assert found is not None
        return found

    def sdk(self, **more: Any) -> Server:
        return self.server(self.config("sdk", "stdio", **more))

    def raw(self, *flags: str, **more: Any) -> Server:
        return self.server(self.config("raw", *flags, **more))

    def server(self, config: ServerConfig, **options: Any) -> Server:
        return self.pool.server(config, replace(self.options, **options), self.roots)

    @property
    def pids(self) -> list[int]:
        return [int(line) for line in self.starts.read_text().split()] if self.starts.exists() else []

    def log(self, name: str) -> str:
        return (self.folder / "logs" / f"{name}.log").read_text()


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    made = Scene(tmp_path)
    yield made
    await made.pool.close_unused()
    await until(lambda: not any(map(alive, made.pids)))


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] not in (b"Z", b"X")
    except OSError:
        return False


async def until(condition: Callable[[], Any], seconds: float = 60.0) -> None:
    """Waits for what other tasks and processes bring about."""
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.01)
