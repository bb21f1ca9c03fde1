# ruff: noqa: E501 - scripts read better on one line
"""Nothing that a confined program can change decides what the next one is given."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.guard.sandbox.conftest import readonly
from tests.guard.sandbox.scene import Scene

from retinue.guard.sandbox import plan
from retinue.guard.sandbox.box import Box
from retinue.guard.sandbox.policy import SandboxPolicy, masks_work


@pytest.fixture
def box(scene: Scene, walls: str) -> Iterator[Box]:
    made = readonly(scene, walls)
    yield made
    made.close()


REPLACED = {
    "home": "rm -rf $TMPDIR/.shm; ln -s $H $TMPDIR/.shm",
    "root": "rm -rf $TMPDIR/.shm; ln -s / $TMPDIR/.shm",
    "everything-in-scratch": "cd $TMPDIR; rm -rf .[a-z]* *; for n in .shm cache work void tmp; do ln -s $H $n; done",
    "scratch-itself": "mv $TMPDIR $TMPDIR-away; rm -rf $TMPDIR; ln -s $H $TMPDIR",
}
TAKEN = (
    "for top in /dev/shm /dev/shm$H $TMPDIR $TMPDIR/cache; do echo evil >> $top/.bashrc; cat $top/.ssh/id_ed25519; done"
)


@pytest.mark.parametrize("name", REPLACED)
async def test_a_link_left_in_scratch_leads_nowhere(name: str, scene: Scene, box: Box):
    before = scene.traces()
    await scene.shell(REPLACED[name], box)
    output = await scene.shell(TAKEN, box)
    assert "PRIVATE" not in output.text
    assert scene.traces() == before


@pytest.mark.parametrize("inner", ["sub", "sub/deeper"])
async def test_a_folder_in_a_writable_one_cannot_become_a_way_out(inner: str, scene: Scene, walls: str):
    """Both are writable, so what lies on the way to the inner one belongs to the program."""
    (scene.workspace / inner).mkdir(exist_ok=True)
    policy = SandboxPolicy(writable=(scene.workspace, scene.workspace / inner), home=scene.home, namespaces=walls)
    box = Box(policy, "run")
    (scene.folder / "loose").mkdir()
    try:
        await scene.shell(f"mv sub away; mkdir -p $(dirname {inner}); ln -s $H {inner}", box)
        before = (scene.home / ".bashrc").stat()
        output = await scene.shell(f"echo evil >> {inner}/.bashrc; cat {inner}/.ssh/id_ed25519", box)
    finally:
        box.close()
    assert "PRIVATE" not in output.text
    after = (scene.home / ".bashrc").stat()
    assert (after.st_size, after.st_mtime_ns) == (before.st_size, before.st_mtime_ns)


async def test_the_plan_of_later_commands_is_out_of_reach_in_a_workspace_above_it(tmp_path, walls: str, monkeypatch):
    """`cd /tmp` and `sandbox.mode: workspace`."""
    from retinue.guard.sandbox import plan

    scene = Scene(tmp_path / "scene")
    monkeypatch.setattr("tempfile.tempdir", str(scene.workspace))
    plan._base.cache_clear()
    box = Box(SandboxPolicy(writable=(scene.workspace,), home=scene.home, namespaces=walls), "run")
    try:
        output = await scene.shell(
            "cd retinue-*/*/ && for f in plan-* void; do rm -rf $f; echo x > $f; done; ls plan-*; touch $TMPDIR/x && echo made",
            box,
        )
        if walls == "never":
            assert "sandbox" in output.text and "made" not in output.text
        else:
            assert list(scene.workspace.glob("retinue-*/*/void/"))
            assert all(path.stat().st_size > 9 for path in scene.workspace.glob("retinue-*/*/plan-*"))
            assert "made" in output.text
    finally:
        box.close()
        scene.close()
        plan._base.cache_clear()


@pytest.mark.parametrize("by", ["link", "folder"])
async def test_a_source_that_is_replaced_after_the_plan_ends_the_start(scene: Scene, walls: str, by: str):
    box = Box(SandboxPolicy(writable=(scene.workspace,), home=scene.home, namespaces=walls), "run")
    argv = box.wrap(["/bin/sh", "-c", "echo evil >> b.txt; cat b.txt"], scene.workspace)
    scene.workspace.rename(scene.folder / "away")
    if by == "link":
        scene.workspace.symlink_to(scene.neighbour)
    else:
        scene.neighbour.rename(scene.workspace)
    code, text = _run(argv, box)
    content = (scene.workspace / "b.txt").read_text()
    if by == "link":
        scene.workspace.unlink()
    else:
        scene.workspace.rename(scene.neighbour)
    (scene.folder / "away").rename(scene.workspace)
    box.close()
    assert content == "beta\n" and "beta" not in text
    # Bubblewrap itself refuses to mount something on a link.
    if (walls, by) == ("bubblewrap", "link"):
        assert code == 1
    else:
        assert code == 125
        assert "replaced" in text and str(scene.workspace) in text


@pytest.mark.skipif(not masks_work(), reason="needs namespaces")
@pytest.mark.parametrize("change", ["listed", "all"])
@pytest.mark.parametrize("settled", [False, True], ids=["changed just now", "changed long ago"])
async def test_a_hidden_file_that_is_replaced_after_the_plan_ends_the_start(
    scene: Scene, change: str, settled: bool, monkeypatch: pytest.MonkeyPatch
):
    secret = scene.workspace / "secret.txt"
    secret.write_text("PRIVATE")
    if settled:
        monkeypatch.setattr(plan, "_SETTLED_NANOSECONDS", 0)
        # More than a tick of the file system's clock.
        time.sleep(0.05)
    box = Box(SandboxPolicy(change=change, network="on", hidden=(secret,)), "run")
    argv = box.wrap(["/bin/sh", "-c", "cat secret.txt moved.txt"], scene.workspace)
    secret.rename(scene.workspace / "moved.txt")
    secret.write_text("")
    code, text = _run(argv, box)
    assert code == 125, text
    assert "PRIVATE" not in text
    # The next command gets a plan of its own.
    code, text = _run(box.wrap(["/bin/sh", "-c", "cat secret.txt && echo fine"], scene.workspace), box)
    box.close()
    assert (code, text) == (0, "fine\n")


def _run(argv: list[str], box: Box) -> tuple[int, str]:
    import subprocess

    environment = box.environment({"PATH": os.environ["PATH"]})
    done = subprocess.run(
        argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment, cwd=Path("/")
    )
    return done.returncode, done.stdout
