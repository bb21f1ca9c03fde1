"""What a read-only agent's shell tries, and what it must leave as it was: on the real kernel."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from tests.guard.sandbox.attempts import ALL, Attempt
from tests.guard.sandbox.conftest import readonly
from tests.guard.sandbox.scene import Scene

from retinue.guard.sandbox.box import Box


@pytest.fixture(scope="module")
def box(shared: Scene, walls: str) -> Iterator[Box]:
    made = readonly(shared, walls)
    yield made
    made.close()


def test_there_are_enough_attempts():
    assert len({attempt.name for attempt in ALL}) == len(ALL) >= 60


@pytest.mark.parametrize("attempt", ALL, ids=lambda attempt: attempt.name)
async def test_a_read_only_shell_cannot(attempt: Attempt, shared: Scene, box: Box):
    before, heard = shared.traces(), len(shared.heard)
    output = await shared.shell(attempt.script, box)
    await asyncio.sleep(0)
    assert shared.traces() == before, output.text
    assert shared.heard[heard:] == [], output.text
    assert f"OUT-{shared.out}" not in output.text


@pytest.mark.slow
@pytest.mark.parametrize("attempt", [each for each in ALL if each.tame], ids=lambda attempt: attempt.name)
async def test_without_walls_the_attempt_would_work(attempt: Attempt, scene: Scene):
    """The control: an attempt that changes nothing anyway would prove nothing."""
    before = scene.traces()
    output = await scene.shell(attempt.script, None)
    for _ in range(200):
        if scene.traces() != before or scene.heard or f"OUT-{scene.out}" in output.text:
            return
        await asyncio.sleep(0.01)
    missing = "not found" in output.text or "No module named" in output.text
    if missing:
        pytest.skip(output.text.splitlines()[0])
    pytest.fail(f"it has no effect even without a sandbox: {output.text}")
