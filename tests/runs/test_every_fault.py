"""Every write of the log and every request to the model fails in turn: no run is left without a way out.

A run with a child and an approval is played again and again. Each time another commit of the log fails, once or for a
while, or another request is cut, refused or never answered. Whatever happens, the run ends or is interrupted within
seconds and says so, can be stopped, and goes on when the fault is over. Kinds and lengths of faults are drawn from a
fixed seed.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.log.faulty_disk import FaultyDisk, failing, full, no_space
from tests.program.model_server import ModelServer, Reply, Request

from retinue import Retinue
from retinue.core.delegation import LIVE
from retinue.core.outcome import Outcome
from retinue.errors import RetinueError, StateError
from retinue.log import writer
from retinue.runs.run import Run

SECONDS = 20.0
"""Far more than anything here takes on a busy machine."""
DONE = "All is done."
_CHILD = {"subagent_type": "general-purpose", "description": "part", "prompt": "The part", "run_in_background": False}


def answer(request: Request) -> Reply:
    """What the two agents say: main asks for a child, writes a file, which needs a yes, and is done."""
    if "The part" in str(request.body["messages"][0]):
        return Reply("The part is done.") if request.turn else Reply(calls=[("ls", {})])
    told = str(request.body["messages"])
    if "The part is done." not in told:
        return Reply("I delegate.", [("Agent", _CHILD)])
    if "a.txt" not in told:
        return Reply("I write.", [("write", {"path": "a.txt", "content": "a"})])
    return Reply(DONE)


class Stage:
    """One project of its own, with a person who says yes to everything as soon as that can be written."""

    def __init__(self, folder: Path, server: ModelServer) -> None:
        (folder / "project").mkdir(parents=True)
        environment = {
            "HOME": str(folder),
            "PATH": os.environ["PATH"],
            "RETINUE_HOME": str(folder / "home"),
            "ANTHROPIC_BASE_URL": server.url,
            "ANTHROPIC_API_KEY": "not-a-key",
            "RETINUE_MODEL": "anthropic/claude-sonnet-4-5",
        }
        self.retinue = Retinue(folder / "project", environment=environment)

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator[Stage]:
        async with self.retinue:
            person = asyncio.create_task(self._consent())
            try:
                yield self
            finally:
                person.cancel()
                await asyncio.gather(person, return_exceptions=True)

    async def _consent(self) -> None:
        self.retinue.supervisor.project.inbox_service.attended += 1
        while True:
            with contextlib.suppress(RetinueError):
                for item in self.retinue.inbox.items():
                    await self.retinue.inbox.answer(item.id, "allow")
            await asyncio.sleep(0.01)

    async def start(self) -> Run | None:
        """Return the run, or None if it could not start, which the caller was told."""
        with contextlib.suppress(StateError):
            return await self.retinue.spawn("general-purpose", "The whole", background=False)
        return None

    async def over(self, run: Run) -> Outcome | None:
        """Return how the run ended, or None when it was interrupted and says why."""
        async with asyncio.timeout(SECONDS):
            try:
                return await run.wait()
            except StateError as error:
                assert "disk is full or failing" in str(error)
                return None

    async def settled(self) -> None:
        """Nothing is at work, and the log knows it: every run has ended or can be taken up."""
        async with asyncio.timeout(SECONDS):
            while any(row.state in LIVE for row in self.retinue.supervisor.project.log.reader.list_runs()):
                await asyncio.sleep(0.01)
        assert not self.retinue.supervisor.busy

    async def finish(self, run: Run) -> None:
        """Go on with a run that has not done its work, as a person would."""
        again = await self.retinue.resume(run.id, "Go on.")
        async with asyncio.timeout(SECONDS):
            assert (await again.wait()).text == DONE
        await self.settled()


@pytest.fixture
def server() -> Any:
    with ModelServer(answer) as made:
        yield made


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> FaultyDisk:
    monkeypatch.setattr(writer, "MAX_DISK_OUTAGE_SECONDS", 0.05)
    monkeypatch.setattr(writer, "_DISK_PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(writer, "RETRY_SECONDS", 0.02)
    return FaultyDisk(monkeypatch)


async def play(stage: Stage, disk: FaultyDisk, seconds: float, *, stop: bool) -> None:
    """Play the run, let the disk work again `seconds` after it failed first, and go on with what is left. A run that is
    stopped is over before the disk works again; others may wait for a yes that cannot be written until then."""
    outcome = None
    try:
        run = await stage.start()
        if run is not None:
            while not disk.failed and not run.over:
                await asyncio.sleep(0.001)
            if stop:
                await run.stop()
                outcome = await stage.over(run)
        await asyncio.sleep(seconds)
    finally:
        disk.fails = lambda number: False
    if run is not None:
        outcome = await stage.over(run)
    await stage.settled()
    if run is not None and (outcome is None or not outcome.ok):
        await stage.finish(run)


async def test_every_write_of_the_log_fails_in_turn(tmp_path: Path, server: ModelServer, disk: FaultyDisk) -> None:
    draw = random.Random(32)
    async with Stage(tmp_path / "whole", server).open() as stage:
        run = await stage.start()
        assert run is not None and (await stage.over(run) or Outcome("error")).text == DONE
    writes = disk.writes
    assert writes > 10
    ends: Counter[str] = Counter()
    for number in range(1, writes + 1):
        disk.error, disk.writes, disk.failed = draw.choice([full, failing, no_space]), 0, 0
        last = number + draw.choice([0, 3, 30, 10**9])
        disk.fails = lambda at, first=number, last=last: first <= at <= last
        async with Stage(tmp_path / str(number), server).open() as stage:
            await play(stage, disk, 0.2 * draw.random(), stop=draw.random() < 0.3)
            ends.update(row.state for row in stage.retinue.supervisor.project.log.reader.list_runs())
    assert ends["ended"] > writes


@pytest.mark.parametrize("fault", ["cut", "error", "refused", "hang"])
async def test_every_request_fails_in_turn(tmp_path: Path, fault: str) -> None:
    async def with_fault(number: int) -> int:
        seen = 0
        faulty = ModelServer(answer)

        def reply(request: Request) -> Reply:
            nonlocal seen
            seen += 1
            if seen != number:
                return answer(request)
            match fault:
                case "cut":
                    return Reply("Half of", cut=2)
                case "error":
                    return Reply(status=500)
                case "refused":
                    return Reply(status=429, headers={"retry-after": "0"})
                case _:
                    return Reply("", hang=True)

        faulty.answer = reply
        with faulty:
            async with Stage(tmp_path / str(number), faulty).open() as stage:
                run = await stage.start()
                assert run is not None
                if fault == "hang" and number:
                    while seen < number and not run.over:
                        await asyncio.sleep(0.01)
                    await run.stop()
                    ended = await stage.over(run)
                    assert ended is not None and ended.ended == "stopped"
                    await stage.settled()
                    await stage.finish(run)
                else:
                    ended = await stage.over(run)
                    assert ended is not None and ended.text == DONE, ended
                    await stage.settled()
        return seen

    requests = await with_fault(0)
    assert requests == 5
    await asyncio.gather(*(with_fault(number) for number in range(1, requests + 1)))
