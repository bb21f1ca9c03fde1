"""One browser for each module of tests, and a project with a model that follows a script."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.absent import give_up
from tests.frontends.server.conftest import Served, serving
from tests.frontends.web.browser import open_browser, why_no_browser
from tests.frontends.web.story import Script, StoryServer
from tests.program.conftest import Project

__all__ = ["serving"]

SIZES = {"phone": (390, 844), "wide": (1600, 1000)}
PATIENCE = 60_000
"""Milliseconds to wait for a condition: much more than it takes, for busy machines."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    missing = why_no_browser()
    if missing is not None:
        give_up(missing)
    with open_browser() as found:
        yield found


@pytest.fixture
def story(project: Project) -> Iterator[Callable[[Script], StoryServer]]:
    """`story(script)` starts a model server that follows a script."""
    started: list[StoryServer] = []

    def start(script: Script) -> StoryServer:
        server = StoryServer(script)
        server.__enter__()
        started.append(server)
        project.server = server  # type: ignore[assignment]  # it has a `url`, and that is all that is used
        return server

    yield start
    for server in started:
        server.__exit__()


class Visit:
    """A page that was opened in a browser of its own profile."""

    def __init__(self, browser: Any, served: Served, size: str) -> None:
        width, height = SIZES[size]
        self.context = browser.new_context(viewport={"width": width, "height": height})
        self.page = self.context.new_page()
        self.page.set_default_timeout(PATIENCE)
        self.errors: list[str] = []
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("console", self._hear)
        self.page.goto(served.link())
        self.page.wait_for_selector(".connection.live")

    def _hear(self, said: Any) -> None:
        # A request that is refused, or a server that is gone, is part of some tests.
        if said.type == "error" and "Failed to load resource" not in said.text and "net::" not in said.text:
            self.errors.append(said.text)

    def go(self, *parts: str) -> None:
        self.page.evaluate("hash => { location.hash = hash }", "#/" + "/".join(parts))

    def see(self, selector: str, text: str | None = None) -> Any:
        """Wait until something is visible, and return it."""
        found = self.page.locator(selector)
        if text is not None:
            found = found.filter(has_text=text)
        try:
            found.first.wait_for(state="visible")
        except Exception as error:
            shown = self.page.inner_text("body")
            raise AssertionError(f"{selector} with {text!r} was not seen. The page shows:\n{shown}") from error
        return found.first

    def gone(self, selector: str) -> None:
        self.page.locator(selector).first.wait_for(state="detached")

    @property
    def overflows(self) -> bool:
        """Whether the page is wider than the screen."""
        return bool(self.page.evaluate("document.documentElement.scrollWidth > innerWidth"))


@pytest.fixture
def visit(browser: Any) -> Iterator[Callable[..., Visit]]:
    """`visit(server, size)` opens the page; at the end no script may have failed."""
    opened: list[Visit] = []

    def start(served: Served, size: str = "wide") -> Visit:
        opened.append(Visit(browser, served, size))
        return opened[-1]

    yield start
    for each in opened:
        each.context.close()
        assert each.errors == []
