"""Texts are for people: a program whose every message reads differently behaves the same, also after a restart."""

from typing import Any

import pytest
from msgspec.structs import replace
from tests.runs.run_scene import Scene
from tests.runs.test_recovery import die

from retinue.core.delegation import Refusal
from retinue.core.events import Body, InboxOpened, LimitReached, MessageAdded, RunEnded, Warned
from retinue.core.messages import Text
from retinue.log.query import LogReader
from retinue.log.store import Log
from retinue.runs.plan_mode import record_mode
from retinue.runs.record import recorded_mode

OTHER_WORDS = "Lorem ipsum dolor sit amet."


def reword(body: Body) -> Body:
    """Return an event with other words wherever the program, and no model or person, has written them."""
    match body:
        case Warned():
            return replace(body, text=OTHER_WORDS)
        case LimitReached():
            return replace(body, detail=OTHER_WORDS)
        case InboxOpened():
            return replace(body, title=OTHER_WORDS)
        case MessageAdded(message) if message.origin not in ("task", "follow-up"):
            return MessageAdded(replace(message, content=(Text(OTHER_WORDS),)))
        case RunEnded(outcome):
            failure = outcome.failure and replace(outcome.failure, message=OTHER_WORDS, remedy=OTHER_WORDS)
            return RunEnded(replace(outcome, failure=failure, notes=(OTHER_WORDS,) * len(outcome.notes)))
        case _:
            return body


def stored_texts(reader: LogReader) -> list[str]:
    return [row[0] for row in reader.select("SELECT body FROM events")]


async def tell_story(scene: Scene) -> dict[str, Any]:
    """Let runs end, stop, be announced and read, kill their process, and return what is known afterwards."""
    main = await scene.main()
    children = [await scene.child(main, task) for task in ("announced", "stopped", "unread", "cut off")]
    names = {main.id: "main", **{child.id: child.state.description for child in children}}
    tasks = dict(zip([child.id for child in children], ("announced", "stopped", "unread", "cut off"), strict=True))
    names |= tasks
    scene.model("announced").say("found it")
    await children[0].wait()
    await scene.clock.advance(0.2)
    scene.model("main").call("ls")
    await scene.model("main").asked()
    record_mode(main, "acceptEdits")
    scene.supervisor.stop(children[1], "Stopped by the user.")
    await children[1].wait()
    scene.model("unread").say("found more")
    await children[2].wait()
    await die(scene)
    async with scene:
        again = await scene.supervisor.resume(main.id, "go on")
        await scene.model("main").asked()
        refused = await scene.spawn(again, "continue", resume=children[1].id)
        reader = scene.supervisor.project.log.reader
        rows = {names[row.id]: row for row in reader.list_runs()}
        outcomes = {names[row.id]: reader.outcome(row.id) for row in reader.list_runs()}
        return {
            "rows": {name: (row.status, row.error, row.turns, row.tool_uses, row.usage) for name, row in rows.items()},
            "exit codes": {name: outcome.exit_code for name, outcome in outcomes.items() if outcome is not None},
            "heard": [names[run_id] for run_id in await scene.heard(main.id)],
            "other words": sum(OTHER_WORDS in text for text in stored_texts(reader)),
            "mode": (recorded_mode(reader, main.id), again.mode),
            "refused": refused.code if isinstance(refused, Refusal) else None,
        }


async def test_a_program_with_other_words_does_the_same(tmp_path, monkeypatch):
    facts = []
    for number, translate in enumerate((lambda body: body, reword)):
        (tmp_path / str(number)).mkdir()
        with pytest.MonkeyPatch.context() as patch:
            append = Log.append
            patch.setattr(Log, "append", lambda log, place, body: append(log, place, translate(body)))  # noqa: B023
            facts.append(await tell_story(Scene(tmp_path / str(number), patch)))
    changed = [fact.pop("other words") for fact in facts]
    assert changed[0] == 0 and changed[1] >= 5
    assert facts[0] == facts[1]
    assert facts[0]["refused"] == "STOPPED_BY_USER"
    assert facts[0]["mode"] == ("acceptEdits", "acceptEdits")
    assert sorted(facts[0]["heard"]) == ["announced", "cut off", "stopped", "unread"]
