"""One supervisor of the drill with a few jobs: started, killed, taken up again, cleaned up after."""

from __future__ import annotations

import json
import random
import subprocess
import threading
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from retinue.core.run_state import RunState
from retinue.log.query import LogReader
from retinue.settings.places import state_folder
from tests.program.conftest import Project
from tests.program.worktree_drill.agents import Agents
from tests.program.worktree_drill.strikes import Strike, Target, choose

FREELY = ("--permission-mode", "bypassPermissions")
TIMEOUT = 600.0
"""Seconds after which something hangs; nothing is measured by it."""
_ATTEMPTS = 12


@dataclass
class Scene:
    """What all supervisors share. `findings` is what is wrong: at the end it must be empty."""

    project: Project
    agents: Agents
    folder: Path
    path: str
    at_once: int
    findings: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    strikes: Counter[str] = field(default_factory=Counter)
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def state(self) -> Path:
        return state_folder(self.project.cwd, self.project.environment)

    @property
    def worktrees(self) -> Path:
        return self.state / "worktrees"

    def start(self, name: str, *arguments: str) -> Target:
        more = {"PATH": self.path, "RETINUE_MAX_CONCURRENT": str(self.at_once), "TMPDIR": str(self.folder / "tmp")}
        return Target(lambda env: self.project.start(*arguments, env=more | env), name, self.folder)

    def call(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """The program, unharmed."""
        process = self.project.start(*arguments, env={"TMPDIR": str(self.folder / "tmp")})
        out, err = process.communicate(timeout=TIMEOUT)
        return subprocess.CompletedProcess(arguments, process.returncode, out, err)

    def rows(self) -> list[RunState]:
        if not (self.state / "log.db").exists():
            return []
        with LogReader.open(self.state) as reader:
            return reader.list_runs()

    def count(self, what: str) -> None:
        with self.lock:
            self.counts[what] += 1

    def find(self, what: str) -> None:
        with self.lock:
            self.findings.append(what)

    def check_listed(self) -> None:
        """Nothing lies among the worktrees that `worktrees list` does not name. Others work there
        meanwhile, so only what is there before and after counts."""
        before = names_in(self.worktrees)
        done = self.call("worktrees", "list", "--json")
        if done.returncode:
            return self.find(f"worktrees list: {done.stderr}")
        listed = json.loads(done.stdout)
        known = {each["run"] for each in listed["worktrees"]} | {Path(path).name for path in listed["unknown"]}
        for name in sorted((before & names_in(self.worktrees)) - known):
            self.find(f"not listed: {name}")
        return self.count("lists")


def names_in(worktrees: Path) -> set[str]:
    """The runs of which anything but a lock lies there."""
    found = worktrees.iterdir() if worktrees.is_dir() else ()
    return {path.name.split(".")[0] for path in found if path.suffix not in (".lock", ".new")}


class Batch:
    """`jobs` of one supervisor. A single one is sometimes started by `retinue run`."""

    def __init__(self, scene: Scene, number: int, jobs: range, seed: int) -> None:
        self.scene, self.number, self.jobs = scene, number, jobs
        self.chosen = random.Random(f"{seed} batch {number}")
        self.alone = len(jobs) == 1
        self.name = f"{scene.folder.name}-{number}"
        self.task = f"Do job {jobs[0]} ." if self.alone else f"Do batch {number}: jobs {jobs[0]} to {jobs[-1] + 1}"
        self.watched = f"job {jobs[0]}" if self.alone else f"batch {number}"

    def main(self) -> RunState | None:
        return next((row for row in self.scene.rows() if row.task == self.task), None)

    def start(self) -> Target:
        main, plain = self.main(), (*FREELY, "--isolation", "worktree", "--json")
        if main is not None and self.alone:
            words: tuple[str, ...] = ("runs", "resume", main.id, "go on", "--json")
        elif main is not None:
            words = ("-p", "go on", "--resume", main.id, "--output-format", "json")
        elif self.alone:
            words = ("run", "general-purpose", self.task, *plain)
        else:
            words = ("-p", self.task, *FREELY, "--output-format", "json")
        self.scene.count("starts")
        return self.scene.start(self.name, *words)

    def run(self) -> None:
        target = self.start()
        for _ in range(self.chosen.choice([0, 1, 2, 2, 3, 4, 5])):
            if not self.strike(target, choose(self.chosen, 4 * len(self.jobs))):
                break  # it was done before
            what_next = self.chosen.random()
            if what_next < 0.4:
                self.clean()
            if what_next < 0.12:
                return  # nobody takes it up
            target = self.start()
        self.finish(target)

    def strike(self, target: Target, strike: Strike) -> bool:
        """True when the supervisor died of it."""
        if strike.command:
            struck = target.await_strike(strike, 15)
            if struck:
                self.note(strike.label)
            if target.process.poll() is None and struck:
                return self.strike(target, choose(self.chosen, 4))  # only its git died; it goes on
        else:
            self.scene.agents.wait_for(self.watched, strike.answers, 5)
            if target.process.poll() is None:
                threading.Event().wait(strike.delay)
                self.note(strike.label)
        died = target.process.poll() is None or target.process.returncode < 0
        pid = target.process.pid
        target.kill(everything=strike.everything)
        if died:
            self.scene.count("supervisors killed")
            self.scene.agents.seen.look(self.scene.worktrees, pid, at_files=strike.everything)
            self.scene.check_listed()
        return died

    def note(self, label: str) -> None:
        with self.scene.lock:
            self.scene.strikes[label] += 1

    def clean(self) -> None:
        """`worktrees clean`, which is killed half of the time."""
        target = self.scene.start(f"{self.name}-clean", "worktrees", "clean", "--json")
        if self.chosen.random() < 0.5:
            strike = choose(self.chosen, 1)
            if not strike.command:
                strike = Strike("fetch", "during", strike.everything, 1, 0.004)
            if target.await_strike(strike, 15):
                self.note(f"{strike.label} (clean)")
            if target.process.poll() is None and strike.how != "git":
                target.kill(everything=strike.everything)
        self.scene.count("cleans")
        _, err = target.process.communicate(timeout=TIMEOUT)
        if target.process.returncode > 0:
            self.scene.find(f"worktrees clean: {err}")

    def finish(self, target: Target) -> None:
        """Takes it up until it is through."""
        for _ in range(_ATTEMPTS):
            out, err = target.process.communicate(timeout=TIMEOUT)
            ended = self.ended(out)
            if ended == "completed" or (self.alone and ended == "error"):
                return
            target = self.start()
        self.scene.find(f"{self.task}: did not get through, {ended}: {err[-400:]}")
        target.kill(everything=True)

    def ended(self, out: str) -> Any:
        """How it ended, as it said itself; nothing when it could not be started."""
        try:
            said = json.loads(out)
        except ValueError:
            return None
        main = self.main()
        return said.get("status") if not self.alone else main.ended if main is not None else None
