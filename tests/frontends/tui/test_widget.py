"""The list of agents in the app: real runs below the prompt, from the first to the last."""

from __future__ import annotations

import pytest

from retinue.frontends.tui.panels import AgentsPanel
from tests.frontends.tui.watch_scene import picture, until, watching


@pytest.fixture
async def stage(tmp_path, monkeypatch):
    async with watching(tmp_path, monkeypatch, max_concurrent=2) as (scene, app, pilot):
        main = await scene.main()
        app.board.main_id = main.id
        yield scene, app, pilot, main


async def see(app, pilot, text: str) -> None:
    try:
        await until(pilot, lambda: text in picture(app), 10)
    except TimeoutError:
        pytest.fail(f"{text!r} is not to be seen:\n{picture(app)}")


async def test_runs_come_queue_work_and_go(stage) -> None:
    scene, app, pilot, main = stage
    live = app.screen.query_one(AgentsPanel)
    assert not live.display
    await scene.child(main, "one", description="Find auth files")
    await scene.child(main, "two", description="Read the tests")
    await scene.spawn(main, "three", background=True, description="Write the notes")
    await see(app, pilot, "2 running · 1 queued")
    await see(app, pilot, "◦ 1 queued  Write the notes")
    scene.model("one").call("ls", path=".")
    await scene.model("one").asked()
    await see(app, pilot, "↻2 · 1 tool use · 16 token")
    scene.model("one").say("done")
    await see(app, pilot, "✓ general-purpose (twin)  Find auth files")
    await scene.model("three").asked()
    await see(app, pilot, "2 running")
    assert "queued" not in picture(app)
    scene.model("two").fail()
    await see(app, pilot, "✗ general-purpose (twin)  Read the tests")
    await see(app, pilot, "· error")


async def test_an_agent_of_an_agent_hangs_below_it(stage) -> None:
    scene, app, pilot, main = stage
    parent = await scene.child(main, "one", description="Refactor auth")
    await scene.child(parent, "below", description="Find auth files")
    await see(app, pilot, "2 running · depth 2/")
    rows = [line.plain for line in app.screen.query_one(AgentsPanel).lines if "auth" in line.plain]
    assert [row.index("└─") for row in rows] == [0, 3]


async def test_a_quiet_run_is_seen_to_live(stage) -> None:
    scene, app, pilot, main = stage
    await scene.child(main, "one", description="Find auth files")
    await see(app, pilot, "Find auth files")
    signs = set()

    def turned() -> bool:
        signs.add(app.screen.query_one(AgentsPanel).lines[1].plain[3])
        return len(signs) > 2

    await until(pilot, turned)


async def test_without_motion_the_sign_stands_still(tmp_path, monkeypatch) -> None:
    async with watching(tmp_path, monkeypatch, reduced_motion="true") as (scene, app, pilot):
        main = await scene.main()
        app.board.main_id = main.id
        await scene.child(main, "one", description="Find auth files")
        await see(app, pilot, "● general-purpose (twin)  Find auth files")


async def test_it_follows_the_width_and_leaves_room_for_the_conversation(stage) -> None:
    scene, app, pilot, main = stage
    scene.supervisor.queue.limit = 30
    for number in range(20):
        await scene.child(main, f"t{number}", description=f"Part {number} of a long piece of work 検索")
    await see(app, pilot, "20 running")
    for width, height in ((40, 24), (20, 12), (7, 8), (120, 40)):
        await pilot.resize_terminal(width, height)
        await pilot.pause(0.2)
        live = app.screen.query_one(AgentsPanel)
        assert all(line.cell_len <= max(width - 2, 0) for line in live.lines)
        assert len(live.lines) <= max(height // 3, 3)
        assert app.screen.query_one("#prompt").region.bottom < height


async def test_switched_off_it_takes_no_room(tmp_path, monkeypatch) -> None:
    async with watching(tmp_path, monkeypatch, widget_mode="off", fleet_view="true") as (scene, app, pilot):
        main = await scene.main()
        app.board.main_id = main.id
        await scene.child(main, "one", description="Find auth files")
        await see(app, pilot, "1 agent running")
        assert not app.screen.query_one(AgentsPanel).display
