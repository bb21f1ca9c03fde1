"""Looking at runs: by id or its beginning, by state, here or in all projects, and as JSON."""

import json
import typing

import log_stories as stories
import msgspec
import pytest
from msgspec.structs import replace

from retinue.core.delegation import LIVE
from retinue.core.encode import event_to_json, outcome_to_json
from retinue.core.events import Body, Event, RunResumed, TurnStarted, Warned
from retinue.core.request import RunOptions
from retinue.core.run_state import RunPlace
from retinue.errors import StateError, UnknownRunError, UsageError
from retinue.log.database import connect
from retinue.log.follow import export_document
from retinue.log.query import LogReader, everywhere, find_run
from retinue.log.store import Log
from retinue.runs.resume import find_named


async def make(folder, *runs):
    async with Log.open(folder) as log:
        for place, bodies in runs:
            for body in bodies:
                log.append(place, body)
            await log.flush()


@pytest.fixture
async def reader(tmp_path):
    root = RunPlace("aaaa1111-0000-4000")
    await make(
        tmp_path,
        (root, stories.whole("first")),
        (RunPlace("aaaa2222-0000-4000", root.run_id, root.run_id), stories.opening("second", agent="Plan")),
        (RunPlace("bbbb3333-0000-4000"), [*stories.whole("third")[:-1], stories.ending("", "error")]),
    )
    with LogReader.open(tmp_path) as reader:
        yield reader


async def test_runs_are_listed_newest_first_and_filtered(reader):
    assert [row.task for row in reader.list_runs()] == ["third", "second", "first"]
    assert [row.task for row in reader.list_runs(limit=1)] == ["third"]
    assert [row.task for row in reader.list_runs(states={"interrupted"})] == ["second"]
    assert [row.task for row in reader.list_runs(agent="Plan")] == ["second"]
    assert [row.task for row in reader.list_runs(parent_id="aaaa1111-0000-4000")] == ["second"]
    assert [row.task for row in reader.list_runs(root_id="aaaa1111-0000-4000")] == ["second", "first"]
    assert msgspec.to_builtins(reader.list_runs()[0])["usage"]["input"] == 20


async def test_states_and_pages_keep_the_order(reader):
    assert [row.task for row in reader.list_runs(states={"interrupted", "ended"}, limit=2)] == ["third", "second"]
    assert [row.task for row in reader.list_runs(states=LIVE)] == []
    assert [row.task for row in reader.list_runs(before="bbbb3333-0000-4000")] == ["second", "first"]
    assert [row.task for row in reader.list_runs(states={"interrupted"}, before="aaaa2222-0000-4000")] == []


async def test_conversations_are_main_runs_by_their_newest_change_and_are_searched(reader):
    assert [row.task for row in reader.conversations()] == ["third", "first"]
    assert [row.task for row in reader.conversations(limit=1)] == ["third"]
    assert [row.task for row in reader.conversations(["FIR", "aaaa"])] == ["first"]
    assert reader.conversations(["%"]) == reader.conversations(["first", "third"]) == []


async def test_a_run_is_found_by_the_beginning_of_its_id(reader):
    assert reader.run("bbbb").task == "third"
    assert reader.run("aaaa1111-0000-4000").task == "first"
    with pytest.raises(UsageError, match="aaaa1111-0000-4000, aaaa2222-0000-4000"):
        reader.run("aaaa")
    for wanted in ("", "  ", "zzzz", "%", "aaaa_", "aaaa1111-0000-4001"):
        with pytest.raises(UnknownRunError):
            reader.run(wanted)
    with pytest.raises(UnknownRunError) as caught:
        reader.run("aaaa1111-0000-4001")
    assert "aaaa1111-0000-4000" in caught.value.remedy


@pytest.mark.sqlite
async def test_projects_are_searched_together(tmp_path):
    home = tmp_path / "home"
    await make(home / "projects" / "one", (RunPlace("1111-x"), stories.whole("one")))
    await make(home / "projects" / "two", (RunPlace("2222-x"), stories.whole("two")))
    (home / "projects" / "empty").mkdir()
    (home / "projects" / "bad").mkdir()
    (home / "projects" / "bad" / "log.db").write_bytes(b"garbage" * 1000)
    found = everywhere(home, lambda reader: [row.task for row in reader.list_runs()])
    assert [tasks for _, tasks in found] == [["one"], ["two"]]
    folder, row = find_run(home, "2222", first=home / "projects" / "one")
    assert (folder.name, row.task) == ("two", "two")
    with pytest.raises(StateError):
        find_run(home, "2222", first=home / "projects" / "bad")
    await make(home / "projects" / "three", (RunPlace("2222-y"), stories.whole("three")))
    with pytest.raises(UsageError, match="2222-x in /project"):
        find_run(home, "2222")
    assert find_run(home, "2222", first=home / "projects" / "three")[1].task == "three"
    with pytest.raises(UnknownRunError):
        find_run(home, "3333")
    with pytest.raises(UnknownRunError):
        find_run(tmp_path / "nowhere", "3333")


async def test_the_outcome_is_the_last_ending_unless_the_run_goes_on(tmp_path):
    await make(tmp_path, (RunPlace("r"), stories.whole()))
    async with Log.open(tmp_path) as log:
        assert log.reader.outcome("r").ok
        await log.claim("r")
        log.append(RunPlace("r"), RunResumed("more"))
        await log.flush()
        assert log.reader.outcome("r") is None
        assert log.reader.outcome("unknown") is None
        log.append(RunPlace("r"), stories.ending("", "stopped"))
        await log.flush()
        assert log.reader.outcome("r").ended == "stopped"


async def test_an_event_of_another_version_does_not_hide_the_rest(tmp_path):
    await make(tmp_path, (RunPlace("r"), stories.opening()))
    connection = connect(tmp_path)
    insert = "INSERT INTO events (run_id, seq, at, type, body) VALUES ('r', ?, 1, ?, ?)"
    connection.execute(insert, (4, "moon.rose", '{"type":"moon.rose","phase":3}'))
    connection.execute(insert, (5, "turn.started", '{"type":"turn.started","turn":1,"colour":"new"}'))
    with LogReader.open(tmp_path) as reader:
        bodies = [event.body for event in reader.events("r", after=3)]
        assert bodies == [
            Warned("unknown-event", "an event of type 'moon.rose', written by another version"),
            TurnStarted(1),
        ]
    connection.execute(insert, (6, "turn.started", '{"type":"turn.st'))
    connection.close()
    with LogReader.open(tmp_path) as reader, pytest.raises(StateError, match="Event 6 of run r"):
        reader.events("r")


def test_no_body_has_a_field_that_its_place_would_hide():
    for node in typing.get_args(Body):
        names = set(node.__struct_fields__)
        assert names, node
        assert not {"type", "run_id", "parent_id", "root_id", "seq", "at"} & names, node


def test_an_event_is_one_flat_object_on_one_line():
    for number, body in enumerate(stories.whole('quotes " and \n lines \u2028')):
        event = Event("run", None if number % 2 else 'pa"rent', "root", number, 1754000000.25, body)
        line = event_to_json(event)
        assert b"\n" not in line
        data = json.loads(line)
        assert list(data)[:6] == ["type", "run_id", "parent_id", "root_id", "seq", "at"]
        assert data["type"] == body.type
        assert (data["seq"], data["at"], data["parent_id"]) == (number, 1754000000.25, event.parent_id)
    last = json.loads(outcome_to_json(event, body.outcome))
    assert (last["type"], last["ended"], last["run_id"]) == ("outcome", "completed", "run")


async def test_a_run_as_lines_and_as_one_document(reader):
    lines = [json.loads(event_to_json(event)) for event in reader.stream("aaaa1111-0000-4000")]
    assert [line["seq"] for line in lines] == list(range(1, len(lines) + 1))
    assert lines[-1]["outcome"]["ended"] == "completed"
    document = json.loads(b"".join(export_document(reader, "aaaa1111")))
    assert document["events"] == lines
    assert document["run"]["id"] == "aaaa1111-0000-4000"
    assert document["outcome"]["text"] == "Here it is."
    assert json.loads(b"".join(export_document(reader, "aaaa2222")))["outcome"] is None


async def test_a_run_is_found_by_its_name_however_many_came_after_it(tmp_path, database):
    named = replace(stories.opening("old")[0], options=RunOptions(name="scout"))
    nested = RunPlace("cccc0000-0000-4000", "aaaa0000-0000-4000", "aaaa0000-0000-4000")
    async with Log.open(tmp_path) as log:
        log.append(nested, named)
        for number in range(1_200):
            log.append(RunPlace(f"bbbb{number:04}-0000-4000"), stories.opening("new")[0])
        await log.flush()
    with LogReader.open(tmp_path) as reader:
        assert [row.id for row in reader.named("scout")] == [nested.run_id]
        assert reader.named("nobody") == []
        assert find_named(reader, "scout").id == nested.run_id
    if database is None:
        question = "EXPLAIN QUERY PLAN SELECT id FROM runs WHERE name=? ORDER BY created_at DESC"
        connection = connect(tmp_path)
        assert "runs_by_name" in str([tuple(row) for row in connection.execute(question, ("scout",))])
        connection.close()
