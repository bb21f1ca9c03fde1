"""How the headless main agent ends: by itself, by one Ctrl-C, by two, by SIGTERM, by a reader that goes."""

import json
import os
import signal
import subprocess
import threading
import time
from pathlib import Path

import pytest

from tests.program.model_server import Reply, Request

IGNORANT = "trap '' INT TERM; echo working; sleep 61; sleep 61"
MARKER = "RETINUE_HEADLESS_MARKER"
FREELY = ("--permission-mode", "bypassPermissions")


def first(request: Request) -> str:
    content = request.body["messages"][0]["content"]
    return content if isinstance(content, str) else content[0]["text"]


class Play:
    """The main agent starts one agent in the foreground or the background; that one works in a
    shell that does not listen to signals, until the test lets it answer instead."""

    def __init__(self, background: bool) -> None:
        self.background = background
        self.working = threading.Event()
        self.done = False

    def answer(self, request: Request) -> Reply:
        if "look around" in first(request):
            if self.done:
                return Reply("looked around")
            if request.turn == 0:
                return Reply("Half of it. ", [("bash", {"command": f"touch here; {IGNORANT}"})])
            return Reply("The other half.")
        if request.turn == 0:
            call = {"prompt": "look around", "subagent_type": "general-purpose"}
            return Reply("I will look. ", [("Agent", {**call, "run_in_background": self.background})])
        return Reply("looked" if "looked around" in json.dumps(request.body["messages"]) else "still waiting")


def marked(name: str) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if f"{MARKER}={name}".encode() in (path / "environ").read_bytes().split(b"\0"):
                found.append(int(path.name))
        except OSError:
            continue
    return found


class Scene:
    def __init__(self, project, play: Play, *options: str) -> None:
        self.project, self.play = project, play
        self.name = f"headless-{os.getpid()}-{time.monotonic_ns()}"
        self.process = project.start(
            "-p", "Review this", *FREELY, *options, env={MARKER: self.name}, start_new_session=True
        )

    def until_working(self) -> None:
        while not (self.project.cwd / "here").exists():
            assert self.process.poll() is None, self.process.stderr.read()
            time.sleep(0.01)

    def end(self) -> tuple[int, str, str]:
        out, err = self.process.communicate(timeout=60)
        assert "Traceback" not in err, err
        if Path("/proc/self/environ").exists():
            assert marked(self.name) == []
        return self.process.returncode, out, err

    def rows(self):
        rows = self.project.json("runs", "list", "--json")["runs"]
        return {row["depth"]: row for row in rows}

    def taken_up(self) -> str:
        """What the main agent says when a person goes on with it, and its agent with it."""
        self.play.done = True
        rows = self.rows()
        child = self.project.retinue("runs", "resume", rows[1]["id"], "go on")
        assert (child.returncode, child.stdout) == (0, "looked around\n"), child.stderr
        done = self.project.retinue("-p", "go on", "--resume", rows[0]["id"])
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture(params=["foreground", "background"])
def scene(request, project, serve):
    play = Play(request.param == "background")
    serve(play.answer)
    scene = Scene(project, play)
    scene.until_working()
    return scene


WHY = {
    signal.SIGINT: "Interrupted from the terminal.",
    signal.SIGTERM: "The program was asked to end (SIGTERM).",
    signal.SIGHUP: "The terminal was closed.",
}


@pytest.mark.parametrize("number", WHY)
def test_one_signal_stops_the_work_reports_what_there_is_and_leaves_nothing_behind(scene, number):
    scene.process.send_signal(number)
    code, out, err = scene.end()
    assert code == 130, err
    assert f"retinue: {WHY[number]}" in err
    assert out in ("I will look.\n", "I will look. \n", "still waiting\n")
    rows = scene.rows()
    assert f"retinue runs resume {rows[0]['id']}" in err
    assert [(rows[depth]["state"], rows[depth]["ended"]) for depth in (0, 1)] == [("ended", "stopped")] * 2
    assert scene.taken_up() == "looked\n"


def test_two_signals_quit_with_everything_recorded_and_resumable(scene):
    for _ in range(2):
        scene.process.send_signal(signal.SIGINT)
        time.sleep(0.3)  # a person's second press: the first is being acted on
    code, _, err = scene.end()
    assert code == 130, err
    rows = scene.rows()
    assert {row["state"] for row in rows.values()} <= {"ended", "interrupted"}
    assert scene.taken_up() == "looked\n"


def test_a_signal_before_the_first_answer_ends_it_quietly(project, serve):
    held = threading.Event()

    def answer(request: Request) -> Reply:
        held.wait(60)
        return Reply("late")

    server = serve(answer)
    process = project.start("-p", "Review this")
    while not server.requests:
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    held.set()
    assert (process.returncode, out) == (130, ""), err
    assert "Traceback" not in err


@pytest.mark.parametrize("kind", ["stream-json", "json", "text"])
def test_a_reader_that_goes_away_ends_it_without_noise_and_with_a_record(project, serve, kind):
    play = Play(background=True)
    play.done = True
    serve(play.answer)
    reading, writing = os.pipe()
    process = subprocess.Popen(
        [*project.program, "-p", "Review this", "--output-format", kind],
        cwd=project.cwd,
        env=project.environment,
        stdin=subprocess.DEVNULL,
        stdout=writing,
        stderr=subprocess.PIPE,
        text=True,
    )
    os.close(writing)
    if kind == "stream-json":
        os.read(reading, 10)
    os.close(reading)
    _, err = process.communicate(timeout=60)
    assert "Traceback" not in err
    assert "BrokenPipe" not in err
    rows = project.json("runs", "list", "--json")["runs"]
    assert rows
    assert {row["state"] for row in rows} == {"ended"}


def test_the_stream_is_the_whole_tree_in_order_with_parents(project, serve):
    def answer(request: Request) -> Reply:
        depth = first(request).count("deeper")
        if depth < 3 and request.turn == 0:
            call = {"prompt": f"{first(request)} deeper", "subagent_type": "general-purpose"}
            return Reply("", [("Agent", {**call, "run_in_background": depth == 0})])
        return Reply(f"at {depth}")

    serve(answer)
    done = project.retinue("-p", "Go", "--output-format", "stream-json")
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 0, done.stderr
    parents = {line["run_id"]: line["parent_id"] for line in lines}
    chain = [run_id for run_id, parent in parents.items() if parent is None]
    while len(chain) < 4:
        chain += [run_id for run_id, parent in parents.items() if parent == chain[-1]]
    assert len(parents) == 4
    for run_id in parents:
        numbers = [line["seq"] for line in lines if line["run_id"] == run_id]
        assert numbers == sorted(numbers)
        kinds = [line["type"] for line in lines if line["run_id"] == run_id]
        assert kinds[0] == "run.created"
        assert "run.ended" in kinds
    assert (lines[-1]["type"], lines[-1]["run_id"], lines[-1]["text"]) == ("outcome", chain[0], "at 0")


@pytest.mark.parametrize("how", ["interrupt", "stop"])
def test_what_is_stopped_with_the_program_is_in_the_stream_and_in_the_bill(project, serve, how):
    play = Play(background=True)
    serve(play.answer)
    scene = Scene(project, play, "--output-format", "stream-json")
    scene.until_working()
    if how == "interrupt":
        scene.process.send_signal(signal.SIGINT)
    else:
        assert project.retinue("runs", "stop", scene.rows()[0]["id"]).returncode == 0
    code, out, err = scene.end()
    lines = [json.loads(line) for line in out.splitlines()]
    assert code == 130, err
    for run_id in {line["run_id"] for line in lines}:
        kinds = [line["type"] for line in lines if line["run_id"] == run_id]
        assert kinds.count("run.ended") == 1, kinds
    outcome = lines[-1]
    assert (outcome["type"], outcome["ended"], outcome["parent_id"]) == ("outcome", "stopped", None)
    rows = project.json("runs", "list", "--json")["runs"]
    assert outcome["tree_usage"]["output"] == sum(row["usage"]["output"] for row in rows)


def test_the_json_document_has_the_usage_of_the_whole_tree(project, serve):
    play = Play(background=True)
    play.done = True
    serve(play.answer)
    document = json.loads(project.retinue("-p", "Review this", "--output-format", "json").stdout)
    rows = project.json("runs", "list", "--json")["runs"]
    assert len(rows) == 2
    assert document["tree_usage"]["input"] == sum(row["usage"]["input"] for row in rows) > document["usage"]["input"]
    own = json.loads(project.retinue("run", "general-purpose", "Review this", "--json").stdout)["details"]["results"][0]
    assert own["treeUsage"]["input"] > own["usage"]["input"]


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (("-p", "x", "--agent", "nobody"), "UNKNOWN_AGENT"),
        (("-p", "x", "--model", "no-such-model"), "UNKNOWN_MODEL"),
        (("-p", "x", "--resume", "zzzz"), "UNKNOWN_RUN"),
        (("-p", "  "), "USAGE"),
        (("-p", "x", "--cwd", "/no/such/folder"), "USAGE"),
    ],
)
def test_a_refusal_is_a_document_where_one_is_expected(project, serve, options, code):
    serve(lambda request: Reply("ok"))
    done = project.retinue(*options, "--output-format", "json")
    document = json.loads(done.stdout)
    assert done.returncode == 2
    assert (document["status"], document["is_error"], document["error"]["code"]) == ("refused", True, code)
    assert document["error"]["message"] in done.stderr


def test_a_resumed_run_says_which_options_it_does_not_take_and_takes_the_others(project, serve):
    serve(lambda request: Reply(f"answer {len(request.body['messages'])} of {request.body['model']}"))
    project.retinue("-p", "One")
    (row,) = project.json("runs", "list", "--json")["runs"]
    options = ("--agent", "Explore", "--thinking", "high", "--permission-mode", "plan", "--model", "opus")
    done = project.retinue("-p", "Two", "--resume", row["id"], *options)
    assert "--agent, --thinking, --permission-mode ignored" in done.stderr
    assert "answer 3" in done.stdout and "opus" in done.stdout


def test_a_level_that_a_model_is_not_known_to_have_is_said_and_not_only_dropped(project, serve) -> None:
    server = serve(lambda request: Reply("done"))
    home = project.home / ".retinue"
    home.mkdir()
    (home / "settings.json").write_text('{"models": {"anthropic/claude-sonnet-4-5": {"thinking": false}}}')
    told = project.json("-p", "Go", "--thinking", "high", "--output-format", "json")
    assert "thinking" not in server.requests[0].body
    assert any("'high' is not sent" in note and '"thinking": true' in note for note in told["notes"])
    told = project.json("-p", "Go", "--output-format", "json")
    assert not any("not sent" in note for note in told["notes"])
