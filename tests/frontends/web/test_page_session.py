"""The page in a real browser: a run with children from start to end, with a person stepping in."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from tests.frontends.server.conftest import Served
from tests.frontends.web.conftest import Visit
from tests.frontends.web.story import Call, Piece, Script, StoryServer, first_words
from tests.program.conftest import Project
from tests.program.model_server import Request

from retinue.core.format import format_cost

if TYPE_CHECKING:
    from playwright.sync_api import Route

Serving = Callable[..., Served]
Visiting = Callable[..., Visit]
Telling = Callable[[Script], StoryServer]

EDIT = {"path": "f0.txt", "old_string": "beta", "new_string": "gamma"}
HOSTILE = "**Done** <img src=x onerror=alert(1)> [click](javascript:alert(1)) <script>alert(1)</script>"


class Plot:
    """A main run that starts a child, which edits a file; the test says when each goes on."""

    def __init__(self) -> None:
        self.half = threading.Event()
        self.rest = threading.Event()

    def __call__(self, request: Request) -> list[Piece]:
        task = first_words(request)
        if "CHILD" in task and "DELEGATE" not in task:
            if request.turn == 0:
                return ["I change it.", Call("edit", EDIT)]
            return ["Child is done."]
        if request.turn == 0:
            call = {"subagent_type": "general-purpose", "description": "change the file", "prompt": "CHILD: change it"}
            return [
                "First half, ",
                self.half,
                "second half.",
                Call("Agent", {**call, "run_in_background": False}),
            ]
        return [HOSTILE, " and now I go on", self.rest, "."]


@pytest.mark.parametrize("size", ["phone", "wide"])
def test_a_run_from_start_to_end(
    size: str, project: Project, story: Telling, serving: Serving, visit: Visiting
) -> None:
    project.mode = "default"
    plot = Plot()
    story(plot)
    server = serving()
    seen = visit(server, size)
    page = seen.page

    # Start it from the page, and watch it stream.
    page.click(".nav .new")
    page.fill("textarea[name=task]", "DELEGATE the change")
    page.click("form.start button.primary")
    seen.see(".draft", "First half,")
    assert "second half" not in page.inner_text(".column")
    plot.half.set()
    seen.see(".entry.answer:not(.draft)", "First half, second half.")
    seen.see(".child", "change the file")

    # Answer what the child asks, with its diff.
    page.click(".place[href='#/waiting']")
    card = seen.see(".item")
    assert "+gamma" in card.inner_text() and "-beta" in card.inner_text()
    assert card.locator("[data-answer]").count() == 5
    assert not seen.overflows
    card.locator("[data-answer=allow]").click()
    seen.gone(".item")
    (item,) = server.until("/v1/inbox?all=true", lambda found: [one for one in found["items"] if one["answer"]])
    assert item["answer"]["by"] == "web"

    # What the model writes is text, whatever it is.
    (main,) = server.until("/v1/runs?depth=0", lambda found: found["runs"])
    seen.go("run", main["id"])
    draft = seen.see(".draft", "and now I go")
    assert "<img src=x" in draft.inner_text() and "<script>" in draft.inner_text()
    assert page.locator(".column img, .column script, .column a[href^=javascript]").count() == 0
    assert "gamma" in (project.cwd / "f0.txt").read_text()

    # Say something to it, and stop it.
    page.fill(".controls textarea", "Be brief")
    page.click(".controls .primary")
    seen.see(".notice", "Delivered")
    page.click(".controls .danger")
    page.click(".confirm .danger")
    seen.see(".run[data-state=ended]")
    assert not seen.overflows

    # U22: it cost what its child did, too, and prices are estimates.
    costs = [run["usage"]["cost_usd"] for run in server.until("/v1/runs", lambda found: found["runs"])]
    assert len(costs) == 2
    seen.see(".run-head .about", format_cost(sum(costs)))

    # The run that changed a file is found by its path.
    page.evaluate("location.hash = '#/search?q=' + encodeURIComponent('file:f0.txt')")
    seen.see(".hit", "CHILD: change it")
    assert page.locator(".hit").count() == 1

    # Look back: before the child existed, the tree was one run.
    seen.go("run", main["id"], "lookback")
    seen.see(".moment", "of")
    assert page.locator(".stand .runs li").count() == 2
    page.locator(".scrub input").evaluate(
        "slider => { slider.value = 3; slider.dispatchEvent(new Event('input', { bubbles: true })) }"
    )
    seen.see(".moment[data-event='3']")
    assert page.locator(".stand .runs li").count() == 1
    assert "running" in page.inner_text(".stand .runs")
    for tab, sight in (
        ("timeline", ".span.person"),
        ("changes", ".diff .add"),
        ("effects", ".effects"),
        ("cost", ".tiles"),
    ):
        seen.go("run", main["id"] if tab != "effects" else item["run_id"], tab)
        seen.see(sight)
        assert not seen.overflows
    for view, sight in (
        ("cost", ".sums"),
        ("agents", ".card.agent"),
        ("projects", ".card.project"),
        ("schedules", ".empty"),
    ):
        seen.go(view)
        seen.see(sight)
        assert not seen.overflows
        clipped = "[...document.querySelectorAll('.card')].filter(card => card.scrollWidth > card.clientWidth).length"
        assert page.evaluate(clipped) == 0, f"a card of {view} is cut off"


@pytest.mark.parametrize("size", ["phone", "wide"])
def test_a_run_is_moved_to_the_background_and_its_parent_goes_on(
    size: str, project: Project, story: Telling, serving: Serving, visit: Visiting
) -> None:
    over = threading.Event()

    def script(request: Request) -> list[Piece]:
        if "CHILD" in first_words(request) and "DELEGATE" not in first_words(request):
            return ["I look around, and then ", over, "further."]
        if request.turn == 0:
            call = {"subagent_type": "Explore", "description": "look around", "prompt": "CHILD: look"}
            return [Call("Agent", {**call, "run_in_background": False})]
        return ["I went on without it."]

    story(script)
    server = serving()
    main = server.post("/v1/runs", {"task": "DELEGATE it"}, 201)
    (child,) = server.until("/v1/runs?depth=1", lambda found: found["runs"])
    assert child["background"] is False
    seen = visit(server, size)
    seen.go("run", main["id"])
    seen.see(".controls")
    assert seen.page.locator(".controls .aside").count() == 0, "nobody waits for the main run"
    seen.go("run", child["id"])
    seen.see(".draft", "I look")
    seen.page.click(".controls .aside")
    seen.see(".notice", "continues in the background")
    seen.gone(".controls .aside")
    assert not seen.overflows
    seen.go("run", main["id"])
    seen.see(".entry.answer", "I went on without it.")
    assert server.get(f"/v1/runs/{child['id']}")["run"]["background"] is True
    over.set()
    server.ended(child["id"])


def test_a_run_whose_process_was_killed_goes_on(
    project: Project, story: Telling, serving: Serving, visit: Visiting
) -> None:
    never = threading.Event()
    model = story(lambda request: ["Half of it, and then", never])
    server = serving()
    seen = visit(server)
    working = project.start("run", "Explore", "Look around")
    row = seen.see(".row", "Explore")
    row.click()
    seen.see(".draft", "Half of it")
    os.kill(working.pid, signal.SIGKILL)
    working.communicate()
    seen.see(".run[data-state=interrupted]")
    model.script = lambda request: ["The whole of it."]
    seen.page.click(".controls .primary")
    seen.see(".entry.answer", "The whole of it.")
    seen.see(".run[data-state=ended]")


def test_the_page_comes_back_after_the_server_was_killed_and_misses_nothing(
    project: Project, story: Telling, serving: Serving, visit: Visiting
) -> None:
    go_on = threading.Event()
    story(lambda request: ["One, and then ", go_on, "two, three."])
    server = serving()
    seen = visit(server)
    working = project.start("run", "Explore", "Count")
    seen.see(".row", "Explore").click()
    seen.see(".draft", "One,")
    os.kill(server.process.pid, signal.SIGKILL)
    server.process.communicate()
    seen.see(".connection.lost")
    go_on.set()
    working.communicate(timeout=60)
    again = serving()
    assert (again.port, again.token) == (server.port, server.token)
    seen.see(".connection.live")
    seen.see(".entry.answer", "One, and then two, three.")
    seen.see(".run[data-state=ended]")
    numbers = [event["seq"] for _, event in again.stream(f"/v1/runs/{_only(again)}/events").until("run.ended")]
    assert seen.page.locator(".entry.answer").count() == 1
    assert numbers == sorted(numbers)


def _only(server: Served) -> str:
    (run,) = server.get("/v1/runs")["runs"]
    return str(run["id"])


def test_of_two_faces_that_answer_one_item_the_second_hears_who_was_first(
    project: Project, story: Telling, serving: Serving, visit: Visiting
) -> None:
    project.mode = "default"
    story(lambda request: [Call("edit", EDIT)] if request.turn == 0 else ["Edited."])
    server = serving()
    one, two = visit(server), visit(server, "phone")
    run = server.post("/v1/runs", {"agent": "general-purpose", "task": "Edit it"}, 201)
    for seen in (one, two):
        seen.page.click(".place[href='#/waiting']")
        seen.see(".item")
    item = server.get("/v1/inbox")["items"][0]["id"]

    def answer_first(route: Route) -> None:
        # The terminal is faster than the page whose answer is on its way.
        assert project.retinue("inbox", "answer", item, "allow").returncode == 0
        route.continue_()

    two.page.route(f"**/v1/inbox/{item}", answer_first)
    two.page.click("[data-answer=deny]")
    one.see(".notice", "allow by")
    two.see(".notice.bad", "allow")
    for seen in (one, two):
        seen.gone(".item")
    server.ended(run["id"])
    assert "gamma" in (project.cwd / "f0.txt").read_text()


def test_a_page_without_the_token_asks_for_it_and_keys_lead_through_the_views(
    project: Project, story: Telling, serving: Serving, visit: Visiting
) -> None:
    story(lambda request: ["Found it."])
    server = serving()
    run = server.post("/v1/runs", {"agent": "Explore", "task": "Look around"}, 201)
    server.ended(run["id"])
    seen = visit(server)
    stranger = seen.context.browser.new_context().new_page()
    stranger.goto(f"{server.base}/#/run/{run['id']}")
    stranger.fill(".sign-in input", "nonsense")
    stranger.click(".sign-in button")
    stranger.wait_for_selector(".sign-in .problem")
    stranger.fill(".sign-in input", server.link())
    stranger.click(".sign-in button")
    stranger.wait_for_selector(".entry.answer >> text=Found it.")
    assert server.token not in stranger.url
    stranger.context.close()
    # `retinue open` leads to a run.
    address = project.retinue("open", run["id"][:8], "--no-browser").stdout.strip()
    seen.page.goto("about:blank")
    seen.page.goto(address)
    seen.see(".entry.answer", "Found it.")
    assert server.token not in seen.page.url
    for key, sight in (("?", ".help"), ("Escape", ".row"), ("4", ".card.agent"), ("n", "form.start")):
        seen.page.keyboard.press(key)
        seen.see(sight)


def test_a_page_that_nobody_looks_at_gives_its_connection_back(
    project: Project, story: Telling, serving: Serving, visit: Visiting
) -> None:
    story(lambda request: ["Done."])
    server = serving()
    seen = visit(server)
    seen.page.clock.install()
    hide = "hidden => { Object.defineProperty(document, 'hidden', { value: hidden, configurable: true });"
    hide += " document.dispatchEvent(new Event('visibilitychange')) }"
    seen.page.evaluate(hide, True)
    seen.page.clock.fast_forward(61_000)
    seen.see(".connection.resting")
    run = server.post("/v1/runs", {"agent": "Explore", "task": "Look around"}, 201)
    server.ended(run["id"])
    seen.page.evaluate(hide, False)
    seen.see(".connection.live")
    seen.see(".row", "completed")


def test_a_question_of_a_killed_process_says_when_its_answer_counts(
    project: Project, story: Telling, serving: Serving, visit: Visiting
) -> None:
    """On a page that was open before, without loading it again."""
    project.mode = "default"
    story(lambda request: [Call("edit", EDIT)] if request.turn == 0 else ["Edited."])
    server = serving()
    seen = visit(server)
    working = project.start("run", "general-purpose", "Edit it", env={"RETINUE_PERMISSIONS_HEADLESS": "wait"})
    seen.page.click(".place[href='#/waiting']")
    card = seen.see(".item")
    assert "when it is resumed" not in card.inner_text()
    os.kill(working.pid, signal.SIGKILL)
    working.communicate()
    seen.see(".item", "the answer counts when it is resumed")


def test_what_is_found_by_a_search_is_shown_without_its_encoding(
    project: Project, story: Telling, serving: Serving, visit: Visiting
) -> None:
    story(lambda request: [Call("edit", EDIT)] if request.turn == 0 else ['He said "gamma"\nand left.'])
    server = serving()
    project.retinue("run", "general-purpose", "Edit it")
    seen = visit(server)
    seen.page.evaluate("location.hash = '#/search?q=gamma'")
    seen.see(".hit", 'He said "gamma"')
    for text in seen.page.locator(".hit .excerpt").all_inner_texts():
        assert not any(mark in text for mark in ('{"', '":', "\\n", '\\"')), text
