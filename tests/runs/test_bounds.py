"""What the file of a run above forbids holds for a run whose parent is gone, too."""

from __future__ import annotations

import pytest
from tests.runs.run_scene import Scene, until

from retinue.core.events import ToolEnded
from retinue.core.spec import AgentSpec, ToolPolicy
from retinue.runs.guard import RunGuards, bounds_from_record, bounds_to_record

LIMITED = AgentSpec(name="main", prompt="x", tools=ToolPolicy(allow=("Bash(git *)", "Read", "Agent")))


@pytest.fixture
def scene(tmp_path, monkeypatch):
    return Scene(tmp_path, monkeypatch, max_concurrent=1)


async def refused(scene, node, task):
    """Whether a command outside of the bounds is denied."""
    scene.model(task).call("bash", command="touch made.txt")
    await scene.model(task).asked()
    await scene.supervisor.project.log.flush()
    events = scene.supervisor.project.log.reader.events(node.id)
    last = [event.body for event in events if isinstance(event.body, ToolEnded)][-1]
    assert not (scene.folder / "project" / "made.txt").exists()
    return "allows only bash(git *)" in last.result.text


async def test_a_child_that_is_resumed_without_its_parent_keeps_the_bounds_of_its_parent(scene):
    async with scene:
        main = await scene.main(spec=LIMITED)
        child = await scene.child(main, "child")
        assert await refused(scene, child, "child")
        nested = await scene.child(child, "nested")
        scene.supervisor.stop_tree(main, "Enough.")
        await scene.supervisor.wait_all()
    scene.again()
    async with scene:
        for run, task in ((child, "child"), (nested, "nested")):
            again = await scene.supervisor.resume(run.id, "Go on.")
            await scene.model(task).asked()
            assert again.parent is None or again.parent.id == child.id
            assert await refused(scene, again, task)
            scene.model(task).say("done")
            await again.wait()


async def test_a_child_that_starts_after_its_parent_has_ended_keeps_them(scene):
    async with scene:
        main = await scene.main(spec=LIMITED)
        await scene.child(main, "first")
        view = await scene.spawn(main, "second", background=True)
        second = scene.supervisor.members[view.id]
        scene.supervisor.stop(main, "Enough.")
        await main.wait()
        scene.model("first").say("done")
        await scene.model("second").asked()
        await until(lambda: main.id not in scene.supervisor.project.part(RunGuards))
        assert await refused(scene, second, "second")


@pytest.mark.parametrize("data", [None, {}, "x", [1], [{"allowed": 3}], [{"allowed": {"bash": "x"}}]])
def test_what_is_no_record_bounds_nothing_and_breaks_nothing(data):
    assert bounds_from_record(bounds_to_record(bounds_from_record(data))) == bounds_from_record(data)
