"""What a long history costs those who look at a little of it, and what one long run costs.

    python bench/history.py [--runs 1000 10000 50000] [--megabytes 200] [--rounds 5]

Makes a project with so many ended runs (some twenty events each) and prints the CPU time of commands of the real
program and of what the app, the page and a process do, with the ratio of the largest history to the smallest. Then the
memory and the longest pause of the event loop (CPU of its thread) when a run with that much output is shown, opened in
the app and taken up again.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path

from rig.history import run_id, write_history, write_long_run
from rig.process import line, measure
from rig.project import Project
from rig.server import Server, require_rig

from retinue.app.feed import Feed
from retinue.app.run_events import follow_tree
from retinue.app.snapshot import take_snapshot
from retinue.core.events import RunCreated, TurnStarted
from retinue.core.run_state import RunPlace
from retinue.log.query import LogReader
from retinue.log.store import Log
from retinue.settings.places import state_folder

GOAL = 1.3
GOAL_MB = 150
GOAL_PAUSE_MS = {"resume in a library": 100, "open in the app": 200}
"""For the app more: Textual draws a new screen in some 120 ms of CPU, however little is on it."""
CREATED = RunCreated("bench-worker", "Watch me", {"name": "bench-worker"}, "h", "m", "/", 0)


def commands(runs: int) -> dict[str, list[str]]:
    some = run_id(runs - 10)
    return {
        "runs list": ["runs", "list"],
        "runs list --state interrupted": ["runs", "list", "--state", "interrupted"],
        "runs list --state running": ["runs", "list", "--state", "running"],
        "runs list --agent main": ["runs", "list", "--agent", "main"],
        "runs show": ["runs", "show", some],
        "runs show @name": ["runs", "show", f"@helper{runs // 5 * 5 - 9}"],
        "runs tail": ["runs", "tail", some],
        "activity": ["activity"],
        "logs": ["logs"],
        "logs --level error (no match)": ["logs", "--level", "error"],
        "run bench-worker": ["run", "bench-worker", "Say done."],
        "runs resume": ["runs", "resume", run_id(runs - 15), "Go on."],
        "worktrees list": ["worktrees", "list"],
    }


def cpu_of(work: Callable[[], object], times: int = 20) -> float:
    """Milliseconds of CPU of one call, all threads."""
    work()
    begin = time.process_time()
    for _ in range(times):
        work()
    return (time.process_time() - begin) / times * 1000


def watch(folder: Path, commits: int = 40) -> float:
    """Milliseconds of CPU that following a live tree costs for each commit of another."""
    run = "ffffffff-watched"
    argv = [sys.executable, __file__, "--write", str(folder), run, str(commits)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        writer.stdout.readline()
        begin = time.process_time()
        asyncio.run(follow_events(folder, run, commits))
        used = time.process_time() - begin
    forget(folder, run)
    return used / commits * 1000


async def follow_events(folder: Path, run: str, events: int) -> None:
    async for event in follow_tree(Feed(folder, folder), run):
        if event.seq > events:
            return


async def write(folder: Path, run: str, commits: int) -> None:
    async with Log.open(folder) as log:
        log.append(RunPlace(run), CREATED)
        await log.flush()
        print("ready", flush=True)
        for turn in range(commits):
            await asyncio.sleep(0.05)
            log.append(RunPlace(run), TurnStarted(turn))
            await log.flush()


def forget(folder: Path, run: str) -> None:
    """Let the next round begin with the same run."""
    from retinue.log.database import connect

    connection = connect(folder)
    connection.execute("DELETE FROM events WHERE run_id=?", (run,))
    connection.execute("DELETE FROM runs WHERE id=?", (run,))
    connection.close()


def come_and_go(folder: Path) -> None:
    """A process that opens the log, writes a run and ends."""

    async def work() -> None:
        async with Log.open(folder) as log:
            log.append(RunPlace("ffffffff-short"), CREATED)
            await log.flush()

    asyncio.run(work())
    forget(folder, "ffffffff-short")


def make(project: Project, environment: Mapping[str, str], runs: int) -> Path:
    """Write a history and return the state folder that has it."""
    folder = state_folder(project.cwd, environment)
    begin = time.perf_counter()
    events = write_history(folder, project.cwd, runs)
    size = (folder / "log.db").stat().st_size / 2**20
    print(f"{runs} runs, {events} events, {size:.0f} MB, made in {time.perf_counter() - begin:.0f} s", flush=True)
    return folder


def figures(places: Mapping[int, tuple[Project, Mapping[str, str], Path]], rounds: int) -> dict[str, dict[int, float]]:
    """Return milliseconds of CPU by name and number of runs. Histories take turns, so that a busy machine is as busy
    for each of them."""
    found: dict[str, dict[int, float]] = {}
    for name in commands(1_000):
        costs: dict[int, list[float]] = {runs: [] for runs in places}
        for _ in range(rounds):
            for runs, (project, environment, _) in places.items():
                argv = [sys.executable, "-m", "retinue", *commands(runs)[name]]
                costs[runs].append(measure(argv, environment, project.cwd).cpu * 1000)
        found[name] = {runs: min(some) for runs, some in costs.items()}
    for runs, (_, _, folder) in places.items():
        for name, value in of_the_log(folder).items():
            found.setdefault(name, {})[runs] = value
    return found


def of_the_log(folder: Path) -> dict[str, float]:
    """Return the same of what the app, the page and a process ask of the log."""
    with LogReader.open(folder) as reader:
        found = {
            "/sessions (log)": cpu_of(lambda: reader.conversations(limit=200)),
            "/v1/runs snapshot (log)": cpu_of(lambda: take_snapshot(reader, limit=100)),
        }
    found["start and end of a process (log)"] = cpu_of(lambda: come_and_go(folder))
    found["attach, for each commit (log)"] = min(watch(folder) for _ in range(3))
    return found


TICK = """
import asyncio, json, resource, sys, time
from pathlib import Path
from retinue import Retinue

class Pauses:
    # The longest stretch in which the loop did nothing else: by the clock, and in CPU of its thread. On a busy machine
    # only the second says what the program is to blame for.
    clock = cpu = 0.0
    async def watch(self):
        while True:
            before, used = time.perf_counter(), time.thread_time()
            await asyncio.sleep(0.005)
            self.clock = max(self.clock, time.perf_counter() - before - 0.005)
            self.cpu = max(self.cpu, time.thread_time() - used)
    def say(self):
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(json.dumps({"pause": self.cpu * 1000, "clock": self.clock * 1000, "peak": peak}))
"""
RESUME = (
    TICK
    + """
async def main():
    pauses = Pauses()
    async with Retinue(Path.cwd()) as retinue:
        await asyncio.sleep(0.2)
        ticking = asyncio.create_task(pauses.watch())
        run = await retinue.resume(sys.argv[1], "Go on.")
        await run.wait()
        ticking.cancel()
    pauses.say()

asyncio.run(main())
"""
)
APP = (
    TICK
    + """
from retinue.frontends.tui.app import RetinueApp

async def main():
    pauses = Pauses()
    async with Retinue(Path.cwd()) as retinue:
        app = RetinueApp(retinue)
        async with app.run_test(size=(120, 40)) as pilot:
            await pilot.pause()
            await asyncio.sleep(1)
            ticking = asyncio.create_task(pauses.watch())
            await app.open_session(sys.argv[1])
            await pilot.pause()
            await asyncio.sleep(1)
            app.watch_run(sys.argv[1])
            await asyncio.sleep(10)
            ticking.cancel()
    pauses.say()

asyncio.run(main())
"""
)
IN_PROCESS = {"resume in a library": RESUME, "open in the app": APP}


def long_runs(project: Project, environment: Mapping[str, str], megabytes: int) -> bool:
    """Print what it takes to show and to take up one long run. Return whether all goals are met."""
    folder, good = state_folder(project.cwd, environment), True
    for number, compacted in enumerate((True, False)):
        kind = "compacted" if compacted else "never compacted"
        for what in ("show", "show --json", "open in the app", "resume", "resume in a library"):
            run = f"eeeeeee{number}-{len(what):04}-4000"
            # In a process of its own: what this one has used counts as the memory of those that it starts.
            make = [sys.executable, __file__, "--long", str(folder), str(project.cwd), run, str(megabytes), kind]
            subprocess.run(make, check=True)
            if what in IN_PROCESS:
                cost = measure([sys.executable, "-c", IN_PROCESS[what], run], environment, project.cwd)
                said = json.loads(cost.output)
                pause, peak = said["pause"], said["peak"]
                goal = GOAL_PAUSE_MS[what]
                fine = pause <= goal
                name = f"{kind}: {what}, longest pause of the loop ({said['clock']:.0f} ms by the clock)"
                line(name, f"{pause:.0f} ms", f"{goal} ms", fine)
                good = good and fine
            else:
                verb, *words = what.split()
                argv = [sys.executable, "-m", "retinue", "runs", verb, run, *words]
                if verb == "resume":
                    argv.append("Go on.")
                cost = measure(argv, environment, project.cwd)
                peak = cost.peak_mb
            fine = peak <= GOAL_MB
            line(f"{kind}: {what} {megabytes} MB ({cost.wall:.1f} s)", f"{peak:.0f} MB", f"{GOAL_MB} MB", fine)
            good = good and fine
    return good


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, nargs="*", default=[1_000, 10_000, 50_000])
    parser.add_argument("--megabytes", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--write", nargs=3, help=argparse.SUPPRESS)
    parser.add_argument("--long", nargs=5, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.long:
        folder, cwd, run, megabytes, kind = options.long
        write_long_run(Path(folder), Path(cwd), run, int(megabytes), compacted=kind == "compacted")
        return 0
    if options.write:
        folder, run, commits = options.write
        asyncio.run(write(Path(folder), run, int(commits)))
        return 0
    require_rig()
    good = True
    with Server() as server, ExitStack() as projects:
        places = {}
        for runs in options.runs:
            project = projects.enter_context(Project())
            environment = project.environment(server.url)
            places[runs] = (project, environment, make(project, environment, runs))
        for name, values in figures(places, options.rounds).items():
            ratio = values[max(values)] / values[min(values)]
            shown = "  ".join(f"{value:.1f}" for value in values.values())
            line(f"{name}: {shown} ms", f"{ratio:.2f}", f"{GOAL}", ratio <= GOAL)
            good = good and ratio <= GOAL
        if options.megabytes:
            project = projects.enter_context(Project())
            good = long_runs(project, project.environment(server.url), options.megabytes) and good
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
