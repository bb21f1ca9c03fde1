"""Look back in a real browser, and go on from a moment of the past as a new run."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest
from tests.frontends.server.conftest import Served
from tests.frontends.web.conftest import Visit
from tests.frontends.web.story import Call, Piece, Script, StoryServer
from tests.program.conftest import Project
from tests.program.model_server import Request


def script(request: Request) -> list[Piece]:
    if "In other words" in str(request.body["messages"]):
        return ["This is the fork."]
    if request.turn == 0:
        return ["I read it.", Call("read", {"path": "f0.txt"})]
    return ["This is the first answer."]


@pytest.mark.parametrize("size", ["phone", "wide"])
def test_a_slider_goes_back_and_a_fork_goes_on(
    size: str,
    project: Project,
    story: Callable[[Script], StoryServer],
    serving: Callable[..., Served],
    visit: Callable[..., Visit],
) -> None:
    story(script)
    server = serving()
    run = server.post("/v1/runs", {"agent": "Explore", "task": "Look at it"}, status=201)
    server.ended(run["id"])
    seen = visit(server, size)
    seen.go("run", run["id"], "lookback")
    seen.see(".past", "This is the first answer.")
    seen.page.locator("input[type=range]").fill("3")
    seen.see(".moment[data-event='3']")
    assert "first answer" not in seen.page.inner_text(".past")
    seen.page.fill("form.fork textarea", "In other words")
    assert not seen.overflows
    folder = os.environ.get("RETINUE_PICTURES")
    if folder:
        seen.page.screenshot(path=f"{folder}/fork-{size}.png")
    seen.page.click("form.fork button.primary")
    seen.see(".entry.answer", "This is the fork.")
    runs = server.get("/v1/runs")["runs"]
    assert [each["agent"] for each in runs] == ["Explore", "Explore"] and runs[1]["id"] == run["id"]
