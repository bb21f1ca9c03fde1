"""Tool output is in the log once, and readers get every event whole."""

import json

import log_stories as stories
import pytest
from test_log_open import golden

from retinue.core.encode import event_to_json
from retinue.core.events import AssistantEnded, ToolEnded, ToolsEnded, TurnStarted
from retinue.core.messages import ToolMessage
from retinue.core.permission import ToolEffect
from retinue.core.run_state import RunPlace
from retinue.guard.redact import Redactor
from retinue.log.database import connect_to_read
from retinue.log.follow import events_after, run_events_after
from retinue.log.query import LogReader
from retinue.log.store import Log

OUTPUT = "a long output of a tool " * 200
SECRET = "sk-ant-api03-" + "Ab3" * 30
PLACE = RunPlace("r")


def turn(*outputs, extra=()):
    calls = [stories.call(number) for number in range(1, len(outputs) + 1)]
    results = [stories.result(call, text) for call, text in zip(calls, outputs, strict=True)]
    ends = [ToolEnded(result.call_id, result.name, result, ToolEffect(), 1) for result in results]
    answer = AssistantEnded(1, stories.answer("", calls))
    return [*stories.opening(), TurnStarted(1), answer, *ends, ToolsEnded(ToolMessage((*results, *extra)))]


async def write(folder, bodies, **options):
    async with Log.open(folder, **options) as log:
        shown = log.subscribe(run_id="r")
        for body in bodies:
            log.append(PLACE, body)
        await log.flush()
        shown.close()
        return [event async for event in shown]


def stored(folder):
    connection = connect_to_read(folder)
    bodies = [row[0] for row in connection.execute("SELECT body FROM events ORDER BY id")]
    connection.close()
    return bodies


async def test_output_is_stored_once_and_events_read_as_they_were_written(tmp_path):
    bodies = turn(OUTPUT, "other")
    await write(tmp_path, bodies)
    assert "".join(stored(tmp_path)).count(OUTPUT) == 1
    with LogReader.open(tmp_path) as reader:
        events = reader.events("r")
        assert [event.body for event in events] == bodies
        last = events[-1]
        assert reader.events("r", after=last.seq - 1) == [last]
        assert list(reader.stream("r", types=("tools.ended",))) == [last]
        assert [event.to_json() for event in events_after(reader, 0)] == [event_to_json(event) for event in events]
        number = events_after(reader, 0)[-1].number
        (alone,) = run_events_after(reader, "r", number - 1)
        assert alone.to_json() == event_to_json(last)


async def test_a_result_that_no_end_has_is_kept_with_the_others(tmp_path):
    never_ran = stories.result(stories.call(9), "It was not run.", True)
    bodies = turn(OUTPUT, extra=(never_ran,))
    await write(tmp_path, bodies)
    assert "".join(stored(tmp_path)).count(OUTPUT) == 1
    with LogReader.open(tmp_path) as reader:
        assert [event.body for event in reader.events("r")] == bodies


async def test_a_secret_is_taken_out_for_readers_and_for_those_who_watch(tmp_path):
    shown = await write(tmp_path, turn(f"key {SECRET} end"), redact=Redactor())
    with LogReader.open(tmp_path) as reader:
        events = reader.events("r")
    assert SECRET not in "".join(stored(tmp_path))
    assert [event.body for event in shown] == [event.body for event in events]
    assert SECRET not in json.dumps([event.body.message.results[0].text for event in events[-1:]])


async def test_both_halves_of_a_turn_may_be_written_apart(tmp_path):
    bodies = turn(OUTPUT)
    async with Log.open(tmp_path) as log:
        for body in bodies:
            log.append(PLACE, body)
            await log.flush()
    assert "".join(stored(tmp_path)).count(OUTPUT) == 1
    with LogReader.open(tmp_path) as reader:
        assert [event.body for event in reader.events("r")] == bodies


@pytest.mark.parametrize("version", [1, 5])
def test_events_of_older_logs_are_passed_on_as_json(tmp_path, version):
    folder = golden(tmp_path / "p", version)
    with LogReader.open(folder) as reader:
        for event in events_after(reader, 0):
            assert json.loads(event.to_json())["type"] == event.type


async def test_a_transcript_keeps_both_ends_of_a_long_output_and_says_where_all_of_it_is(tmp_path):
    output = "begin " + "x" * 10_000 + " finish"
    path = tmp_path / "transcripts" / "r.jsonl"
    bodies = [*stories.opening(transcript=str(path)), *turn(output, "short")[3:], stories.ending()]
    await write(tmp_path, bodies)
    long, short = [json.loads(line)["message"] for line in path.read_text().splitlines()][-2:]
    (said,) = long["content"]
    assert len(said["text"]) < 4_200
    assert said["text"].startswith("begin ")
    assert said["text"].endswith(" finish")
    assert "retinue runs show r --json" in said["text"]
    assert short["content"] == [{"type": "text", "text": "short"}]
