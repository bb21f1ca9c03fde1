"""The viewer with real runs and real keys: of this process, of another one, and ended ones."""

from __future__ import annotations

import asyncio
import signal

import pytest
from textual.widgets import Input

from retinue import Retinue
from retinue.frontends.tui.app import RetinueApp
from retinue.frontends.tui.screens.viewer import ViewerScreen
from tests.frontends.tui.watch_scene import picture, until, watching
from tests.program.conftest import project, serve  # noqa: F401 - fixtures
from tests.program.model_server import Reply


class Stage:
    """A main run and one agent of it, which the viewer can look at."""

    def __init__(self, scene, app, pilot) -> None:
        self.scene, self.app, self.pilot = scene, app, pilot

    async def agent(self, task: str = "look"):
        main = await self.scene.main()
        self.app.board.main_id = main.id
        self.child = await self.scene.child(main, task, description="Find auth files")
        self.model = self.scene.model(task)
        return self.child

    async def open(self, run_id: str) -> ViewerScreen:
        self.app.watch_run(run_id)
        await self.see("[User]")
        return self.app.screen

    async def see(self, text: str) -> None:
        try:
            await until(self.pilot, lambda: text in picture(self.app), 10)
        except TimeoutError:
            pytest.fail(f"{text!r} is not to be seen:\n{picture(self.app)}")

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)
        await self.pilot.pause()


@pytest.fixture
async def stage(tmp_path, monkeypatch):
    async with watching(tmp_path, monkeypatch) as made:
        yield Stage(*made)


async def test_a_run_is_seen_as_it_works_and_after_it_ended(stage) -> None:
    child = await stage.agent()
    await stage.open(child.id)
    stage.model.call("ls", "I look around.", path=".")
    await stage.see("[Tool: ls] .")
    await stage.see("[Result] ls")
    await stage.see("I look around.")
    await stage.model.asked()
    stage.model.say("It is in src/auth.py")
    await stage.see("It is in src/auth.py")
    await stage.see("✓ general-purpose")
    assert isinstance(stage.app.screen, ViewerScreen)


async def test_what_is_composed_reaches_the_run_trimmed(stage) -> None:
    child = await stage.agent()
    screen = await stage.open(child.id)
    await stage.press("enter")
    assert screen.query_one(Input).has_focus
    await stage.press("space", *"only", "space", *"src", "space", "enter")
    await stage.see("it reads this after its current tool calls.")
    stage.model.call("ls", path=".")
    await stage.see("[User] steer")
    assert ("steer", "only src") in await stage.scene.said(child.id)


async def test_no_letter_of_a_fast_typist_is_lost(stage) -> None:
    child = await stage.agent()
    await stage.open(child.id)
    for key in ("enter", *"quick", "enter"):
        stage.app.simulate_key(key)
    await stage.see("it reads this after its current tool calls.")
    stage.model.call("ls", path=".")
    await stage.see("[User] steer")
    assert ("steer", "quick") in await stage.scene.said(child.id)


async def test_nothing_is_sent_for_an_empty_line_nor_after_escape(stage) -> None:
    child = await stage.agent()
    screen = await stage.open(child.id)
    await stage.press("enter", "space", "enter")
    await stage.press("enter", *"no", "escape")
    assert isinstance(stage.app.screen, ViewerScreen) and screen.viewer.mode == "reading"
    stage.model.call("ls", path=".")
    await stage.see("[Result] ls")
    assert [origin for origin, _ in await stage.scene.said(child.id)] == ["task"]


async def test_stop_takes_x_twice_and_leaves_others_alone(stage) -> None:
    child = await stage.agent()
    await stage.open(child.id)
    await stage.press("x", "j")
    assert child.live
    await stage.press("x")
    await stage.see("press x again to stop it")
    await stage.press("x")
    await stage.see("stopped")
    outcome = await child.wait()
    assert (outcome.ended, outcome.stopped_by) == ("stopped", "person")
    await stage.press("enter", "x", "x")
    assert stage.app.screen.viewer.mode == "reading"
    assert child.parent.live


async def test_scrolling_up_pauses_and_end_follows(stage) -> None:
    child = await stage.agent()
    screen = await stage.open(child.id)
    stage.model.call("ls", "\n".join(f"row {number}" for number in range(80)), path=".")
    await stage.see("row 79")
    await stage.see("following")
    await stage.press("home")
    await stage.see("row 0")
    await stage.see("paused")
    await stage.model.asked()
    stage.model.call("ls", "something new", path=".")
    await until(stage.pilot, lambda: screen.story.card.turn == 3)
    await stage.pilot.pause(0.2)
    assert "something new" not in picture(stage.app)
    await stage.press("end")
    await stage.see("something new")


async def test_a_search_finds_and_marks(stage) -> None:
    child = await stage.agent()
    screen = await stage.open(child.id)
    stage.model.call("ls", "\n".join("a needle" if n in (5, 60) else f"row {n}" for n in range(80)), path=".")
    await stage.see("row 79")
    await stage.press("home", "slash", *"needle", "enter")
    await stage.see("match 1/2")
    await stage.see("a needle")
    await stage.press("n")
    await stage.see("match 2/2")
    assert not screen.viewer.follow


async def test_the_keys_of_settings_are_heard(tmp_path, monkeypatch) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "settings.json").write_text('{"keys": {"viewer.close": "w", "viewer.whole": "f"}}')
    async with watching(tmp_path, monkeypatch) as made:
        stage = Stage(*made)
        child = await stage.agent()
        screen = await stage.open(child.id)
        await stage.press("q", "f")
        assert stage.app.screen is screen and screen.viewer.fullscreen
        await stage.press("w")
        await until(stage.pilot, lambda: stage.app.screen is not screen)


async def test_the_views_show_prompt_effects_output_and_facts(stage) -> None:
    child = await stage.agent("count every file")
    await stage.open(child.id)
    stage.model.call("bash", command="echo hello-there")
    await stage.model.asked()
    for key, seen in (("2", "count every file"), ("3", "echo hello-there"), ("4", "[So far]"), ("5", child.id)):
        await stage.press(key)
        await stage.see(seen)
    await stage.press("1")
    await stage.see("[Tool: bash]")


async def test_a_run_that_goes_on_while_it_is_looked_at_is_followed_again(stage) -> None:
    child = await stage.agent()
    await stage.open(child.id)
    stage.model.say("first answer")
    await stage.see("first answer")
    await child.wait()
    await stage.scene.supervisor.resume(child.id, "and the tests?")
    await stage.see("and the tests?")
    await stage.model.asked()
    stage.model.say("second answer")
    await stage.see("second answer")


async def test_a_viewer_that_opens_in_the_middle_of_an_answer_shows_its_beginning(stage) -> None:
    from retinue.core.events import TextDelta

    child = await stage.agent()
    log = stage.scene.supervisor.project.log
    log.append(child.place, TextDelta("It begins like this, "))
    await log.flush()
    await stage.open(child.id)
    await stage.see("It begins like this,")
    log.append(child.place, TextDelta("and goes on. "))
    await stage.see("It begins like this, and goes on.")


async def test_a_run_that_nobody_knows_is_said_to_be_unknown(stage) -> None:
    stage.app.watch_run("no-such-run")
    await stage.see("There is no run 'no-such-run'")
    await stage.press("escape")
    await until(stage.pilot, lambda: not isinstance(stage.app.screen, ViewerScreen))


@pytest.mark.parametrize("size", [(80, 24), (30, 12), (200, 60)])
async def test_it_fits_every_terminal_and_follows_its_size(tmp_path, monkeypatch, size) -> None:
    async with watching(tmp_path, monkeypatch) as made:
        stage = Stage(*made)
        child = await stage.agent()
        await stage.open(child.id)
        await stage.pilot.resize_terminal(*size)
        await stage.see("[User]")
        rows = picture(stage.app).split("\n")
        assert len(rows) == size[1] and sum("╭" in row for row in rows) >= 1
        await stage.press("z")
        await until(stage.pilot, lambda: picture(stage.app).startswith("╭"))


# Runs of other processes


@pytest.fixture
async def elsewhere(project, serve):  # noqa: F811
    """A run of another process that waits for its model, and the app in this one."""

    def answer(request):
        return Reply("Looking.", [("ls", {"path": "."})]) if request.turn == 0 else Reply(hang=True)

    serve(answer)
    process = project.start("run", "Explore", "find the parser")
    try:
        async with Retinue(project.cwd, environment=project.environment) as retinue:
            app = RetinueApp(retinue)
            async with app.run_test(size=(100, 40)) as pilot:
                stage = Stage(None, app, pilot)
                await until(pilot, lambda: retinue.runs and retinue.runs[0].tool_uses)
                yield stage, retinue.runs[0].id, process
    finally:
        process.kill()
        process.communicate()


async def test_a_run_of_another_process_is_watched_steered_and_stopped(elsewhere) -> None:
    stage, run_id, process = elsewhere
    await stage.open(run_id)
    await stage.see("[Tool: ls] .")
    await stage.press("enter", *"hurry", "enter")
    await stage.see("Delivered: it reads this after its current tool calls.")
    await stage.press("x", "x")
    await stage.see("stopped")
    assert await asyncio.to_thread(process.wait, 20) == 130


async def test_a_run_whose_process_dies_is_shown_as_interrupted(elsewhere) -> None:
    stage, run_id, process = elsewhere
    screen = await stage.open(run_id)
    assert screen.story.card.live
    process.send_signal(signal.SIGKILL)
    await stage.see("interrupted")
    await stage.press("x", "x", "enter")
    assert screen.viewer.mode == "reading"


async def test_an_ended_run_of_an_earlier_process_is_read_from_the_log(project, serve) -> None:  # noqa: F811
    serve(lambda request: Reply("The parser is in src."))
    assert project.retinue("run", "Explore", "find the parser").returncode == 0
    async with Retinue(project.cwd, environment=project.environment) as retinue:
        app = RetinueApp(retinue)
        async with app.run_test(size=(80, 24)) as pilot:
            stage = Stage(None, app, pilot)
            await stage.open(retinue.runs[0].id)
            await stage.see("The parser is in src.")
            await stage.see("✓ ")
            assert "x stop" not in picture(app)


async def test_a_watched_run_goes_on_from_a_moment_as_a_new_run(stage) -> None:
    child = await stage.agent()
    await stage.open(child.id)
    stage.model.call("ls", "I look around.", path=".")
    await stage.model.asked()
    stage.model.say("It is in src/auth.py")
    await stage.see("✓ general-purpose")
    await stage.press("f")
    await stage.see("Fork after which moment?")
    assert "turn 1: ls(path='.')" in picture(stage.app)
    await stage.press("up", "enter")
    await stage.see("What is said there?")
    await stage.press(*"why", "enter")
    await stage.see("[User] follow-up")
    rows = stage.app.project.log.reader.list_runs()
    new = next(row for row in rows if row.id != child.id and row.agent == "general-purpose" and row.parent_id is None)
    said = await stage.scene.said(new.id)
    assert ("follow-up", "why") in said and stage.app.project.log.reader.run(child.id).turns == 2
    await stage.model.asked()
    stage.model.say("Because.")
    await stage.see("Because.")
