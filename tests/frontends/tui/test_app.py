"""The app as a person uses it: keys in, screen out, a real supervisor behind it."""

from __future__ import annotations

import json

import pytest

from retinue.core.usage import Usage
from retinue.frontends.tui.chat.answer import Notice
from retinue.frontends.tui.chat.folded import ToolBlock
from retinue.frontends.tui.frame import COMMANDS
from retinue.frontends.tui.screens.dialogs import ConfirmScreen, HelpScreen
from retinue.frontends.tui.screens.sessions import SessionsScreen
from retinue.settings.write import save_settings
from tests.frontends.tui.watch_scene import picture, until, watching


async def type_in(pilot, text: str) -> None:
    app = pilot.app
    app._prompt.put(text)
    await pilot.press("enter")
    await pilot.pause()


async def test_the_status_line_counts_this_conversation_alone(tmp_path, monkeypatch) -> None:
    async with watching(tmp_path, monkeypatch) as (scene, app, pilot):
        model = scene.model("go")
        await type_in(pilot, "go")
        await model.asked()
        model.say("Done.")
        await until(pilot, lambda: app.session.state == "idle" and "Done." in picture(app))
        assert app.status_facts().tokens > 0
        await type_in(pilot, "/new")
        await until(pilot, lambda: app.session.main_id is None)
        assert app.status_facts().tokens == 0


async def test_what_is_said_and_answered_is_on_the_screen(tmp_path, monkeypatch) -> None:
    async with watching(tmp_path, monkeypatch) as (scene, app, pilot):
        await type_in(pilot, "hello")
        await scene.model("hello").asked()
        await until(pilot, lambda: "❯ hello" in picture(app) and "esc to interrupt" in picture(app))
        scene.model("hello").call("ls", "Let me look.")
        await until(pilot, lambda: app.query(ToolBlock))
        await scene.model("hello").asked()
        scene.model("hello").say("There is **nothing** here.")
        await until(pilot, lambda: "There is nothing here." in picture(app) and "esc to" not in picture(app))
        assert "✓ ls" in picture(app)
        assert "claude-sonnet-4-5" in picture(app)


async def test_escape_stops_the_main_agent_and_no_background_agent(tmp_path, monkeypatch) -> None:
    async with watching(tmp_path, monkeypatch) as (scene, app, pilot):
        await type_in(pilot, "go")
        await scene.model("go").asked()
        child = await scene.child(
            app.retinue.supervisor.members[app.session.main_id], "slow work", description="slow work"
        )
        await until(pilot, lambda: "slow work" in picture(app))
        await pilot.press("escape")
        await until(pilot, lambda: "Interrupted." in picture(app) and app.session.state == "idle")
        assert child.live
        await pilot.press("escape", "escape")
        await pilot.pause()
        assert child.live


async def test_waiting_words_are_shown_edited_and_sent_at_once(tmp_path, monkeypatch) -> None:
    async with watching(tmp_path, monkeypatch) as (scene, app, pilot):
        await type_in(pilot, "go")
        model = scene.model("go")
        await model.asked()
        await type_in(pilot, "also the tests")
        await until(pilot, lambda: "◦ also the tests" in picture(app) and "F9" in picture(app))
        await pilot.press("up")
        await until(pilot, lambda: app._prompt.text == "also the tests" and app.session.waiting == [])
        await until(pilot, lambda: "◦" not in picture(app))
        await pilot.press("!", "enter")
        await until(pilot, lambda: app.session.waiting == ["also the tests!"])
        await pilot.press("f9")
        await until(pilot, lambda: len(model.requests) == 2)
        await until(pilot, lambda: "❯ also the tests!" in picture(app) and "◦" not in picture(app))


async def test_another_key_for_resend(tmp_path, monkeypatch) -> None:
    async with watching(tmp_path, monkeypatch, abort_resend_key="f8") as (scene, app, pilot):
        await type_in(pilot, "go")
        await scene.model("go").asked()
        await pilot.press("f9")
        await pilot.pause()
        assert app.session.state == "working"
        await pilot.press("f8")
        await until(pilot, lambda: app.session.state == "idle")


async def test_what_cannot_start_is_said_and_the_words_come_back(tmp_path, monkeypatch) -> None:
    async with watching(tmp_path, monkeypatch) as (_, app, pilot):
        app.session.model = "no/such"
        await type_in(pilot, "hello there")
        await until(pilot, lambda: "no/such" in picture(app))
        assert app._prompt.text == "hello there"


async def test_a_mention_says_who_has_it(tmp_path, monkeypatch) -> None:
    async with watching(tmp_path, monkeypatch) as (scene, app, pilot):
        await type_in(pilot, "go")
        await scene.model("go").asked()
        await scene.child(app.retinue.supervisor.members[app.session.main_id], "look", name="scout")
        app._prompt.put("@sc")
        await until(pilot, lambda: app._prompt.choices.open and "@scout" in picture(app))
        await pilot.press("tab")
        assert app._prompt.text == "@scout "
        await type_in(pilot, "@scout only src")
        await until(pilot, lambda: "→ @scout (steered): @scout only src" in picture(app))


async def test_an_unknown_command_is_pointed_out_and_a_path_is_said(tmp_path, monkeypatch) -> None:
    async with watching(tmp_path, monkeypatch) as (scene, app, pilot):
        await type_in(pilot, "/nonsense")
        await until(pilot, lambda: "There is no command /nonsense" in picture(app))
        await type_in(pilot, "/etc/hosts says?")
        await scene.model("/etc/hosts says?").asked()


async def test_commands_answer_in_the_conversation(tmp_path, monkeypatch) -> None:
    async with watching(tmp_path, monkeypatch) as (scene, app, pilot):
        await type_in(pilot, "/cost")
        await until(pilot, lambda: "Nothing was spent in this conversation yet." in picture(app))
        await type_in(pilot, "/model haiku")
        await until(pilot, lambda: "From your next message on: anthropic/claude-haiku" in picture(app))
        await type_in(pilot, "hello")
        await scene.model("hello").asked()
        assert app.session.run.launch.model_name.startswith("anthropic/claude-haiku")
        scene.model("hello").say("hi")
        await until(pilot, lambda: app.session.state == "idle")
        await type_in(pilot, "/cost")
        await until(pilot, lambda: "together" in picture(app) and "~$0.01" in picture(app))
        await type_in(pilot, "/model nonsense-9000")
        await until(pilot, lambda: "nonsense-9000" in picture(app).replace("❯", ""))
        await type_in(pilot, "/compact")
        await until(pilot, lambda: "will be compacted with" in picture(app))
        await type_in(pilot, "/clear")
        await until(pilot, lambda: "together" not in picture(app) and app.session.main_id is None)


async def test_themes_change_and_are_remembered(tmp_path, monkeypatch) -> None:
    async with watching(tmp_path, monkeypatch) as (_, app, pilot):
        assert app.theme == "retinue-dark"
        await type_in(pilot, "/theme light")
        await until(pilot, lambda: app.theme == "retinue-light")
        assert app.retinue.supervisor.settings.theme == "light"
        await type_in(pilot, "/theme purple")
        await until(pilot, lambda: "There is no theme 'purple'" in picture(app))


async def test_help_has_every_key_and_command(tmp_path, monkeypatch) -> None:
    async with watching(tmp_path, monkeypatch, size=(110, 70)) as (_, app, pilot):
        await pilot.press("f1")
        await until(pilot, lambda: isinstance(app.screen, HelpScreen) and "Commands" in picture(app))
        shown = picture(app)
        for name in COMMANDS:
            assert f"/{name}" in shown
        for key in app.keys:
            assert key.key in shown
        await pilot.press("escape")
        await until(pilot, lambda: len(app.screen_stack) == 1)


async def test_an_earlier_conversation_is_found_and_goes_on(tmp_path, monkeypatch) -> None:
    async with watching(tmp_path, monkeypatch) as (scene, app, pilot):
        for task in ("about parsers", "about colours"):
            scene.model(task).standing = f"answer {task}"
            await type_in(pilot, task)
            await until(pilot, lambda: app.session.state == "idle" and app.session.main_id is not None)
            await type_in(pilot, "/clear")
            await until(pilot, lambda: app.session.main_id is None)
        await type_in(pilot, "/sessions")
        await until(pilot, lambda: isinstance(app.screen, SessionsScreen) and "about parsers" in picture(app))
        await pilot.press(*"pars")
        await until(pilot, lambda: "about colours" not in picture(app))
        await pilot.press("enter")
        await until(pilot, lambda: "answer about parsers" in picture(app) and len(app.screen_stack) == 1)
        await type_in(pilot, "and lexers?")
        await until(pilot, lambda: len(scene.model("about parsers").requests) == 2)
        assert "claude-sonnet-4-5" in picture(app)


async def test_earlier_conversations_show_what_their_agents_cost_too(tmp_path, monkeypatch) -> None:
    async with watching(tmp_path, monkeypatch) as (scene, app, pilot):
        await type_in(pilot, "go")
        main = scene.model("go")
        await main.asked()
        main.call("Agent", prompt="look", description="look", subagent_type="Explore", run_in_background=False)
        child = scene.model("look")
        await child.asked()
        child.say("Seen.", Usage(10_000, 10, cost_usd=0.25))
        await main.asked()
        main.say("Done.", Usage(100, 10, cost_usd=0.5))
        await until(pilot, lambda: app.session.state == "idle" and "Done." in picture(app))
        await type_in(pilot, "/resume")
        await until(pilot, lambda: isinstance(app.screen, SessionsScreen) and "2 turns  ~$0.76" in picture(app))


async def test_leaving_asks_only_while_something_runs(tmp_path, monkeypatch) -> None:
    async with watching(tmp_path, monkeypatch) as (scene, app, pilot):
        await type_in(pilot, "go")
        await scene.model("go").asked()
        app._prompt.put("half a line")
        await pilot.press("ctrl+c")
        assert app._prompt.text == ""
        await pilot.press("ctrl+c")
        await until(pilot, lambda: "Press Ctrl+C again to quit." in picture(app))
        await pilot.press("ctrl+c")
        await until(pilot, lambda: isinstance(app.screen, ConfirmScreen))
        assert "1 run still at work." in picture(app) and "go on without" not in picture(app)
        await pilot.press("c")
        await until(pilot, lambda: len(app.screen_stack) == 1)
        assert app.session.state == "working"
        await type_in(pilot, "/quit")
        await until(pilot, lambda: isinstance(app.screen, ConfirmScreen))
        await pilot.press("s")
        await until(pilot, lambda: app.return_value == "quit")


async def test_leaving_can_let_runs_go_on_where_that_is_possible(tmp_path, monkeypatch) -> None:
    async with watching(tmp_path, monkeypatch) as (scene, app, pilot):
        app._may_keep = True
        await type_in(pilot, "go")
        await scene.model("go").asked()
        await pilot.press("ctrl+q")
        await until(pilot, lambda: "let them go on without the app" in picture(app))
        await pilot.press("k")
        await until(pilot, lambda: app.return_value == "keep")
        assert app.session.run.outcome is None


async def test_leaving_an_idle_app_asks_nothing(tmp_path, monkeypatch) -> None:
    async with watching(tmp_path, monkeypatch) as (_, app, pilot):
        await pilot.press("ctrl+q")
        await until(pilot, lambda: app.return_value == "quit")


async def test_page_keys_scroll_the_conversation_and_shift_tab_goes_into_it(tmp_path, monkeypatch) -> None:
    async with watching(tmp_path, monkeypatch, size=(80, 24)) as (scene, app, pilot):
        await type_in(pilot, "go")
        model = scene.model("go")
        for _ in range(3):
            await model.asked()
            model.call("ls", "\n\n".join(f"line {number}" for number in range(20)))
        await model.asked()
        model.say("the end")
        await until(pilot, lambda: "the end" in picture(app))
        await pilot.press("pageup", "pageup")
        await until(pilot, lambda: "the end" not in picture(app))
        await pilot.press("pagedown", "pagedown", "pagedown")
        await until(pilot, lambda: "the end" in picture(app))
        await pilot.press("ctrl+up")
        await until(pilot, lambda: isinstance(app.focused, ToolBlock))
        await pilot.press("escape")
        assert app.focused is app._prompt


@pytest.mark.parametrize("size", [(80, 24), (40, 12), (20, 6), (200, 60)])
async def test_it_fits_into_terminals_of_any_size_and_resizes(tmp_path, monkeypatch, size) -> None:
    async with watching(tmp_path, monkeypatch, size=size) as (scene, app, pilot):
        await type_in(pilot, "go")
        await scene.model("go").asked()
        await scene.child(app.retinue.supervisor.members[app.session.main_id], "work")
        await pilot.resize_terminal(60, 20)
        await pilot.pause(0.1)
        await pilot.resize_terminal(*size)
        await pilot.pause(0.1)
        assert all(len(line) <= size[0] for line in picture(app).splitlines())


async def test_without_colour_nothing_is_said_by_colour(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    async with watching(tmp_path, monkeypatch) as (scene, app, pilot):
        await type_in(pilot, "go")
        await scene.model("go").asked()
        app._prompt.put("typed")
        await until(pilot, lambda: "❯ go" in picture(app) and "typed" in picture(app))

        def styles():
            strips = app.screen._compositor.render_strips()
            return [segment.style for strip in strips for segment in strip if segment.style is not None]

        assert all(style.color is None or style.color.is_default for style in styles())
        assert all(style.bgcolor is None or style.bgcolor.is_default for style in styles())
        await until(pilot, lambda: any(style.reverse for style in styles()))  # the cursor, which blinks


async def test_wrong_settings_are_said_and_harm_nothing(tmp_path, monkeypatch) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "settings.json").write_text('{"keys": {"fly": "f5", "fold": "f9"}, "theme": "mauve"}')
    async with watching(tmp_path, monkeypatch) as (_, app, pilot):
        await until(pilot, lambda: "keys.fly: there is no action of that name" in picture(app))
        assert "theme" in picture(app)
        assert {key.name: key.key for key in app.keys}["fold"] == "ctrl+o"


async def test_an_agent_sets_up_the_status_line(tmp_path, monkeypatch) -> None:
    async with watching(tmp_path, monkeypatch) as (scene, app, pilot):
        await type_in(pilot, "/statusline show the branch first")
        request = await scene.model("show the branch first").asked()
        assert "statusLine.template" in request.system
        assert {tool.name for tool in request.tools} >= {"read", "bash"}
        save_settings(
            {"statusLine.template": "on {branch}[ with {model}]!"},
            cwd=app.project.cwd,
            target="user",
            environment=app.project.environment,
        )
        scene.model("show the branch first").say("The line shows the branch.")
        await until(pilot, lambda: "The line shows the branch." in picture(app))
        await until(pilot, lambda: "on with claude-sonnet-4-5!" in picture(app))


async def test_a_command_draws_the_status_line(tmp_path, monkeypatch) -> None:
    (tmp_path / "home").mkdir()
    command = {"statusLine": {"type": "command", "command": 'sed \'s/.*"state": "\\([a-z]*\\)".*/it is \\1/\''}}
    (tmp_path / "home" / "settings.json").write_text(json.dumps(command))
    async with watching(tmp_path, monkeypatch) as (scene, app, pilot):
        await until(pilot, lambda: "it is idle" in picture(app))
        await type_in(pilot, "go")
        await scene.model("go").asked()
        await until(pilot, lambda: "it is working" in picture(app))


async def test_keys_that_work_while_one_types(tmp_path, monkeypatch) -> None:
    async with watching(tmp_path, monkeypatch) as (scene, app, pilot):
        await type_in(pilot, "go")
        model = scene.model("go")
        await model.asked()
        model.call("ls", path=".")
        await until(pilot, lambda: "▸ ✓ ls" in picture(app))
        await pilot.press("ctrl+o")
        await until(pilot, lambda: "▾ ✓ ls" in picture(app))
        await pilot.press("ctrl+o", "ctrl+l")
        await until(pilot, lambda: "▸ ✓ ls" in picture(app))
        await pilot.press("ctrl+b")
        await until(pilot, lambda: "Nothing waits in the foreground." in picture(app))


async def test_foreground_agents_can_be_moved_to_the_background(tmp_path, monkeypatch) -> None:
    async with watching(tmp_path, monkeypatch) as (scene, app, pilot):
        await type_in(pilot, "go")
        model = scene.model("go")
        await model.asked()
        model.call("Agent", prompt="long", description="long", subagent_type="Explore", run_in_background=False)
        await scene.model("long").asked()
        await pilot.press("ctrl+b")
        await until(pilot, lambda: len(model.requests) == 2)
        child = next(each for each in app.retinue.supervisor.members.values() if each.id != app.session.main_id)
        assert child.live and child.state.background


async def test_tools_that_an_agent_asks_for_and_that_are_missing_are_one_line_on_the_screen(
    tmp_path, monkeypatch
) -> None:
    monkeypatch.setattr("retinue.capabilities.web._can_search", lambda project: False)
    file = tmp_path / "project" / ".retinue" / "agents" / "asker.md"
    file.parent.mkdir(parents=True)
    file.write_text(
        "---\nname: asker\ndescription: d\ntools: read, web_search\n---\nYou look things up, here and there."
    )
    async with watching(tmp_path, monkeypatch) as (scene, app, pilot):
        await type_in(pilot, "go")
        await scene.model("go").asked()
        main = scene.supervisor.members[app.session.main_id]
        for task in ("one", "two"):
            await scene.child(main, task, agent="asker")
        line = 'web_search requested by agent "asker" is missing: no search service is set up.'
        await until(pilot, lambda: line in " ".join(picture(app).split()))
        assert " ".join(picture(app).split()).count(line) == 1


async def test_the_line_says_what_a_launch_waits_for(tmp_path, monkeypatch) -> None:
    async with watching(tmp_path, monkeypatch) as (_, app, pilot):
        app.project.on_wait("waiting for the server 'ollama' to load qwen3", 4.2)
        await until(pilot, lambda: "waiting for the server 'ollama' to load qwen3, 4 s" in picture(app))


async def test_the_problems_of_an_agents_file_are_shown_once_however_often_it_runs(tmp_path, monkeypatch) -> None:
    async with watching(tmp_path, monkeypatch) as (scene, app, pilot):
        file = scene.folder / "project" / ".claude" / "agents" / "worker.md"
        file.parent.mkdir(parents=True)
        file.write_text("---\nname: worker\ndescription: works\ncolour: red\n---\nDo the work you are given.\n")
        await type_in(pilot, "go")
        await scene.model("go").asked()
        main = app.retinue.supervisor.members[app.session.main_id]
        for task in ("first", "second"):
            await scene.child(main, task, agent="worker", description=task)
            await until(pilot, lambda task=task: task in picture(app))
        problem = "There is no key 'colour'"
        await until(pilot, lambda: problem in " ".join(notices(app)))
        assert len([text for text in notices(app) if problem in text]) == 1
        await until(pilot, lambda: "worker.md:4" in picture(app).replace("\n", "").replace(" ", ""))


def notices(app) -> list[str]:
    return [str(notice.render()) for notice in app.query(Notice)]
