"""Limits between processes: told by small files, respected within a second, never a burden."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from retinue.models.limiter import Limiters
from retinue.testing import settle
from tests.models.limiter_fleet import Fleet, busy

CHILD = """
import asyncio, sys
from pathlib import Path
from retinue.core.outcome import Failure
from retinue.models.limiter import Limiters
from retinue.testing import settle

async def main():
    limiters = Limiters(Path(sys.argv[1]))
    gates = [limiters.gate_for("anthropic", "me") for _ in range(8)]
    for gate in gates:
        await gate.before()
    await gates[0].after(Failure("rate_limit", "429", retry_after=float(sys.argv[2])))
    print("refused", flush=True)
    await asyncio.sleep(60)

asyncio.run(main())
"""


def two(home: Path) -> tuple[Fleet, Fleet]:
    one, other = Fleet(home), Fleet(home)
    other.clock = one.clock
    other.limiters = Limiters(home, clock=one.clock, draw=lambda: 0.0, warn=other.warnings.append)
    return one, other


async def test_D13_a_refusal_in_one_process_holds_and_slows_the_others(tmp_path: Path) -> None:
    one, other = two(tmp_path)
    running = await other.ask(20)
    assert other.out() == 20
    await one.end(await one.ask(8), busy(retry_after=30.0))
    await other.clock.advance(0.25)
    await other.ask(20)
    assert other.out() == 20 and (other.state.limit, other.state.waiting) == (4, 20)
    await other.end(running)
    await other.clock.advance(29.0)
    assert other.out() == 0
    await other.finish()
    assert (tmp_path / "limits").stat().st_mode & 0o077 == 0


async def test_while_nothing_is_wrong_nothing_is_written(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path)
    for _ in range(10):
        await fleet.end(await fleet.ask(10))
        await fleet.clock.advance(1.0)
    assert list(tmp_path.iterdir()) == []


async def test_old_news_is_no_news(tmp_path: Path) -> None:
    one, other = two(tmp_path)
    await one.end(await one.ask(8), busy(retry_after=5.0))
    await other.clock.advance(400)
    await other.ask(20)
    assert other.out() == 20
    await other.finish()


async def test_the_same_news_counts_once(tmp_path: Path) -> None:
    one, other = two(tmp_path)
    await one.end(await one.ask(8), busy(retry_after=1.0))
    await other.ask(50)
    await other.clock.advance(10)
    limit = other.state.limit
    for _ in range(40):
        await other.end([request for request in other.requests if request.out][:1])
        await other.clock.advance(0.3)
        (tmp_path / "limits" / "touched").touch()
        (tmp_path / "limits" / "touched").unlink()
    assert other.state.limit is not None and limit is not None and other.state.limit > limit
    await other.finish()


def record(folder: Path, key: str, owner: str, **values: object) -> None:
    folder.mkdir(exist_ok=True)
    (folder / f"{key}.{owner}").write_text(json.dumps(values))


async def key_of(home: Path) -> str:
    fleet = Fleet(home)
    await fleet.end(await fleet.ask(1), busy(retry_after=0.0))
    (file,) = (home / "limits").iterdir()
    file.unlink()
    return file.name.partition(".")[0]


@pytest.mark.parametrize(
    "values",
    [
        {"until": 1e300, "limit": 1, "at": 0},
        {"until": 0, "limit": 0, "at": 0},
        {"until": 0, "limit": -5, "at": 1e12},
        {"until": "soon", "limit": 1, "at": 0},
        {"until": None},
        {},
        {"until": float("nan"), "limit": float("inf"), "at": 0},
    ],
)
async def test_nonsense_from_others_limits_nobody(tmp_path: Path, values: dict[str, object]) -> None:
    key = await key_of(tmp_path)
    fleet = Fleet(tmp_path)
    now = fleet.clock.now()
    shifted = {
        name: value + now if name in ("until", "at") and isinstance(value, (int, float)) else value
        for name, value in values.items()
    }
    record(tmp_path / "limits", key, "1-x", **shifted)
    await fleet.ask(20)
    assert fleet.out() == 20
    await fleet.finish()


async def test_broken_files_are_reported_once_and_hide_no_other(tmp_path: Path) -> None:
    key = await key_of(tmp_path)
    fleet = Fleet(tmp_path)
    folder, now = tmp_path / "limits", fleet.clock.now()
    for number in range(5):
        folder.mkdir(exist_ok=True)
        (folder / f"{key}.{number}").write_bytes(b"\x00\xff{" * number)
    (folder / "a folder.1").mkdir()
    record(folder, key, "good", until=now + 10, limit=2, at=now)
    await fleet.ask(3)
    assert (fleet.out(), fleet.state.limit, len(fleet.warnings)) == (0, 2, 1)
    await fleet.finish()


async def test_a_store_that_cannot_be_used_is_said_once_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "limits").write_text("in the way")
    fleet = Fleet(tmp_path)
    for _ in range(3):
        await fleet.end(await fleet.ask(4), busy(retry_after=1.0))
        await fleet.clock.advance(30)
    await fleet.finish()
    assert len(fleet.warnings) == 1 and str(tmp_path / "limits") in fleet.warnings[0]


async def test_a_process_that_was_killed_is_still_respected(tmp_path: Path) -> None:
    child = subprocess.Popen([sys.executable, "-c", CHILD, str(tmp_path), "90"], stdout=subprocess.PIPE)
    try:
        assert child.stdout is not None and child.stdout.readline() == b"refused\n"
    finally:
        os.kill(child.pid, signal.SIGKILL)
        child.communicate()
    limiters = Limiters(tmp_path)
    waiting = asyncio.create_task(limiters.gate_for("anthropic", "me").before())
    assert await limiters.gate_for("anthropic", "you").before() is None, "another account is free"
    await settle()
    mine, _ = limiters.states()
    assert (mine.in_flight, mine.waiting, mine.limit) == (0, 1, 4) and 0 < mine.held_seconds <= 92
    waiting.cancel()
    await settle()
    assert limiters.states()[0].waiting == 0
