"""A working day in the app, in a real terminal: a plan, an edit that is approved, an agent in the background, a
question, a way back, home.

Nothing that was typed is lost, and nothing that is shown is untrue.
"""

from __future__ import annotations

import threading

import pytest

from tests.frontends.tui.tmux import Terminal
from tests.program.conftest import Project
from tests.program.model_server import Reply, Request
from tests.program.test_coming_and_going import leave, window  # noqa: F401 - a fixture


def words(request: Request) -> tuple[str, int]:
    """The newest words of a person, and how many tools have answered since."""
    results = 0
    for message in reversed(request.body["messages"]):
        content = message["content"]
        parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
        if message["role"] != "user":
            continue
        results += sum(part["type"] == "tool_result" for part in parts)
        texts = [part["text"] for part in parts if part["type"] == "text" and "plan mode" not in part["text"]]
        if texts:
            return texts[-1], results
    return "", results


class Day:
    """What the models say. The background agent answers when the test lets it."""

    def __init__(self) -> None:
        self.agent_may_answer = threading.Event()

    def __call__(self, request: Request) -> Reply:
        text, results = words(request)
        if "Look at the tests" in text:
            self.agent_may_answer.wait(60)
            return Reply("The tests are green.")
        if "task-notification" in text:
            return Reply("The agent is back.")
        if "Rename f1" in text:
            return self._plan(results)
        if "Ask me" in text and not results:
            return Reply("I ask.", [("ask_user", {"question": "Which colour?", "options": ["red", "blue"]})])
        if "Ask me" in text:
            return Reply(f"You want {'blue' if 'blue' in str(request.body['messages'][-1]) else 'something else'}.")
        if "Change f0" in text and not results:
            return Reply("I change it.", [("write", {"path": "plan.md", "content": "the plan\n"})])
        if "Change f0" in text:
            return Reply("It is changed.")
        if "Ask an agent" in text and not results:
            call = {"subagent_type": "Explore", "description": "Check tests", "prompt": "Look at the tests."}
            return Reply("I ask one.", [("Agent", {**call, "run_in_background": True})])
        return Reply(f"Heard: {text}.")

    def _plan(self, results: int) -> Reply:
        if results == 0:
            return Reply("I plan.", [("exit_plan", {"plan": "1. Write f9\n2. Remove f1"})])
        if results == 1:
            return Reply("I begin.", [("write", {"path": "f9", "content": "renamed\n"})])
        return Reply("It is renamed.")


def say(window: Terminal, text: str) -> None:  # noqa: F811
    window.type(text)
    window.press("Enter")


@pytest.mark.slow
def test_a_working_day(window: Terminal, project: Project, serve) -> None:  # noqa: F811
    day = Day()
    project.server.answer = day
    try:
        _work(window, project, day)
    finally:
        day.agent_may_answer.set()


def _work(window: Terminal, project: Project, day: Day) -> None:  # noqa: F811
    plan = project.cwd / "plan.md"
    # Morning: the project asks before changes, and the person allows one
    window.run("RETINUE_PERMISSIONS_DEFAULT_MODE=default retinue 'Good morning'")
    window.see("Heard: Good morning.", gone=("to interrupt",))
    say(window, "Change f0, please")
    window.see("Inbox", "plan.md", "the plan")  # it opens over an empty prompt
    assert not plan.exists(), "nothing is written before it is allowed"
    window.press_until("y", "It is changed.")
    assert plan.read_text() == "the plan\n"
    # A plan first: it is approved, and each change is still asked for
    say(window, "/plan Rename f1")
    window.see("Inbox", "Carry out this plan?", "Write f9", "ask before each change", gone=("has switched",))
    # A key that comes as the inbox opens is no answer; a second one too early would be text for the prompt.
    window.press_until("2", "The plan was approved|write f9", seconds=2)
    window.see("Inbox", "write f9")
    assert not (project.cwd / "f9").exists()
    window.press_until("y", "It is renamed.", seconds=2)
    assert (project.cwd / "f9").read_text() == "renamed\n"
    # A question with options
    say(window, "Ask me something")
    window.see("Inbox", "Which colour?", "blue")
    window.press_until("2", "You want blue.", seconds=2)
    # An agent works in the background; what is typed meanwhile is not lost
    say(window, "Ask an agent about the tests")
    window.see("Check tests")
    window.type("half a thought")
    day.agent_may_answer.set()
    window.see("The agent is back.", "half a thought", gone=("to interrupt",))
    # The change was a mistake: back to before it, with the files
    window.press("C-c")
    window.see("Say what to do")
    window.press("Escape")
    window.see("Press Esc again")
    window.press("Escape")
    window.see("Go back", "2 files changed since")
    for _ in range(3):  # from the newest message
        window.press("Up")
    window.press("Enter")
    window.see("conversation and files")
    window.press("b")
    window.see("2 files put back: ", "│ Change f0, please", gone=("It is changed.",))
    assert not plan.exists() and not (project.cwd / "f9").exists()
    window.press("C-c")
    window.see("Say what to do")
    # Evening, and the next morning
    left = leave(window)
    resume = next(line for line in left.splitlines() if line.startswith("Resume with: ")).partition(": ")[2]
    window.run(f"clear; {resume}")
    window.see("Heard: Good morning.", "A person went back to event", gone=("It is changed.",))
    say(window, "Where were we?")
    window.see("Heard: Where were we?.")
    told = str(project.server.requests[-1].body["messages"])
    assert "Good morning" in told and "Change f0" not in told
