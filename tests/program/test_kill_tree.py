"""kill -9 of a main agent with a retinue: ends are told once, interrupted agents are named and go on.

RETINUE_KILLS=200 runs the long version; the moments come from a fixed seed.
"""

import json
import os
import random
import re
import signal
import threading
import time

import pytest

from tests.program.model_server import Reply, Request

FREELY = ("--permission-mode", "bypassPermissions")
KILLS = int(os.environ.get("RETINUE_KILLS", "6"))
BLOCK = re.compile(r"<task-id>([^<]+)</task-id>.*?<status>([^<]+)</status>", re.DOTALL)


def parts(request: Request):
    """What the conversation holds, flat: (role, kind, data)."""
    for message in request.body["messages"]:
        content = message["content"]
        if isinstance(content, str):
            yield message["role"], "text", content
            continue
        for part in content:
            kind = part["type"]
            yield message["role"], kind, part["input"] if kind == "tool_use" else part.get("text") or part
    return


def told(request: Request) -> list[tuple[str, str]]:
    """(id, status) of every notification, in order."""
    said = [data for role, kind, data in parts(request) if role == "user" and kind == "text"]
    return [found for text in said for found in BLOCK.findall(text)]


class Play:
    """The main agent starts three agents, takes up those that were interrupted, and answers."""

    def __init__(self, seed: int | None = None) -> None:
        chosen = random.Random(seed)
        self.after = chosen.randrange(1, 12)
        self.delay = chosen.choice([0.0, chosen.uniform(0, 0.01), chosen.uniform(0, 0.4)])
        self.count = 0
        self.reached = threading.Event()
        self.main: list[Request] = []
        self.hold = threading.Event()
        self.holding = False
        self._lock = threading.Lock()

    def answer(self, request: Request) -> Reply:
        with self._lock:
            self.count += 1
            if self.count >= self.after:
                self.reached.set()
        task = next(parts(request))[2]
        if "look at" in task:
            if request.turn < 1:
                return Reply("Looking. ", [("bash", {"command": "sleep 0.05"})])
            return Reply(f"finding of {task.split()[-1]}")
        self.main.append(request)
        if self.holding:
            self.hold.wait(60)
        return self.lead(request)

    def lead(self, request: Request) -> Reply:
        calls = [(n, data) for n, (_, kind, data) in enumerate(parts(request)) if kind == "tool_use"]
        if not calls:
            return Reply("Starting. ", [self.agent(n) for n in range(3)])
        last: dict[str, tuple[int, str]] = {}
        for n, (role, kind, data) in enumerate(parts(request)):
            if role == "user" and kind == "text":
                last.update({run_id: (n, status) for run_id, status in BLOCK.findall(data)})
        resumed = {data.get("resume"): n for n, data in calls if data.get("resume")}
        cut = [i for i, (n, status) in last.items() if status == "Interrupted" and resumed.get(i, -1) < n]
        if cut:
            return Reply("Taking up. ", [("Agent", {"prompt": "go on", "resume": run_id}) for run_id in cut])
        return Reply(f"heard {len(set(last))}")

    @staticmethod
    def agent(number: int):
        prompt = f"look at angle {number}"
        return ("Agent", {"prompt": prompt, "description": f"angle {number}", "subagent_type": "general-purpose"})


def main_run(project):
    rows = project.json("runs", "list", "--json", "--limit", "0")["runs"]
    return next((row for row in rows if row["depth"] == 0), None)


def check_deliveries(project, main_id):
    """Every child has ended once for good, and its parent has heard of that end exactly once."""
    rows = project.json("runs", "list", "--json", "--limit", "0")["runs"]
    children = [row for row in rows if row["parent_id"] == main_id]
    assert {row["state"] for row in rows} == {"ended"}, rows
    assert {row["ended"] for row in children} <= {"completed"}
    events = project.json("runs", "show", main_id, "--json")["events"]
    heard = []
    for event in events:
        if event["type"] == "message.added" and event["message"]["origin"] == "notification":
            heard += BLOCK.findall("".join(part["text"] for part in event["message"]["content"]))
    ends = [run_id for run_id, status in heard if status == "Done"]
    assert sorted(ends) == sorted(row["id"] for row in children), heard
    return heard


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(KILLS))
def test_a_killed_tree_is_taken_up_and_every_end_is_told_once(project, serve, seed):
    play = Play(seed)
    serve(play.answer)
    process = project.start("-p", "Review this", *FREELY, "--output-format", "json")
    for again in range(2):  # the second kill strikes the process that takes it up
        while not play.reached.wait(0.05) and process.poll() is None:
            pass
        time.sleep(play.delay)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        main = main_run(project)
        if main is None:
            return  # killed before it had begun
        play.reached.clear()
        play.after = play.count + random.Random(seed + 1000 + again).randrange(1, 8)
        process = project.start("-p", "go on", "--resume", main["id"], "--output-format", "json")
    out, err = process.communicate(timeout=120)
    if process.returncode:
        pytest.fail(err)
    assert json.loads(out)["status"] == "completed"
    check_deliveries(project, main["id"])


def test_ends_that_were_not_told_when_the_process_died_come_before_the_next_prompt_and_only_once(project, serve):
    play = Play()
    play.after = 10**9
    server = serve(play.answer)
    process = project.start("-p", "Review this", *FREELY, "--output-format", "json")

    def finished():
        rows = project.json("runs", "list", "--json")["runs"]
        return [row for row in rows if row["depth"] == 1 and row["state"] == "ended"]

    while not play.main:
        assert process.poll() is None
    play.holding = True  # from now on the main agent hears nothing any more
    while len(finished()) < 3:
        assert process.poll() is None, process.stderr.read()
    process.send_signal(signal.SIGKILL)
    process.communicate()
    main = main_run(project)
    for attempt in range(2):
        before = len(play.main)
        process = project.start("-p", f"attempt {attempt}", "--resume", main["id"], "--output-format", "json")
        while len(play.main) == before:
            assert process.poll() is None, process.stderr.read()
        process.send_signal(signal.SIGKILL)  # right after it has heard
        process.communicate()
        heard = told(play.main[-1])
        assert sorted(status for _, status in heard) == ["Done"] * 3, heard
        said = [data for _, kind, data in parts(play.main[-1]) if kind == "text"]
        assert said[-1] == f"attempt {attempt}"
        (news,) = [n for n, text in enumerate(said) if "task-notification" in text]
        assert news + 1 == min(n for n, text in enumerate(said) if text.startswith("attempt"))
    play.holding = False
    play.hold.set()
    done = project.retinue("-p", "last", "--resume", main["id"])
    assert done.stdout == "heard 3\n", done.stderr
    check_deliveries(project, main["id"])
    assert server.requests


def test_interrupted_agents_are_named_with_the_way_to_take_them_up(project, serve):
    play = Play()
    play.after = 4  # the main agent and its three children have been asked
    serve(play.answer)
    process = project.start("-p", "Review this", *FREELY, "--output-format", "json")
    assert play.reached.wait(60)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    rows = project.json("runs", "list", "--json")["runs"]
    cut = {row["id"] for row in rows if row["depth"] == 1 and row["state"] == "interrupted"}
    main = main_run(project)
    done = project.retinue("-p", "go on", "--resume", main["id"])
    assert done.returncode == 0, done.stderr
    heard = check_deliveries(project, main["id"])
    assert {run_id for run_id, status in heard if status == "Interrupted"} == cut
    events = project.json("runs", "show", main["id"], "--json")["events"]
    news = [e["message"]["content"][0]["text"] for e in events if e["type"] == "message.added"]
    assert any("resumed by its task id" in text for text in news)
