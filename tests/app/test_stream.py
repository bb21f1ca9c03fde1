"""The event stream of a project: nothing missed, nothing twice, whoever comes, goes or is slow."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.log import log_stories as stories

from retinue.app import stream
from retinue.app.snapshot import take_snapshot
from retinue.app.stream import BehindError, EventHub, EventScope, FeedFrame
from retinue.core.events import AssistantEnded, RunCreated, TextDelta, TurnStarted
from retinue.core.run_state import RunPlace
from retinue.log.query import LogReader
from retinue.log.store import Log


class Client:
    """Reads a stream in the background. `await has(n)` returns when n frames are there."""

    def __init__(self, hub: EventHub, after: int | None = None, scope: EventScope | None = None) -> None:
        self.frames: list[FeedFrame] = []
        self._more = asyncio.Event()
        self.task = asyncio.create_task(self._read(hub, after, scope))

    async def _read(self, hub: EventHub, after: int | None, scope: EventScope | None) -> None:
        async for frames in hub.follow(after, scope):
            self.frames += frames
            self._more.set()

    async def until(self, condition: Any) -> list[FeedFrame]:
        async with asyncio.timeout(20):
            while not condition(self.frames):
                self._more.clear()
                await self._more.wait()
        return self.frames

    async def until_type(self, kind: str, count: int = 1) -> list[FeedFrame]:
        return await self.until(lambda frames: sum(frame.type == kind for frame in frames) >= count)

    @property
    def numbers(self) -> list[int]:
        return [frame.number for frame in self.frames if frame.number is not None]

    async def leave(self) -> None:
        self.task.cancel()
        await asyncio.wait({self.task})


def told(frames: list[FeedFrame], kind: str) -> list[str]:
    return [json.loads(frame.data)["text"] for frame in frames if frame.type == kind]


def all_numbers(folder: Path) -> list[int]:
    with LogReader.open(folder) as reader:
        return [row[0] for row in reader.select("SELECT id FROM events ORDER BY id")]


async def write(log: Log, place: RunPlace, *bodies: Any) -> None:
    for body in bodies:
        log.append(place, body)
    await log.flush()


async def test_a_snapshot_and_what_follows_it_have_no_gap_and_no_double(tmp_path: Path) -> None:
    hub = EventHub(tmp_path)
    async with Log.open(tmp_path) as log:
        await write(log, RunPlace("aaaa"), *stories.whole("before"))
        with LogReader.open(tmp_path) as reader:
            snapshot = take_snapshot(reader)
        await write(log, RunPlace("bbbb"), *stories.opening("between"))
        client = Client(hub, snapshot.cursor)
        await client.until_type("message.added")
        await write(log, RunPlace("cccc"), *stories.whole("after"))
        await client.until_type("run.ended")
        await client.leave()
    assert [row.id for row in snapshot.runs] == ["aaaa"]
    assert client.numbers == [number for number in all_numbers(tmp_path) if number > snapshot.cursor]


async def test_an_event_is_told_as_runs_tail_prints_it(tmp_path: Path) -> None:
    from retinue.core.encode import event_to_json

    async with Log.open(tmp_path) as log:
        await write(log, RunPlace("aaaa"), *stories.whole("a \u2028 line"))
        client = Client(EventHub(tmp_path), 0)
        await client.until_type("run.ended")
        await client.leave()
        expected = [event_to_json(event) for event in log.reader.events("aaaa")]
    assert [frame.data for frame in client.frames] == expected


async def test_the_text_so_far_comes_once_to_a_client_that_joins_and_then_only_what_is_new(tmp_path: Path) -> None:
    hub, place = EventHub(tmp_path), RunPlace("aaaa")
    async with Log.open(tmp_path) as log:
        await write(log, place, *stories.opening(), TurnStarted(1), TextDelta("One "), TextDelta("two "))
        first = Client(hub)
        await first.until_type("text.partial")
        await write(log, place, TextDelta("three "))
        await first.until_type("text.delta")
        second = Client(hub)
        await second.until_type("text.partial")
        await write(log, place, TextDelta("four"))
        await second.until_type("text.delta")
        await first.until_type("text.delta", 2)
        await write(log, place, AssistantEnded(1, stories.answer("One two three four")))
        await second.until_type("assistant.ended")
        await first.leave()
        await second.leave()
    assert told(first.frames, "text.partial") == ["One two "]
    assert told(first.frames, "text.delta") == ["three ", "four"]
    assert told(second.frames, "text.partial") == ["One two three "]
    assert told(second.frames, "text.delta") == ["four"]


async def test_text_of_a_later_turn_is_told_although_its_pieces_get_the_numbers_of_deleted_ones(tmp_path: Path) -> None:
    hub, place = EventHub(tmp_path), RunPlace("aaaa")
    async with Log.open(tmp_path) as log:
        await write(log, place, *stories.opening(), TurnStarted(1))
        client = Client(hub, 0)
        await client.until_type("turn.started")
        for piece in ("a", "b", "c"):
            await write(log, place, TextDelta(piece))
            await client.until(lambda frames, piece=piece: piece in "".join(told(frames, "text.delta")))
        await write(log, place, AssistantEnded(1, stories.answer("abc")), TurnStarted(2), TextDelta("second"))
        await client.until(lambda frames: "second" in told(frames, "text.delta"))
        await client.leave()
    assert "".join(told(client.frames, "text.delta")) == "abcsecond"


async def test_a_client_that_is_too_slow_is_sent_away_and_misses_nothing_when_it_comes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "MAX_FRAMES", 20)
    hub = EventHub(tmp_path)
    async with Log.open(tmp_path) as log:
        await write(log, RunPlace("aaaa"), *stories.opening())
        fast = Client(hub, 0)
        slow = hub.follow(0)
        had = [frame.number for frame in await anext(slow)]
        for number in range(5):
            await write(log, RunPlace(f"run{number}"), *stories.whole())
            await fast.until_type("run.ended", number + 1)
        with pytest.raises(BehindError):
            await anext(slow)
        again = Client(hub, had[-1])
        await again.until_type("run.ended", 5)
        await fast.leave()
        await again.leave()
    assert had + again.numbers == all_numbers(tmp_path) == fast.numbers


async def test_one_run_or_its_tree_can_be_followed_alone(tmp_path: Path) -> None:
    hub = EventHub(tmp_path)
    root, child = RunPlace("root"), RunPlace("kid1", "root", "root")
    late = RunPlace("kid2", "kid1", "root")
    async with Log.open(tmp_path) as log:
        await write(log, root, *stories.opening("root"))
        await write(log, RunPlace("else"), *stories.whole("else"))
        await write(log, child, *stories.opening("child"))
        one = Client(hub, 0, EventScope("root"))
        tree = Client(hub, 0, EventScope("kid1", tree=True))
        await write(log, late, *stories.opening("late"))
        await write(log, RunPlace("more"), *stories.whole("more"))
        await write(log, late, stories.ending())
        await write(log, root, stories.ending())
        await tree.until_type("run.ended")
        await one.until_type("run.ended")
        await one.leave()
        await tree.leave()
    assert {frame.run_id for frame in one.frames} == {"root"}
    assert [frame.run_id for frame in tree.frames] == ["kid1"] * 3 + ["kid2"] * 4


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.lists(st.tuples(st.integers(0, 3), st.booleans()), min_size=1, max_size=25), st.randoms())
def test_whoever_reconnects_at_any_moment_has_every_event_once_and_in_order(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[int, bool]], random: Any
) -> None:
    folder = tmp_path_factory.mktemp("log")

    async def work() -> list[int]:
        hub, heard = EventHub(folder), list[int]()
        waiting = [list(stories.whole(f"run {number}")) for number in range(4)]
        async with Log.open(folder) as log:
            client = Client(hub, 0)
            for run, reconnects in steps:
                for body in [waiting[run].pop(0) for _ in range(min(random.randint(1, 4), len(waiting[run])))]:
                    log.append(RunPlace(f"run{run}"), body)
                await log.flush()
                if reconnects:
                    await client.leave()
                    heard += client.numbers
                    client = Client(hub, heard[-1] if heard else 0)
            last = all_numbers(folder)[-1]
            await client.until(lambda frames: heard[-1:] == [last] or any(frame.number == last for frame in frames))
            await client.leave()
        return heard + client.numbers

    assert asyncio.run(work()) == all_numbers(folder)


DYING = """
import asyncio, os, sys
from pathlib import Path
from retinue.core.run_state import RunPlace
from retinue.log.store import Log
from tests.log import log_stories as stories

async def work():
    log = Log.open(Path(sys.argv[1]))
    for body in stories.opening():
        log.append(RunPlace("dead"), body)
    await log.flush()
    print("ready", flush=True)
    sys.stdin.readline()
    os.kill(os.getpid(), 9)

asyncio.run(work())
"""


async def test_clients_hear_that_the_process_of_a_run_was_killed(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", DYING, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    assert process.stdin is not None and process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    client = Client(EventHub(tmp_path), 0)
    await client.until(lambda frames: len(frames) == 3)
    process.stdin.write("\n")
    process.stdin.flush()
    process.wait(20)
    frames = await client.until_type("run.interrupted")
    await client.leave()
    process.stdin.close()
    process.stdout.close()
    assert json.loads(frames[-1].data)["run_id"] == "dead"


async def test_clients_that_leave_while_their_history_is_read_harm_nobody(tmp_path: Path) -> None:
    hub = EventHub(tmp_path)
    async with Log.open(tmp_path) as log:
        for number in range(60):
            await write(log, RunPlace(f"run{number}"), *stories.whole("x" * 20_000))
        stays = Client(hub, 0)
        await stays.until_type("run.ended")
        for number in range(60):
            client = Client(hub, 0)
            # Moments of all lengths, so that some clients leave while a thread reads for them.
            await asyncio.sleep(number / 4000)
            await client.leave()
        await stays.until_type("run.ended", 60)
        await stays.leave()
    assert stays.numbers == all_numbers(tmp_path)


async def test_text_that_a_death_cut_off_is_told_to_those_who_follow_that_run_alone(tmp_path: Path) -> None:
    log = Log.open(tmp_path)
    await write(log, RunPlace("dead"), *stories.opening(), TurnStarted(1), TextDelta("I was about to "))
    # Closing marks what still runs as interrupted, as the next process does after a kill.
    await log.close()
    hub = EventHub(tmp_path)
    async with Log.open(tmp_path) as log:
        everything, one = Client(hub, 0), Client(hub, 0, EventScope("dead"))
        await one.until_type("text.partial")
        await write(log, RunPlace("else"), *stories.opening())
        await everything.until_type("message.added", 2)
        await everything.leave()
        await one.leave()
    assert told(one.frames, "text.partial") == ["I was about to "]
    assert told(everything.frames, "text.partial") == []


async def test_a_client_that_came_before_anything_had_run_hears_of_the_first_run(tmp_path: Path) -> None:
    hub = EventHub(tmp_path / "state")
    client = Client(hub)
    other = hub.follow(0)
    waiting = asyncio.ensure_future(anext(other))
    await asyncio.sleep(0)
    async with Log.open(tmp_path / "state") as log:
        await write(log, RunPlace("aaaa"), *stories.whole())
        frames = await waiting
        await client.until_type("run.ended")
    await client.leave()
    await other.aclose()
    assert frames[0].type == RunCreated.__struct_config__.tag
