"""Rows of the inbox, of commands and of jobs that somebody else has written: what is no value of its column is left
out, with a warning, and does not hide the others."""

from __future__ import annotations

import json
import logging
import re
import time

import pytest

from retinue.core.foreign import MAX_TEXT_CHARACTERS, UnreadableValueError, decode_row
from retinue.core.permission import InboxItem
from retinue.errors import UsageError
from retinue.log import commands, inbox, migrations, schedules
from retinue.log.database import connect
from retinue.log.store import Log

BAD = ["../../precious", "/etc/passwd", "a\x1b[2J", "a\n", "", "x" * 100, 7, None, 1.5, True]
HUGE = "x" * ((1 << 25) + 1)
COMMAND = {"run_id": "run-1", "kind": "steer", "text": "go on"}
ITEM = {"id": "a1", "run_id": "run-1", "state": "waiting", "expires_at": None, "choice": None, "message": None,
        "answered_by": None, "answered_at": None}  # fmt: skip
JOB = {"id": "a1", "name": "j", "agent": "Explore", "prompt": "p", "kind": "once", "text": "t"}
STRICT = {
    commands.RunCommand: (COMMAND, ("run_id", "kind")),
    inbox._ItemRow: (ITEM, ("id", "run_id", "state")),
    schedules.ScheduledJob: (JOB, ("id", "kind")),
}


@pytest.mark.parametrize("kind", STRICT)
@pytest.mark.parametrize("bad", BAD, ids=repr)
def test_names_and_kinds_are_checked(kind, bad):
    row, strict = STRICT[kind]
    decode_row(row, kind, "A row")
    for name in strict:
        with pytest.raises(UnreadableValueError):
            decode_row({**row, name: bad}, kind, "A row")
    for name, value in row.items():
        for wrong in ([], {}, HUGE):
            if isinstance(value, str):
                with pytest.raises(UnreadableValueError):
                    decode_row({**row, name: wrong}, kind, "A row")


def test_every_column_of_these_tables_is_checked_or_never_leaves_the_database():
    source = open(migrations.__file__, encoding="utf-8").read()  # noqa: SIM115 - short
    inside = {
        "commands": (commands.RunCommand, {"id", "owner", "at", "taken_at", "accepted", "answer"}),
        "inbox": (inbox._ItemRow, {"fingerprint", "item", "created_at", "taken_at"}),
        "schedules": (schedules.ScheduledJob, set()),
    }
    for table, (kind, compared) in inside.items():
        body = re.search(rf"CREATE TABLE {table} \((.*?)\n\s*\)", source, re.S)
        columns = {line.split()[0] for line in body[1].strip().splitlines() if line.strip()}
        assert columns == {*kind.__struct_fields__} & columns | compared, (table, columns)


async def test_planted_rows_are_left_out(tmp_path, caplog):
    async with Log.open(tmp_path) as log:
        good = InboxItem(id="a1", kind="question", run_id="run-1", root_id="run-1", agent="x", title="t")
        await log.transact(lambda db: inbox.put(db, good, "m"))
        job = schedules.ScheduledJob(**JOB, next_at=1.0)
        await log.transact(lambda db: schedules.add(db, job, 9))
        connection = connect(tmp_path)
        item = json.dumps(
            {"id": "b1", "kind": "question", "run_id": "../../x", "root_id": "r", "agent": "", "title": ""}
        )
        for number, (name, text) in enumerate([("../x", "{}"), ("b1", item), ("b2", item), ("b3", "[" * 9999)]):
            values = (name, "run-1", "m", text, time.time() + number, "waiting")
            connection.execute(
                "INSERT INTO inbox (id, run_id, fingerprint, item, created_at, state) VALUES (?,?,?,?,?,?)", values
            )
        for run_id, kind in (("run-1", "steer"), ("../../x", "steer"), ("run-1", "rm")):
            values = (log.owner, run_id, kind, "t", 1.0)
            connection.execute("INSERT INTO commands (owner, run_id, kind, text, at) VALUES (?,?,?,?,?)", values)
        for name in ("../../job", "b\x1b"):
            connection.execute(
                "INSERT INTO schedules (id, name, agent, prompt, kind, text, at, seconds, expression, zone, options, "
                "missed, jitter, enabled, created_at, anchor, next_at, runs, skipped) VALUES "
                "(?, ?, 'a', 'p', 'once', 't', 0, 0, '', '', '{}', 'skip', 0, ?, 0, 0, 1, 0, 0)",
                (name, name, True),
            )
        connection.close()
        with caplog.at_level(logging.WARNING, "retinue"):
            assert [row.item.id for row in inbox.items(log.reader)] == ["a1"]
            assert [each.id for each in schedules.jobs(log.reader)] == ["a1"]
            taken = await log.transact(lambda db: commands.take(db, log.owner))
        assert [each.command.run_id for each in taken] == ["run-1"]
        assert len([each for each in caplog.records if "left out" in each.message]) == 8
        assert "\x1b" not in caplog.text


async def test_what_could_not_be_read_back_is_not_written(tmp_path):
    async with Log.open(tmp_path) as log:
        long = "x" * (MAX_TEXT_CHARACTERS + 1)
        for job in ({**JOB, "prompt": long}, {**JOB, "options": {"schema": long}}):
            with pytest.raises(UsageError, match="characters"):
                await log.transact(lambda db, job=job: schedules.add(db, schedules.ScheduledJob(**job), 9))
        with pytest.raises(UsageError, match="characters"):
            await commands.send(tmp_path, [commands.RunCommand("run-1", "steer", long)])


async def test_an_unreadable_item_hides_no_answer_to_another(tmp_path):
    async with Log.open(tmp_path) as log:
        connection = connect(tmp_path)
        good = InboxItem(id="a1", kind="question", run_id="run-1", root_id="run-1", agent="x", title="t")
        await log.transact(lambda db: inbox.put(db, good, "m"))
        connection.execute("UPDATE inbox SET state='answered', choice='allow', answered_by='test', answered_at=1.0")
        connection.execute(
            "INSERT INTO inbox (id, run_id, fingerprint, item, created_at, state) "
            "VALUES ('b1', 'run-1', 'm', '{', 1, 'answered')"
        )
        connection.close()
        assert [item.id for item in inbox.closed(log.reader, ["a1", "b1"])] == ["a1"]
