# ruff: noqa: E501 - scripts read better on one line
"""The scratch folder of a run is bounded as a whole (S14)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from msgspec.structs import replace
from tests.guard.sandbox.conftest import readonly
from tests.guard.sandbox.scene import Scene

from retinue.guard.sandbox.box import Box
from retinue.guard.sandbox.inside.bounds import used_bytes
from retinue.guard.sandbox.policy import SandboxLimits

MEGABYTE = 1024**2


@pytest.fixture
def box(scene: Scene, walls: str) -> Iterator[Box]:
    limits = SandboxLimits(scratch_bytes=20 * MEGABYTE)
    policy = readonly(scene, walls).policy
    made = Box(replace(policy, limits=limits, reach="system", shown=(scene.workspace,)), "run")
    yield made
    made.close()


FILLING = {
    "one-file": "head -c 900M /dev/zero > $TMPDIR/big; sleep 30; echo went on",
    "many-files": "for i in $(seq 300); do head -c 3M /dev/zero > $TMPDIR/$i; done; sleep 30; echo went on",
    "a-closed-folder": "mkdir $TMPDIR/d; for i in $(seq 300); do head -c 3M /dev/zero > $TMPDIR/d/$i; done; chmod 0 $TMPDIR/d; sleep 30; echo went on",
}


@pytest.mark.parametrize("name", FILLING)
async def test_a_command_that_writes_too_much_is_stopped_and_told_why(name: str, scene: Scene, box: Box, walls: str):
    if walls == "never" and name == "a-closed-folder":
        pytest.skip("modes cannot be changed without namespaces")
    output = await scene.shell(FILLING[name], box)
    assert output.effect.exit_code == 137
    assert "holds more than 20 MB, which is what sandbox.scratchMb allows" in output.text
    assert "went on" not in output.text


async def test_later_commands_can_only_make_room(scene: Scene, box: Box):
    for part in range(3):
        await scene.shell(f"head -c 10M /dev/zero > $TMPDIR/{part}; true", box)
    full = await scene.shell("echo x > $TMPDIR/more; cat $TMPDIR/more; cat a.txt", box)
    assert "File too large" in full.text
    assert "alpha" in full.text
    assert "nothing can be written" in full.text
    assert "sandbox.scratchMb" in full.text
    assert "\nx" not in full.text
    await scene.shell("rm $TMPDIR/0 $TMPDIR/1", box)
    after = await scene.shell("echo written > $TMPDIR/more; cat $TMPDIR/more", box)
    assert after.text == "written"


async def test_empty_files_count_too(scene: Scene, box: Box):
    await scene.shell("cd $TMPDIR && seq 5000 | xargs touch", box)
    assert used_bytes(str(box.scratch), 10**12) >= 5000 * 512


async def test_without_a_limit_nothing_is_counted(scene: Scene, walls: str):
    box = readonly(scene, walls)
    output = await scene.shell("head -c 30M /dev/zero > $TMPDIR/x; sleep 0.6; echo done", box)
    box.close()
    assert output.text == "done"


async def test_shared_memory_is_bounded_too(scene: Scene, box: Box, walls: str):
    if walls == "never":
        pytest.skip("it cannot be had without namespaces")
    output = await scene.shell(
        "head -c 15M /dev/zero > /dev/shm/a && head -c 15M /dev/zero > /dev/shm/b; du -sm /dev/shm", box
    )
    assert "No space left on device" in output.text
    assert "20\t/dev/shm" in output.text
