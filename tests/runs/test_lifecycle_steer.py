"""Steering: running, starting, queued, ended; in order, exactly once, never "delivered" in vain."""

import asyncio

import pytest
from tests.runs.run_scene import Scene, until

from retinue.core.delegation import Refusal
from retinue.core.events import ToolEnded
from retinue.core.run_state import ActiveRun
from retinue.runs.delegate import Delegate


@pytest.fixture
def scene(tmp_path, monkeypatch):
    return Scene(tmp_path, monkeypatch, max_concurrent=1)


async def steers(scene, run_id):
    return [text for origin, text in await scene.said(run_id) if origin == "steer"]


async def test_a_running_agent_hears_messages_after_its_tool_calls_in_order_and_once(scene):
    async with scene:
        main = await scene.main()
        child = await scene.child(main, "child")
        way = Delegate(scene.supervisor, main.id)
        assert isinstance(way.steer(child.id, "one"), ActiveRun)
        assert isinstance(way.steer(child.state.name, "two"), ActiveRun)
        assert child.steer_now("three")
        scene.model("child").call("ls")
        request = await scene.model("child").asked()
        assert [m.text for m in request.messages if m.type == "user"] == ["child", "one", "two", "three"]
        assert request.messages[-4].type == "tool"
        scene.model("child").say("done")
        await child.wait()
        assert await steers(scene, child.id) == ["one", "two", "three"]


async def test_a_message_that_comes_with_the_last_answer_makes_another_turn(scene):
    async with scene:
        main = await scene.main()
        child = await scene.child(main, "child")
        assert child.steer_now("wait, also this")
        scene.model("child").say("done")
        await scene.model("child").asked()
        scene.model("child").say("done with that, too")
        assert (await child.wait()).text == "done with that, too"


async def test_a_queued_and_a_starting_agent_hear_it_when_they_start(scene):
    async with scene:
        main = await scene.main()
        first = await scene.child(main, "first")
        queued = await scene.spawn(main, "second", background=True)
        way = Delegate(scene.supervisor, main.id)
        assert way.steer(queued.id, "for later").status == "queued"
        assert scene.model("second").requests == []
        starting = await scene.spawn(first, "nested", background=True)
        assert Delegate(scene.supervisor, first.id).steer(starting.id, "early").status == "starting"
        assert [m.text for m in (await scene.model("nested").asked()).messages] == ["nested", "early"]
        scene.model("nested").say("done")
        await scene.supervisor.members[starting.id].wait()
        await asyncio.sleep(0.01)  # its end is on its way to the parent
        scene.model("first").standing = "done"
        scene.model("first").say("done")
        await scene.clock.advance(1)
        assert [m.text for m in (await scene.model("second").asked()).messages] == ["second", "for later"]


async def test_an_ended_agent_refuses_and_says_how_to_go_on(scene):
    async with scene:
        main = await scene.main()
        child = await scene.child(main, "child")
        scene.model("child").say("done")
        await child.wait()
        refused = Delegate(scene.supervisor, main.id).steer(child.id, "too late")
        assert isinstance(refused, Refusal)
        assert (refused.code, "completed" in refused.message, "Resume" in refused.message) == (
            "NOT_RUNNING",
            True,
            True,
        )
        assert not child.steer_now("too late")
        assert Delegate(scene.supervisor, main.id).steer("no-such-agent", "x").code == "AGENT_NOT_FOUND"
        assert await steers(scene, child.id) == []


async def test_the_refusal_to_steer_what_a_person_stopped_does_not_advise_a_resume_that_is_refused(scene):
    async with scene:
        main = await scene.main()
        child = await scene.child(main, "child")
        scene.supervisor.stop(child, "Stopped by the user.")
        await child.wait()
        scene.model("main").call("steer_subagent", agent_id=child.id, message="go on")
        await scene.model("main").asked()
        told = await last_result(scene, main.id)
        assert "is not running (stopped): the message was not delivered" in told
        assert "The user stopped it: leave it" in told and "Resume" not in told
        refused = await scene.spawn(main, "go on", resume=child.id)
        assert isinstance(refused, Refusal) and refused.code == "STOPPED_BY_USER"
    async with scene.again():
        main = await scene.supervisor.resume(main.id, "hello again")
        await scene.model("main").asked()
        refused = Delegate(scene.supervisor, main.id).steer(child.id, "go on")
        assert isinstance(refused, Refusal) and "The user stopped it: leave it" in refused.message


async def test_the_advice_to_resume_what_an_agent_stopped_can_be_followed(scene):
    async with scene:
        main = await scene.main()
        child = await scene.child(main, "child")
        scene.supervisor.stop(child, "Stopped by the agent that started it.", by="agent")
        await child.wait()
        refused = Delegate(scene.supervisor, main.id).steer(child.id, "go on")
        assert isinstance(refused, Refusal) and "Resume it to continue." in refused.message
        assert isinstance(await scene.spawn(main, "go on", resume=child.id, background=True), ActiveRun)


async def last_result(scene, run_id: str) -> str:
    """What the last tool call of a run was answered with."""
    await scene.supervisor.project.log.flush()
    bodies = [event.body for event in scene.supervisor.project.log.reader.events(run_id)]
    return [body.result.text for body in bodies if isinstance(body, ToolEnded)][-1]


async def test_an_agent_that_is_being_stopped_takes_no_more_messages(scene):
    async with scene:
        main = await scene.main()
        child = await scene.child(main, "child")
        scene.supervisor.stop(child, "Enough.")
        assert not child.steer_now("one more thing")
        await child.wait()
        assert await steers(scene, child.id) == []


async def test_nobody_steers_the_children_of_others(scene):
    async with scene:
        main = await scene.main()
        child = await scene.child(main, "child")
        grandchild = await scene.child(child, "grandchild")
        for way, other in ((main, grandchild), (grandchild, child), (child, main)):
            refused = Delegate(scene.supervisor, way.id).steer(other.id, "psst")
            assert isinstance(refused, Refusal)
            assert refused.code == "AGENT_NOT_FOUND"


async def test_a_run_that_is_resumed_is_the_same_run_with_a_new_attempt(scene):
    async with scene:
        main = await scene.main()
        child = await scene.child(main, "child")
        scene.model("child").say("done")
        assert (await child.wait()).text == "done"
        await scene.spawn(main, "go on", resume=child.id, background=True)
        await scene.model("child").asked()
        assert scene.supervisor.members[child.id] is child
        assert child.live and child.outcome is None and child.attempt == 2
        assert child.steer_now("hello")
        scene.model("child").say("again")
        await scene.model("child").asked()
        scene.model("child").say("and again")
        assert (await child.wait()).text == "and again"
        await until(lambda: not child.live)
