"""The line of background runs as parents and people see it."""

import shutil

import pytest
from tests.runs.run_scene import Scene, until

from retinue.core.run_state import ActiveRun
from retinue.runs.delegate import Delegate


@pytest.fixture
def scene(tmp_path, monkeypatch):
    return Scene(tmp_path, monkeypatch, max_concurrent=1)


async def test_the_next_in_line_starts_when_one_ends_and_foreground_and_nested_runs_pass_by(scene):
    async with scene:
        main = await scene.main()
        first = await scene.child(main, "first")
        second = await scene.spawn(main, "second", background=True)
        third = await scene.spawn(main, "third", background=True)
        assert [view.queue_position for view in Delegate(scene.supervisor, main.id).children()] == [2, 1, None]
        nested = await scene.child(first, "nested")
        scene.model("main").call("Agent", prompt="now", subagent_type="general-purpose", run_in_background=False)
        await scene.model("now").asked()
        assert scene.supervisor.queue.running == 1
        scene.model("nested").say("done")
        await nested.wait()
        scene.supervisor.stop(first, "x")
        await scene.model("second").asked()
        assert [scene.supervisor.members[each.id].status for each in (second, third)] == ["running", "queued"]


async def test_a_run_that_is_moved_to_the_background_takes_a_slot_at_once_and_returns_it_at_its_end(scene):
    async with scene:
        main = await scene.main()
        scene.model("main").call("Agent", prompt="slow", subagent_type="general-purpose", run_in_background=False)
        await scene.model("slow").asked()
        moved = next(each for each in scene.supervisor.members.values() if each.parent is main)
        assert scene.supervisor.detach(moved)
        assert scene.supervisor.queue.running == 1
        second = await scene.spawn(main, "second", background=True)
        assert scene.supervisor.members[second.id].status == "queued"
        scene.model("slow").say("done")
        await scene.model("second").asked()
        assert scene.supervisor.queue.running == 1


async def test_a_run_that_is_moved_beside_full_slots_goes_on_and_the_line_waits_for_both(scene):
    async with scene:
        main = await scene.main()
        first = await scene.child(main, "first")
        waiting = await scene.spawn(main, "waiting", background=True)
        scene.model("main").call("Agent", prompt="slow", subagent_type="general-purpose", run_in_background=False)
        await scene.model("slow").asked()
        (moved,) = (run for run in main.children if not run.state.background)
        assert scene.supervisor.detach(moved)
        assert (moved.status, scene.supervisor.queue.running) == ("running", 2)
        scene.model("first").say("done")
        await first.wait()
        assert scene.supervisor.members[waiting.id].status == "queued", "the moved one has the only slot"
        scene.model("slow").say("done")
        await scene.model("waiting").asked()


async def test_one_that_cannot_start_any_more_is_an_error_and_the_line_goes_on(scene):
    other = scene.folder / "other"
    other.mkdir()
    async with scene:
        main = await scene.main(cwd=other)
        main.launch.request.cwd.rmdir()
        assert isinstance(await scene.spawn(main, "gone", background=True), ActiveRun) is False
        other.mkdir()
        await scene.child(main, "first")
        second = await scene.spawn(main, "second", background=True)
        shutil.rmtree(other)
        scene.model("first").say("done")
        outcome = await scene.supervisor.members[second.id].wait()
        assert (outcome.ended, "does not exist any more" in outcome.failure.message) == ("error", True)
        other.mkdir()
        third = await scene.spawn(main, "third", background=True)
        await scene.model("third").asked()
        assert scene.supervisor.members[third.id].status == "running"
        await scene.clock.advance(1)
        scene.model("main").say("hm")
        await scene.model("main").asked()
        assert second.id in await scene.heard(main)


async def test_children_are_listed_newest_first_and_waiting_for_all_includes_the_queued(scene):
    async with scene:
        await scene.supervisor.wait_all()
        main = await scene.main()
        ids = [(await scene.child(main, "first")).id]
        ids += [(await scene.spawn(main, f"task {n}", background=True)).id for n in range(3)]
        assert [view.id for view in Delegate(scene.supervisor, main.id).children()] == ids[::-1]
        for task in ("first", "task 0", "task 1", "task 2"):
            scene.model(task).standing = "done"
        scene.model("first").fail()
        scene.supervisor.stop(main, "x")
        await scene.supervisor.wait_all()
        assert not scene.supervisor.busy
        assert [scene.supervisor.members[each].status for each in ids] == ["error", *["completed"] * 3]


async def test_a_background_resume_waits_for_a_slot_and_stopped_there_never_starts(scene):
    async with scene:
        main = await scene.main()
        child = await scene.child(main, "child")
        scene.model("child").say("first answer")
        await child.wait()
        await scene.child(main, "busy")
        asked = len(scene.model("child").requests)
        view = await scene.spawn(main, "go on", resume=child.id, background=True)
        assert (view.status, view.queue_position) == ("queued", 1)
        scene.supervisor.stop(child, "Stopped by the agent that started it.", by="agent")
        assert (await child.wait()).ended == "stopped"
        assert len(scene.model("child").requests) == asked
        await scene.spawn(main, "go on", resume=child.id, background=True)
        scene.model("busy").say("done")
        assert (await scene.model("child").asked()).messages[-1].text == "go on"


async def test_a_foreground_resume_gives_its_answer_to_the_call_and_no_announcement(scene):
    async with scene:
        main = await scene.main()
        child = await scene.child(main, "child")
        scene.model("child").say("first answer")
        await child.wait()
        scene.model("main").call("Agent", prompt="go on", resume=child.id, run_in_background=False)
        await scene.model("child").asked()
        scene.model("child").say("second answer")
        request = await scene.model("main").asked()
        assert "second answer" in request.messages[-1].results[0].text
        await scene.clock.advance(60)
        scene.model("main").say("done")
        await main.wait()
        assert await scene.heard(main) == []


async def test_what_a_person_resumes_is_announced_to_its_parent(scene):
    async with scene:
        main = await scene.main()
        child = await scene.child(main, "child")
        scene.model("child").say("first answer")
        await child.wait()
        await scene.clock.advance(1)
        await scene.supervisor.resume(child.id, "for me")
        await scene.model("child").asked()
        scene.model("child").say("answer for you")
        await child.wait()
        await until(lambda: not child.live)
        await scene.clock.advance(1)
        scene.model("main").say("hm")
        await scene.model("main").asked()
        assert await scene.heard(main) == [child.id, child.id]
