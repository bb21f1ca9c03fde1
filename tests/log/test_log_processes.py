"""Several processes, one log: they share it, survive each other's deaths, and never run one run twice."""

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import log_stories as stories
import pytest
from msgspec.structs import replace

from retinue.core.events import TurnStarted
from retinue.core.programs import SILENCE_SECONDS, Owner, start_of, this_process
from retinue.core.run_state import RunPlace
from retinue.errors import StateError
from retinue.log.database import backend_of, connect
from retinue.log.query import LogReader
from retinue.log.store import Log
from retinue.log.transcript import TranscriptLines

HERE = str(Path(stories.__file__).parent)

PRELUDE = """
import asyncio, sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
import log_stories as stories
from retinue.core.events import *
from retinue.core.run_state import RunPlace
from retinue.log.store import Log
folder, name = Path(sys.argv[1]), sys.argv[3]
"""

WRITER = (
    PRELUDE
    + """
async def main():
    async with Log.open(folder) as log:
        for number in range(10):
            place = RunPlace(f"{name}-{number}")
            for body in stories.whole():
                log.append(place, body)
                if isinstance(body, ToolStarted):
                    await log.flush()
asyncio.run(main())
"""
)

ENDLESS = (
    PRELUDE
    + """
async def main():
    log, place = Log.open(folder), RunPlace(name)
    for body in stories.opening("endless", str(folder / "transcripts" / f"{name}.jsonl")):
        event = log.append(place, body)
    turn, text = 0, ""
    subscription = log.subscribe(run_id=name)
    async def show():
        async for event in subscription:
            if isinstance(event.body, TextDelta):
                print("text", event.seq, event.body.text, flush=True)
            else:
                print("event", event.seq, event.body.type, flush=True)
    showing = asyncio.create_task(show())
    while True:
        turn += 1
        made = [stories.call(f"{turn}_{n}") for n in range(3)]
        bodies = list(stories.asking(turn, made))
        bodies[1:1] = [TextDelta(f"t{turn}.{n} ") for n in range(5)]
        for body in bodies:
            log.append(place, body)
            if isinstance(body, ToolStarted):
                await log.flush()
            else:
                await asyncio.sleep(0.0005)
asyncio.run(main())
"""
)

HOLDER = (
    PRELUDE
    + """
async def main():
    log = Log.open(folder)
    for body in stories.opening():
        log.append(RunPlace(name), body)
    await log.flush()
    print("ready", flush=True)
    await asyncio.sleep(600)
asyncio.run(main())
"""
)


def start(script, folder, name, **options):
    return subprocess.Popen([sys.executable, "-c", script, str(folder), HERE, name], text=True, **options)


def test_processes_write_side_by_side(tmp_path):
    processes = [start(WRITER, tmp_path, f"p{number}", stderr=subprocess.PIPE) for number in range(4)]
    assert [process.communicate(timeout=120)[1] for process in processes] == [""] * 4
    with LogReader.open(tmp_path) as reader:
        rows = reader.list_runs()
        assert len(rows) == 40
        assert {(row.state, row.ended, row.turns, row.tool_uses) for row in rows} == {("ended", "completed", 2, 1)}
        for row in rows:
            assert [event.body for event in reader.events(row.id)] == [
                body for body in stories.whole() if body.type != "text.delta"
            ]
    assert backend_of(tmp_path).check() == []


@pytest.mark.slow
def test_killed_at_any_moment_nothing_shown_is_lost(tmp_path, database):
    """The program prints what it was shown. Whatever it printed must be in the log afterwards."""
    moments = random.Random(7)
    for number in range(12):
        name = f"run-{number}"
        process = start(ENDLESS, tmp_path, name, stdout=subprocess.PIPE)
        shown = []
        wanted = moments.randint(1, 120)
        for line in process.stdout:
            shown.append(line.split(" ", 2))
            if len(shown) >= wanted:
                break
        time.sleep(moments.random() * 0.01)
        os.kill(process.pid, signal.SIGKILL)
        shown += [line.split(" ", 2) for line in process.stdout if line.endswith("\n")]
        process.wait()
        if database is not None:
            # The server finishes what it was sent, and the questions below are asked one by one.
            time.sleep(0.3)
        _is_consistent(tmp_path, name, shown)
    assert backend_of(tmp_path).check() == []


def _is_consistent(folder, name, shown):
    with LogReader.open(folder) as reader:
        row = reader.run(name)
        assert row.state == "interrupted"
        events = {event.seq: event for event in reader.events(name)}
        assert list(events) == list(range(1, len(events) + 1))
        for what, seq, rest in shown:
            if what == "event":
                assert events[int(seq)].body.type == rest.strip()
        last = max((int(seq) for what, seq, _ in shown if what == "text"), default=0)
        text = "".join(rest.rstrip("\n") for what, seq, rest in shown if what == "text" and int(seq) == last)
        following = events.get(last + 1)
        assert reader.partial(name).startswith(text) or (following and following.body.type == "assistant.ended")
        past = reader.conversation(name)
        ended = sum(event.body.type == "turn.ended" for event in events.values())
        assert (row.turns, past.tool_uses) == (ended, row.tool_uses)
        assert past.turn in (ended, ended + 1)
        assert len(past.messages[-1].results) == 3 if past.unknown or past.unrun else True
    transcript = folder / "transcripts" / f"{name}.jsonl"
    written = transcript.read_bytes() if transcript.exists() else b""
    lines = TranscriptLines()
    projected = b"".join(line for event in events.values() for line in lines.take(event))
    assert projected.startswith(written[: written.rfind(b"\n") + 1])


async def test_a_run_of_a_living_process_cannot_be_taken(tmp_path):
    holder = start(HOLDER, tmp_path, "run-1", stdout=subprocess.PIPE)
    try:
        assert holder.stdout.readline() == "ready\n"
        async with Log.open(tmp_path) as log:
            (row,) = log.reader.list_runs()
            assert (row.state, row.pid) == ("running", holder.pid)
            with pytest.raises(StateError, match=f"process {holder.pid}"):
                await log.claim("run-1")
            holder.kill()
            # Not waited for yet: a process that is dead but not collected is dead.
            async with asyncio.timeout(20):
                while start_of(holder.pid) is not None:
                    await asyncio.sleep(0.01)
            assert log.reader.run("run-1").state == "interrupted"
            claimed = await log.claim("run-1")
            assert claimed.state == "interrupted"
            assert log.reader.run("run-1").pid == os.getpid()
    finally:
        holder.kill()
        holder.wait()


async def test_two_that_want_the_same_run_get_one_yes(tmp_path):
    async with Log.open(tmp_path) as log:
        for body in stories.whole():
            log.append(RunPlace("run-1"), body)
    async with Log.open(tmp_path) as one, Log.open(tmp_path) as two:
        answers = await asyncio.gather(one.claim("run-1"), two.claim("run-1"), return_exceptions=True)
        assert sum(isinstance(answer, StateError) for answer in answers) == 1


async def test_opening_marks_what_the_dead_left(tmp_path):
    holder = start(HOLDER, tmp_path, "run-1", stdout=subprocess.PIPE)
    holder.stdout.readline()
    holder.kill()
    holder.wait()
    connection = connect(tmp_path)
    assert connection.execute("SELECT state FROM runs").fetchone()[0] == "running"
    async with Log.open(tmp_path) as log:
        for body in stories.whole():
            log.append(RunPlace("run-2"), body)
        await log.flush()
        assert tuple(connection.execute("SELECT state, owner FROM runs WHERE id='run-1'").fetchone()) == (
            "interrupted",
            None,
        )
        assert connection.execute("SELECT count(*) FROM owners").fetchone()[0] == 1
    connection.close()


def test_a_number_alone_is_not_a_process():
    here = this_process()
    assert here.alive(here)
    another = replace(here, id="other")
    assert another.alive(here)
    assert not replace(another, started="12345").alive(here), "the number was given to someone else"
    assert not replace(another, pid=2**22 + 5).alive(here)
    assert not replace(another, boot="before").alive(here), "the machine was restarted"
    assert start_of(os.getpid()) == here.started
    assert start_of(2**22 + 5) is None


def test_where_processes_cannot_be_seen_the_heartbeat_decides():
    here = this_process()
    remote = Owner("other", 1, "1", "elsewhere", "x", "y", heartbeat=1000.0)
    assert remote.alive(here, now=1000.0 + SILENCE_SECONDS - 1)
    assert not remote.alive(here, now=1000.0 + SILENCE_SECONDS + 1)
    contained = replace(here, id="other", space="pid:[1]", heartbeat=1000.0)
    assert contained.alive(here, now=1001.0)
    assert not contained.alive(here, now=9999.0)


async def test_a_process_without_runs_that_others_took_for_dead_begins_again(tmp_path):
    log = Log.open(tmp_path)
    for body in stories.whole():
        log.append(RunPlace("run-1"), body)
    await log.flush()
    other = connect(tmp_path)
    other.execute("DELETE FROM owners")
    for body in stories.opening():
        log.append(RunPlace("run-2"), body)
    await log.flush()
    other.execute("UPDATE runs SET owner=NULL")
    other.execute("DELETE FROM owners")
    other.close()
    log.append(RunPlace("run-2"), TurnStarted(1))
    with pytest.raises(StateError, match="found this one dead"):
        await log.flush()
    with pytest.raises(StateError, match="found this one dead"):
        await log.close()
