"""kill -9 at random moments: what was shown is in the log, and `resume` finishes the job.

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

KILLS = int(os.environ.get("RETINUE_KILLS", "6"))
TURNS = 5


class Moment:
    """Fires when the model is asked for turn `turn`, and then after `delay` seconds."""

    def __init__(self, seed: int) -> None:
        chosen = random.Random(seed)
        self.turn = chosen.randrange(TURNS + 1)
        self.delay = chosen.choice([0.0, chosen.uniform(0, 0.004), chosen.uniform(0, 0.05)])
        self.reached = threading.Event()

    def answer(self, request: Request) -> Reply:
        if request.turn == self.turn:
            self.reached.set()
        if request.turn < TURNS:
            return Reply(f"Step {request.turn}. ", [("bash", {"command": f"echo {request.turn} >> done.txt"})])
        return Reply("all steps done")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(KILLS))
def test_a_killed_run_is_interrupted_and_resume_finishes_without_repeating(project, serve, seed):
    moment = Moment(seed)
    serve(moment.answer)
    process = project.start("run", "general-purpose", "Do all steps", "--mode", "json")
    shown: list[str] = []
    reader = threading.Thread(target=lambda: shown.extend(process.stdout))
    reader.start()
    assert moment.reached.wait(60), process.stderr.read()
    time.sleep(moment.delay)
    process.send_signal(signal.SIGKILL)
    process.wait()
    reader.join()

    rows = project.json("runs", "list", "--json")["runs"]
    assert len(rows) == 1
    run_id, state = rows[0]["id"], rows[0]["state"]
    document = project.json("runs", "show", run_id, "--json")
    events = document["events"]
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    known = {event["seq"] for event in events}
    whole = [line for line in shown if line.endswith("\n")]
    assert {json.loads(line)["seq"] for line in whole} <= known, "something that was shown is not in the log"
    assert state == ("ended" if document["outcome"] else "interrupted")
    assert project.retinue("runs", "show", run_id).returncode == 0
    finished = [event["call_id"] for event in events if event["type"] == "tool.ended"]

    if state == "interrupted":
        done = project.retinue("runs", "resume", run_id, "--json")
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["details"]["results"][0]["output"] == "all steps done"
    final = project.json("runs", "show", run_id, "--json")
    assert final["run"]["state"] == "ended"
    assert final["run"]["ended"] == "completed"
    started = [event["call"]["id"] for event in final["events"] if event["type"] == "tool.started"]
    assert len(started) == len(set(started)), "a tool call was made twice"
    steps = (project.cwd / "done.txt").read_text().split()
    assert len(steps) == len(set(steps)), "an effect happened twice"
    for call in finished:
        assert re.fullmatch(r"call-(\d+)-0", call)[1] in steps
