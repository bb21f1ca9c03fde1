"""Opening: private files, every version, and a clear word for what cannot be used. Nothing is deleted."""

import os
import sqlite3
import stat
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import log_stories as stories
import pytest

from retinue.core.run_state import RunPlace
from retinue.errors import StateError
from retinue.log import sqlite
from retinue.log.database import backend_of, connect, connect_to_read, log_file, log_folders
from retinue.log.migrations import MIGRATIONS, migrate, version_of
from retinue.log.query import LogReader
from retinue.log.sqlite import SqliteBackend
from retinue.log.store import Log

FIXTURES = Path(__file__).parent / "fixtures"

pytestmark = pytest.mark.sqlite


def golden(folder, version=1):
    folder.mkdir(mode=0o700)
    connection = sqlite3.connect(log_file(folder))
    connection.executescript((FIXTURES / f"v{version}.sql").read_text())
    connection.close()
    return folder


async def test_folder_and_files_are_for_their_owner_only(tmp_path):
    folder = tmp_path / "home" / "projects" / "p"
    old = os.umask(0)
    try:
        async with Log.open(folder) as log:
            for body in stories.whole(transcript=str(folder / "transcripts" / "r.jsonl")):
                log.append(RunPlace("r"), body)
            await log.flush()
            files = [path for path in folder.rglob("*") if path.is_file()]
            assert {path.name for path in files} == {"log.db", "log.db-wal", "log.db-shm", "r.jsonl"}
            assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}
            for path in (folder, folder.parent, tmp_path / "home", folder / "transcripts"):
                assert stat.S_IMODE(path.stat().st_mode) == 0o700
    finally:
        os.umask(old)


def test_opening_waits_for_a_process_that_is_making_the_log(tmp_path):
    maker = sqlite3.connect(log_file(tmp_path), isolation_level=None, check_same_thread=False)
    maker.execute("CREATE TABLE other (x)")
    maker.execute("BEGIN IMMEDIATE")
    maker.execute("DROP TABLE other")
    done = threading.Timer(0.2, maker.execute, ["COMMIT"])
    done.start()
    connection = connect(tmp_path)
    done.join()
    assert version_of(connection, log_file(tmp_path)) == len(MIGRATIONS)
    connection.close()
    maker.close()


def test_a_folder_others_may_read_is_closed_to_them(tmp_path):
    folder = tmp_path / "p"
    folder.mkdir()
    folder.chmod(0o755)
    connect(folder).close()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_settings_of_the_connection(tmp_path):
    connection = connect(tmp_path / "p")
    pragmas = {name: connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("journal_mode", "synchronous")}
    assert pragmas == {"journal_mode": "wal", "synchronous": 1}
    assert connection.execute("PRAGMA foreign_keys").fetchone()[0] == 1
    assert connection.execute("PRAGMA busy_timeout").fetchone()[0] == sqlite.BUSY_TIMEOUT_MS
    connection.close()


def test_reading_makes_nothing(tmp_path):
    with LogReader.open(tmp_path / "nowhere") as reader:
        assert reader.list_runs() == []
        assert reader.events("x") == []
    assert not (tmp_path / "nowhere").exists()
    assert log_folders(tmp_path) == []


@pytest.mark.parametrize("content", [b"this is not a database at all" * 200, b"SQLite format 3\0" + b"\xff" * 5000])
async def test_a_damaged_file_is_named_and_left_alone(tmp_path, content):
    log_file(tmp_path).write_bytes(content)
    for attempt in (Log.open, LogReader.open):
        with pytest.raises(StateError, match=r"log\.db") as caught:
            attempt(tmp_path)
        assert "mv " in caught.value.remedy
    assert log_file(tmp_path).read_bytes() == content
    assert backend_of(tmp_path).check()


async def test_damage_inside_is_found_when_it_is_met(tmp_path):
    async with Log.open(tmp_path) as log:
        for number in range(200):
            for body in stories.whole():
                log.append(RunPlace(f"r{number}"), body)
    assert backend_of(tmp_path).check() == []
    size = log_file(tmp_path).stat().st_size
    with log_file(tmp_path).open("r+b") as file:
        for page in range(2, size // 4096):
            file.seek(page * 4096)
            file.write(b"\xee" * 4096)
    assert backend_of(tmp_path).check()
    with pytest.raises(StateError, match="damaged"), LogReader.open(tmp_path) as reader:
        for number in range(200):
            reader.events(f"r{number}")


def test_a_database_of_someone_else_is_not_touched(tmp_path):
    connection = sqlite3.connect(log_file(tmp_path))
    connection.execute("CREATE TABLE mine (x)")
    connection.commit()
    connection.close()
    before = log_file(tmp_path).read_bytes()
    for attempt in (connect, connect_to_read):
        with pytest.raises(StateError, match="another program"):
            attempt(tmp_path)
    assert log_file(tmp_path).read_bytes()[100:] == before[100:]


def test_a_newer_format_is_refused_with_a_remedy(tmp_path):
    connection = connect(tmp_path)
    connection.execute("PRAGMA user_version=99")
    connection.close()
    for attempt in (connect, connect_to_read):
        with pytest.raises(StateError, match="newer Retinue") as caught:
            attempt(tmp_path)
        assert "newer version" in caught.value.remedy


@pytest.mark.parametrize("home", ["/proc/retinue-test", "/dev/null/home"])
def test_a_home_that_cannot_be_made(home):
    if not Path(home).parent.exists():
        pytest.skip("no such place on this system")
    with pytest.raises(StateError, match="cannot be opened") as caught:
        Log.open(Path(home) / "projects" / "p")
    assert "RETINUE_HOME" in caught.value.remedy


READ_ONLY = """
import os, sqlite3, sys
from pathlib import Path
from retinue.errors import StateError
from retinue.log.query import LogReader
from retinue.log.store import Log
if os.getuid() == 0:
    os.setgid(65534); os.setuid(65534)
folder = Path(sys.argv[1])
with LogReader.open(folder) as reader:
    print(len(reader.list_runs()))
try:
    Log.open(folder)
except StateError as error:
    print(error)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="rights work differently")
@pytest.mark.parametrize("migrated", [True, False], ids=["this format", "an older format"])
def test_a_read_only_home_can_be_read_and_not_written(migrated):
    with tempfile.TemporaryDirectory() as base:
        folder = golden(Path(base) / "p")
        if migrated:
            connect(folder).close()
        for path, mode in ((log_file(folder), 0o444), (folder, 0o555), (Path(base), 0o755)):
            path.chmod(mode)
        done = subprocess.run([sys.executable, "-c", READ_ONLY, str(folder)], capture_output=True, text=True)
        folder.chmod(0o700)
    assert done.stderr == ""
    count, sentence = done.stdout.splitlines()
    assert count == "3"
    assert "RETINUE_HOME" in sentence


@pytest.mark.parametrize("version", range(1, len(MIGRATIONS) + 1))
def test_the_golden_file_of_every_format_reads_as_it_did(tmp_path, version):
    folder = golden(tmp_path / "p", version)
    connect(folder).close()
    with LogReader.open(folder) as reader:
        rows = {row.id[:1]: row for row in reader.list_runs()}
        assert [(row.state, row.ended, row.turns, row.tool_uses) for row in (rows["a"], rows["b"], rows["c"])] == [
            ("ended", "completed", 2, 1),
            ("interrupted", None, 0, 1),
            ("interrupted", None, 1, 1),
        ]
        assert rows["b"].place == RunPlace(rows["b"].id, rows["a"].id, rows["a"].id)
        assert reader.outcome(rows["a"].id).text == "Here it is."
        whole = [body for body in stories.whole("A whole run") if body.type != "text.delta"]
        assert [event.body for event in reader.events(rows["a"].id)] == whole
        child = reader.conversation(rows["b"].id)
        assert [call.id for call in child.unknown] == ["call_2"]
        assert [call.id for call in child.unrun] == ["call_3"]
        assert [result.call_id for result in child.messages[-1].results] == ["call_1", "call_2", "call_3"]
        cut = reader.conversation(rows["c"].id)
        assert (cut.partial, cut.turn, cut.compactions) == ("Half an answer", 1, 1)
        assert [message.text for message in cut.messages[1:]] == ["Summary.", "Wrap up"]
    assert backend_of(folder).check() == []


def test_format_1_gets_room_for_commands_and_those_of_format_2_stay(tmp_path):
    connection = connect(golden(tmp_path / "old"))
    assert connection.execute("SELECT count(*) FROM commands").fetchone()[0] == 0
    assert connection.execute("PRAGMA user_version").fetchone()[0] == len(MIGRATIONS)
    connection.close()
    connection = connect(golden(tmp_path / "new", 2))
    assert [row[0] for row in connection.execute("SELECT kind FROM commands ORDER BY id")] == ["steer", "stop"]
    connection.close()


def test_steps_are_applied_once_in_order_and_all_or_nothing(tmp_path):
    folder = golden(tmp_path / "p")

    def add_notes(connection):
        connection.execute("CREATE TABLE notes (text TEXT)")
        connection.execute("INSERT INTO notes VALUES ('kept')")

    def broken(connection):
        connection.execute("CREATE TABLE half (x)")
        raise sqlite3.OperationalError("no more")

    with pytest.raises(StateError, match="no more"):
        SqliteBackend(folder).connect((*MIGRATIONS, add_notes, broken))
    connection = SqliteBackend(folder).connect((*MIGRATIONS, add_notes))
    tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_master")}
    assert "notes" in tables
    assert "half" not in tables
    assert connection.execute("SELECT count(*) FROM notes").fetchone()[0] == 1
    names = [row[0] for row in connection.execute("SELECT name FROM migrations ORDER BY number")]
    assert names == [*(step.__name__ for step in MIGRATIONS), "add_notes"]
    connection.close()


OPENING = """
import asyncio, sys
from pathlib import Path
from retinue.log.store import Log
async def main():
    async with Log.open(Path(sys.argv[1])):
        pass
asyncio.run(main())
"""


def test_many_processes_may_open_a_new_log_at_once(tmp_path):
    command = [sys.executable, "-c", OPENING, str(tmp_path / "p")]
    processes = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(6)]
    assert [process.communicate()[1] for process in processes] == [""] * 6
    connection = connect_to_read(tmp_path / "p")
    assert connection.execute("SELECT count(*) FROM migrations").fetchone()[0] == len(MIGRATIONS)
    connection.close()


def test_a_log_that_another_process_makes_while_it_is_looked_at_is_ours(tmp_path):
    path = tmp_path / "log.db"
    for moment in range(1, 4):  # before the first, the second and the third question about it
        path.unlink(missing_ok=True)
        looking, making = sqlite3.connect(path, isolation_level=None), sqlite3.connect(path, isolation_level=None)
        asked = []

        def meanwhile(statement, moment=moment, making=making, asked=asked):
            asked.append(statement)
            if len(asked) == moment:
                migrate(making, path)

        looking.set_trace_callback(meanwhile)
        assert version_of(looking, path) in (0, len(MIGRATIONS))
        looking.close()
        making.close()
