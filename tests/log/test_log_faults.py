"""A full disk, a lock held too long, a log taken away: said clearly, and nothing written before is lost."""

import asyncio
import sqlite3
import subprocess
import sys
import threading

import log_stories as stories
import pytest

from retinue.core.events import TurnStarted, Warned
from retinue.core.run_state import RunPlace
from retinue.errors import StateError
from retinue.log import sqlite
from retinue.log.database import backend_of
from retinue.log.query import LogReader
from retinue.log.store import Log

PLACE = RunPlace("run-1")

pytestmark = pytest.mark.sqlite

FULL_DISK = """
import asyncio, resource, sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
import log_stories as stories
from retinue.core.events import Warned
from retinue.errors import StateError
from retinue.core.run_state import RunPlace
from retinue.log.store import Log

async def main():
    log, place = Log.open(Path(sys.argv[1])), RunPlace("run-1")
    for body in stories.opening():
        log.append(place, body)
    await log.flush()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, hard))
    written, refused = 0, None
    for number in range(500):
        try:
            log.append(place, Warned("filler", "x" * 10_000))
            written += 1
            await log.flush()
        except StateError as error:
            refused = error
            break
    print("flush:", refused)
    try:
        log.append(place, Warned("filler", "y"))
        print("append was not refused")
    except StateError as error:
        print("append:", error)
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    while True:
        try:
            await log.flush()
            break
        except StateError:  # of an attempt that began before
            await asyncio.sleep(0.05)
    log.append(place, Warned("after", "space came back"))
    await log.flush()
    print("written:", written)
    await log.close()

asyncio.run(main())
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no file size limits")
def test_a_full_disk_is_an_error_and_no_loss(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(tmp_path), str(stories.__file__.rpartition("/")[0])],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stderr == ""
    flush, append, written = done.stdout.splitlines()
    assert "disk is full" in flush
    assert "Free some space" in flush
    assert "disk is full" in append
    count = int(written.split()[1])
    assert count > 2
    with LogReader.open(tmp_path) as reader:
        bodies = [event.body for event in reader.events("run-1")]
    assert [body.code for body in bodies if isinstance(body, Warned)] == ["filler"] * count + ["after"]
    assert backend_of(tmp_path).check() == []


async def test_a_lock_held_too_long_is_named_and_waited_out(tmp_path, monkeypatch):
    monkeypatch.setattr(sqlite, "BUSY_TIMEOUT_MS", 50)
    async with Log.open(tmp_path) as log:
        for body in stories.opening():
            log.append(PLACE, body)
        await log.flush()
        other = sqlite3.connect(log.path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        log.append(PLACE, TurnStarted(1))
        with pytest.raises(StateError, match="locked by another process"):
            await log.flush()
        with pytest.raises(StateError, match="locked by another process"):
            log.append(PLACE, TurnStarted(2))
        other.execute("ROLLBACK")
        async with asyncio.timeout(20):
            while True:
                try:
                    await log.flush()
                    break
                except StateError:
                    await asyncio.sleep(0.05)
        log.append(PLACE, TurnStarted(2))
        await log.flush()
        other.close()
        assert [event.body for event in log.reader.events("run-1", after=3)] == [TurnStarted(1), TurnStarted(2)]


async def test_what_could_not_be_written_is_retried_without_being_asked(tmp_path, monkeypatch):
    monkeypatch.setattr(sqlite, "BUSY_TIMEOUT_MS", 50)
    async with Log.open(tmp_path) as log:
        other = sqlite3.connect(log.path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        subscription = log.subscribe(run_id="run-1")
        for body in stories.whole():
            log.append(PLACE, body)
        with pytest.raises(StateError):
            await log.flush()
        other.execute("ROLLBACK")
        other.close()
        async with asyncio.timeout(20):
            events = [event async for event in subscription]
        assert [event.body for event in events] == stories.whole()


async def test_closing_a_log_that_cannot_be_written_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(sqlite, "BUSY_TIMEOUT_MS", 50)
    log = Log.open(tmp_path)
    other = sqlite3.connect(log.path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    log.append(PLACE, stories.created())
    with pytest.raises(StateError, match="locked by another process"):
        await log.close()
    other.close()
    assert not any(thread.name == "retinue-log" for thread in threading.enumerate())


async def test_a_process_that_others_took_for_dead_stops_writing(tmp_path):
    async with Log.open(tmp_path) as log:
        for body in stories.opening():
            log.append(PLACE, body)
        await log.flush()
        other = sqlite3.connect(log.path)
        other.execute("UPDATE runs SET owner=NULL, state='interrupted'")
        other.execute("DELETE FROM owners")
        other.commit()
        other.close()
        log.append(PLACE, TurnStarted(1))
        with pytest.raises(StateError, match="found this one dead"):
            await log.flush()
        assert len(log.reader.events("run-1")) == 3
        with pytest.raises(StateError):
            await log.close()


FORGETFUL = """
import asyncio, sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
import log_stories as stories
from retinue.core.run_state import RunPlace
from retinue.log.store import Log

async def main():
    log = Log.open(Path(sys.argv[1]))
    for body in stories.whole():
        log.append(RunPlace("run-1"), body)

asyncio.run(main())
"""


def test_a_program_that_forgets_to_close_loses_nothing(tmp_path):
    command = [sys.executable, "-c", FORGETFUL, str(tmp_path), str(stories.__file__.rpartition("/")[0])]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.stderr == ""
    with LogReader.open(tmp_path) as reader:
        assert reader.outcome("run-1").ok
