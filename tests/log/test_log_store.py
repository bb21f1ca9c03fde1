"""Append, flush, subscribe: what was shown is in the file, in order, and free of secrets."""

import asyncio
import os
import sqlite3

import log_stories as stories
import pytest

from retinue.core.events import (
    TRANSIENT,
    AssistantEnded,
    MessageAdded,
    RunEnded,
    RunResumed,
    TextDelta,
    ThinkingDelta,
    ToolEnded,
    ToolProgress,
    ToolStarted,
    TurnStarted,
    Warned,
)
from retinue.core.messages import AssistantMessage, user
from retinue.core.outcome import Failure
from retinue.core.run_state import RunPlace
from retinue.errors import StateError, UnknownRunError
from retinue.guard.redact import Redactor
from retinue.log.database import connect
from retinue.log.follow import MAX_BACKLOG_EVENTS
from retinue.log.query import LogReader
from retinue.log.store import Log

PLACE = RunPlace("run-1")
SECRET = "sk-ant-api03-a1B2c3D4e5F6g7H8"


def write(log, bodies, place=PLACE):
    return [log.append(place, body) for body in bodies]


async def collect(subscription):
    return [event async for event in subscription]


@pytest.fixture
async def log(tmp_path):
    async with Log.open(tmp_path) as log:
        yield log


async def test_events_come_back_as_they_went_in(log):
    bodies = stories.whole()
    appended = write(log, bodies)
    await log.flush()
    durable = [event for event in appended if not isinstance(event.body, TRANSIENT)]
    assert log.reader.events("run-1") == durable
    assert [event.seq for event in durable] == list(range(1, len(durable) + 1))
    assert [event.body for event in log.reader.events("run-1", after=5)] == [event.body for event in durable[5:]]


async def test_subscribers_get_durable_and_streamed_events_in_one_order(log):
    subscription = log.subscribe(run_id="run-1")
    bodies = stories.whole()
    write(log, bodies)
    events = await collect(subscription)
    assert [event.body for event in events] == bodies
    before = 0
    for event in events:
        assert event.seq == before if isinstance(event.body, TRANSIENT) else event.seq == before + 1
        before = event.seq


async def test_nothing_is_shown_before_it_is_in_the_file(log):
    subscription = log.subscribe(run_id="run-1")
    shown = ""
    for body in [*stories.opening(), *stories.saying(1, "one two three", ("one ", "two ", "three")), stories.ending()]:
        log.append(PLACE, body)
        await asyncio.sleep(0.01)
    with LogReader.open(log.folder) as other:
        async for event in subscription:
            if isinstance(event.body, TextDelta):
                shown += event.body.text
            else:
                assert other.events("run-1")[event.seq - 1] == event
                shown = ""


async def test_streamed_text_is_in_the_file_when_it_is_shown(log):
    write(log, [*stories.opening(), TurnStarted(1)])
    await log.flush()
    subscription = log.subscribe(run_id="run-1")
    write(log, [TextDelta("half an "), TextDelta("answer")])
    async with asyncio.timeout(10):
        texts = [(await anext(subscription)).body.text for _ in range(2)]
    assert texts == ["half an ", "answer"]
    with LogReader.open(log.folder) as other:
        assert other.partial("run-1") == "half an answer"


async def test_partial_text_goes_when_the_answer_is_whole_and_stays_when_it_failed(log):
    write(log, [*stories.opening(), TurnStarted(1), TextDelta("thinking "), ThinkingDelta("hm")])
    await log.flush()
    assert (log.reader.partial("run-1"), log.reader.partial("run-1", "thinking")) == ("thinking ", "hm")
    failed = AssistantMessage((), "error", failure=Failure("dropped", "cut"))
    write(log, [AssistantEnded(1, failed), TurnStarted(2), TextDelta("again")])
    await log.flush()
    assert log.reader.partial("run-1") == "again"
    write(log, [AssistantEnded(2, stories.answer("again"))])
    await log.flush()
    assert log.reader.partial("run-1") == ""
    assert [row[0] for row in log.reader.select("SELECT text FROM partials ORDER BY seq, id")] == ["thinking ", "hm"]


async def test_a_tree_and_everything_can_be_watched(log):
    child = RunPlace("run-2", "run-1", "run-1")
    tree, everything, other = log.subscribe(root_id="run-1"), log.subscribe(), log.subscribe(run_id="run-3")
    write(log, stories.opening())
    write(log, stories.whole("child"), child)
    write(log, stories.whole("alone"), RunPlace("run-3"))
    write(log, [stories.ending()])
    assert {event.run_id for event in await collect(tree)} == {"run-1", "run-2"}
    assert {event.run_id for event in await collect(other)} == {"run-3"}
    await log.close()
    assert {event.run_id for event in await collect(everything)} == {"run-1", "run-2", "run-3"}


async def test_a_slow_subscriber_misses_streamed_pieces_only(log):
    write(log, [*stories.opening(), TurnStarted(1)])
    subscription = log.subscribe(run_id="run-1")
    write(log, [TextDelta("x")] * (MAX_BACKLOG_EVENTS + 50))
    await log.flush()
    write(log, [AssistantEnded(1, stories.answer("x")), stories.ending()])
    await log.flush()
    events = await collect(subscription)
    assert len(events) == MAX_BACKLOG_EVENTS + 2
    assert isinstance(events[-1].body, RunEnded)


async def test_flush_returns_at_once_when_there_is_nothing_to_do(log):
    async with asyncio.timeout(10):
        await log.flush()
        write(log, stories.whole())
        await asyncio.gather(log.flush(), log.flush())
        await log.flush()
        subscription = log.subscribe(run_id="run-2")
        await log.flush()
        subscription.close()
        assert await collect(subscription) == []


async def test_a_cancelled_flush_harms_nobody(log):
    write(log, stories.opening())
    waiting = asyncio.create_task(log.flush())
    await asyncio.sleep(0)
    waiting.cancel()
    write(log, [stories.ending()])
    await log.flush()
    assert log.reader.outcome("run-1") is not None


async def test_events_of_a_run_that_is_not_open_are_refused(log):
    with pytest.raises(StateError, match="not open"):
        log.append(PLACE, TurnStarted(1))
    write(log, stories.whole())
    with pytest.raises(StateError, match="not open"):
        log.append(PLACE, TurnStarted(3))


async def test_a_closed_log_says_so(tmp_path):
    log = Log.open(tmp_path)
    write(log, stories.opening())
    await log.close()
    await log.close()
    with pytest.raises(StateError, match="closed"):
        log.append(PLACE, TurnStarted(1))


async def test_the_row_of_a_run_counts_its_events(log):
    write(log, stories.whole())
    await log.flush()
    (row,) = log.reader.list_runs()
    assert (row.state, row.ended, row.turns, row.tool_uses, row.pid) == ("ended", "completed", 2, 1, None)
    assert (row.usage.input, row.usage.output, row.usage.cost_usd) == (20, 10, 0.02)
    assert row.created_at <= row.started_at <= row.ended_at
    assert row.task == "Find it"


async def test_a_live_run_belongs_to_this_process_and_is_interrupted_by_closing(tmp_path):
    async with Log.open(tmp_path) as log:
        write(log, stories.opening())
        await log.flush()
        assert [(row.state, row.pid) for row in log.reader.list_runs()] == [("running", os.getpid())]
    with LogReader.open(tmp_path) as reader:
        assert [(row.state, row.pid) for row in reader.list_runs()] == [("interrupted", None)]


async def test_an_interrupted_run_goes_on_where_it_was(tmp_path):
    async with Log.open(tmp_path) as log:
        write(log, [*stories.opening(), *stories.asking(1, [stories.call(1)])])
    async with Log.open(tmp_path) as log:
        row = await log.claim("run-1")
        assert row.state == "interrupted"
        with pytest.raises(StateError, match="already running"):
            await log.claim("run-1")
        event = log.append(row.place, RunResumed("go on"))
        assert event.seq == 10
        write(log, [MessageAdded(user("go on", "follow-up")), *stories.saying(2, "done"), stories.ending()])
        await log.flush()
        (row,) = log.reader.list_runs()
        assert (row.state, row.turns, row.tool_uses, row.usage.input) == ("ended", 2, 1, 20)
        assert [event.seq for event in log.reader.events("run-1")] == list(range(1, 16))
        with pytest.raises(UnknownRunError):
            await log.claim("run-9")


async def test_spending_after_a_resume_adds_to_what_was_spent_before(tmp_path):
    async with Log.open(tmp_path) as log:
        write(log, [*stories.opening(), *stories.asking(1, [stories.call(1)]), *stories.asking(2, [stories.call(2)])])
    async with Log.open(tmp_path) as log:
        await log.claim("run-1")
        write(log, [RunResumed("on"), *stories.saying(1, "counted from one again"), stories.ending()])
        await log.flush()
        (row,) = log.reader.list_runs()
        assert (row.turns, row.usage.input, row.usage.output) == (3, 30, 15)


async def test_no_secret_reaches_file_or_subscriber(tmp_path):
    async with Log.open(tmp_path, redact=Redactor()) as log:
        subscription = log.subscribe(run_id="run-1")
        made = stories.call(1, "bash", command=f"curl -H 'x-api-key: {SECRET}'")
        bodies = [
            *stories.opening(f"Use {SECRET}", str(tmp_path / "transcripts" / "run-1.jsonl")),
            TurnStarted(1),
            TextDelta("The key is sk-ant-"),
            TextDelta("api03-a1B2c3"),
            TextDelta("D4e5F6g7H8 indeed"),
            AssistantEnded(1, stories.answer(f"The key is {SECRET}", [made])),
            ToolStarted(made),
            ToolProgress("call_1", "out " + SECRET[:15]),
            ToolProgress("call_1", SECRET[15:] + "\n"),
            ToolEnded("call_1", "bash", stories.result(made, SECRET), stories.ToolEffect(command=SECRET), 1),
            stories.ending(SECRET),
        ]
        write(log, bodies)
        events = await collect(subscription)
        assert "".join(e.body.text for e in events if isinstance(e.body, TextDelta)) == "The key is [REDACTED] indeed"
        assert "".join(e.body.text for e in events if isinstance(e.body, ToolProgress)) == "out [REDACTED]\n"
        assert [type(e.body) for e in events if not isinstance(e.body, TRANSIENT)] == [
            type(body) for body in bodies if not isinstance(body, TRANSIENT)
        ]
    assert "a1B2c3" not in repr(events)
    for file in tmp_path.rglob("*"):
        assert not file.is_file() or b"a1B2c3" not in file.read_bytes(), file


@pytest.mark.parametrize("place", [0, 1, 254, 255, 256, 257, 599])
async def test_a_secret_among_many_events_of_one_moment_is_found_and_nothing_else_is_touched(tmp_path, place):
    texts = [f"note {number}: token and key, nothing secret" for number in range(600)]
    texts[place] = f"key {SECRET}"
    async with Log.open(tmp_path, redact=Redactor()) as log:
        write(log, [*stories.opening(), *(Warned("note", text) for text in texts), stories.ending()])
        await log.flush()
        found = [event.body.text for event in log.reader.events("run-1") if isinstance(event.body, Warned)]
    texts[place] = "key [REDACTED]"
    assert found == texts


async def test_held_back_text_keeps_its_place_before_durable_events(tmp_path):
    async with Log.open(tmp_path, redact=Redactor()) as log:
        subscription = log.subscribe(run_id="run-1")
        bodies = [
            *stories.opening(),
            TurnStarted(1),
            ThinkingDelta("hm"),
            TextDelta("last"),
            AssistantEnded(1, stories.answer("last")),
            stories.ending(),
        ]
        write(log, bodies)
        assert [event.body for event in await collect(subscription)] == bodies


async def test_what_JSON_cannot_say_is_written_all_the_same(log):
    odd = {"big": 2**70, "half": "\ud83d", 5: {"set": {1}}, "nan": float("nan"), "bytes": b"x"}
    write(log, [stories.created("task \udcff", spec=odd), Warned("w", "\ud800"), stories.ending("\udfff")])
    await log.flush()
    events = log.reader.events("run-1")
    assert events[0].body.spec == {"big": str(2**70), "half": "�", "5": {"set": [1]}, "nan": None, "bytes": "b'x'"}
    assert events[1].body.text == "�"
    assert log.reader.run("run-1").task == "task �"


async def test_an_event_cannot_be_changed(log):
    write(log, stories.whole())
    await log.flush()
    connection = connect(log.folder)
    with pytest.raises((sqlite3.IntegrityError, StateError), match="append-only"):
        connection.execute("UPDATE events SET body='{}'")
    connection.close()


async def test_a_thousand_runs_at_once(log):
    places = [RunPlace(f"run-{number}") for number in range(1000)]
    for body in stories.whole():
        for place in places:
            log.append(place, body)
    await log.flush()
    rows = log.reader.list_runs()
    assert len(rows) == 1000
    assert {(row.state, row.turns) for row in rows} == {("ended", 2)}


async def test_a_closed_log_still_answers_what_it_has(tmp_path):
    async with Log.open(tmp_path) as log:
        for body in stories.whole():
            log.append(RunPlace("r"), body)
        await log.flush()
        before = log.reader.events("r")
    assert log.reader.events("r") == before
    log.reader.close()
