"""Logs whose facts were sentences: opened once, they tell the same as typed events."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest

from retinue.core.events import MessageAdded, ModeChanged, MovedToBackground, ResultRead, Warned
from retinue.core.messages import ChildAsked, ChildrenEnded
from retinue.log.query import LogReader
from retinue.log.sqlite import log_file

pytestmark = pytest.mark.sqlite

FIXTURES = Path(__file__).parent / "fixtures"
PARENT, CHILD = "aaaaaaaa-1111-4aaa", "cccccccc-3333-4ccc"
NOTIFICATION = f"""What became of agents you started, while you were not running:

<task-notification>
<task-id>{CHILD}</task-id>
<tool-use-id>call-1</tool-use-id>
<output-file>/t/child.jsonl</output-file>
<status>Stopped by the user (cut off at the output limit)</status>
<summary>Agent "look &lt;here&gt;" Stopped by the user (cut off at the output limit)</summary>
<result>found &amp; lost
in two lines</result>
<branch>retinue/look</branch>
<note>Record: no tool calls.</note>
<usage><total_tokens>17</total_tokens><tool_uses>3</tool_uses><duration_ms>1200</duration_ms></usage>
</task-notification>"""
QUESTION = f"""<agent-question>
<agent-id>{CHILD}</agent-id>
<question-id>af8014</question-id>
<agent>Explore: Count uses</agent>
<question>Count &lt;tests&gt;?</question>
<option>Yes</option>
<option>No</option>
</agent-question>
An agent you started asks this and waits."""


def message(text: str) -> dict:
    return {"message": {"type": "user", "content": [{"type": "text", "text": text}], "origin": "notification"}}


def ended(call_id: str, text: str) -> dict:
    result = {"type": "tool_result", "call_id": call_id, "name": "Agent", "content": [{"type": "text", "text": text}]}
    return {"call_id": call_id, "name": "Agent", "result": result, "effect": {"type": "effect"}, "duration_ms": 1}


OLD = (
    ("run.warned", {"code": "permission_mode", "text": "The permission mode is acceptEdits now."}),
    ("run.warned", {"code": "plan_approved", "text": "The plan was approved: the permission mode is default now."}),
    ("run.warned", {"code": "moved_to_background", "text": "It was moved to the background."}),
    ("run.warned", {"code": "launch", "text": "The permission mode is plan now."}),
    ("message.added", message(NOTIFICATION)),
    ("message.added", message(QUESTION)),
    ("message.added", message("Your changes were undone.")),
    ("child.read", {"child_id": CHILD}),
    ("tool.ended", ended("other", "nothing of it")),
    ("tool.ended", ended("call-9", f"Agent: {CHILD}\n\nfound it")),
)


@pytest.fixture
def bodies(tmp_path: Path) -> list:
    folder = tmp_path / "log"
    folder.mkdir(mode=0o700)
    connection = sqlite3.connect(log_file(folder))
    connection.executescript((FIXTURES / "v7.sql").read_text())
    (last,) = connection.execute("SELECT max(seq) FROM events WHERE run_id=?", (PARENT,)).fetchone()
    for number, (kind, fields) in enumerate(OLD, last + 1):
        row = (PARENT, number, 1750000100.0 + number, kind, json.dumps({**fields, "type": kind}))
        connection.execute("INSERT INTO events (run_id, seq, at, type, body) VALUES (?, ?, ?, ?, ?)", row)
    connection.commit()
    connection.close()
    with LogReader.open(folder) as reader:
        return [event.body for event in reader.events(PARENT) if event.seq > last]


def test_changed_modes_and_moves_are_events_and_other_warnings_stay(bodies: list) -> None:
    assert bodies[:3] == [ModeChanged("acceptEdits", "person"), ModeChanged("default", "plan"), MovedToBackground()]
    assert bodies[3] == Warned("launch", "The permission mode is plan now.")


def test_notifications_have_the_children_that_they_tell_of(bodies: list) -> None:
    told, asked, undone = (body.message.notice for body in bodies if isinstance(body, MessageAdded))
    assert isinstance(told, ChildrenEnded)
    (ending,) = told.endings
    assert (ending.id, ending.status, ending.truncated) == (CHILD, "stopped", True)
    assert (ending.description, ending.result) == ("look <here>", "found & lost\nin two lines")
    assert (ending.transcript, ending.branch, ending.notes) == (
        "/t/child.jsonl",
        "retinue/look",
        ("Record: no tool calls.",),
    )
    assert (ending.tokens, ending.tool_uses, ending.duration_ms) == (17, 3, 1200)
    assert asked == ChildAsked(CHILD, "Explore: Count uses", "Count <tests>?", ("Yes", "No"))
    assert not undone


def test_a_result_that_was_read_names_the_call_that_carried_it(bodies: list) -> None:
    (read,) = [body for body in bodies if isinstance(body, ResultRead)]
    assert read == ResultRead(CHILD, "call-9")
