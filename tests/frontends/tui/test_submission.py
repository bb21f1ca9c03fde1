"""What a person sends from the prompt: commands of the app, commands' files, !commands, #notes."""

from __future__ import annotations

from pathlib import Path

from retinue.frontends.tui.screens.dialogs import ConfirmScreen, HelpScreen
from retinue.frontends.tui.shell import ShellBlock
from tests.frontends.tui.watch_scene import picture, until, watching


def command(folder: Path, name: str, text: str) -> None:
    path = folder / "project" / ".claude" / "commands" / f"{name}.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


async def send(pilot, text: str) -> None:
    pilot.app._prompt.put(text)
    await pilot.press("enter")
    await pilot.pause()


def typed(text: str) -> list[str]:
    return [{"/": "slash", "-": "minus", " ": "space"}.get(sign, sign) for sign in text]


async def test_a_commands_file_is_in_the_menu_and_is_sent_with_its_arguments(tmp_path, monkeypatch) -> None:
    async with watching(tmp_path, monkeypatch) as (scene, app, pilot):
        command(tmp_path, "fix-issue", "---\ndescription: Fix an issue\nargument-hint: NUMBER\n---\nFix issue $1.\n")
        app._prompt.put("/fi")
        await until(pilot, lambda: "/fix-issue  NUMBER Fix an issue (command, project)" in picture(app))
        await send(pilot, "/fix-issue 12")
        model = scene.model("/fix-issue 12")
        await model.asked()
        assert "Fix issue 12." in str(model.requests[0].messages)
        await until(pilot, lambda: "⎿ command fix-issue" in picture(app))
        assert "Fix issue 12." not in picture(app)


async def test_enter_in_a_burst_runs_the_command_that_was_typed_and_no_other(tmp_path, monkeypatch) -> None:
    async with watching(tmp_path, monkeypatch) as (_, app, pilot):
        for _ in range(10):
            # No pause in between: the list of completions is behind all the time.
            await pilot.press(*typed("/help"), "enter")
            await until(pilot, lambda: len(app.screen_stack) == 2)
            assert isinstance(app.screen, HelpScreen)
            await pilot.press("escape")
            await until(pilot, lambda: len(app.screen_stack) == 1)
            assert app._prompt.text == ""


async def test_an_unknown_command_names_the_nearest_one(tmp_path, monkeypatch) -> None:
    async with watching(tmp_path, monkeypatch) as (_, app, pilot):
        command(tmp_path, "fix-issue", "Fix it.")
        await send(pilot, "/fix-isue 12")
        await until(pilot, lambda: "There is no command /fix-isue. Did you mean /fix-issue?" in picture(app))
        await send(pilot, "/modle")
        await until(pilot, lambda: "Did you mean /model?" in picture(app))


async def test_a_command_line_that_no_rule_allows_is_asked_about_and_no_sends_nothing(tmp_path, monkeypatch) -> None:
    settings = {"permissions_default_mode": "default"}
    async with watching(tmp_path, monkeypatch, **settings) as (scene, app, pilot):
        command(tmp_path, "make", "!`touch made.txt`\nGo.")
        await send(pilot, "/make")
        await until(pilot, lambda: isinstance(app.screen, ConfirmScreen))
        assert "touch made.txt" in picture(app)
        await pilot.press("n")
        await until(pilot, lambda: "/make was not sent" in picture(app))
        assert app._prompt.text == "/make"
        assert not (tmp_path / "project" / "made.txt").exists()
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, ConfirmScreen))
        await pilot.press("y")
        await scene.model("/make").asked()
        assert (tmp_path / "project" / "made.txt").exists()


async def test_a_command_of_the_person_is_shown_and_goes_with_the_next_words(tmp_path, monkeypatch) -> None:
    async with watching(tmp_path, monkeypatch) as (scene, app, pilot):
        await send(pilot, "!printf 'one\\ntwo\\n'; exit 3")
        await until(pilot, lambda: "exit code 3" in picture(app) and "two" in picture(app))
        assert not app.query_one(ShellBlock).has_class("said")
        await send(pilot, "what was that?")
        model = scene.model("what was that?")
        await model.asked()
        assert "one\\ntwo\\n[exit code 3]" in str(model.requests[0].messages)
        await until(pilot, lambda: "⎿ output of printf" in picture(app))


async def test_escape_ends_a_command_of_the_person(tmp_path, monkeypatch) -> None:
    async with watching(tmp_path, monkeypatch) as (_, app, pilot):
        await send(pilot, "!echo begun; sleep 600")
        await until(pilot, lambda: "begun" in picture(app))
        await pilot.press("escape")
        await until(pilot, lambda: "stopped by you" in picture(app))


async def test_a_note_goes_into_the_file_that_is_chosen(tmp_path, monkeypatch) -> None:
    async with watching(tmp_path, monkeypatch) as (_, app, pilot):
        (tmp_path / "project" / "CLAUDE.md").write_text("# Rules")
        await send(pilot, "# use tabs")
        await until(pilot, lambda: isinstance(app.screen, ConfirmScreen))
        await pilot.press("escape")
        await until(pilot, lambda: app._prompt.text == "#use tabs")
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, ConfirmScreen))
        await pilot.press("enter")
        await until(pilot, lambda: "Noted in" in picture(app))
        assert (tmp_path / "project" / "CLAUDE.md").read_text() == "# Rules\n- use tabs\n"


async def test_files_agents_and_types_are_in_one_list_that_says_which_is_which(tmp_path, monkeypatch) -> None:
    async with watching(tmp_path, monkeypatch) as (scene, app, pilot):
        project = tmp_path / "project"
        (project / "explain").mkdir()
        (project / "explain" / "a.txt").write_text("x")
        await send(pilot, "go")
        await scene.model("go").asked()
        main = app.retinue.supervisor.members[app.session.main_id]
        await scene.child(main, "look", name="expert", description="look")
        await until(pilot, lambda: any(card.name == "expert" for card in app.board.agents()))
        app._prompt.put("@exp")
        await until(pilot, lambda: "@explain/" in picture(app))
        notes = {each.text: each.note.split(" ·")[0] for each in app._prompt.choices.candidates}
        assert notes["@expert"].startswith("agent ")
        assert notes["@Explore"] == "starts an agent"
        assert "@explore" not in notes
        assert notes["@explain/"] == "folder"
        assert notes["@explain/a.txt"] == "file"
        await send(pilot, "@Explore find it")
        await scene.model("find it").asked()
        await until(pilot, lambda: "→ @explore (started)" in picture(app))


async def test_words_that_wait_come_back_without_what_they_attach(tmp_path, monkeypatch) -> None:
    async with watching(tmp_path, monkeypatch) as (scene, app, pilot):
        (tmp_path / "project" / "a.txt").write_text("content of a\n")
        await send(pilot, "go")
        await scene.model("go").asked()
        await send(pilot, "see @a.txt too ")
        await until(pilot, lambda: app.session.queue and "◦ see @a.txt too" in picture(app))
        assert "content of a" in app.session.queue[0].render()
        await pilot.press("up")
        await until(pilot, lambda: app._prompt.text == "see @a.txt too")


async def test_the_help_lists_commands_files_and_skills_and_the_signs_of_a_message(tmp_path, monkeypatch) -> None:
    async with watching(tmp_path, monkeypatch, size=(120, 110)) as (_, app, pilot):
        command(tmp_path, "fix-issue", "---\ndescription: Fix an issue\nargument-hint: NUMBER\n---\nFix $1.\n")
        await send(pilot, "/help")
        await until(pilot, lambda: "/fix-issue NUMBER" in picture(app))
        assert "Fix an issue (command, project)" in picture(app)
        assert "!command" in picture(app)
        assert "@type words" in picture(app)


async def test_an_agent_that_starts_before_the_conversation_says_where_its_answer_is(tmp_path, monkeypatch) -> None:
    async with watching(tmp_path, monkeypatch) as (scene, app, pilot):
        await send(pilot, "@Explore find it")
        await scene.model("find it").asked()
        await until(pilot, lambda: "press ↓ and Enter" in picture(app))
