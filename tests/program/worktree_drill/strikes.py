"""How and when a process of the drill dies: at any moment, or at a chosen command of git.

For the latter a `git` of ours stands first on the program's path. It is the real one but when a
strike waits for it: then it kills the program that called it, itself, or both, before, during or
after that command. So the moments in which commits change hands are met, however short they are.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

MARKER = "RETINUE_DRILL_MARKER"
STRIKE = "RETINUE_DRILL_STRIKE"
MAKING = ("worktree add", "for-each-ref", "read-tree", "status")
SAVING = (
    *("ls-files", "update-index", "write-tree", "commit-tree", "update-ref", "cat-file", "rev-list", "fetch"),
    *("fetch", "update-ref", "worktree remove"),
)
HOW = ("before", "after", "during", "orphan", "git")

_GIT = """#!/bin/sh
strike=${{{strike}:-/nowhere}}
[ -e "$strike" ] || exec {git} "$@"
case "$2" in core.hooksPath=*) ;; *) exec {git} "$@" ;; esac
IFS=';' read -r command how delay < "$strike" || exec {git} "$@"
case " $* " in *" $command "*) ;; *) exec {git} "$@" ;; esac
mv "$strike" "$strike.taken" 2> /dev/null || exec {git} "$@"
case $how in
before) kill -9 $PPID ;;
after) {git} "$@"; kill -9 $PPID ;;
orphan) kill -9 $PPID; exec {git} "$@" ;;
during) {git} "$@" <&0 & sleep "$delay"; kill -9 $PPID $! ;;
git) {git} "$@" <&0 & sleep "$delay"; kill -9 $!; wait $!; exit 137 ;;
esac
"""


def install(folder: Path) -> str:
    """Puts that git into `folder`; gives the path to start programs with."""
    folder.mkdir()
    program = folder / "git"
    program.write_text(_GIT.format(strike=STRIKE, git=shutil.which("git")))
    program.chmod(0o755)
    return f"{folder}{os.pathsep}{os.environ['PATH']}"


@dataclass(frozen=True)
class Strike:
    """`command` of git, or none for a moment; `everything` with all that the program started."""

    command: str
    how: str
    everything: bool
    answers: int
    delay: float

    @property
    def label(self) -> str:
        if not self.command:
            return "any moment, everything" if self.everything else "any moment, supervisor"
        return f"{self.how} {self.command}"


def choose(chosen: random.Random, most: int) -> Strike:
    command = chosen.choice(["", "", *[chosen.choice(SAVING)] * 3, chosen.choice(MAKING)])
    delay = chosen.choice([0.0, chosen.uniform(0, 0.01), chosen.uniform(0, 0.4)])
    if command:
        delay = chosen.uniform(0, 0.008)
    return Strike(command, chosen.choice(HOW) if command else "", chosen.random() < 0.5, chosen.randint(1, most), delay)


class Target:
    """A started program and the file at which strikes wait for its git."""

    def __init__(self, start: Callable[[dict[str, str]], subprocess.Popen[str]], name: str, folder: Path) -> None:
        self.name = name
        self._file = folder / f"strike-{name}"
        self._taken = folder / f"strike-{name}.taken"
        self.withdraw()
        self.process = start({MARKER: name, STRIKE: str(self._file)})

    def await_strike(self, strike: Strike, seconds: float) -> bool:
        """Lets the strike wait for its command. True when it was struck."""
        beside = self._file.with_suffix(".new")
        beside.write_text(f"{strike.command};{strike.how};{strike.delay:.4f}\n")
        beside.replace(self._file)
        until = time.monotonic() + seconds
        while time.monotonic() < until and self.process.poll() is None and not self._taken.exists():
            time.sleep(0.02)
        struck = self._taken.exists()
        if struck and strike.how != "git":
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(10)
        self.withdraw()
        return struck

    def withdraw(self) -> None:
        self._file.unlink(missing_ok=True)
        self._taken.unlink(missing_ok=True)

    def kill(self, *, everything: bool) -> None:
        """Kills the program; with `everything` all that carries its name, stopped first, so that
        nothing of it sees another part die."""
        if everything:
            for number in (signal.SIGSTOP, signal.SIGKILL):
                for pid in carrying(self.name):
                    with suppress(ProcessLookupError):
                        os.kill(pid, number)
        self.process.kill()
        self.process.communicate()


def carrying(name: str) -> list[int]:
    """The processes that were started with this name, or by one that was."""
    found = []
    for path in Path("/proc").iterdir():
        if path.name.isdigit():
            with suppress(OSError):
                if f"{MARKER}={name}".encode() in (path / "environ").read_bytes().split(b"\0"):
                    found.append(int(path.name))
    return found
