"""How a person comes to the app and to the program, what they mistype, and what they find when they leave."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from pathlib import Path

import pytest

from tests.frontends.tui.tmux import Terminal
from tests.program.conftest import Project
from tests.program.model_server import Reply, Request


def echo(request: Request) -> Reply:
    return Reply(f"Answer {sum(message['role'] == 'user' for message in request.body['messages'])}.")


@pytest.fixture
def window(project: Project, serve, tmp_path: Path):
    """A terminal in the project, with `retinue` on its path and a model that numbers its answers."""
    if shutil.which("tmux") is None or not hasattr(os, "fork"):
        pytest.skip("needs tmux and Unix")
    serve(echo)
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "retinue").write_text(f'#!/bin/sh\nexec {sys.executable} -m retinue "$@"\n')
    (folder / "retinue").chmod(0o755)
    environment = project.environment
    environment["PATH"] = f"{folder}:{environment['PATH']}"
    with Terminal(tmp_path, project.cwd, environment) as opened:
        yield opened


def leave(window: Terminal) -> str:
    window.see("Say what to do", gone=("to interrupt",))
    window.press("C-c")
    window.see("Press Ctrl+C again")
    window.press("C-c")
    return window.see("Resume with: ", gone=("Say what to do",))


@pytest.mark.slow
def test_a_prompt_opens_the_app_and_leaving_says_how_to_come_back(window: Terminal, project: Project) -> None:
    window.run("retinue 'Look at this first'")
    window.see("❯ Look at this first", "Answer 1.")
    left = leave(window)
    assert "❯ Look at this first" in left and "Answer 1." in left, "the last exchange is on the ordinary screen"
    (row,) = project.json("runs", "list", "--json")["runs"]
    assert f"Resume with: retinue --resume {row['id'][:8]}" in left
    # The line works as it stands there.
    window.run(f"clear; retinue --resume {row['id'][:8]}")
    window.see("Answer 1.", "Say what to do")
    leave(window)
    # And so do the short ways, with words.
    window.run("clear; retinue -c 'And then?'")
    window.see("❯ And then?", "Answer 2.")
    leave(window)
    window.run("clear; retinue 'Something else'")
    window.see("❯ Something else", "Answer 1.")
    leave(window)
    # Of several conversations one is chosen; the words wait in the editor.
    window.run("clear; retinue -r")
    window.see("Conversations", "Look at this first", "Something else")
    window.press("Down")
    window.press("Enter")
    window.see("❯ And then?", "Answer 2.")


def test_TERM_dumb_is_refused_with_the_way_that_works(window: Terminal) -> None:
    window.run("TERM=dumb retinue; echo code $?")
    window.see("TERM=dumb", "retinue -p", "code 2")


def test_a_word_that_is_no_command_gets_the_nearest(project: Project) -> None:
    for words, meant in (
        (("agnets", "list"), "Did you mean 'agents'?"),
        (("runs", "lsit"), "Did you mean 'list'?"),
        (("run", "Explor", "x"), "Did you mean 'Explore'?"),
        (("help", "modles"), "Did you mean 'models'?"),
    ):
        done = project.retinue(*words)
        assert (done.returncode, meant in done.stderr) == (2, True), done.stderr
    far = project.retinue("qwertyuiop")
    assert "Did you mean" not in far.stderr and "retinue --help" in far.stderr


def test_help_and_version_in_every_usual_spelling(project: Project) -> None:
    assert project.retinue("help", "run").stdout == project.retinue("run", "--help").stdout
    assert project.retinue("help", "agents", "list").stdout == project.retinue("agents", "list", "--help").stdout
    assert project.retinue("-V").stdout == project.retinue("version").stdout == project.retinue("--version").stdout
    shown = project.retinue("--help").stdout
    for option in ("--continue", "--resume", "--model", "--permission-mode", "--agent ", "--thinking", "--cwd"):
        assert option in shown


def test_every_option_of_the_app_is_in_the_general_help() -> None:
    import argparse

    from retinue.frontends.cli.main import HELP
    from retinue.frontends.cli.terminal import configure_app

    parser = argparse.ArgumentParser()
    configure_app(parser)
    for action in parser._actions:
        # Of an option with two long names, one is enough.
        long = [spelling for spelling in action.option_strings if spelling.startswith("--")]
        short = [spelling for spelling in action.option_strings if spelling not in long]
        assert not long or any(spelling in HELP for spelling in long), f"{long} is missing"
        assert all(spelling in HELP for spelling in short), f"{short} is missing"


def test_an_unknown_budget_names_the_spelling_of_the_help(project: Project) -> None:
    done = project.retinue("run", "Explore", "x", "--budget", "foo=1")
    assert done.returncode == 2
    assert "toolCalls" in done.stderr and "tool_calls" not in done.stderr


def test_headless_continue_goes_on_with_the_newest_conversation(project: Project, serve) -> None:
    none = project.retinue("-p", "x", "-c")
    assert (none.returncode, "no conversation to continue here" in none.stderr) == (1, True)
    serve(echo)
    assert project.retinue("-p", "One").stdout == "Answer 1.\n"
    assert project.retinue("-p", "Two", "-c").stdout == "Answer 2.\n"


def test_quiet_keeps_warnings_and_shows_nothing_else(project: Project, serve) -> None:
    serve(echo)
    folder = project.cwd / ".retinue"
    folder.mkdir()
    (folder / "settings.json").write_text('{"agentMentions": "many"}')
    done = project.retinue("run", "Explore", "read", "--quiet")
    assert (done.returncode, done.stdout) == (0, "Answer 1.\n")
    assert "agentMentions is ignored" in done.stderr
    assert "completed" not in done.stderr
    (folder / "settings.json").unlink()
    assert project.retinue("run", "Explore", "read", "--quiet").stderr == ""


def test_a_denied_edit_is_said_at_the_end_with_the_way_out(project: Project, serve) -> None:
    project.mode = "default"

    def edits(request: Request) -> Reply:
        if request.turn == 0:
            return Reply(calls=[("edit", {"path": "f0.txt", "old_text": "alpha", "new_text": "omega"})])
        return Reply("I could not.")

    serve(edits)
    done = project.retinue("run", "general-purpose", "edit")
    assert "1 call denied" in done.stderr
    assert "--permission-mode acceptEdits" in done.stderr and "permissions.allow" in done.stderr


def test_a_failed_run_prints_nothing_of_ours_as_its_answer(project: Project, serve) -> None:
    serve(lambda request: Reply("no such model", status=400))
    done = project.retinue("run", "Explore", "x")
    assert (done.returncode, done.stdout) == (1, "")
    (row,) = project.json("runs", "list", "--json")["runs"]
    assert project.retinue("runs", "tail", row["id"]).stdout == ""


@pytest.mark.slow
def test_ctrl_z_gives_the_shell_back_in_order_and_fg_the_app(window: Terminal) -> None:
    before = window.modes()
    window.run("bash --norc")  # a shell with jobs
    window.run("retinue 'First words'")
    window.see("Answer 1.", "Say what to do", gone=("to interrupt",))
    window.press("C-z")
    window.see("Stopped", gone=("Say what to do",))
    assert window.modes() == before
    window.run("echo in''between")
    window.see("inbetween")
    window.run("fg")
    window.see("❯ First words", "Answer 1.", "│ Say what to do", "╰──")
    window.type("And now?")
    window.press("Enter")
    window.see("Answer 2.")


def test_an_answer_after_kill_9_takes_the_conversation_up_again(window: Terminal, project: Project, serve) -> None:
    """An answer that nobody acts on is an approval that vanished."""

    def answer(request: Request) -> Reply:
        told = str(request.body["messages"][-1]["content"])
        if "blue" in told and "not run" not in told:
            return Reply("You want blue.")
        return Reply("", [("ask_user", {"question": "Which colour?", "options": ["red", "blue"]})])

    project.server.answer = answer
    window.run("retinue 'Ask me something'")
    window.see("Inbox", "Which colour?")
    [view] = json.loads(project.retinue("runs", "list", "--json").stdout)["runs"]
    os.kill(view["pid"], signal.SIGKILL)
    window.see("continue with: retinue --continue")
    window.run("clear; retinue -c")
    window.see("F2 to answer", "Which colour?")
    [item] = json.loads(project.retinue("inbox", "list", "--json").stdout)["items"]
    assert "Ask me something" in item["description"]
    assert project.retinue("inbox", "answer", item["id"], "blue").returncode == 0
    window.see("question for you · cut off", "It goes on from where it was.", "You want blue.", gone=("F2 to answer",))
