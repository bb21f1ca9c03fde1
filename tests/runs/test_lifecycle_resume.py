"""Resume: by id or name, in memory and after a restart, as the run that it was."""

import asyncio
import json
from pathlib import Path

import pytest
from tests.runs.run_scene import SPENT, Scene, until

from retinue.core.delegation import Refusal
from retinue.core.events import RunCreated, RunResumed, RunStarted
from retinue.core.run_state import ActiveRun
from retinue.core.usage import Usage
from retinue.errors import StateError
from retinue.runs.delegate import Delegate


@pytest.fixture
def scene(tmp_path, monkeypatch):
    return Scene(tmp_path, monkeypatch)


def define(scene, name, **fields):
    folder = scene.folder / "project" / ".retinue" / "agents"
    folder.mkdir(parents=True, exist_ok=True)
    lines = "\n".join(f"{key}: {json.dumps(value)}" for key, value in fields.items())
    (folder / f"{name}.md").write_text(f"---\nname: {name}\ndescription: d\n{lines}\n---\nYou are {name}.\n")


def launch_facts(node):
    launch = node.launch
    request = launch.request
    return {
        "prompt": request.spec.prompt,
        "hash": request.spec.hash,
        "tools": sorted(tool.spec.name for tool in launch.tools),
        "model": launch.model_name,
        "depth": request.depth,
        "cwd": request.cwd,
        "mode": request.permission_mode,
        "limits": launch.limits,
        "thinking": launch.thinking,
        "transcript": launch.transcript,
        "system": launch.system,
    }


async def test_an_ended_run_goes_on_in_memory_with_its_history_and_its_counts(scene):
    async with scene:
        main = await scene.main()
        child = await scene.child(main, "child", name="worker")
        scene.model("child").call("ls")
        await scene.model("child").asked()
        scene.model("child").say("first answer")
        await child.wait()
        before = launch_facts(child)
        view = await scene.spawn(main, "and now?", resume="worker", background=True)
        assert isinstance(view, ActiveRun)
        request = await scene.model("child").asked()
        assert [m.text for m in request.messages if m.type != "tool"] == ["child", "", "first answer", "and now?"]
        assert scene.supervisor.members[view.id] is child
        assert launch_facts(child) == before
        scene.model("child").say("second answer")
        outcome = await child.wait()
        assert (outcome.text, outcome.turns, outcome.tool_uses) == ("second answer", 3, 1)
        assert child.state.usage == outcome.usage == SPENT + SPENT + SPENT
        assert main.below == child.state.usage


@pytest.mark.parametrize("by", ["id", "beginning", "name"])
async def test_after_a_restart_a_child_is_the_same_agent_even_if_its_file_has_changed(scene, by):
    define(scene, "careful", tools=["read", "ls"], max_turns=7, thinking="low", permission_mode="plan")
    async with scene:
        main = await scene.main(model="anthropic/claude-opus-4-1", permission_mode="plan")
        child = await scene.child(main, "child", agent="careful", name="worker", description="careful work")
        scene.model("child").say("first answer")
        await child.wait()
        before = launch_facts(child)
        assert before["model"] == "anthropic/claude-opus-4-1", "a child inherits the model of its parent"
    define(scene, "careful", tools=["read", "bash", "write"], max_turns=99)
    (scene.folder / "project" / ".retinue" / "agents" / "careful.md").unlink()
    async with scene.again():
        main = await scene.supervisor.resume(main.id, "hello again")
        await scene.model("main").asked()
        wanted = {"id": child.id, "beginning": child.id[:8], "name": "worker"}[by]
        view = await scene.spawn(main, "and now?", resume=wanted, background=True)
        assert isinstance(view, ActiveRun), view
        assert (view.id, view.name, view.description, view.depth) == (child.id, "worker", "careful work", 1)
        request = await scene.model("child").asked()
        assert request.messages[-1].text == "and now?"
        again = scene.supervisor.members[child.id]
        assert launch_facts(again) == before
        assert again.place == child.place
        assert Path(before["transcript"]).is_file()


async def test_a_resume_by_a_person_gives_a_child_no_tool_that_it_did_not_have(scene):
    define(scene, "narrow", tools=["ls", "Agent"])
    define(scene, "wide")
    async with scene:
        main = await scene.main()
        narrow = await scene.child(main, "narrow", agent="narrow")
        wide = await scene.child(narrow, "wide", agent="wide")
        tools = launch_facts(wide)["tools"]
        assert "write" not in tools
    async with scene.again():
        alone = await scene.supervisor.resume(wide.id, "go on")
        await scene.model("wide").asked()
        assert launch_facts(alone)["tools"] == tools


async def test_limits_of_the_file_still_win_over_what_the_call_had_asked_for(scene):
    define(scene, "short", max_turns=3)
    async with scene:
        main = await scene.main()
        child = await scene.child(main, "child", agent="short", max_turns=50)
        assert child.launch.limits.max_turns == 3
        scene.model("child").say("done")
        await child.wait()
        await scene.spawn(main, "go on", resume=child.id, background=True)
        await scene.model("child").asked()
        assert child.launch.limits.max_turns == 3


async def test_a_live_run_is_not_resumed_here_or_by_another_supervisor(scene):
    async with scene:
        main = await scene.main()
        child = await scene.child(main, "child")
        refused = await scene.spawn(main, "go on", resume=child.id)
        assert isinstance(refused, Refusal)
        assert refused.code == "STILL_RUNNING"
        with pytest.raises(StateError, match="already running in this process"):
            await scene.supervisor.resume(child.id, "go on")
        first = scene.supervisor
        async with scene.again():
            with pytest.raises(StateError, match="is being run by process"):
                await scene.supervisor.resume(child.id, "go on")
        scene.supervisor = first
        assert child.live


async def test_of_two_supervisors_that_resume_one_run_only_one_gets_it(scene):
    async with scene:
        main = await scene.main()
        scene.model("main").say("done")
        await main.wait()
        first = scene.supervisor
        async with scene.again():
            both = await asyncio.gather(
                first.resume(main.id, "a"), scene.supervisor.resume(main.id, "b"), return_exceptions=True
            )
            assert sorted(isinstance(each, StateError) for each in both) == [False, True]
        scene.supervisor = first


async def test_a_run_that_is_just_ending_is_resumed_when_it_has_ended(scene):
    async with scene:
        main = await scene.main()
        scene.model("main").say("done")
        await until(lambda: main.controls.ended)
        again = await scene.supervisor.resume(main.id, "one more")
        await scene.model("main").asked()
        assert again is main
        assert (main.live, main.attempt) == (True, 2)


async def test_a_run_that_was_cut_off_in_the_queue_starts_when_it_is_resumed(tmp_path, monkeypatch):
    scene = Scene(tmp_path, monkeypatch, max_concurrent=1)
    main = await scene.main()
    await scene.child(main, "first")
    queued = await scene.spawn(main, "second", background=True)
    # A process that dies: its tasks vanish, and the log is closed without an ending.
    for task in list(scene.supervisor._tasks.values()):
        task.cancel()
    await until(lambda: not scene.supervisor._tasks)
    await scene.supervisor.project.close()
    async with scene.again():
        again = await scene.supervisor.resume(queued.id)
        request = await scene.model("second").asked()
        assert request.messages[0].text == "second"
        scene.model("second").say("done")
        assert (await again.wait()).ended == "completed"
        kinds = [type(event.body) for event in scene.supervisor.project.log.reader.events(queued.id)]
        assert kinds[:3] == [RunCreated, RunResumed, RunStarted]
        row = scene.supervisor.project.log.reader.run(queued.id)
        assert row.transcript
        assert Path(row.transcript).is_file()


async def test_a_cancelled_resume_leaves_the_run_as_it_was(scene):
    async with scene:
        main = await scene.main()
        child = await scene.child(main, "child")
        scene.model("child").say("done")
        await child.wait()
        for steps in (*range(60), None):
            attempt = child.attempt
            task = asyncio.ensure_future(scene.supervisor.resume(child.id, "go on", background=True))
            for _ in range(steps or 0):  # it waits for the log's thread, too
                await asyncio.sleep(0.00005)
            if steps is None:
                await task
            task.cancel()
            await asyncio.wait({task})
            if child.attempt > attempt:
                await scene.model("child").asked()
                scene.model("child").say("done again")
                await child.wait()
            row = scene.supervisor.project.log.reader.run(child.id)
            assert (row.state, row.ended) == ("ended", "completed")
        assert child.attempt > 1


async def test_usage_of_children_is_in_every_ancestor_and_stays_after_a_restart(scene):
    async with scene:
        main = await scene.main()
        child = await scene.child(main, "child")
        grandchild = await scene.child(child, "grandchild")
        scene.model("grandchild").say("done", Usage(100, 50, 0, 0, 0.5))
        await grandchild.wait()
        assert child.below == main.below == Usage(100, 50, 0, 0, 0.5)
        scene.model("child").standing = "done"
        scene.model("child").say("done")
        await scene.clock.advance(1)
        outcome = await child.wait()
        assert outcome.tree_usage == outcome.usage + Usage(100, 50, 0, 0, 0.5)
        spent = main.below
        assert spent == outcome.tree_usage
    async with scene.again():
        main = await scene.supervisor.resume(main.id, "hello again")
        await scene.model("main").asked()
        assert main.below == spent
        await scene.spawn(main, "go on", resume=child.id, background=True)
        again = scene.supervisor.members[child.id]
        outcome = await again.wait()
        assert main.below == outcome.tree_usage
        assert outcome.usage.input > child.state.usage.input


async def test_an_unpriced_child_makes_the_cost_of_its_ancestors_unknown_but_not_their_tokens(scene):
    async with scene:
        main = await scene.main()
        child = await scene.child(main, "child")
        scene.model("child").say("done", Usage(100, 50, 0, 0, None))
        await child.wait()
        assert main.below == Usage(100, 50, 0, 0, None)


async def test_children_of_an_earlier_process_can_be_read_and_listed(scene):
    async with scene:
        main = await scene.main()
        child = await scene.child(main, "child", name="worker", description="some work")
        scene.model("child").say("the whole answer")
        await child.wait()
    async with scene.again():
        main = await scene.supervisor.resume(main.id, "hello again")
        await scene.model("main").asked()
        await scene.supervisor.project.log.flush()
        way = Delegate(scene.supervisor, main.id)
        (listed,) = way.children()
        assert listed.consumed, "it was told of this end when it was resumed"
        for view in (listed, way.view(child.id), way.view("worker"), way.view(child.id[:6])):
            assert isinstance(view, ActiveRun)
            assert (view.id, view.result, view.status) == (child.id, "the whole answer", "completed")
            assert (view.name, view.description) == ("worker", "some work")
        assert (await way.wait(child.id, 5)).end == "completed"
        assert way.transcript_lines(child.id) == ["the whole answer"]
        assert "[Assistant]: the whole answer" in way.conversation("worker")
        assert way.steer(child.id, "x").code == "NOT_RUNNING"
        assert way.clear((child.id,), 0, True) == (child.id,)
        assert way.view(child.id).code == "AGENT_NOT_FOUND"
        assert way.children() == ()
