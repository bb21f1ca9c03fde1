"""A background run that waits for a person lends its slot, and goes on when it has one again."""

from __future__ import annotations

import asyncio

import pytest
from tests.runs.run_scene import Scene, until

from retinue.core.permission import InboxAnswer
from retinue.runs.queue import RunQueue


@pytest.fixture
def scene(tmp_path, monkeypatch):
    return Scene(
        tmp_path, monkeypatch, max_concurrent=1, permissions_default_mode="default", permissions_headless="wait"
    )


async def asking(scene, main, task, path):
    """A background child that waits for a person's leave to write."""
    child = await scene.child(main, task)
    scene.model(task).call("write", path=path, content="x")
    await until(lambda: child.status == "waiting" and waiting(scene, child))
    return child


def waiting(scene, child):
    found = scene.supervisor.project.log.reader.select(
        "SELECT id FROM inbox WHERE run_id=? AND state='waiting'", (child.id,)
    )
    return found[0][0] if found else None


async def allow(scene, child):
    from retinue.log.inbox import find

    item = find(scene.supervisor.project.log.reader, waiting(scene, child))
    await scene.supervisor.project.inbox_service.answer(item, InboxAnswer("allow", by="test"))


async def test_who_waits_for_a_person_keeps_nobody_from_starting(scene):
    async with scene:
        main = await scene.main()
        first = await asking(scene, main, "first", "a.txt")
        assert scene.supervisor.queue.running == 0
        second = await asking(scene, main, "second", "b.txt")
        third = await scene.child(main, "third")
        assert scene.supervisor.queue.running == 1
        await allow(scene, second)
        await until(lambda: scene.supervisor.queue.position(second.id) == 1)
        await allow(scene, first)
        await until(lambda: scene.supervisor.queue.position(first.id) == 2)
        assert not (scene.folder / "project" / "a.txt").exists()
        assert not (scene.folder / "project" / "b.txt").exists()
        scene.model("third").say("done")
        await third.wait()
        await scene.model("second").asked()
        assert (scene.folder / "project" / "b.txt").exists()
        assert not (scene.folder / "project" / "a.txt").exists()
        assert (second.status, first.status) == ("running", "waiting")
        scene.model("second").say("done")
        await scene.model("first").asked()
        scene.model("first").say("done")
        assert (await first.wait()).ended == "completed"
        assert (scene.supervisor.queue.running, scene.supervisor.queue.waiting) == (0, ())


async def test_one_that_is_stopped_while_it_waits_for_its_slot_leaves_the_line(scene):
    async with scene:
        main = await scene.main()
        first = await asking(scene, main, "first", "a.txt")
        await scene.child(main, "second")
        await allow(scene, first)
        await until(lambda: scene.supervisor.queue.position(first.id) == 1)
        scene.supervisor.stop(first, "Enough.")
        assert (await first.wait()).ended == "stopped"
        await until(lambda: not scene.supervisor.queue.waiting)
        assert scene.supervisor.queue.running == 1
        assert not (scene.folder / "project" / "a.txt").exists()


async def test_several_calls_of_one_run_share_its_slot():
    queue = RunQueue(1)
    await queue.join("a")
    queue.pause("a")
    queue.pause("a")
    await queue.join("b")
    calls = [asyncio.create_task(queue.resume("a")) for _ in range(3)]
    await asyncio.sleep(0)
    assert queue.waiting == ("a",)
    calls[0].cancel()
    queue.leave("b")
    await asyncio.gather(*calls[1:])
    assert (queue.running, queue.waiting) == (1, ())
    queue.leave("a")
    assert queue.running == 0
