"""A log that cannot be written leaves no run that neither works nor ends."""

from __future__ import annotations

import asyncio

import pytest
from tests.log.faulty_disk import FaultyDisk
from tests.runs.run_scene import Scene, until

from retinue.errors import StateError
from retinue.log import writer


@pytest.fixture
def disk(monkeypatch) -> FaultyDisk:
    monkeypatch.setattr(writer, "MAX_DISK_OUTAGE_SECONDS", 0.3)
    return FaultyDisk(monkeypatch)


@pytest.fixture
def scene(tmp_path, monkeypatch) -> Scene:
    return Scene(tmp_path, monkeypatch)


def state(scene: Scene, run_id: str) -> str:
    return scene.supervisor.project.log.reader.run(run_id).state


async def test_a_disk_that_is_full_for_a_moment_interrupts_nothing(scene, disk):
    async with scene, asyncio.timeout(20):
        main = await scene.main()
        with disk.filled():
            scene.model("main").call("write", path="a.txt", content="a")
            tried = disk.writes
            await until(lambda: disk.writes > tried)
        await scene.model("main").asked()
        scene.model("main").say("done")
        assert (await main.wait()).text == "done"


async def test_a_full_disk_interrupts_a_run_which_can_be_resumed_when_there_is_space(scene, disk):
    async with scene, asyncio.timeout(20):
        main = await scene.main()
        events = asyncio.ensure_future(collect(main))
        broken = []
        scene.supervisor.broken_off = lambda run_id, failure: broken.append((run_id, failure))
        with disk.filled():
            scene.model("main").call("write", path="a.txt", content="a")
            with pytest.raises(StateError, match="disk is full"):
                await main.wait()
            with pytest.raises(StateError, match="disk is full"):
                await events
            await until(lambda: broken)
            assert broken == [(main.id, main.failure)]
            assert not scene.supervisor.stop(main, "stop it")
            with pytest.raises(StateError, match="disk is full"):
                await scene.supervisor.resume(main.id, "go on")
        await until(lambda: state(scene, main.id) == "interrupted")
        again = await scene.supervisor.resume(main.id, "go on")
        await scene.model("main").asked()
        scene.model("main").say("done")
        assert (await again.wait()).text == "done"


async def collect(handle):
    return [event async for event in handle.events(tree=True)]


async def test_a_run_that_is_stopped_while_the_disk_is_full_ends_when_there_is_space(scene, disk):
    async with scene, asyncio.timeout(20):
        main = await scene.main()
        with disk.filled():
            assert scene.supervisor.stop(main, "stop it")
            await main.wait_settled()
        await until(lambda: state(scene, main.id) == "ended")
        assert scene.supervisor.project.log.reader.run(main.id).ended == "stopped"


async def test_a_full_disk_takes_no_memory(scene, disk):
    async with scene, asyncio.timeout(20):
        main = await scene.main()
        log = scene.supervisor.project.log
        with disk.filled():
            scene.model("main").call("write", path="a.txt", content="a")
            await main.wait_settled()
            for _ in range(200):
                with pytest.raises(StateError):
                    await log.flush()
            assert len(log._writer._backlog) < 10
