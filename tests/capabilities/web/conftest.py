"""The three web tools over real HTTP on loopback, with settings a test chooses."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from retinue.capabilities.web.attach import FetchContentTool, GetSearchContentTool, WebSearchTool
from retinue.capabilities.web.service import Web, WebLimits
from retinue.core.tool import ToolContext, ToolOutput
from retinue.http.transport import Transport
from retinue.settings.table import Settings
from retinue.testing import ToolBench
from tests.capabilities.web.site import Page, Site


class Browser:
    """`await browser("fetch_content", url=…)` calls a tool as a run does. What is put into `environment` before the
    first call holds for all of them."""

    def __init__(self, folder: Path) -> None:
        self.environment = {"RETINUE_WEB_ALLOW_HOSTS": "127.0.0.1"}
        self._folder = folder
        self._bench: ToolBench | None = None

    @property
    def bench(self) -> ToolBench:
        if self._bench is None:
            self._bench = ToolBench(self._folder, environment=self.environment)
        return self._bench

    async def __call__(self, tool: str, /, **arguments: Any) -> ToolOutput:
        return await self.bench.call(tool, **arguments)

    async def restart(self) -> None:
        """Let the next call be one of a new process, which has the settings of then."""
        if self._bench is not None:
            await self._bench.close()
        self._bench = None


@pytest.fixture
async def browser(tmp_path: Path) -> AsyncIterator[Browser]:
    made = Browser(tmp_path / "project")
    yield made
    await made.restart()


class BoundedBrowser:
    """The same with limits that nobody can set: the real ones take megabytes, minutes or a hundred answers."""

    def __init__(self, folder: Path) -> None:
        self.settings: dict[str, Any] = {"web_allow_hosts": ("127.0.0.1",)}
        self.environment: dict[str, str] = {}
        self.context = ToolContext("run-1", (folder,), folder / "outputs")
        self.transport = Transport()
        self.limits = WebLimits(host_delay_seconds=0.0)
        self._web: Web | None = None

    @property
    def web(self) -> Web:
        if self._web is None:
            self._web = Web(
                lambda: Settings(self.settings), self.environment, lambda: self.transport, limits=self.limits
            )
        return self._web

    async def __call__(self, tool: str, /, **arguments: Any) -> ToolOutput:
        kinds = {kind.name: kind for kind in (WebSearchTool, FetchContentTool, GetSearchContentTool)}
        return await kinds[tool](lambda: self.web).run("call-1", arguments, self.context)


@pytest.fixture
async def bounded_browser(tmp_path: Path) -> AsyncIterator[BoundedBrowser]:
    made = BoundedBrowser(tmp_path)
    yield made
    await made.transport.close()


@pytest.fixture
def visit() -> Any:
    """`site = visit({"/": page})`: a site that lives as long as the test."""
    sites: list[Site] = []

    def start(pages: dict[str, Page], **options: Any) -> Site:
        site = Site(pages, **options)
        site.__enter__()
        sites.append(site)
        return site

    yield start
    for site in sites:
        site.__exit__()


Visit = Callable[..., Site]
