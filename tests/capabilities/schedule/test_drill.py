"""A month in two processes: clocks that jump, machines that sleep, summer that ends, processes that die."""

from __future__ import annotations

import random
from collections import Counter
from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from retinue.capabilities.schedule import scheduler as scheduler_module
from retinue.capabilities.schedule.scheduler import Scheduler
from retinue.capabilities.schedule.times import TOLERANCE_SECONDS, next_after, parse_schedule
from retinue.log import schedules
from retinue.testing import FakeClock
from tests.capabilities.schedule.test_scheduler import look, posts
from tests.runs.run_scene import Scene

BERLIN = ZoneInfo("Europe/Berlin")
JOBS = {
    "every three hours": "3h",
    "nightly": "30 2 * * *",
    "working hours": "0 0 9-17 * * 1-5",
    "later": "2026-11-05T08:00+01:00",
}


@pytest.mark.parametrize("seed", [1, 2])
async def test_a_month_with_two_daemons(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Every slot is fired at most once; those during which a process looked, exactly once."""
    rng = random.Random(seed)
    start = datetime(2026, 10, 12, tzinfo=BERLIN).timestamp()
    scene = Scene(tmp_path, monkeypatch)
    scene.clock = FakeClock(start)
    scene.model("tidy up").standing = "tidied"
    monkeypatch.setattr(scheduler_module, "start_job", _instantly)
    scene.supervisor.clock = scene.clock
    async with posts(scene, 2) as processes:
        for name, when in JOBS.items():
            await processes[0].scheduler.add("Explore", "tidy up", when, name=name, zone="Europe/Berlin")
        awake: list[tuple[float, float]] = []
        now = start
        while now < start + 30 * 86_400:
            asleep = rng.random() < 0.05
            due = min(job.next_at for job in processes[0].scheduler.jobs() if job.next_at is not None)
            until = now + rng.uniform(600, 50_000) if asleep else max(due, now) + rng.uniform(0, TOLERANCE_SECONDS - 1)
            scene.clock._passed += until - now
            if not asleep:
                awake.append((now, until))
            now = scene.clock.now()
            await look(*processes)
            if rng.random() < 0.05:  # someone sets the clock back for a while
                scene.clock._start -= 120
                await look(*processes)
                scene.clock._start += 120
        _judge(processes[0].scheduler, start, now, awake)


def _judge(scheduler: Scheduler, start: float, end: float, awake: list[tuple[float, float]]) -> None:
    reader = scheduler._supervisor.project.log.reader
    for job in scheduler.jobs():
        slots = schedules.slots(reader, job.id, 10_000)
        fired = Counter(slot for slot, result, _ in slots if result == "fired")
        assert all(count == 1 for count in fired.values()), job.name
        when, slot = parse_schedule(job.text, start, "Europe/Berlin"), start
        while (slot := next_after(when, slot, job.anchor) or end) < end - TOLERANCE_SECONDS:
            if any(begin < slot <= over for begin, over in awake):
                assert slot in fired, (job.name, datetime.fromtimestamp(slot, BERLIN))


async def _instantly(supervisor: object, job: object, run_id: str) -> None:
    """The slot is what is tested here, not the run."""


@pytest.mark.parametrize("missed", ["skip", "catch-up"])
async def test_a_process_that_dies_between_claim_and_start_loses_no_slot_that_policy_keeps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missed: str
) -> None:
    scene = Scene(tmp_path, monkeypatch)
    scene.model("tidy up").standing = "tidied"
    async with posts(scene) as (post,):
        job = await post.scheduler.add("Explore", "tidy up", "1h", missed=missed)
        scene.clock._passed += 3_600
        dead = job.next_at
        await post.supervisor.project.log.transact(
            lambda db: schedules.claim(
                db, job, dead, dead + 3_600, "fired", owner="a process that died", now=dead, run_id="never-started"
            )
        )
        first, again = await look(post), await look(post)
        assert again == []
        assert [(each.slot, each.run_id, each.why) for each in first] == (
            [(dead, "never-started", "")] if missed == "catch-up" else [(dead, None, "missed")]
        )
