"""The conversation without a terminal: who hears what, when, and what an interruption stops."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import pytest

from retinue import Retinue
from retinue.app.run_events import ProcessEvents
from retinue.app.session import Session
from retinue.errors import RetinueError, StateError
from tests.runs.run_scene import Scene, until


class Talking:
    """A session fed with the events of the log, as the app does it."""

    def __init__(self, scene: Scene, retinue: Retinue) -> None:
        self.scene, self.retinue = scene, retinue
        self.session = Session(retinue)
        self.feed = ProcessEvents(retinue.supervisor.project.log, self._take)
        self.seen: list[object] = []
        self._tasks: list[asyncio.Task[bool]] = []

    def _take(self, event) -> None:
        if event.run_id != self.session.main_id:
            return
        self.seen.append(event.body)
        self.session.observe(event)
        if event.body.type == "run.ended":
            self._tasks.append(asyncio.create_task(self.session.pump()))

    async def state(self, wanted: str) -> None:
        await until(lambda: self.session.state == wanted)

    async def heard(self) -> list[tuple[str, str]]:
        return await self.scene.said(self.session.main_id)


@pytest.fixture
def talk(tmp_path, monkeypatch):
    @asynccontextmanager
    async def opened(**settings):
        scene = Scene(tmp_path, monkeypatch, **settings)
        async with Retinue(tmp_path / "project", environment=scene._environment) as retinue:
            scene.supervisor = retinue.supervisor
            talking = Talking(scene, retinue)
            talking.feed.open()
            yield talking
            for model in scene.models.values():
                model.standing = "over"
            await talking.feed.close()

    return opened


async def test_the_first_words_start_the_main_agent_and_later_ones_take_it_up(talk) -> None:
    async with talk() as t:
        assert (await t.session.say("hello")).how == "sent"
        model = t.scene.model("hello")
        await model.asked()
        assert t.session.state == "working"
        model.say("hi")
        await t.state("idle")
        first = t.session.main_id
        await t.session.say("again")
        await model.asked()
        model.say("yes")
        await t.state("idle")
        assert t.session.main_id == first
        assert await t.heard() == [("task", "hello"), ("follow-up", "again")]


async def test_words_while_it_works_wait_and_are_said_before_the_next_request(talk) -> None:
    async with talk() as t:
        await t.session.say("go")
        model = t.scene.model("go")
        await model.asked()
        assert (await t.session.say("also this")).how == "queued"
        assert t.session.waiting == ["also this"]
        model.call("ls")
        await until(lambda: t.session.waiting == [] or len(model.requests) == 2)
        await model.asked()
        model.say("done")
        await until(lambda: len(model.requests) == 3)
        await model.asked()
        model.say("done, too")
        await t.state("idle")
        assert ("also this") in [text for _, text in await t.heard()]
        assert t.session.waiting == []


async def test_what_still_waits_when_it_ends_begins_the_next_leg(talk) -> None:
    async with talk() as t:
        await t.session.say("go")
        model = t.scene.model("go")
        await model.asked()
        await t.session.say("first")
        await t.session.say("second")
        model.say("done")
        await until(lambda: len(model.requests) >= 2)
        model.standing = "and done"
        await model.asked()
        model.say("done")
        await until(lambda: t.session.state == "idle" and not t.session.queue)
        heard = [text for _, text in await t.heard()]
        assert heard[0] == "go" and "first" in "\n".join(heard[1:]) and "second" in "\n".join(heard[1:])
        assert "\n".join(heard).index("first") < "\n".join(heard).index("second")


async def test_an_interruption_stops_the_main_agent_and_leaves_the_background_alone(talk) -> None:
    async with talk() as t:
        await t.session.say("go")
        model = t.scene.model("go")
        await model.asked()
        main = t.retinue.supervisor.members[t.session.main_id]
        child = await t.scene.child(main, "in the background")
        assert t.session.interrupt()
        await t.state("idle")
        assert t.session.run.outcome.ended == "stopped"
        assert child.live
        assert not t.session.interrupt()
        assert not await t.session.pump()
        t.scene.model("in the background").say("fine")
        await until(lambda: not child.live)
        model.standing = "I see"
        await t.session.say("what now?")
        await t.state("idle")
        assert child.id in await t.scene.heard(t.session.main_id)


async def test_while_it_only_waits_for_agents_words_reach_it_at_once_and_escape_does_nothing(talk) -> None:
    async with talk() as t:
        await t.session.say("go")
        model = t.scene.model("go")
        await model.asked()
        main = t.retinue.supervisor.members[t.session.main_id]
        child = await t.scene.child(main, "slow")
        model.say("they work on it")
        await t.state("holding")
        assert not t.session.interrupt()
        assert (await t.session.say("how far?")).how == "sent"
        await until(lambda: len(model.requests) == 2)
        assert child.live and main.live


async def test_resend_stops_and_sends_what_waits_as_the_next_turn(talk) -> None:
    async with talk() as t:
        assert not await t.session.resend()
        await t.session.say("go")
        model = t.scene.model("go")
        await model.asked()
        await t.session.say("no, the other one")
        assert await t.session.resend()
        await until(lambda: len(model.requests) == 2)
        assert t.session.waiting == [] and t.session.state == "working"
        model.say("the other one")
        await t.state("idle")
        assert [text for _, text in await t.heard()] == ["go", "no, the other one"]


async def test_resend_without_words_only_interrupts(talk) -> None:
    async with talk() as t:
        await t.session.say("go")
        await t.scene.model("go").asked()
        assert await t.session.resend()
        await t.state("idle")
        assert len(t.scene.model("go").requests) == 1


async def test_resend_that_cannot_start_puts_the_words_back(talk, monkeypatch) -> None:
    async with talk() as t:
        await t.session.say("go")
        await t.scene.model("go").asked()
        await t.session.say("waiting words")

        async def refuse(*_, **__):
            raise StateError("The log is full.")

        monkeypatch.setattr(t.retinue, "resume", refuse)
        with pytest.raises(StateError):
            await t.session.resend()
        assert t.session.waiting == ["waiting words"]


async def test_words_that_wait_can_be_taken_back(talk) -> None:
    async with talk() as t:
        await t.session.say("go")
        await t.scene.model("go").asked()
        await t.session.say("one")
        await t.session.say("two")
        assert t.session.unqueue() == "one\n\ntwo"
        assert t.session.waiting == []


async def test_a_mention_goes_to_the_agent_and_costs_main_no_turn(talk) -> None:
    async with talk() as t:
        await t.session.say("go")
        model = t.scene.model("go")
        await model.asked()
        main = t.retinue.supervisor.members[t.session.main_id]
        child = await t.scene.child(main, "look around", name="scout")
        said = await t.session.say("@scout only in src")
        assert (said.how, said.agent) == ("steered", "scout")
        assert t.session.waiting == [] and len(model.requests) == 1
        t.scene.model("look around").call("ls")
        await until(lambda: len(t.scene.model("look around").requests) == 2)
        assert ("steer", "only in src") in await t.scene.said(child.id)


async def test_main_can_be_meant_by_name(talk) -> None:
    async with talk() as t:
        await t.session.say("@main hello there")
        await t.scene.model("hello there").asked()


async def test_another_model_is_used_from_the_next_words_on(talk) -> None:
    async with talk() as t:
        await t.session.say("go")
        model = t.scene.model("go")
        await model.asked()
        model.say("done")
        await t.state("idle")
        t.session.model = "anthropic/claude-haiku-4-5"
        model.standing = "with another head"
        await t.session.say("and now?")
        await t.state("idle")
        await t.session.say("still?")
        await t.state("idle")
        await t.retinue.supervisor.project.log.flush()
        past = t.retinue.supervisor.project.log.reader.conversation(t.session.main_id)
        assert past.started.model == "anthropic/claude-haiku-4-5"
        assert t.session.run.launch.model_name == "anthropic/claude-haiku-4-5"


async def test_a_first_word_that_cannot_start_leaves_everything_as_it_was(talk) -> None:
    async with talk() as t:
        t.session.model = "no/such-model"
        with pytest.raises(RetinueError):
            await t.session.say("hello")
        assert t.session.state == "idle" and t.session.main_id is None


async def test_a_conversation_is_shortened_now_or_with_the_next_words(talk) -> None:
    async with talk() as t:
        assert "no conversation" in await t.session.compact()
        await t.session.say("go")
        model = t.scene.model("go")
        await model.asked()
        assert "before the next request" in await t.session.compact()
        model.say("done")
        await t.state("idle")
        assert "with your next message" in await t.session.compact()
