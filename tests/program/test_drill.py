"""The fault drill: many background agents, a provider that refuses, hangs and breaks off, and a
supervisor that is killed with -9 again and again.

At the end every run has exactly one outcome for each time it was started or taken up, its parent
has heard of each exactly once, the provider was paid within the budget, and no process is left.
RETINUE_DRILL=64 runs the full drill (64 agents, 5 kills); RETINUE_DRILL_SEED changes the moments.
"""

import json
import os
import random
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path

import pytest

from retinue.core.events import MessageAdded
from retinue.log.query import LogReader
from retinue.settings.places import state_folder
from tests.program.drill import BLOCK, IN, OUT, Drill

AGENTS = int(os.environ.get("RETINUE_DRILL", "12"))
KILLS = 5 if AGENTS >= 64 else 3
SEED = int(os.environ.get("RETINUE_DRILL_SEED", "1"))
AT_ONCE = 16 if AGENTS >= 64 else 6
PRICE = (IN * 3 + OUT * 15) / 1e6
MARKER = "RETINUE_DRILL_MARKER"
RESTARTS = 40
FREELY = ("--permission-mode", "bypassPermissions")
ATTEMPT_EVENTS = {"run.created": "c", "run.resumed": "r", "run.ended": "e"}


class Supervised:
    """The program under drill: started, killed, taken up again."""

    def __init__(self, project, drill: Drill, name: str, *options: str) -> None:
        self.project, self.drill, self.options = project, drill, options
        self.environment = {
            MARKER: name,
            "RETINUE_MAX_CONCURRENT": str(AT_ONCE),
            "RETINUE_IDLE_TIMEOUT_SECONDS": "2",
        }
        self.process = self.start()

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        main = self.main()
        words = ("-p", "go on", "--resume", main) if main else ("-p", "Look at it from all angles", *FREELY)
        options = arguments or self.options
        return self.project.start(*words, *options, "--output-format", "json", env=self.environment)

    def rows(self):
        return self.project.json("runs", "list", "--json", "--limit", "0")["runs"]

    def main(self) -> str | None:
        return next((row["id"] for row in self.rows() if row["depth"] == 0), None)

    def events(self):
        """The whole log, by run."""
        with LogReader.open(state_folder(self.project.cwd, self.project.environment)) as reader:
            return {row.id: reader.events(row.id) for row in reader.list_runs()}

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.communicate()

    def finish(self, *arguments: str) -> str:
        """Takes the main agent up until it answers: the provider may fail it, too."""
        for _ in range(RESTARTS):
            out, err = self.process.communicate(timeout=300)
            ended = json.loads(out)["status"] if out else err
            if ended in ("completed", "over-budget"):
                return ended
            assert ended in ("error", "timeout"), ended
            self.process = self.start(*arguments)
        pytest.fail(f"the main agent did not get through: {ended}")


def marked(name: str) -> list[str]:
    """What processes of the drill are still there."""
    found = []
    for path in Path("/proc").iterdir():
        if path.name.isdigit():
            try:
                if f"{MARKER}={name}".encode() in (path / "environ").read_bytes().split(b"\0"):
                    found.append((path / "cmdline").read_text().replace("\0", " "))
            except OSError:
                continue
    return found


def check(supervised: Supervised, name: str) -> list[dict]:
    rows = supervised.rows()
    assert {row["state"] for row in rows} == {"ended"}, Counter(row["state"] for row in rows)
    heard: Counter[str] = Counter()
    story = supervised.events()
    for event in story[supervised.main()]:
        if isinstance(event.body, MessageAdded) and event.body.message.origin == "notification":
            told = BLOCK.findall(event.body.message.text)
            heard.update(run_id for run_id, status in told if status != "Interrupted")
    for row in rows:
        attempts = "".join(ATTEMPT_EVENTS.get(event.body.type, "") for event in story[row["id"]])
        assert "ee" not in attempts, f"{row['id']}: {attempts}"
        assert attempts.endswith("e"), f"{row['id']}: {attempts}"
        if row["depth"]:
            assert heard[row["id"]] == attempts.count("e"), f"{row['id']}: {attempts}, heard {heard[row['id']]}"
    assert sum(row["depth"] == 1 for row in rows) == AGENTS
    assert marked(name) == []
    return rows


def strike(supervised: Supervised, chosen: random.Random, kills: int = KILLS) -> int:
    """Kills the supervisor at random moments of its work. Gives how often it was there to kill."""
    killed = 0
    while killed < kills:
        supervised.drill.wait_for(chosen.randrange(1, AGENTS), 20)
        time.sleep(chosen.choice([0.0, chosen.uniform(0, 0.02), chosen.uniform(0, 0.5)]))
        if supervised.process.poll() is not None and supervised.finish() != "over-budget":
            return killed  # it had heard of all before the last kills
        if supervised.process.poll() is not None:
            return killed
        supervised.kill()
        killed += 1
        supervised.process = supervised.start()
    return killed


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="looks for processes in /proc")
def test_every_outcome_comes_once_whatever_the_provider_does_and_however_often_it_is_killed(project, serve):
    drill = Drill(AGENTS, SEED)
    serve(drill.answer)
    name = f"drill-{os.getpid()}-{SEED}"
    supervised = Supervised(project, drill, name)
    killed = strike(supervised, random.Random(SEED))
    assert supervised.finish() == "completed"
    rows = check(supervised, name)
    story = supervised.events()
    odd = [row for row in rows if row["ended"] not in ("completed", "error", "timeout")]
    # A main agent whose provider fails it for good ends the program, and what still works is stopped with it.
    assert {story[row["id"]][-1].body.outcome.stopped_by for row in odd} <= {"program"}, odd
    billed = sum(row["usage"]["output"] for row in rows) / OUT
    unknown = drill.answered - billed  # answers that a killed process could not write down any more
    assert unknown <= killed * (AT_ONCE + 1), f"{drill.answered} answers, {billed} of them recorded"


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="looks for processes in /proc")
def test_a_budget_holds_through_kills_but_for_the_requests_that_were_on_their_way(project, serve):
    drill = Drill(AGENTS, SEED + 1)
    serve(drill.answer)
    name = f"budget-{os.getpid()}-{SEED}"
    budget = PRICE * AGENTS * 1.5  # not enough: each agent needs two or three answers
    supervised = Supervised(project, drill, name, "--max-budget-usd", f"{budget:.6f}")
    killed = strike(supervised, random.Random(SEED + 1), min(KILLS, AGENTS // 12))
    assert supervised.finish() == "over-budget"
    most = budget + (killed + 1) * (AT_ONCE + 1) * PRICE
    assert drill.spent <= most, f"{drill.spent:.6f} of {budget:.6f}, at most {most:.6f}"
    supervised.options = ("--max-budget-usd", "1")
    for _ in range(RESTARTS):  # with a larger one it gets to the end
        supervised.process = supervised.start()
        if supervised.finish() == "completed":
            break
    check(supervised, name)
