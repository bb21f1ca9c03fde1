"""Memory of runs that wait: thousands of agents in one process, each waiting for its model.

    python bench/memory.py [--runs 2000]

The agents are started through the library, in the foreground, where no slot has to be waited
for, and with the log on, against a server on loopback that takes every request and never
answers. The figure is the growth of resident memory from before the first start until all
requests have arrived.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import subprocess
import sys

from rig.process import line
from rig.project import Project

GOAL_KB = 45


async def hang() -> None:
    """The server: prints its port, then the number of requests whenever it is asked for one."""
    arrived = 0

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal arrived
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(int(each.split(b":")[1]) for each in head.lower().split(b"\r\n") if b"content-length" in each)
        await reader.readexactly(length)
        arrived += 1
        await reader.read()
        writer.close()

    server = await asyncio.start_server(take, "127.0.0.1", 0, backlog=4096)
    print(server.sockets[0].getsockname()[1], flush=True)
    loop = asyncio.get_running_loop()
    while await loop.run_in_executor(None, sys.stdin.readline):
        print(arrived, flush=True)
    os._exit(0)


def resident_kb() -> float:
    """Of this process, now; where the system does not tell, the most it ever was."""
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1024
    except OSError:
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1024 if sys.platform == "darwin" else 1)


async def waiting(runs: int, environment: dict[str, str], cwd: str, server: subprocess.Popen[str]) -> tuple[float, int]:
    from retinue import Retinue

    assert server.stdin is not None and server.stdout is not None
    async with Retinue(cwd, environment=environment) as supervisor:
        first = await supervisor.spawn("bench-worker", "Wait.")  # everything that is made once is made now
        gc.collect()
        before = resident_kb()
        tasks = [f"Wait, number {number}." for number in range(runs)]
        started = await asyncio.gather(*(supervisor.spawn("bench-worker", task, background=False) for task in tasks))
        for _ in range(3_000):
            await asyncio.sleep(0.02)
            server.stdin.write("\n")
            server.stdin.flush()
            if int(server.stdout.readline()) > runs:
                break
        else:
            raise SystemExit("Not every run came to wait for its model.")
        gc.collect()
        after, at_work = resident_kb(), len(asyncio.all_tasks())
        assert all(run.outcome is None for run in (first, *started))
        await supervisor.stop_all()
    return (after - before) / runs, at_work


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=2_000)
    parser.add_argument("--hang", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.hang:
        asyncio.run(hang())
        return
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    except (ImportError, ValueError, OSError):
        print("The number of open files cannot be raised here; use fewer --runs if this fails.")
    command = [sys.executable, __file__, "--hang"]
    with (
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server,
        Project() as project,
    ):
        assert server.stdout is not None
        environment = project.environment(f"http://127.0.0.1:{int(server.stdout.readline())}")
        try:
            each, tasks = asyncio.run(waiting(args.runs, environment, str(project.cwd), server))
        finally:
            server.kill()
    print(f"{args.runs} runs in one process, each waiting for its model, log on ({tasks} tasks)")
    line("resident memory per waiting run", f"{each:.1f} kB", f"{GOAL_KB} kB", each <= GOAL_KB)


if __name__ == "__main__":
    main()
