"""kill -9 of isolated runs at random moments, the end of a run included: no commit is lost.

RETINUE_WORKTREE_RUNS=1000 runs the long version; moments come from a fixed seed.
"""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor

from tests.runs.conftest import Project
from tests.runs.model_server import ModelServer, Reply, Request
from tests.runs.test_worktree import RUN, repository, state, text_of  # noqa: F401 - a fixture

RUNS = int(os.environ.get("RETINUE_WORKTREE_RUNS", "12"))
AT_ONCE = 3
SHA = re.compile(r"made ([0-9a-f]{40})")

STEPS = (
    "echo {n} > one-{n}; git add -A; git commit -qm one; echo made $(git rev-parse HEAD); echo dirt > dirt-{n}",
    "git checkout -q -b side-{n}; echo {n} > side; git add side; git commit -qm side; echo made $(git rev-parse HEAD)",
    "git checkout -q --detach HEAD~1; echo {n} > l; git add l; git commit -qm lost; echo made $(git rev-parse HEAD)",
)


class Play:
    """One run's model: three turns of commits, then an answer. `reached` is set at the request
    before which, or shortly after which, the process is to die."""

    def __init__(self, number: int) -> None:
        self.chosen = random.Random(number)
        self.number = number
        self.at = self.chosen.choice([0, 1, 2, 3, 3, 3, 3, 99])
        self.delay = self.chosen.choice([0.0, self.chosen.uniform(0, 0.02), self.chosen.uniform(0, 0.3)])
        self.reached = threading.Event()
        self.told: set[str] = set()

    def answer(self, request: Request) -> Reply:
        self.told |= {sha for part in request.results for sha in SHA.findall(text_of(part))}
        turn = request.turn
        if turn >= self.at:
            self.reached.set()
        if turn < len(STEPS):
            return Reply("", [("bash", {"command": STEPS[turn].format(n=self.number)})])
        return Reply("done")


def one(project: Project, number: int) -> set[str]:
    """A run that is killed, or not; gives the commits that it had reported before."""
    play = Play(number)
    with ModelServer(play.answer) as server:
        mine = Project(project.cwd, project.home, server)
        process = mine.start("run", "general-purpose", f"task {number}", *RUN, start_new_session=True)
        done = threading.Event()
        threading.Thread(target=lambda: (process.wait(), done.set()), daemon=True).start()
        while not play.reached.wait(0.01) and not done.is_set():
            pass
        done.wait(play.delay if play.at < 99 else 60)
        process.send_signal(signal.SIGKILL)
        process.communicate()
    return play.told


def test_no_commit_of_a_killed_agent_is_lost_and_no_directory_leaks(project: Project, repository):  # noqa: F811
    with ThreadPoolExecutor(AT_ONCE) as pool:
        told = set().union(*pool.map(lambda number: one(project, number), range(RUNS)))
    assert told
    chosen, worktrees = random.Random(RUNS), state(project) / "worktrees"
    before = {path.stem for path in worktrees.glob("*.git")}
    made = set().union(*(commits(path) for path in worktrees.glob("*.git"))) | told
    listed = project.json("worktrees", "list", "--json")
    assert {each["run"] for each in listed["worktrees"]} >= before and listed["unknown"] == []
    for _ in range(3):  # cleaning is killed, too
        process = project.start("worktrees", "clean")
        try:
            process.wait(chosen.uniform(0.2, 0.6))
        except subprocess.TimeoutExpired:
            process.kill()
        process.communicate()
    process = project.start("worktrees", "clean", "--json")
    out, err = process.communicate(timeout=60 + 5 * RUNS)
    assert process.returncode == 0, err
    assert [each for each in json.loads(out)["cleaned"] if each["kept"] is not None] == []
    left = project.json("worktrees", "list", "--json")
    assert left == {"worktrees": [], "unknown": []}
    assert list(worktrees.iterdir()) == []
    assert made <= set(repository.git("rev-list", "--all").split())
    unreachable = repository.git("fsck", "--unreachable", "--no-reflogs").splitlines()
    assert [line for line in unreachable if " commit " in line] == []
    assert repository.git("worktree", "list").count("\n") == 0
    assert repository.git("status", "--porcelain") == ""
    branches = repository.git("for-each-ref", "--format=%(refname:short)", "refs/heads/retinue-agent-*").split()
    runs = {run["id"] for run in project.json("runs", "list", "--json", "--limit", "100000")["runs"]}
    assert {branch[len("retinue-agent-") :][:17] for branch in branches} <= runs | before


def commits(git: os.PathLike[str]) -> set[str]:
    """Every commit that is in the repository of a worktree, reported or not."""
    listed = subprocess.run(
        ["git", "--git-dir", str(git), "cat-file", "--batch-check", "--batch-all-objects"],
        capture_output=True,
        text=True,
    ).stdout
    return {line.split()[0] for line in listed.splitlines() if line.split()[1] == "commit"}
