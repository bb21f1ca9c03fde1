"""J17: what ended long ago leaves memory, what is needed stays, and nothing is lost either way."""

import pytest
from tests.runs.run_scene import Scene

from retinue.core.run_state import ActiveRun
from retinue.runs.delegate import Delegate


@pytest.fixture
def scene(tmp_path, monkeypatch):
    return Scene(tmp_path, monkeypatch, max_concurrent=1)


async def ended(scene, main, task):
    child = await scene.child(main, task, name=task)
    scene.model(task).say(f"answer of {task}")
    await child.wait()
    return child


async def hear(scene):
    """The main agent has a turn."""
    scene.model("main").say("hm")
    await scene.model("main").asked()


async def test_kept_for_ten_minutes_then_forgotten_but_never_while_it_runs_or_waits(scene):
    async with scene:
        main = await scene.main()
        old = await ended(scene, main, "old")
        await scene.clock.advance(1)
        await hear(scene)
        running = await scene.child(main, "running")
        waiting = await scene.spawn(main, "waiting", background=True)
        await scene.clock.advance(590)
        assert old.id in scene.supervisor.members
        await scene.clock.advance(80)
        assert old.id not in scene.supervisor.members
        assert {main.id, running.id, waiting.id} == set(scene.supervisor.members)
        assert main.children == [running, scene.supervisor.members[waiting.id]]


async def test_what_was_forgotten_is_still_read_listed_and_resumed_with_all_its_usage(scene):
    async with scene:
        main = await scene.main()
        old = await ended(scene, main, "old")
        await scene.clock.advance(1)
        await hear(scene)
        await scene.clock.advance(700)
        spent = main.below
        way = Delegate(scene.supervisor, main.id)
        for wanted in (old.id, "old"):
            view = way.view(wanted)
            assert isinstance(view, ActiveRun)
            assert view.result == "answer of old"
        assert [view.id for view in way.children()] == [old.id]
        view = await scene.spawn(main, "go on", resume="old", background=True)
        assert isinstance(view, ActiveRun)
        await scene.model("old").asked()
        scene.model("old").say("more")
        again = scene.supervisor.members[old.id]
        outcome = await again.wait()
        assert again is not old
        assert main.below == outcome.usage
        assert outcome.usage.input > spent.input
        assert not old.steer_now("hello")
        assert not old.stop_now("late")
        assert old.recorded()[0].seq == 1


async def test_an_end_its_parent_has_not_heard_of_is_not_forgotten(scene):
    async with scene:
        main = await scene.main()
        child = await scene.child(main, "child", join="group")
        other = await scene.spawn(main, "other", background=True, join="group")
        await scene.clock.advance(0.1)
        scene.supervisor.stop(scene.supervisor.members[other.id], "x")
        await scene.supervisor.members[other.id].wait()
        await scene.clock.advance(25)
        assert {child.id, other.id} <= set(scene.supervisor.members)
        scene.model("child").say("done")
        await child.wait()
        await scene.clock.advance(1)
        await hear(scene)
        assert sorted(await scene.heard(main)) == sorted([child.id, other.id])


async def test_a_finished_parent_stays_while_anything_below_it_lives(scene):
    async with scene:
        main = await scene.main()
        child = await scene.child(main, "child")
        grandchild = await scene.child(child, "grandchild")
        scene.supervisor.stop(child, "x", by="agent")
        await child.wait()
        await scene.clock.advance(1)
        await hear(scene)
        await scene.clock.advance(700)
        assert child.id in scene.supervisor.members
        scene.model("grandchild").say("done")
        await grandchild.wait()
        await scene.clock.advance(700)
        assert child.id not in scene.supervisor.members
        assert grandchild.id not in scene.supervisor.members


async def test_when_there_is_nothing_left_to_forget_no_timer_is(scene):
    async with scene:
        main = await scene.main()
        scene.model("main").say("done")
        await main.wait()
        await scene.clock.advance(700)
        assert scene.supervisor.members == {}
        assert scene.clock.pending == 0
