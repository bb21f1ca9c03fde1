"""Going back: Esc Esc, `/rewind` and `/undo` in the app, with real files and the real log behind them."""

from __future__ import annotations

from retinue.app.conversation import exchanges, farewell, newest_exchanges, read_end
from retinue.app.rewind import REWIND_TYPES, Rewinder, find_points
from retinue.core.events import Rewound, ToolsEnded
from retinue.core.messages import UserMessage
from retinue.frontends.tui.screens.dialogs import ConfirmScreen
from retinue.frontends.tui.screens.rewind import RewindScreen
from retinue.log.replay import current_branch
from tests.frontends.tui.test_app import type_in
from tests.frontends.tui.watch_scene import picture, until, watching

FREE = {"permissions_default_mode": "acceptEdits"}


async def talk(scene, app, pilot, words: str, path: str = "") -> None:
    """Say something; the main agent writes a file if a path is named, and answers."""
    model = scene.model("one")
    await type_in(pilot, words)
    await model.asked()
    if path:
        model.call("write", path=path, content=f"{words}\n")
        await model.asked()
    model.say(f"Answer to {words}.")
    await until(pilot, lambda: app.session.state == "idle" and f"Answer to {words}." in picture(app))


def heard(scene) -> list[str]:
    """What the newest request tells the model of people's words."""
    return [each.text for each in scene.model("one").requests[-1].messages if isinstance(each, UserMessage)]


async def open_rewind(app, pilot, messages: int) -> None:
    await pilot.press("escape", "escape")
    await until(pilot, lambda: isinstance(app.screen, RewindScreen) and len(app.screen._points) == messages)
    await pilot.pause()


async def test_going_back_takes_conversation_and_files_and_the_words_are_in_the_editor(tmp_path, monkeypatch) -> None:
    async with watching(tmp_path, monkeypatch, **FREE) as (scene, app, pilot):
        await talk(scene, app, pilot, "one")
        await talk(scene, app, pilot, "two", "two.txt")
        await talk(scene, app, pilot, "three", "three.txt")
        await open_rewind(app, pilot, 3)
        assert "two  · 2 files changed since" in picture(app)
        await pilot.press("up", "enter")
        await until(pilot, lambda: isinstance(app.screen, ConfirmScreen))
        assert "two.txt, three.txt" in picture(app)
        await pilot.press("b")
        await until(pilot, lambda: "2 files put back" in picture(app))
        assert app._prompt.text == "two"
        assert "Answer to one." in picture(app) and "Answer to three." not in picture(app)
        assert not (app.project.cwd / "two.txt").exists() and not (app.project.cwd / "three.txt").exists()
        # What is said next goes on after the first message, and only after it.
        await talk(scene, app, pilot, "four")
        assert heard(scene) == ["one", "four"]


async def test_words_come_back_without_what_was_attached_to_them(tmp_path, monkeypatch) -> None:
    async with watching(tmp_path, monkeypatch, **FREE) as (scene, app, pilot):
        (app.project.cwd / "a.txt").write_text("content of a")
        await talk(scene, app, pilot, "one")
        await talk(scene, app, pilot, "see @a.txt please")
        await open_rewind(app, pilot, 2)
        assert "attached_file" not in picture(app)
        await pilot.press("enter")
        await until(pilot, lambda: app._prompt.text != "")
        assert app._prompt.text == "see @a.txt please"
        lines = farewell(app.project.log.reader, app.session.main_id, 80)
        assert lines == ["❯ one", "", "Answer to one."]


async def test_a_fork_is_a_conversation_of_its_own_and_the_old_one_stays(tmp_path, monkeypatch) -> None:
    async with watching(tmp_path, monkeypatch, **FREE) as (scene, app, pilot):
        await talk(scene, app, pilot, "one")
        await talk(scene, app, pilot, "two", "two.txt")
        old = app.session.main_id
        await open_rewind(app, pilot, 2)
        await pilot.press("f")
        await until(pilot, lambda: isinstance(app.screen, ConfirmScreen))
        await pilot.press("b")
        await until(pilot, lambda: "Forked from" in picture(app) and app._prompt.text == "two")
        assert app.session.main_id != old and not (app.project.cwd / "two.txt").exists()
        assert "Answer to one." in picture(app) and "Answer to two." not in picture(app)
        await talk(scene, app, pilot, "three")
        assert heard(scene) == ["one", "three"]
        assert app.project.log.reader.run(old).turns == 3


async def test_the_part_that_was_left_can_be_taken_up_again(tmp_path, monkeypatch) -> None:
    async with watching(tmp_path, monkeypatch, **FREE) as (scene, app, pilot):
        await talk(scene, app, pilot, "one")
        await talk(scene, app, pilot, "two")
        await talk(scene, app, pilot, "three")
        await open_rewind(app, pilot, 3)
        await pilot.press("enter")
        await until(pilot, lambda: app._prompt.text == "three")
        await talk(scene, app, pilot, "instead")
        assert heard(scene) == ["one", "two", "instead"]
        await open_rewind(app, pilot, 4)
        assert "back to the part that ended with: three" in picture(app)
        await pilot.press("down", "enter")
        await until(pilot, lambda: "Answer to three." in picture(app) and "instead" not in picture(app))
        await talk(scene, app, pilot, "four")
        assert heard(scene) == ["one", "two", "three", "four"]


async def test_only_the_conversation_tells_the_model_which_files_stay_changed(tmp_path, monkeypatch) -> None:
    async with watching(tmp_path, monkeypatch, **FREE) as (scene, app, pilot):
        await talk(scene, app, pilot, "one")
        await talk(scene, app, pilot, "two", "two.txt")
        await open_rewind(app, pilot, 2)
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, ConfirmScreen))
        await pilot.press("c")
        await until(pilot, lambda: app._prompt.text == "two")
        assert (app.project.cwd / "two.txt").exists()
        await talk(scene, app, pilot, "three")
        first, told, last = heard(scene)
        assert (first, last) == ("one", "three")
        assert "went back" in told and "two.txt" in told


async def test_before_the_first_message_is_a_new_conversation_and_the_old_one_stays(tmp_path, monkeypatch) -> None:
    async with watching(tmp_path, monkeypatch, **FREE) as (scene, app, pilot):
        await talk(scene, app, pilot, "one")
        first = app.session.main_id
        await type_in(pilot, "/rewind")
        await until(pilot, lambda: isinstance(app.screen, RewindScreen) and app.screen._points)
        await pilot.press("enter")
        await until(pilot, lambda: app._prompt.text == "one")
        assert app.session.main_id is None
        assert f"retinue --resume {first[:8]}" in picture(app)


async def test_undo_takes_back_the_files_of_the_last_message_and_leaves_what_others_changed(
    tmp_path, monkeypatch
) -> None:
    async with watching(tmp_path, monkeypatch, **FREE) as (scene, app, pilot):
        await type_in(pilot, "/undo")
        await until(pilot, lambda: "Nothing was said yet." in picture(app))
        await talk(scene, app, pilot, "one", "one.txt")
        await talk(scene, app, pilot, "two", "two.txt")
        await type_in(pilot, "/undo")
        await until(pilot, lambda: "1 file put back: two.txt." in picture(app))
        assert (app.project.cwd / "one.txt").exists() and not (app.project.cwd / "two.txt").exists()
        await type_in(pilot, "/undo")
        await until(pilot, lambda: "No file was changed since your last message." in picture(app))
        await talk(scene, app, pilot, "three", "three.txt")
        (app.project.cwd / "three.txt").write_text("mine now\n")
        await type_in(pilot, "/undo")
        await until(pilot, lambda: "Not changed: three.txt" in picture(app))
        assert (app.project.cwd / "three.txt").read_text() == "mine now\n"


async def test_nobody_goes_back_while_the_main_agent_works(tmp_path, monkeypatch) -> None:
    async with watching(tmp_path, monkeypatch, **FREE) as (scene, app, pilot):
        await type_in(pilot, "one")
        await scene.model("one").asked()
        await type_in(pilot, "/rewind")
        await until(pilot, lambda: "interrupt it with Esc first" in picture(app))
        assert not isinstance(app.screen, RewindScreen)


async def test_cost_is_counted_once_after_clear_and_coming_back(tmp_path, monkeypatch) -> None:
    async with watching(tmp_path, monkeypatch, **FREE) as (scene, app, pilot):
        await talk(scene, app, pilot, "one")
        main = app.session.main_id
        before = app.board.cards[main].usage
        assert before.total_tokens
        await type_in(pilot, "/clear")
        await until(pilot, lambda: app.session.main_id is None)
        await app.open_session(main)
        assert app.board.cards[main].usage == before
        await talk(scene, app, pilot, "two")
        await app.open_session(main)
        assert app.board.cards[main].usage.total_tokens == 2 * before.total_tokens


async def test_what_the_app_reads_of_a_conversation_is_what_all_of_its_events_say(tmp_path, monkeypatch) -> None:
    async with watching(tmp_path, monkeypatch, **FREE) as (scene, app, pilot):
        await talk(scene, app, pilot, "one")
        await talk(scene, app, pilot, "two", "two.txt")
        for words in ("three", "four"):
            rewinder = Rewinder(app.project, app.session.main_id)
            newest = [point for point in await rewinder.points() if not point.is_left][-1]
            await rewinder.go_back(newest)
            await app.open_session(app.session.main_id)
            await talk(scene, app, pilot, words)
        await app.project.log.flush()
        reader, run_id = app.project.log.reader, app.session.main_id
        events = reader.events(run_id)
        assert sum(isinstance(event.body, Rewound) for event in events) == 2
        assert find_points(list(reader.stream(run_id, types=REWIND_TYPES))) == find_points(events)
        branch = [event for event in current_branch(events) if not isinstance(event.body, ToolsEnded)]
        assert read_end(reader, run_id) == branch
        assert [each.text for each in newest_exchanges(reader, run_id)] == [
            each.text for each in reversed(exchanges(branch))
        ]
