"""Transcripts: JSON lines that follow the run, survive compaction and crashes, and never shrink (P01 to P06)."""

import json
from pathlib import Path

import log_stories as stories
import pytest

from retinue.core.events import (
    AssistantEnded,
    Compacted,
    MessageAdded,
    RunResumed,
    ToolEnded,
    ToolStarted,
    TurnEnded,
    TurnStarted,
    Warned,
)
from retinue.core.messages import AssistantMessage, Image, Text, Thinking, UserMessage, user
from retinue.core.request import RunOptions
from retinue.core.run_state import RunPlace
from retinue.core.usage import Usage
from retinue.log.query import LogReader
from retinue.log.store import Log
from retinue.log.transcript import TranscriptLines, transcript_path, wants_transcript
from retinue.settings.places import encode_folder, state_folder

PLACE = RunPlace("run-1")


def lines(path):
    text = path.read_text()
    assert text.endswith("\n")
    return [json.loads(line) for line in text.splitlines()]


@pytest.fixture
def path(tmp_path):
    return Path(transcript_path(tmp_path, "run-1"))


async def write(folder, bodies, place=PLACE):
    async with Log.open(folder) as log:
        if isinstance(bodies[0], RunResumed):
            await log.claim(place.run_id)
        for body in bodies:
            log.append(place, body)


@pytest.mark.parametrize(
    ("cwd", "name"),
    [
        ("/home/user/project", "home-user-project"),
        ("/", ""),
        ("C:\\Users\\foo\\project", "Users-foo-project"),
        ("c:\\foo", "foo"),
        ("C:/Users/foo/project", "Users-foo-project"),
        ("\\\\server\\share\\project", "server-share-project"),
        ("/home\\user/project", "home-user-project"),
        ("///foo", "foo"),
        ("", ""),
        ("foo/bar", "foo-bar"),
    ],
)
def test_a_folder_as_one_name(cwd, name):
    assert encode_folder(cwd) == name


@pytest.mark.sqlite
def test_projects_have_their_own_transcripts(tmp_path):
    one, two = ((tmp_path / name) for name in ("one", "two"))
    environment = {"RETINUE_HOME": str(tmp_path / "home")}
    paths = [Path(transcript_path(state_folder(folder, environment), "run-1")) for folder in (one, two)]
    assert paths[0] != paths[1]
    assert paths[0].parent.parent.parent == tmp_path / "home" / "projects"
    assert paths[0].name == "run-1.jsonl"


async def test_the_shape_of_a_transcript(tmp_path, path):
    await write(tmp_path, stories.whole("Find it", str(path)))
    found = lines(path)
    assert [line["type"] for line in found] == ["user", "assistant", "toolResult", "assistant"]
    assert {(line["isSidechain"], line["agentId"], line["cwd"]) for line in found} == {(True, "run-1", "/project")}
    assert all(line["timestamp"].endswith("Z") for line in found)
    prompt, asked, answered, final = (line["message"] for line in found)
    assert prompt == {"role": "user", "content": "Find it"}
    assert asked["content"][1] == {
        "type": "toolCall",
        "id": "call_1",
        "name": "read",
        "arguments": {"path": "file_1.py"},
    }
    assert (asked["stopReason"], asked["model"], asked["provider"]) == ("toolUse", "one", "scripted")
    assert asked["usage"]["cacheRead"] == 2
    assert (answered["toolCallId"], answered["toolName"], answered["isError"]) == ("call_1", "read", False)
    assert final["content"] == [{"type": "text", "text": "Here it is."}]


async def test_the_prompt_is_there_as_soon_as_the_run_is(tmp_path, path):
    async with Log.open(tmp_path) as log:
        log.append(PLACE, stories.created("Find it", options=RunOptions(transcript=str(path))))
        await log.flush()
        assert [line["message"]["content"] for line in lines(path)] == ["Find it"]
        for body in stories.opening("Find it", str(path))[1:]:
            log.append(PLACE, body)
        await log.flush()
        assert len(lines(path)) == 1
        for body in stories.asking(1, [stories.call(1)]):
            log.append(PLACE, body)
        await log.flush()
        assert len(lines(path)) == 3


async def test_a_prompt_with_more_around_it_is_written_too(tmp_path, path):
    bodies = stories.opening("Find it", str(path))
    bodies[2] = MessageAdded(UserMessage((Text("Context first. Find it"), Image("image/png", "AA=="))))
    await write(tmp_path, [*bodies, stories.ending()])
    prompt, whole = (line["message"]["content"] for line in lines(path))
    assert prompt == "Find it"
    assert whole[1] == {"type": "image", "data": "AA==", "mimeType": "image/png"}


async def test_a_compaction_leaves_a_line_and_stops_nothing(tmp_path, path):
    bodies = [
        *stories.opening("Find it", str(path)),
        *stories.asking(1, [stories.call(1)]),
        Compacted("threshold", "summarised", 9000, 900, (user("Find it"), user("Summary", "summary"))),
        *stories.asking(2, [stories.call(2)]),
        *stories.saying(3, "Done."),
        stories.ending(),
    ]
    await write(tmp_path, bodies)
    found = lines(path)
    assert [line["type"] for line in found] == [
        *("user", "assistant", "toolResult", "system", "assistant", "toolResult", "assistant"),
    ]
    assert found[3]["subtype"] == "compact_boundary"
    assert found[3]["compactMetadata"] == {"trigger": "auto", "preTokens": 9000, "postTokens": 900}


async def test_a_resume_appends_and_keeps(tmp_path, path):
    await write(tmp_path, stories.whole("Find it", str(path)))
    before = path.read_bytes()
    on = [
        RunResumed("And now?"),
        MessageAdded(user("And now?", "follow-up")),
        *stories.saying(3, "More."),
        stories.ending(),
    ]
    await write(tmp_path, on)
    assert path.read_bytes().startswith(before)
    assert [line["message"]["content"] for line in lines(path)[4:]] == ["And now?", [{"type": "text", "text": "More."}]]


async def test_what_a_crash_left_half_written_is_mended(tmp_path, path):
    await write(tmp_path, [*stories.opening("Find it", str(path)), *stories.asking(1, [stories.call(1)])])
    whole = path.read_bytes()
    path.write_bytes(whole[:-40])
    await write(tmp_path, [RunResumed("on"), MessageAdded(user("on", "follow-up")), stories.ending()])
    assert path.read_bytes().startswith(whole)
    assert [line["type"] for line in lines(path)] == ["user", "assistant", "toolResult", "user"]


async def test_a_transcript_that_was_deleted_comes_back_whole(tmp_path, path):
    await write(tmp_path, stories.whole("Find it", str(path)))
    whole = path.read_bytes()
    path.unlink()
    await write(tmp_path, [RunResumed("on"), stories.ending()])
    assert path.read_bytes() == whole


async def test_calls_without_an_end_are_answered_when_the_run_goes_on(tmp_path, path):
    calls = [stories.call(1), stories.call(2)]
    bodies = [
        *stories.opening("Find it", str(path)),
        TurnStarted(1),
        AssistantEnded(1, stories.answer("", calls)),
        ToolStarted(calls[0]),
        ToolStarted(calls[1]),
        ToolEnded("call_1", "read", stories.result(calls[0], "got it"), stories.ToolEffect(), 1),
    ]
    await write(tmp_path, bodies)
    await write(tmp_path, [RunResumed("on"), MessageAdded(user("on", "follow-up")), stories.ending()])
    found = lines(path)
    assert [line["type"] for line in found] == ["user", "assistant", "toolResult", "toolResult", "user"]
    assert found[2]["message"]["content"][0]["text"] == "got it"
    assert "unknown" in found[3]["message"]["content"][0]["text"]


async def test_no_transcript_where_none_is_wanted(tmp_path):
    assert [wants_transcript(file, setting) for file in (None, True, False) for setting in (None, True, False)] == [
        *(True, True, False),
        *(True, True, True),
        *(False, False, False),
    ]
    await write(tmp_path, stories.whole("Find it", None))
    assert not (tmp_path / "transcripts").exists()


async def test_it_can_be_made_again_from_the_log(tmp_path, path):
    thinking = AssistantMessage((Thinking("hm", "sig"), Text("x")), "length", Usage(), "plain")
    bodies = [
        *stories.opening("Find it", str(path)),
        TurnStarted(1),
        AssistantEnded(1, thinking),
        TurnEnded(1, Usage(), Usage()),
        Warned("w", "text"),
        stories.ending(),
    ]
    await write(tmp_path, bodies)
    before = path.read_bytes()
    with LogReader.open(tmp_path) as reader:
        lines = TranscriptLines()
        assert b"".join(line for event in reader.events("run-1") for line in lines.take(event)) == before
    assert [file.name for file in path.parent.iterdir()] == ["run-1.jsonl"]


async def test_a_transcript_that_cannot_be_written_is_reported_once_and_stops_nothing(tmp_path, path):
    path.parent.mkdir(parents=True)
    path.mkdir()
    async with Log.open(tmp_path) as log:
        for body in stories.opening("Find it", str(path)):
            log.append(PLACE, body)
        await log.flush()
        for number in (1, 2):
            for body in stories.asking(number, [stories.call(number)]):
                log.append(PLACE, body)
            await log.flush()
        log.append(PLACE, stories.ending())
        await log.flush()
        warnings = [event.body for event in log.reader.events("run-1") if isinstance(event.body, Warned)]
    assert [(warning.code, str(path) in warning.text) for warning in warnings] == [("transcript", True)]
