"""The real program in tmux, with a model server that follows a script: the whole day of a person."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import threading
from pathlib import Path

import pytest

from tests.frontends.tui.tmux import Terminal
from tests.program.conftest import Project, project, serve  # noqa: F401 - fixtures
from tests.program.model_server import Reply, Request

pytestmark = [
    pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed"),
    pytest.mark.skipif(not hasattr(os, "fork"), reason="needs Unix"),
]


def told(request: Request) -> str:
    """Everything the model was told in messages, as one text."""
    parts = []
    for message in request.body["messages"]:
        content = message["content"]
        for part in [{"text": content}] if isinstance(content, str) else content:
            parts.append(str(part.get("text") or part.get("content") or ""))
    return "\n".join(parts)


def spawn(description: str) -> tuple[str, dict[str, str]]:
    prompt = f"Work on {description}."
    return "Agent", {"subagent_type": "general-purpose", "description": description, "prompt": prompt}


class Script:
    """Main starts three agents. One asks to write a file, one waits to be steered, one to be stopped."""

    def __init__(self) -> None:
        self.second_may_answer = threading.Event()
        self.over = threading.Event()

    def __call__(self, request: Request) -> Reply:
        text = told(request)
        first = text.splitlines()[0]
        if "angle one" in first:
            return self._one(request)
        if "angle two" in first:
            return self._two(request, text)
        if "angle three" in first:
            self.over.wait(60)
            return Reply("never heard")
        if "And what next?" in text:
            return Reply("Next we **rest**.")
        if "task-notification" in text:
            return Reply("All three are in.")
        return (
            Reply("They are at work.")
            if request.turn
            else Reply("I start three.", [spawn("angle one"), spawn("angle two"), spawn("angle three")])
        )

    def _one(self, request: Request) -> Reply:
        if not request.turn:
            return Reply(calls=[("write", {"path": "notes.txt", "content": "found it\n"})])
        return Reply("Angle one is written down.")

    def _two(self, request: Request, text: str) -> Reply:
        if not request.turn:
            self.second_may_answer.wait(60)
            return Reply(calls=[("ls", {})])
        return Reply("I looked at the tests." if "only the tests" in text else "I looked at everything.")


@pytest.fixture
def terminal(project: Project, tmp_path: Path):  # noqa: F811
    """`terminal()` is a window in the project, with `retinue` on its path."""
    opened: list[Terminal] = []
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "retinue").write_text(f'#!/bin/sh\nexec {sys.executable} -m retinue "$@"\n')
    (folder / "retinue").chmod(0o755)

    def open_one(**more: str) -> Terminal:
        environment = {**project.environment, **more}
        environment["PATH"] = f"{folder}:{environment['PATH']}"
        window = Terminal(tmp_path, project.cwd, environment)
        opened.append(window)
        return window.__enter__()

    yield open_one
    for window in opened:
        window.__exit__()


@pytest.mark.slow
def test_a_day_with_the_app(project: Project, serve, terminal) -> None:  # noqa: F811
    script = Script()
    serve(script)
    project.mode = "default"
    window = terminal(RETINUE_DEFAULT_JOIN_MODE="group")
    try:
        _a_day(window, script, project)
    finally:
        script.second_may_answer.set()
        script.over.set()


def _a_day(window: Terminal, script: Script, place: Project) -> None:
    # Start, and a prompt that starts three agents
    window.run("retinue")
    window.see("Say what to do")
    window.type("Review this from three angles")
    window.press("Enter")
    # The approval of the first comes up, and is given
    window.see("notes.txt", "Inbox")
    window.press("Escape")
    window.see("Agents", "angle two", "angle three", "F2 to answer")
    window.press("F2")
    window.see("Inbox", "found it")
    # Keys before one could have read the item do not count; after the last answer the inbox closes.
    window.press_until("y", r"^(?![\s\S]*Inbox)")
    window.see("angle two", "They are at work.", gone=("Inbox",))
    window.press_until("BSpace", "Say what to do")
    # A selection follows its run: when the first has ended, its row is the last.
    window.see("✓ general-purpose (twin)  angle one")
    # The viewer of the second: steered
    _open(window, "angle two")
    window.see("Work on angle two.")
    window.press("Enter")
    window.type("only the tests, please")
    window.press("Enter")
    # A busy machine delivers it late; the second agent must not end before.
    window.see("Delivered: it reads this")
    script.second_may_answer.set()
    window.see("I looked at the tests.")
    window.press("Escape")
    # The third is stopped
    window.see("Say what to do", gone=("Work on angle two.",))
    _open(window, "angle three")
    window.see("Work on angle three.")
    window.press("x")
    window.press("x")
    window.see("stopped")
    window.press("Escape")
    # The three in one box, and what main makes of it
    window.see("All three are in.", "angle one", "angle two", "angle three", "Angle one is written down.")
    assert (place.cwd / "notes.txt").read_text() == "found it\n"
    # Leave, come back, go on
    window.see("asks", gone=("esc to interrupt", "Waiting for"))
    window.press("C-c")
    window.see("Press Ctrl+C again")
    window.press("C-c")
    window.see("ready$", gone=("Say what to do",))
    window.run("clear; retinue --resume")
    window.see("All three are in.", "Say what to do")
    window.type("And what next?")
    window.press("Enter")
    window.see("Next we rest.")


def _open(window: Terminal, description: str) -> None:
    """Walks down the fleet to the row of an agent and opens it."""
    window.press_until("Down", rf"❯[^\n]*{description}")
    window.press("Enter")


def test_the_terminal_is_as_before_however_the_app_ends(project: Project, terminal) -> None:  # noqa: F811
    window = terminal()
    before = window.modes()
    for ending in (signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV):
        window.run("clear; retinue")
        window.see("Say what to do")
        os.kill(_app(project), ending)
        window.see("ready$", gone=("Say what to do",))
        assert window.modes() == before
        window.run("clear; echo typ''ed")
        window.see("typed")


def _app(place: Project) -> int:
    """The process that draws: the child of the one that the shell has started."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                command = (entry / "cmdline").read_bytes().split(b"\0")
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                here = (entry / "cwd").readlink()
            except (OSError, ValueError):
                continue
            if here == place.cwd and command[1:3] == [b"-m", b"retinue"]:
                found.append((int(entry.name), parent))
    processes = dict(found)
    return next(pid for pid, parent in processes.items() if parent in processes)


@pytest.mark.slow
def test_agents_go_on_without_the_app_and_can_be_watched_from_another(project: Project, serve, terminal) -> None:  # noqa: F811
    go_on = threading.Event()

    def answer(request: Request) -> Reply:
        text = told(request)
        if "Work on the long way" in text.splitlines()[0]:
            if not request.turn:
                return Reply("First I look.", [("ls", {})])
            go_on.wait(60)
            return Reply("The long way is done; heard: " + ("hurry up" if "hurry up" in text else "nothing"))
        if "task-notification" in text:
            return Reply("It came back.")
        return Reply("It works.") if request.turn else Reply(calls=[spawn("the long way")])

    serve(answer)
    window = terminal()
    try:
        window.run("retinue")
        window.see("Say what to do")
        window.type("Take the long way")
        window.press("Enter")
        window.see("It works.", "the long way")
        window.press("C-q")
        window.see("still at work", "let them go on without the app")
        window.press("k")
        window.see("go on in process", "ready$")
        rows = project.json("runs", "list", "--json")
        states = {row["agent"]: row["state"] for row in rows["runs"]}
        assert set(states.values()) == {"running"}, states
        window.run("clear; retinue attach")
        window.see("runs this conversation", "It works.", "the long way")
        window.type("@general-purpose hurry up")
        window.press("Enter")
        window.see("@general-purpose (steered)")
        go_on.set()
        window.see("It came back.")
        window.press("C-c")
        window.press("C-c")
        window.see("ready$", gone=("Say what to do",))
        done = project.json("runs", "list", "--json")
        assert {row["ended"] for row in done["runs"]} == {"completed"}
    finally:
        go_on.set()


def test_without_a_terminal_there_is_help_and_no_app(project: Project) -> None:  # noqa: F811
    done = project.retinue()
    assert done.returncode == 0 and "usage: retinue" in done.stdout
    done = project.retinue("attach")
    assert done.returncode != 0 and "Nothing is at work" in done.stderr
