"""Consent to very many agents, asked through the inbox where someone can answer."""

from __future__ import annotations

import asyncio

import pytest
from tests.runs.run_scene import Scene

from retinue.core.delegation import Refusal, SpawnCall
from retinue.core.permission import InboxAnswer
from retinue.core.run_state import ActiveRun
from retinue.runs.delegate import Delegate
from retinue.runs.run import Run


async def started(scene: Scene, main: Run, count: int) -> list[ActiveRun | Refusal]:
    """What becomes of agents that one run starts, one after the other."""
    delegate, found = Delegate(scene.supervisor, main.id), []
    for number in range(count):
        call = SpawnCall(prompt=f"task {number}", agent="general-purpose", background=True)
        spawning = asyncio.create_task(delegate.spawn(call))
        async with asyncio.timeout(20):
            while not spawning.done():
                await scene.clock.advance(0.05)
                await asyncio.sleep(0.001)
        found.append(spawning.result())
    return found


@pytest.mark.parametrize("choice", ["allow", "deny"])
async def test_a_quote_is_an_item_and_its_answer_decides(tmp_path, monkeypatch, choice):
    async with Scene(tmp_path, monkeypatch, quote_above=1, max_concurrent=20) as scene:
        asked = []

        async def approver(item):
            asked.append(item)
            return InboxAnswer(choice, by="test")

        scene.supervisor.project.approvers.append(approver)
        main = await scene.main()
        found = (await started(scene, main, 2))[-1]
        assert isinstance(found, ActiveRun if choice == "allow" else Refusal)
        item = asked[0]
        assert (item.kind, item.agent, item.options) == ("quote", "main", ("allow", "deny"))
        assert item.title == "start 1 more agent" and "general-purpose" in item.detail
        assert not main.controls.is_waiting
        if isinstance(found, Refusal):
            assert "a person declined" in found.message


async def test_where_nobody_can_answer_the_policy_decides(tmp_path, monkeypatch):
    async with Scene(tmp_path, monkeypatch, quote_above=1) as scene:
        main = await scene.main()
        found = (await started(scene, main, 2))[-1]
        assert isinstance(found, Refusal) and "who is not there" in found.message


@pytest.mark.parametrize(("settings", "asks"), [({}, True), ({"quote_above": 1_000}, False)])
async def test_a_person_who_is_there_is_asked_before_many_agents_unless_they_set_a_number(
    tmp_path, monkeypatch, settings, asks
):
    async with Scene(tmp_path, monkeypatch, max_concurrent=50, **settings) as scene:
        asked = []

        async def approver(item):
            asked.append(item)
            return InboxAnswer("deny", by="test")

        scene.supervisor.project.approvers.append(approver)
        main = await scene.main()
        found = await started(scene, main, 33)
        assert all(isinstance(each, ActiveRun) for each in found[:32])
        assert isinstance(found[32], Refusal) is asks
        assert len(asked) == asks


async def test_without_a_person_a_hundred_agents_start_unasked(tmp_path, monkeypatch):
    async with Scene(tmp_path, monkeypatch, max_concurrent=120) as scene:
        main = await scene.main()
        assert all(isinstance(each, ActiveRun) for each in await started(scene, main, 100))
