"""Reading a conversation from the log gives what all of its events give, and reads less."""

import tempfile
from pathlib import Path

import log_stories as stories
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from retinue.core.events import (
    AssistantEnded,
    Compacted,
    Event,
    MessageAdded,
    Rewound,
    RunResumed,
    ToolEnded,
    ToolsEnded,
    ToolStarted,
    TurnEnded,
    TurnStarted,
    Undone,
)
from retinue.core.messages import AssistantMessage, Text, ToolMessage, user
from retinue.core.outcome import Failure
from retinue.core.permission import ToolEffect
from retinue.core.programs import this_process
from retinue.core.usage import Usage
from retinue.log import replay as recall
from retinue.log.batch import LogBatch, WrittenResults
from retinue.log.database import connect, register
from retinue.log.query import LogReader
from retinue.log.replay import replay
from retinue.log.writer import Changes

FAILED = AssistantMessage((Text("half"),), "error", Usage(3, 1), "m", Failure("dropped", "cut"))


def write(folder, bodies):
    """Put a run of these bodies into a log, as its writer does."""
    events = [Event("r", None, "r", seq, 1000.0 + seq, body) for seq, body in enumerate(bodies, 1)]
    connection, owner = connect(folder), this_process()
    connection.execute("BEGIN IMMEDIATE")
    register(connection, owner)
    changes = Changes({})
    for event in events:
        changes.take(event)
    changes.write(connection, LogBatch(1, events).prepare(None, WrittenResults()), owner.id)
    connection.execute("COMMIT")
    connection.close()
    return events


@st.composite
def steps(draw, number):
    """Something that may happen in a run."""
    calls = [stories.call(f"{number}-{index}") for index in range(draw(st.integers(1, 2)))]
    match draw(
        st.sampled_from(["tools", "tools", "words", "failed", "cut", "compacted", "ended", "rewound", "undone"])
    ):
        case "tools":
            return list(stories.asking(number, calls))
        case "words":
            begun, *rest = stories.saying(number, f"Answer {number}.")
            return [begun, MessageAdded(user(f"Message {number}", "steer")), *rest]
        case "failed":
            return [TurnStarted(number), AssistantEnded(number, FAILED)]
        case "cut":
            return [TurnStarted(number), AssistantEnded(number, stories.answer("", calls)), ToolStarted(calls[0])]
        case "compacted":
            return [Compacted("threshold", "summarised", 900, 90, (user("Summary."),))]
        case "ended":
            return [stories.ending(), RunResumed("m")]
        case "undone":
            return [Undone(("a.py",), (), ())]
        case _:
            return [stories.ending(), Rewound(draw(st.integers(3, 12)), ("b.py",)), RunResumed("m")]


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_the_log_gives_the_conversation_that_all_events_give(data):
    bodies = stories.opening()
    for number in range(1, data.draw(st.integers(1, 8)) + 1):
        more = data.draw(steps(number))
        if any(isinstance(body, Rewound) and body.to > len(bodies) for body in more):
            continue
        bodies += more
    bodies = bodies[: data.draw(st.integers(3, len(bodies)))]
    with tempfile.TemporaryDirectory() as base:
        events = write(Path(base) / "p", bodies)
        with LogReader.open(Path(base) / "p") as reader:
            found = reader.conversation("r")
            assert reader.events("r") == events
            assert found == replay(events)
            cut = reader.last_turn("r")
            assert (cut.unknown, cut.unrun) == (found.unknown, found.unrun)


def test_outputs_before_a_compaction_are_not_read(tmp_path):
    calls = [stories.call(1)]
    bodies = [*stories.opening(), *stories.asking(1, calls), Compacted("manual", "summarised", 9, 1, (user("All."),))]
    write(tmp_path, [*bodies, *stories.saying(2, "Done.")])
    with LogReader.open(tmp_path) as reader:
        seen = []
        select = reader.select
        reader.select = lambda query, values=(): [seen.append(tuple(row)) or row for row in select(query, values)]
        assert [message.text for message in reader.conversation("r").messages] == ["All.", "Done."]
    assert not any("tool_result" in str(value) for row in seen for value in row[3:])


def test_the_oldest_outputs_go_when_no_model_could_read_them(tmp_path, monkeypatch):
    monkeypatch.setattr(recall, "MAX_OUTPUT_CHARACTERS", 2_500)
    bodies = stories.opening()
    for number in range(1, 5):
        made = stories.call(number)
        result = stories.result(made, f"{number}" * 1_000)
        bodies += [TurnStarted(number), AssistantEnded(number, stories.answer("", [made])), ToolStarted(made)]
        bodies += [ToolEnded(made.id, made.name, result, ToolEffect(), 1), ToolsEnded(ToolMessage((result,)))]
        bodies.append(TurnEnded(number, Usage(1, 1), Usage(number, number)))
    write(tmp_path, bodies)
    with LogReader.open(tmp_path) as reader:
        found = reader.conversation("r")
    texts = [message.results[0].text for message in found.messages if isinstance(message, ToolMessage)]
    assert texts[:2] == ["[Output removed to save space: 1000 characters.]"] * 2
    assert texts[2:] == ["3" * 1_000, "4" * 1_000]
    assert found.tool_uses == 4
