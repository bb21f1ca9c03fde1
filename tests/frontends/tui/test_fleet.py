"""Case W04 with real keys: into the list of agents, along it, out of it, and never in the way of typing."""

from __future__ import annotations

import pytest
from textual import events

from retinue.frontends.tui.panels import AgentsPanel
from retinue.frontends.tui.screens.viewer import ViewerScreen
from tests.frontends.tui.watch_scene import picture, until, watching


class Stage:
    """Main and as many agents as a test wants, on the screen."""

    def __init__(self, scene, app, pilot) -> None:
        self.scene, self.app, self.pilot = scene, app, pilot
        self.panel = app.screen.query_one(AgentsPanel)

    async def of(self, count: int):
        main = await self.scene.main()
        self.app.board.main_id = main.id
        self.agents = [await self.scene.child(main, f"task-{n}", description=f"job-{n}") for n in range(count)]
        await until(self.pilot, lambda: len(self.panel._rows) == count)
        return self

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)
        await self.pilot.pause()

    @property
    def editor(self):
        return self.app.screen.query_one("#prompt")


@pytest.fixture
async def stage(tmp_path, monkeypatch):
    async with watching(tmp_path, monkeypatch, max_concurrent=20) as (scene, app, pilot):
        yield Stage(scene, app, pilot)


async def test_without_agents_there_is_no_fleet_and_no_key_is_taken(stage) -> None:
    await stage.press("down")
    assert not stage.panel.display and stage.app.focused is stage.editor


@pytest.mark.parametrize("key", ["down", "left"])
async def test_an_empty_prompt_gives_way(stage, key) -> None:
    await stage.of(1)
    await stage.press(key)
    assert stage.app.focused is stage.panel and stage.panel.selection.selected == stage.agents[0].id


async def test_a_prompt_with_text_keeps_its_keys(stage) -> None:
    await stage.of(1)
    await stage.press("h", "i", "left", "down")
    assert stage.app.focused is stage.editor and stage.panel.selection.selected is None


async def test_the_selection_clamps_at_the_end_and_leaves_above_the_first(stage) -> None:
    await stage.of(2)
    await stage.press("down", "down", "down", "down", "down")
    assert stage.panel.selection.selected == stage.agents[1].id
    await stage.press("up")
    assert stage.panel.selection.selected == stage.agents[0].id
    await stage.press("up")
    assert stage.app.focused is stage.editor


async def test_escape_leaves_and_stops_nobody(stage) -> None:
    await stage.of(1)
    await stage.press("down", "down", "escape")
    assert stage.app.focused is stage.editor and stage.agents[0].live


async def test_other_keys_leave_and_arrive_in_the_editor(stage) -> None:
    await stage.of(1)
    await stage.press("down", *"just")
    assert stage.app.focused is stage.editor and stage.editor.text == "just"
    assert stage.panel.selection.selected is None


async def test_no_letter_of_a_fast_typist_is_lost(stage) -> None:
    await stage.of(1)
    await stage.press("down")
    for key in "just do it":
        stage.app.post_message(events.Key("space" if key == " " else key, key))
    await until(stage.pilot, lambda: stage.editor.text == "just do it")


async def test_what_is_pasted_arrives_in_the_editor(stage) -> None:
    await stage.of(1)
    await stage.press("down")
    stage.app.post_message(events.Paste("from elsewhere"))
    await until(stage.pilot, lambda: stage.editor.text == "from elsewhere")
    assert stage.app.focused is stage.editor


async def test_a_terminal_that_is_left_and_comes_back_has_its_editor(stage) -> None:
    await stage.of(1)
    await stage.press("down", "down")
    stage.app.post_message(events.AppBlur())
    await until(stage.pilot, lambda: stage.app.focused is None)
    stage.app.post_message(events.AppFocus())
    await until(stage.pilot, lambda: stage.app.focused is stage.editor)
    await stage.press("h", "i")
    assert stage.editor.text == "hi"


async def test_enter_on_an_agent_opens_it_and_it_stays_open_and_listed_after_its_end(stage) -> None:
    await stage.of(2)
    await stage.press("down", "enter")
    await until(stage.pilot, lambda: isinstance(stage.app.screen, ViewerScreen))
    assert stage.panel.selection.pinned == stage.agents[0].id
    stage.scene.model("task-0").say("all done here")
    await until(stage.pilot, lambda: "all done here" in picture(stage.app))
    await until(stage.pilot, lambda: not stage.app.screen.story.card.live)
    assert isinstance(stage.app.screen, ViewerScreen)
    await stage.press("q")
    await until(stage.pilot, lambda: not isinstance(stage.app.screen, ViewerScreen))
    assert stage.panel.selection.pinned is None and stage.app.focused is stage.editor


async def test_a_dialog_above_has_the_keys(stage) -> None:
    await stage.of(1)
    await stage.press("down", "enter")
    await until(stage.pilot, lambda: isinstance(stage.app.screen, ViewerScreen))
    await stage.press("down", "left")
    assert stage.panel.selection.selected is None


async def test_at_80_by_24_the_conversation_keeps_14_lines_with_four_agents(tmp_path, monkeypatch) -> None:
    async with watching(tmp_path, monkeypatch, size=(80, 24), max_concurrent=20) as (scene, app, pilot):
        await Stage(scene, app, pilot).of(4)
        await until(pilot, lambda: "job-3" in picture(app))
        assert app.screen.query_one("#chat").size.height >= 14
        assert all(f"job-{number}" in picture(app) for number in range(4))


async def test_the_list_follows_the_selection(tmp_path, monkeypatch) -> None:
    async with watching(tmp_path, monkeypatch, size=(80, 24), max_concurrent=20) as (scene, app, pilot):
        stage = await Stage(scene, app, pilot).of(8)
        await stage.press(*["down"] * 9)
        await until(pilot, lambda: any("❯" in line.plain and "job-7" in line.plain for line in stage.panel.lines))
        assert "more" in stage.panel.lines[-1].plain and len(stage.panel.lines) == 5


async def test_switched_off_no_key_goes_into_the_list(tmp_path, monkeypatch) -> None:
    async with watching(tmp_path, monkeypatch, fleet_view="false") as (scene, app, pilot):
        main = await scene.main()
        app.board.main_id = main.id
        await scene.child(main, "task", description="job")
        await until(pilot, lambda: "job" in picture(app))
        assert "to choose" not in picture(app)
        await pilot.press("down")
        await pilot.pause()
        assert app.focused is app.screen.query_one("#prompt")
