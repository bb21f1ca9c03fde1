"""J16: what a run no longer wants to hear of. U04: what agents of agents are hidden from."""

import pytest
from tests.runs.run_scene import Scene

from retinue.runs.delegate import Delegate


@pytest.fixture
def scene(tmp_path, monkeypatch):
    return Scene(tmp_path, monkeypatch, max_concurrent=4)


async def ended(scene, main, task, how):
    child = await scene.child(main, task)
    match how:
        case "completed":
            scene.model(task).say("fine")
        case "error":
            scene.model(task).fail()
        case "stopped":
            scene.supervisor.stop(child, "Enough.", by="agent")
    outcome = await child.wait()
    assert outcome.ended == how
    return child


async def test_clearing_takes_what_ended_well_and_with_a_word_what_did_not_but_nothing_that_works(scene):
    async with scene:
        main = await scene.main()
        way = Delegate(scene.supervisor, main.id)
        children = {how: await ended(scene, main, how, how) for how in ("completed", "error", "stopped")}
        running = await scene.child(main, "running")
        await scene.clock.advance(400)
        listed = {view.id for view in way.children() if view.succeeded}
        assert set(way.clear((), 5, False)) == listed == {children["completed"].id}
        assert set(way.clear((), 5, True)) == {children["error"].id, children["stopped"].id}
        assert [view.id for view in way.children()] == [running.id]
        assert way.clear((running.id,), 0, True) == ()


async def test_young_ones_stay_unless_they_are_named(scene):
    async with scene:
        main = await scene.main()
        way = Delegate(scene.supervisor, main.id)
        child = await ended(scene, main, "young", "completed")
        assert way.clear((), 5, True) == ()
        assert way.conversation(child.id)
        assert way.clear((child.id,), 5, False) == (child.id,)
        assert way.children() == ()
        assert not way.conversation(child.id)


async def test_agents_of_agents_are_hidden_from_the_main_agents_tools_and_events_but_for_their_completion(
    scene,
):
    async with scene:
        steered = []
        scene.supervisor.bridge.bus.on("subagents:steered", lambda data: steered.append(data["id"]))
        main = await scene.main()
        child = await scene.child(main, "child")
        deep = await scene.child(child, "deep")
        way = Delegate(scene.supervisor, main.id)
        assert [view.id for view in way.children()] == [child.id]
        assert way.view(deep.id).code == "AGENT_NOT_FOUND"
        assert way.steer(deep.id, "hello").code == "AGENT_NOT_FOUND"
        assert way.steer(deep.id, "Stop.").code == "AGENT_NOT_FOUND"
        assert Delegate(scene.supervisor, child.id).view(deep.id).id == deep.id
        for node in (deep, child):
            assert scene.supervisor.steer(node, "hello")
        assert steered == [child.id]
