"""Y05 through the front ends: `@name message` on the command line and in the library."""

import json
import os
import threading

import pytest

from retinue import Retinue
from retinue.errors import StateError
from tests.program.model_server import Reply, Request


def first(request: Request) -> str:
    content = request.body["messages"][0]["content"]
    return content if isinstance(content, str) else content[0]["text"]


def last(request: Request) -> str:
    content = request.body["messages"][-1]["content"]
    return content if isinstance(content, str) else "\n".join(part.get("text", "") for part in content)


def whole(request: Request) -> str:
    return str(request.body["messages"])


class Play:
    """The main agent starts one agent called explore. That one answers what it was last asked."""

    def __init__(self) -> None:
        self.main: list[Request] = []
        self.child: list[Request] = []
        self.hold: threading.Event | None = None
        self.asked = threading.Event()

    def answer(self, request: Request) -> Reply:
        if "look around" in first(request):
            self.child.append(request)
            self.asked.set()
            if self.hold is not None:
                held, self.hold = self.hold, None
                held.wait(60)
                return Reply("Looking. ", [("ls", {})])
            return Reply(f"explored: {last(request).splitlines()[-1] if last(request) else 'a result'}")
        self.main.append(request)
        if request.turn == 0:
            return Reply("", [("Agent", {"prompt": "look around", "subagent_type": "Explore"})])
        return Reply(f"main heard {whole(request).count('<task-notification>')}")


@pytest.fixture
def play(serve):
    play = Play()
    play.server = serve(play.answer)
    return play


def main_id(project) -> str:
    rows = project.json("runs", "list", "--json")["runs"]
    return next(row["id"] for row in rows if row["depth"] == 0)


def test_a_finished_agent_answers_on_the_command_line_and_the_main_agent_has_no_turn(project, play):
    assert project.retinue("-p", "Review this").returncode == 0
    turns = len(play.main)
    done = project.retinue("-p", "@explore And the tests?", "--resume", main_id(project))
    assert (done.returncode, done.stdout) == (0, "explored: And the tests?\n"), done.stderr
    assert len(play.main) == turns
    heard = project.retinue("-p", "What now?", "--resume", main_id(project))
    assert heard.stdout == "main heard 2\n"  # the second end, too, and once
    assert "explored: And the tests?" in whole(play.main[-1])


def test_a_running_agent_of_another_process_is_steered_from_the_command_line(project, play):
    play.hold = hold = threading.Event()
    process = project.start("-p", "Review this")
    assert play.asked.wait(60)
    said = project.retinue("-p", "@explore only src", "--resume", main_id(project))
    assert (said.returncode, said.stdout) == (0, ""), said.stderr
    assert "Explore has received it" in said.stderr
    for kind in ("json", "stream-json"):
        told = project.retinue("-p", f"@explore as {kind}", "--resume", main_id(project), "--output-format", kind)
        document = json.loads(told.stdout)
        assert (document["status"], document["agent"], document["is_error"]) == ("delivered", "Explore", False)
    steered = project.retinue("runs", "steer", "@explore", "and docs")
    assert steered.returncode == 0, steered.stderr
    hold.set()
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert out == "main heard 1\n"
    assert "only src" in whole(play.child[-1])
    assert "and docs" in whole(play.child[-1])


def test_what_means_nobody_goes_to_the_main_agent_as_it_is(project, play):
    assert project.retinue("-p", "Review this").returncode == 0
    for text, heard in (("@nobody hello there", "@nobody hello there"), ("@main hello", "hello")):
        done = project.retinue("-p", text, "--resume", main_id(project))
        assert done.returncode == 0, done.stderr
        assert last(play.main[-1]) == heard


def test_a_file_of_that_name_is_still_read_and_a_missing_one_is_an_error(project, play):
    (project.cwd / "task one.md").write_text("Review this from a file")
    assert project.retinue("-p", "@task one.md").returncode == 0
    assert first(play.main[0]) == "Review this from a file"
    assert project.retinue("-p", "@missing.md").returncode == 2


def test_runs_are_found_by_name_in_every_command_and_an_unknown_name_says_so(project, play):
    assert project.retinue("-p", "Review this").returncode == 0
    shown = project.json("runs", "show", "@explore", "--json")
    assert shown["run"]["agent"] == "Explore"
    assert project.json("runs", "show", "@main", "--json")["run"]["id"] == main_id(project)
    missing = project.retinue("runs", "steer", "@nobody", "hello")
    assert missing.returncode == 2
    assert "@nobody" in missing.stderr
    ended = project.retinue("runs", "steer", "@explore", "hello")
    assert ended.returncode == 1
    assert "retinue runs resume" in ended.stderr


async def test_the_library_brings_what_a_person_types_to_whom_it_is_for(project, play):
    async with Retinue(project.cwd, environment=dict(os.environ) | project.environment) as retinue:
        said = await retinue.say("Review this")
        assert said.action == "prompted"
        assert (await said.run.wait()).text == "main heard 1"
        answered = await retinue.say("@explore And the tests?", to=said.run)
        assert (answered.action, answered.agent) == ("resumed", "Explore")
        assert (await answered.run.wait()).text == "explored: And the tests?"
        again = await retinue.say("Go on", to=said.run_id)
        assert (again.action, again.run_id) == ("resumed", said.run_id)
        assert (await again.run.wait()).text == "main heard 2"


async def test_what_cannot_be_brought_raises_with_the_reason(project, play):
    environment = dict(os.environ) | project.environment
    async with Retinue(project.cwd, environment=environment) as retinue:
        said = await retinue.say("Review this")
        await said.run.wait()
        child = next(row for row in retinue.runs if row.depth == 1)
        async with Retinue(project.cwd, environment=environment) as other:
            play.hold = hold = threading.Event()
            play.asked.clear()
            busy = await other.resume(child.id, "elsewhere")
            try:
                with pytest.raises(StateError, match="is being run by process"):
                    await retinue.say("@explore hello", to=said.run)
            finally:
                hold.set()
                await busy.wait()
