"""axe-core, a judge of other people, finds nothing that keeps anyone from using the page; and nothing lies over it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from tests.frontends.server.conftest import Served
from tests.frontends.web.conftest import Visit
from tests.frontends.web.story import Call, Piece, Script, StoryServer
from tests.npm_packages import npm_modules
from tests.program.conftest import Project
from tests.program.model_server import Request

Serving = Callable[..., Served]
Visiting = Callable[..., Visit]
Telling = Callable[[Script], StoryServer]

EDIT = {"path": "f0.txt", "old_string": "beta", "new_string": "gamma"}
VIEWS = {
    "waiting": ".item .diff",
    "fleet": ".fleet",
    "cost": ".columns",
    "agents": ".card.agent",
    "agents/Explore": "[role=meter]",
    "schedules": "h1",
    "projects": ".card",
    "start": "form.start",
}
TABS = {"": ".column", "timeline": ".span", "changes": ".tab", "effects": ".effects", "cost": ".tiles"}


def edits(request: Request) -> list[Piece]:
    return (
        ["I read it.", Call("read", {"path": "f0.txt"})] if request.turn == 0 else ["I change it.", Call("edit", EDIT)]
    )


@pytest.mark.parametrize("size", ["phone", "wide"])
def test_axe_finds_nothing_in_any_view(
    size: str, project: Project, story: Telling, serving: Serving, visit: Visiting
) -> None:
    axe = (npm_modules() / "axe-core" / "axe.min.js").read_text()
    project.mode = "default"
    story(edits)
    server = serving()
    run = server.post("/v1/runs", {"agent": "general-purpose", "task": "Change it"}, 201)
    server.until("/v1/inbox", lambda found: found["items"])
    seen = visit(server, size)
    seen.page.evaluate(axe)
    addresses = {tuple(name.split("/")): sight for name, sight in VIEWS.items()}
    addresses |= {("run", run["id"], tab): sight for tab, sight in TABS.items()}
    for address, sight in addresses.items():
        seen.go(*address)
        seen.see(sight)
        violations = seen.page.evaluate("axe.run({ resultTypes: ['violations'] }).then((found) => found.violations)")
        assert [_short(each) for each in violations] == [], address


def _short(violation: dict[str, Any]) -> str:
    return f"{violation['id']}: {violation['nodes'][0]['html'][:200]}"


RECEIVES_CLICK_BESIDE_NOTICE = """selector => {
  if (!document.querySelector(".notice")) return "the notice is gone";
  const button = document.querySelector(selector);
  const box = button.getBoundingClientRect();
  const target = document.elementFromPoint(box.x + box.width / 2, box.y + box.height / 2);
  return button.contains(target) ? "receives it" : `covered by ${target.outerHTML}`;
}"""


@pytest.mark.parametrize("size", ["phone", "wide"])
def test_a_notice_covers_nothing(
    size: str, project: Project, story: Telling, serving: Serving, visit: Visiting
) -> None:
    """A run was steered, and for eight seconds it could not be stopped."""
    held = threading.Event()
    story(lambda request: ["I begin", held, "."])
    server = serving()
    run = server.post("/v1/runs", {"task": "Work"}, 201)
    seen = visit(server, size)
    seen.go("run", run["id"])
    seen.page.fill(".controls textarea", "Be brief")
    seen.page.click(".controls .primary")
    seen.see(".notice", "Delivered")
    # One look at the page, because a click may take longer on a busy machine than the notice stays.
    assert seen.page.evaluate(RECEIVES_CLICK_BESIDE_NOTICE, ".controls .danger") == "receives it"
    seen.page.click(".controls .danger")
    seen.page.click(".confirm .danger")
    seen.see(".run[data-state=ended]")
