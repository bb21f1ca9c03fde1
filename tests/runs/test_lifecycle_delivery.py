"""Ends reach the parent exactly once: announced, read, moved, late, or when it is resumed."""

import asyncio

import pytest
from tests.runs.run_scene import Scene, until

from retinue.core.events import ResultRead
from retinue.core.run_state import ActiveRun
from retinue.runs.delegate import Delegate


@pytest.fixture
def scene(tmp_path, monkeypatch):
    return Scene(tmp_path, monkeypatch)


async def next_turn(scene, text="waiting"):
    scene.model("main").say(text)
    await scene.model("main").asked()


async def test_a_parent_is_kept_open_while_a_background_child_lives_and_hears_of_its_end_once(scene):
    async with scene:
        main = await scene.main()
        child = await scene.child(main, "child")
        scene.model("main").say("I have nothing left to do")
        await until(lambda: main.state.turns == 1)
        assert main.live
        scene.model("child").say("the finding")
        await child.wait()
        assert main.live
        await scene.clock.advance(0.2)
        request = await scene.model("main").asked()
        assert "the finding" in request.messages[-1].text
        scene.model("main").say("it found the finding")
        assert (await main.wait()).text == "it found the finding"
        assert await scene.heard(main) == [child.id]


async def test_a_read_in_the_moment_before_the_announcement_makes_it_needless(scene):
    async with scene:
        main = await scene.main()
        child = await scene.child(main, "child")
        scene.model("child").say("the finding")
        await child.wait()
        scene.model("main").call("get_subagent_result", agent_id=child.id)
        await scene.model("main").asked()
        await scene.clock.advance(1)
        scene.model("main").say("done")
        await main.wait()
        assert await scene.heard(main) == []
        assert child.consumed


async def test_a_parent_that_has_read_everything_ends_without_waiting_for_timers(scene):
    async with scene:
        main = await scene.main()
        child = await scene.child(main, "child")
        scene.model("child").say("the finding")
        await child.wait()
        scene.model("main").call("get_subagent_result", agent_id=child.id)
        await scene.model("main").asked()
        scene.model("main").say("done")
        assert (await main.wait()).text == "done"


async def test_a_foreground_child_is_read_by_the_call_that_waits_for_it(scene):
    async with scene:
        main = await scene.main()
        scene.model("main").call("Agent", prompt="child", subagent_type="general-purpose", run_in_background=False)
        await scene.model("child").asked()
        scene.model("child").say("the finding")
        await scene.model("main").asked()
        (child,) = main.children
        await scene.clock.advance(60)
        scene.model("main").say("done")
        await main.wait()
        assert child.consumed
        assert await scene.heard(main) == []
        read = [e.body for e in scene.supervisor.project.log.reader.events(main.id) if isinstance(e.body, ResultRead)]
        assert [body.child_id for body in read] == [child.id]


async def test_a_foreground_child_moved_to_the_background_frees_its_caller_and_is_announced_once(scene):
    async with scene:
        main = await scene.main()
        scene.model("main").call("Agent", prompt="child", subagent_type="general-purpose", run_in_background=False)
        await scene.model("child").asked()
        (child,) = main.children
        assert scene.supervisor.detach(child)
        assert not scene.supervisor.detach(child)
        request = await scene.model("main").asked()
        told = request.messages[-1].results[0].text
        assert "goes on" in told
        assert "notified" in told
        assert child.live
        scene.model("child").say("the finding")
        await child.wait()
        await scene.clock.advance(0.2)
        await next_turn(scene)
        assert await scene.heard(main) == [child.id]


async def test_moving_a_child_that_has_ended_or_has_no_waiter_changes_nothing(scene):
    async with scene:
        main = await scene.main()
        child = await scene.child(main, "child")
        assert not scene.supervisor.detach(child)
        assert not scene.supervisor.detach(main)
        scene.model("child").say("done")
        await child.wait()
        assert not scene.supervisor.detach(child)


async def test_a_parent_stopped_while_it_waits_leaves_a_moved_child_alone(scene):
    async with scene:
        main = await scene.main()
        scene.model("main").call("Agent", prompt="child", subagent_type="general-purpose", run_in_background=False)
        await scene.model("child").asked()
        (child,) = main.children
        scene.supervisor.detach(child)
        scene.supervisor.stop(main, "Escape.")
        await main.wait()
        assert child.live


async def test_what_ended_while_its_parent_was_stopped_is_told_once_before_the_prompt_of_its_resume(scene):
    async with scene:
        main = await scene.main()
        a, b = await scene.child(main, "a"), await scene.child(main, "b")
        scene.supervisor.stop(main, "Later.")
        await main.wait()
        scene.model("a").say("finding a")
        scene.model("b").fail()
        await asyncio.gather(a.wait(), b.wait())
        await scene.clock.advance(60)
        assert await scene.heard(main) == []
        await scene.supervisor.resume(main.id, "go on")
        request = await scene.model("main").asked()
        news, prompt = request.messages[-2:]
        assert prompt.text == "go on"
        assert news.origin == "notification"
        assert "finding a" in news.text
        assert "Error: the provider is gone" in news.text
        assert await scene.heard(main) == [a.id, b.id]
        scene.model("main").say("done")
        await main.wait()
        await scene.supervisor.resume(main.id, "and again")
        await scene.model("main").asked()
        assert await scene.heard(main) == [a.id, b.id]


async def test_a_child_that_still_runs_when_its_parent_is_resumed_keeps_it_open_and_is_announced_as_usual(scene):
    async with scene:
        main = await scene.main()
        child = await scene.child(main, "child")
        scene.supervisor.stop(main, "Later.")
        await main.wait()
        await scene.supervisor.resume(main.id, "go on")
        await scene.model("main").asked()
        assert await scene.heard(main) == []
        scene.model("main").say("I wait")
        await until(lambda: main.state.turns == 2)
        assert main.live
        scene.model("child").say("the finding")
        await child.wait()
        await scene.clock.advance(0.2)
        await scene.model("main").asked()
        assert await scene.heard(main) == [child.id]


async def test_an_end_that_was_held_when_its_parent_was_resumed_is_told_once(scene):
    async with scene:
        main = await scene.main()
        child = await scene.child(main, "child", join="group")
        await scene.child(main, "other", join="group")
        await scene.clock.advance(0.1)
        scene.model("child").say("the finding")
        await child.wait()
        scene.supervisor.stop(main, "Later.")
        await main.wait()
        await scene.supervisor.resume(main.id, "go on")
        await scene.model("main").asked()
        assert await scene.heard(main) == [child.id]
        await scene.clock.advance(60)
        main.steer_now("anything new?")
        await next_turn(scene)
        assert await scene.heard(main) == [child.id]


async def test_an_announcement_the_parent_was_stopped_before_it_could_hear_is_told_when_it_is_resumed(scene):
    async with scene:
        main = await scene.main()
        child = await scene.child(main, "child")
        scene.model("child").say("the finding")
        await child.wait()
        await scene.clock.advance(0.2)
        assert child.announced
        scene.supervisor.stop(main, "Later.")
        await main.wait()
        assert await scene.heard(main) == []
        await scene.supervisor.resume(main.id, "go on")
        await scene.model("main").asked()
        assert await scene.heard(main) == [child.id]


async def test_a_child_resumed_before_its_end_was_announced_is_announced_when_it_ends_again(scene):
    async with scene:
        main = await scene.main()
        child = await scene.child(main, "child", join="group")
        await scene.clock.advance(0.05)
        scene.model("child").say("first")
        await child.wait()
        await scene.spawn(main, "go on", resume=child.id, background=True, join="group")
        await scene.model("child").asked()
        await scene.clock.advance(60)
        scene.model("child").say("second")
        await child.wait()
        await scene.clock.advance(60)
        await next_turn(scene)
        assert await scene.heard(main) == [child.id]
        assert "second" in (await scene.said(main.id))[-1][1]


async def test_a_wait_on_a_queued_agent_lasts_through_its_start_and_gives_its_result(tmp_path, monkeypatch):
    scene = Scene(tmp_path, monkeypatch, max_concurrent=1)
    async with scene:
        main = await scene.main()
        await scene.child(main, "first")
        second = await scene.spawn(main, "second", background=True)
        wait = asyncio.ensure_future(Delegate(scene.supervisor, main.id).wait(second.id, 270))
        await scene.clock.advance(5)
        assert not wait.done()
        scene.model("first").say("done")
        await scene.model("second").asked()
        scene.model("second").say("the finding")
        await until(lambda: not scene.supervisor.members[second.id].live)
        waited = await wait
        assert (waited.end, waited.run.result) == ("completed", "the finding")


async def test_an_abort_and_a_timeout_end_only_the_wait(scene):
    async with scene:
        main = await scene.main()
        child = await scene.child(main, "child")
        way = Delegate(scene.supervisor, main.id)
        wait = asyncio.ensure_future(way.wait(child.id, 270))
        await scene.clock.advance(1)
        wait.cancel()
        await asyncio.wait({wait})
        assert (child.live, child.consumed) == (True, False)
        wait = asyncio.ensure_future(way.wait(child.id, 30))
        await scene.clock.advance(29)
        assert not wait.done()
        await scene.clock.advance(1)
        waited = await wait
        assert (waited.end, waited.run.status) == ("timeout", "running")
        scene.model("child").say("the finding")
        await child.wait()
        await scene.clock.advance(0.2)
        await next_turn(scene)
        assert await scene.heard(main) == [child.id]


async def test_a_completion_before_anyone_waits_is_not_missed(scene):
    async with scene:
        main = await scene.main()
        scene.model("child").standing = "at once"
        view = await scene.spawn(main, "child", background=True)
        await until(lambda: not scene.supervisor.members[view.id].live)
        waited = await Delegate(scene.supervisor, main.id).wait(view.id, 5)
        assert (waited.end, waited.run.result) == ("completed", "at once")
        assert (await scene.supervisor.members[view.id].wait()).text == "at once"


async def test_an_exception_of_a_listener_does_not_change_how_a_run_ended(scene, monkeypatch):
    def broken(*_, **__):
        raise RuntimeError("a defect in the post")

    async with scene:
        main = await scene.main()
        child = await scene.child(main, "child")
        monkeypatch.setattr("retinue.runs.notifications.announcement", broken)
        scene.model("child").say("done")
        assert (await child.wait()).ended == "completed"
        with pytest.raises(RuntimeError):
            await scene.clock.advance(1)
        assert child.status == "completed"
        scene.model("main").say("done")
        assert (await main.wait()).ended == "completed", "a parent must not wait for post that is lost"


async def test_a_failure_keeps_what_was_said_and_reaches_the_parent_as_one(scene):
    async with scene:
        main = await scene.main()
        child = await scene.child(main, "child")
        scene.model("child").call("ls", "half of it")
        await scene.model("child").asked()
        scene.model("child").fail("overloaded for good")
        outcome = await child.wait()
        assert (outcome.ended, outcome.text, outcome.partial) == ("error", "half of it", True)
        await scene.clock.advance(0.2)
        await next_turn(scene)
        (_, text) = (await scene.said(main.id))[-1]
        assert "<status>Error: overloaded for good</status>" in text
        assert "half of it" in text


async def test_a_view_of_a_running_child_reads_nothing(scene):
    async with scene:
        main = await scene.main()
        child = await scene.child(main, "child")
        way = Delegate(scene.supervisor, main.id)
        view = way.view(child.id)
        way.consume(child.id)
        assert isinstance(view, ActiveRun)
        assert (view.status, child.consumed) == ("running", False)


async def test_a_run_that_waits_for_its_agents_is_seen_to_wait(scene):
    async with scene:
        main = await scene.main()
        child = await scene.child(main, "child")
        assert child.snapshot().status == "running"
        scene.model("child").call("Agent", prompt="grandchild", run_in_background=False)
        await scene.model("grandchild").asked()
        assert child.snapshot().status == "waiting", "for one in the foreground"
        scene.model("grandchild").say("done")
        await scene.model("child").asked()
        assert child.snapshot().status == "running"
        scene.model("child").call("Agent", prompt="another", run_in_background=True)
        await scene.model("another").asked()
        await scene.model("child").asked()
        scene.model("child").say("that is all, but for the other")
        await until(lambda: child.snapshot().status == "waiting")
        (listed,) = Delegate(scene.supervisor, main.id).children()
        assert (listed.status, listed.live) == ("waiting", True)


async def test_ends_that_gather_while_the_parent_is_in_a_turn_are_told_in_one_message(scene):
    async with scene:
        main = await scene.main()
        children = [await scene.child(main, f"child {number}") for number in range(4)]
        for number, child in enumerate(children):
            scene.model(f"child {number}").say(f"result {number}")
            await child.wait()
            await scene.clock.advance(1)  # each by itself is long announced; the turn goes on
        scene.model("main").call("ls")
        request = await scene.model("main").asked()
        told = [text for origin, text in await scene.said(main.id) if origin == "notification"]
        assert len(told) == 1
        assert "4 agent(s) finished" in told[0]
        assert sorted(await scene.heard(main)) == sorted(child.id for child in children)
        assert request.messages[-1].origin == "notification"


async def test_ends_of_nested_agents_wait_for_nothing_once_nobody_else_works(scene):
    async with scene:
        main = await scene.main()
        middle = await scene.child(main, "middle")
        inner = await scene.child(middle, "inner")
        scene.model("main").say("waiting")
        scene.model("middle").say("waiting, too")
        await until(lambda: main.controls.at_rest and middle.controls.at_rest)
        for task, ended in (("inner", inner), ("middle", middle)):
            scene.model(task).say(f"{task} is done")
            await ended.wait()
            above = {"inner": "middle", "middle": "main"}[task]
            await scene.model(above).asked()  # no clock has moved
        scene.model("main").say("done")
        assert (await main.wait()).ended == "completed"


async def test_a_result_that_is_read_before_its_message_is_heard_is_taken_out_of_it(scene):
    async with scene:
        main = await scene.main()
        first, second = [await scene.child(main, f"child {number}") for number in range(2)]
        scene.model("child 0").say("one")
        await first.wait()
        await scene.clock.advance(1)
        Delegate(scene.supervisor, main.id).consume(first.id)
        scene.model("child 1").say("two")
        await second.wait()
        await scene.clock.advance(1)
        scene.model("main").call("ls")
        await scene.model("main").asked()
        assert await scene.heard(main) == [second.id]


async def test_what_the_parent_reads_while_its_message_waits_is_not_told_again(scene):
    async with scene:
        main = await scene.main()
        first, second = [await scene.child(main, f"child {number}") for number in range(2)]
        for number, child in enumerate((first, second)):
            scene.model(f"child {number}").say("found")
            await child.wait()
        await scene.clock.advance(1)  # one message about both waits for the end of the turn
        scene.model("main").call("get_subagent_result", agent_id=first.id)
        await scene.model("main").asked()
        assert await scene.heard(main) == [second.id]
