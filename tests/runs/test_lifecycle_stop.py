"""Stopping one, a tree, all: what is queued never starts, what runs keeps its words."""

import asyncio

import pytest
from tests.runs.run_scene import Scene, until

from retinue.core.delegation import Refusal
from retinue.core.events import RunEnded, RunStarted
from retinue.core.run_state import ActiveRun


@pytest.fixture
def scene(tmp_path, monkeypatch):
    return Scene(tmp_path, monkeypatch, max_concurrent=1)


def bodies(scene, run_id, kind):
    return [event.body for event in scene.supervisor.project.log.reader.events(run_id) if isinstance(event.body, kind)]


async def test_a_queued_run_that_is_stopped_never_starts_ends_once_and_is_announced_once(scene):
    async with scene:
        main = await scene.main()
        first = await scene.child(main, "first")
        view = await scene.spawn(main, "second", background=True)
        second = scene.supervisor.members[view.id]
        assert (second.status, second.snapshot().queue_position) == ("queued", 1)
        assert scene.supervisor.stop(second, "Not needed.")
        outcome = await second.wait()
        assert (outcome.ended, outcome.stopped_by, outcome.text) == ("stopped", "person", "")
        assert bodies(scene, second.id, RunStarted) == []
        assert len(bodies(scene, second.id, RunEnded)) == 1
        assert not scene.supervisor.stop(second, "again")
        await scene.clock.advance(1)
        scene.model("main").say("waiting")
        await scene.model("main").asked()
        assert await scene.heard(main) == [second.id]
        assert first.live


async def test_a_run_that_is_stopped_before_its_first_step_ends_as_stopped(scene):
    async with scene:
        main = await scene.main()
        view = await scene.spawn(main, "child", background=True)
        child = scene.supervisor.members[view.id]
        assert child.status == "starting"
        assert scene.supervisor.stop(child, "At once.")
        assert (await child.wait()).ended == "stopped"
        assert scene.supervisor.queue.running == 0
        assert scene.model("child").requests == []


async def test_a_running_run_keeps_what_it_has_said_and_says_so(scene):
    async with scene:
        main = await scene.main()
        child = await scene.child(main, "child")
        scene.model("child").call("ls", "I have found the first half.")
        await until(lambda: len(scene.model("child").requests) == 2)
        assert scene.supervisor.stop(child, "Enough.")
        outcome = await child.wait()
        assert (outcome.ended, outcome.text, outcome.partial) == ("stopped", "I have found the first half.", True)
        assert outcome.failure.message == "Enough."
        assert scene.supervisor.queue.running == 0


async def test_the_parents_stop_ends_foreground_children_only(scene):
    async with scene:
        main = await scene.main()
        background = await scene.child(main, "background")
        scene.model("main").call("Agent", prompt="foreground", subagent_type="general-purpose", run_in_background=False)
        await scene.model("foreground").asked()
        foreground = main.children[-1]
        scene.supervisor.stop(main, "Escape.")
        assert (await main.wait()).ended == "stopped"
        outcome = await foreground.wait()
        assert (outcome.ended, outcome.stopped_by) == ("stopped", "agent")
        assert background.live
        scene.model("background").say("done")
        assert (await background.wait()).ended == "completed"


async def test_a_parents_ending_comes_after_those_of_its_foreground_children(scene):
    async with scene:
        main = await scene.main()
        scene.model("main").call("Agent", prompt="a", subagent_type="general-purpose", run_in_background=False)
        await scene.model("a").asked()
        scene.model("a").call("Agent", prompt="b", subagent_type="general-purpose", run_in_background=False)
        await until(lambda: main.children[0].outcome or scene.model("a").requests)
        scene.supervisor.stop(main, "Escape.")
        await main.wait()
        reader = scene.supervisor.project.log.reader
        rows = reader.list_runs(root_id=main.id)
        assert {row.state for row in rows} == {"ended"}
        assert max(reader.newest(row.id) for row in rows) == reader.newest(main.id)


async def test_stopping_a_tree_ends_background_descendants_too(scene):
    async with scene:
        main = await scene.main()
        child = await scene.child(main, "child")
        grandchild = await scene.child(child, "grandchild")
        other = await scene.spawn(main, "other", background=True)
        assert scene.supervisor.stop_tree(child, "All of it.") == 2
        assert (await child.wait()).ended == "stopped"
        assert (await grandchild.wait()).ended == "stopped"
        await scene.model("other").asked()
        assert main.live
        assert scene.supervisor.members[other.id].live


async def test_stopping_all_counts_queued_and_running_and_none_is_left(scene):
    async with scene:
        main = await scene.main()
        await scene.child(main, "a")
        await scene.spawn(main, "b", background=True)
        assert await scene.supervisor.stop_all("Closing time.") == 3
        assert [node.status for node in scene.supervisor.members.values()] == ["stopped"] * 3
        assert await scene.supervisor.stop_all("again") == 0


async def test_what_a_person_stopped_is_not_resumed_by_an_agent_but_by_a_person(scene):
    async with scene:
        main = await scene.main()
        child = await scene.child(main, "child")
        scene.supervisor.stop(child, "Stopped by the user.")
        await child.wait()
        refused = await scene.spawn(main, "go on", resume=child.id)
        assert isinstance(refused, Refusal)
        assert refused.code == "STOPPED_BY_USER"
        await scene.supervisor.resume(child.id, "I changed my mind", background=True)
        await scene.model("child").asked()
        scene.model("child").say("done after all")
        assert (await child.wait()).ended == "completed"


async def test_what_an_agent_or_the_end_of_the_program_stopped_may_be_resumed_by_an_agent(scene):
    async with scene:
        main = await scene.main()
        child = await scene.child(main, "child")
        scene.supervisor.stop(child, "Stopped by the agent that started it.", by="agent")
        assert (await child.wait()).stopped_by == "agent"
        again = await scene.spawn(main, "go on", resume=child.id, background=True)
        assert isinstance(again, ActiveRun)
        await scene.model("child").asked()
    assert (await child.wait()).stopped_by == "program"
    async with scene.again():
        main = await scene.supervisor.resume(main.id, "hello again")
        await scene.model("main").asked()
        again = await scene.spawn(main, "go on", resume=child.id, background=True)
        assert isinstance(again, ActiveRun)


async def test_a_user_stop_is_remembered_after_a_restart(scene):
    async with scene:
        main = await scene.main()
        child = await scene.child(main, "child")
        scene.supervisor.stop(child, "Stopped by the user.")
        await child.wait()
    async with scene.again():
        main = await scene.supervisor.resume(main.id, "hello again")
        await scene.model("main").asked()
        refused = await scene.spawn(main, "go on", resume=child.id[:8])
        assert isinstance(refused, Refusal)
        assert refused.code == "STOPPED_BY_USER"


async def test_a_spawn_that_is_cancelled_leaves_no_run_alive(scene):
    async with scene:
        main = await scene.main()
        scene.model("child").standing = "done"
        for steps in range(40):
            task = asyncio.ensure_future(scene.spawn(main, "child", background=False))
            for _ in range(steps):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait({task})
        await until(lambda: all(not child.live for child in main.children))
        rows = scene.supervisor.project.log.reader.list_runs(parent_id=main.id)
        assert {row.state for row in rows} <= {"ended"}


async def test_closing_the_supervisor_lets_nothing_start_any_more(scene):
    from retinue.errors import LaunchError

    async with scene:
        main = await scene.main()
    with pytest.raises(LaunchError, match="ending"):
        await scene.supervisor.start(main.launch.request)
