"""Other processes speak to runs: the supervisor that owns them takes each command once and answers."""

import asyncio

import pytest
from tests.runs.run_scene import Scene, until

from retinue.log.commands import RunCommand, send
from retinue.log.database import connect
from retinue.runs.messages import COMMAND_POLL_SECONDS


@pytest.fixture
def scene(tmp_path, monkeypatch):
    return Scene(tmp_path, monkeypatch, max_concurrent=1)


async def told(scene, *commands, patience=20):
    """What a sender in another process would get; the fake clock makes the owner look."""
    sending = asyncio.ensure_future(send(scene.supervisor.project.state, commands, patience=patience))
    async with asyncio.timeout(30):
        while not sending.done():
            await scene.clock.advance(COMMAND_POLL_SECONDS)
            await asyncio.sleep(0.005)
    return sending.result()


async def test_messages_from_another_process_are_heard_in_order_and_once(scene):
    async with scene:
        main = await scene.main()
        answers = await told(scene, RunCommand(main.id, "steer", "one"), RunCommand(main.id[:8], "steer", "two"))
        assert [answer.accepted for answer in answers] == [True, True]
        assert "after its current tool calls" in answers[0].text
        scene.model("main").call("ls")
        await scene.model("main").asked()
        assert [text for origin, text in await scene.said(main.id) if origin == "steer"] == ["one", "two"]


async def test_a_queued_run_of_another_process_is_steered_and_stopped(scene):
    async with scene:
        main = await scene.main()
        await scene.child(main, "first")
        queued = await scene.spawn(main, "second", background=True)
        steered, stopped = await told(scene, RunCommand(queued.id, "steer", "later"), RunCommand(queued.id, "stop"))
        assert "when it starts" in steered.text
        assert stopped.accepted
        outcome = await scene.supervisor.members[queued.id].wait()
        assert (outcome.ended, outcome.stopped_by) == ("stopped", "person")
        assert scene.model("second").requests == []


async def test_one_run_or_its_tree_is_stopped(scene):
    async with scene:
        main = await scene.main()
        child = await scene.child(main, "child")
        grandchild = await scene.child(child, "grandchild")
        (answer,) = await told(scene, RunCommand(child.id, "stop-tree"))
        assert (answer.accepted, answer.text) == (True, "It is stopping, and 1 below it.")
        await child.wait()
        await grandchild.wait()
        (answer,) = await told(scene, RunCommand(child.id, "stop"))
        assert not answer.accepted
        assert "has ended (stopped)" in answer.text
        assert main.live


async def test_a_waiting_call_is_freed_and_a_conversation_shortened(scene):
    async with scene:
        main = await scene.main()
        scene.model("main").call("Agent", prompt="child", subagent_type="general-purpose", run_in_background=False)
        await scene.model("child").asked()
        (moved,) = await told(scene, RunCommand(main.children[0].id, "background"))
        assert (moved.accepted, main.children[0].state.background) == (True, True)
        await scene.model("main").asked()
        (compacted,) = await told(scene, RunCommand(main.id, "compact"))
        assert compacted.accepted
        assert main.controls.take_compact() is not None


async def test_what_just_ended_refuses_and_names_the_way_on(scene):
    async with scene:
        main = await scene.main()
        child = await scene.child(main, "child")
        connection = connect(scene.supervisor.project.state)
        connection.execute(
            "INSERT INTO commands (owner, run_id, kind, text, at) VALUES (?, ?, 'steer', 'late', 9e9)",
            (scene.supervisor.project.log.owner, child.id),
        )
        scene.model("child").say("done")
        await child.wait()
        await scene.clock.advance(COMMAND_POLL_SECONDS)

        def answered():
            return connection.execute("SELECT accepted, answer FROM commands WHERE accepted IS NOT NULL").fetchone()

        accepted, text = await until(answered)
        assert not accepted
        assert f"retinue runs resume {child.id}" in text
        connection.close()


async def test_nobody_looks_while_nothing_runs(scene):
    async with scene:
        main = await scene.main()
        assert scene.supervisor.commands._timer is not None
        scene.model("main").say("done")
        await main.wait()
        await scene.clock.advance(1)
        assert scene.supervisor.commands._timer is None
        await scene.supervisor.resume(main.id, "again")
        await scene.model("main").asked()
        (answer,) = await told(scene, RunCommand(main.id, "stop"))
        assert answer.accepted


async def test_an_idle_log_costs_the_owner_one_question_a_look(scene, monkeypatch):
    from retinue.log.query import LogReader

    asked = []
    monkeypatch.setattr(LogReader, "has_commands", lambda self, owner: asked.append(owner))
    async with scene:
        await scene.main()
        await scene.supervisor.project.log.flush()
        await scene.clock.advance(COMMAND_POLL_SECONDS)
        before = len(asked)
        await scene.clock.advance(100 * COMMAND_POLL_SECONDS)
        assert len(asked) == before


async def test_runs_beside_one_that_no_worker_has_taken_are_stopped_as_well(scene):
    async with scene:
        main = await scene.main()
        child = await scene.child(main, "child")
        scene.supervisor.stop(child, "Stopped.")
        await child.wait()
        with connect(scene.supervisor.project.state) as connection:
            # As a run stands that was offered to workers.
            connection.execute("UPDATE runs SET state='queued', owner=NULL, ended=NULL WHERE id=?", (child.id,))
        offered, stopped = await told(scene, RunCommand(child.id, "stop"), RunCommand(main.id, "stop"))
        assert "no worker had taken it" in offered.text
        assert (stopped.run_id, stopped.text) == (main.id, "It is stopping.")
        await main.wait()
