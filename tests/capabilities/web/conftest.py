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
from tests.capabilities.web.site import Page, Site

TOOLS = {kind.name: kind for kind in (WebSearchTool, FetchContentTool, GetSearchContentTool)}


class Browser:
    """`await browser("fetch_content", url=…)` calls a tool in one run."""

    def __init__(self, folder: Path) -> None:
        self.settings: dict[str, Any] = {"web_allow_hosts": ("127.0.0.1",)}
        self.environment: dict[str, str] = {}
        self.context = ToolContext("run-1", (folder,), folder / "outputs")
        self.transport = Transport()
        self.limits = WebLimits(host_delay_seconds=0.0)
        self.more: dict[str, Any] = {}
        self._web: Web | None = None

    @property
    def web(self) -> Web:
        if self._web is None:
            self._web = Web(
                lambda: Settings(self.settings),
                self.environment,
                lambda: self.transport,
                limits=self.limits,
                **self.more,
            )
        return self._web

    async def __call__(self, tool: str, /, **arguments: Any) -> ToolOutput:
        return await TOOLS[tool](lambda: self.web).run("call-1", arguments, self.context)


@pytest.fixture
async def browser(tmp_path: Path) -> AsyncIterator[Browser]:
    made = Browser(tmp_path)
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
