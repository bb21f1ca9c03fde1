"""The working line: what the main agent does, in words that a newcomer understands, and how to interrupt it."""

from __future__ import annotations

import pytest

from retinue.app.progress import State, WorkProgress
from retinue.core.events import Event, InboxOpened, Retrying, RunCreated, TextDelta, TurnEnded
from retinue.core.outcome import Failure
from retinue.core.usage import Usage
from retinue.frontends.tui.working import WorkLook, working_line
from tests.frontends.tui.cards import Story
from tests.frontends.tui.test_app import type_in
from tests.frontends.tui.watch_scene import picture, until, watching

STILL = WorkLook(width=78, motion=False)


@pytest.fixture
def story() -> Story:
    made = Story()
    made.start("main", None, 0, agent="main")
    return made


def line(story: Story, state: State = "working", progress: WorkProgress | None = None, look: WorkLook = STILL) -> str:
    drawn = working_line(story.board, progress or WorkProgress(began=story.now - 12), state, story.now, look)
    return drawn.plain if drawn is not None else ""


def at(seconds: float, body: object) -> Event:
    return Event("main", None, "main", 1, seconds, body)  # type: ignore[arg-type]


def test_nothing_is_shown_while_the_main_agent_does_nothing(story: Story) -> None:
    assert line(story, "idle") == ""


def test_it_says_what_is_done_for_how_long_and_which_key_interrupts(story: Story) -> None:
    assert line(story) == "● Thinking… (12s · esc to interrupt)"
    story.call("main", "read", "c1")
    story.call("main", "read", "c2")
    assert line(story) == "● Reading 2 files… (12s · esc to interrupt)"
    story.called("main", "read", "c1")
    story.called("main", "read", "c2")
    story.say("main", "There are")
    assert line(story, look=WorkLook(78, motion=False, interrupt_key="f4")) == "● Writing… (12s · f4 to interrupt)"
    assert line(story, look=WorkLook(78, motion=False, interrupt_key="")) == "● Writing… (12s)"


def test_the_spinner_turns_only_where_motion_is_wanted(story: Story) -> None:
    first, second = (line(story, look=WorkLook(78, frame=frame)) for frame in (0, 1))
    assert first[0] != second[0] and first[1:] == second[1:]
    first, second = (line(story, look=WorkLook(78, frame=frame, motion=False)) for frame in (0, 1))
    assert first == second


def test_tokens_are_those_since_the_person_spoke_with_what_is_being_written(story: Story) -> None:
    progress = WorkProgress()
    progress.take(at(988.0, RunCreated("main", "a task", {}, "", "offline/planner", "/p", 0)))
    progress.take(at(990.0, TurnEnded(1, Usage(4_000, 300, cache_read=9_000), Usage(4_000, 300), 600)))
    progress.take(at(991.0, TextDelta("word" * 20)))
    assert line(story, progress=progress) == "● Thinking… (12s · ↑ 4.0k ↓ 320 tokens · esc to interrupt)"
    narrow = WorkLook(40, motion=False)
    assert line(story, progress=progress, look=narrow) == "● Thinking… (12s · esc to interrupt)"
    assert line(story, progress=progress, look=WorkLook(30, motion=False)) == "● Th… (12s · esc to interrupt)"


def test_waiting_is_said_in_plain_words(story: Story) -> None:
    story.start("one")
    assert line(story, "holding") == "● Waiting for 1 agent (12s · you can go on)"
    story.start("two", background=False)
    story.call("main", "Agent", "c1")
    assert line(story) == "● Waiting for 1 agent (12s · esc to interrupt)"
    story.tell("main", InboxOpened("i1", "approval", "edit src/app.py", "c1"))
    assert line(story) == "● Waiting for your answer: edit src/app.py (12s · esc to interrupt)"


def test_a_retry_says_in_how_many_seconds_and_why(story: Story) -> None:
    progress = WorkProgress(began=988.0)
    failure = Failure("overloaded", "anthropic/claude answered 529: Overloaded.")
    progress.take(at(995.0, Retrying(1, 17.0, failure)))
    assert line(story, progress=progress) == "● Trying again in 12 s: Overloaded (12s · esc to interrupt)"
    progress.retry_at = 999.9
    assert line(story, progress=progress).startswith("● Trying again: Overloaded")
    progress.take(at(999.0, TextDelta("At last")))
    assert line(story, progress=progress).startswith("● Thinking…")


async def test_the_line_comes_and_goes_with_the_work(tmp_path, monkeypatch) -> None:
    async with watching(tmp_path, monkeypatch) as (scene, app, pilot):
        await type_in(pilot, "hello")
        await scene.model("hello").asked()
        await until(pilot, lambda: "Thinking… (" in picture(app) and "esc to interrupt" in picture(app))
        scene.model("hello").say("Done.")
        await until(pilot, lambda: "Done." in picture(app) and "esc to interrupt" not in picture(app))
