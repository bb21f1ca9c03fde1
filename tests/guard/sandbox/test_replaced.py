"""What somebody outside puts in the place of a masked file while a command runs is masked too (SM3)."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.guard.sandbox.scene import Scene

from retinue.guard.sandbox.box import Box
from retinue.guard.sandbox.policy import SandboxPolicy, masks_work

pytestmark = pytest.mark.skipif(not masks_work(), reason="needs namespaces")

SECRET = "PRIVATE-AND-HIDDEN"


@pytest.fixture(params=["listed", "all"])
def box(request: pytest.FixtureRequest, scene: Scene, walls: str) -> Iterator[Box]:
    if walls == "never":
        pytest.skip("Landlock alone masks nothing in a writable folder")
    (scene.workspace / "deep").mkdir()
    for name in (".env", "deep/.env"):
        (scene.workspace / name).write_text("old")
    (scene.workspace / "kept.txt").write_text("kept\n")
    policy = SandboxPolicy(
        change=request.param,
        hidden=(scene.workspace / ".env", scene.workspace / "deep/.env"),
        readonly=(scene.workspace / "kept.txt",),
        namespaces=walls,
    )
    if request.param == "listed":
        policy = replace(policy, writable=(scene.workspace,))
    made = Box(policy, "run")
    yield made
    made.close()


class Running:
    """A command that goes on when it is told to, by a file in the workspace."""

    def __init__(self, box: Box, scene: Scene, script: str) -> None:
        self._go, started = scene.workspace / "go", scene.workspace / "started"
        waiting = f"touch started; until [ -e go ]; do sleep 0.02; done; {script}"
        environment = box.environment({"PATH": os.environ["PATH"]})
        self._process = subprocess.Popen(
            box.wrap(["/bin/sh", "-c", waiting], scene.workspace),
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment,
        )  # fmt: skip
        give_up = time.monotonic() + 20
        while not started.exists() and self._process.poll() is None and time.monotonic() < give_up:
            time.sleep(0.005)

    def finish(self) -> tuple[int, str]:
        # Time for the process that keeps the masks to wake up, on a busy machine.
        time.sleep(0.3)
        self._go.touch()
        text, _ = self._process.communicate(timeout=30)
        return self._process.returncode, text


def rename_over(folder: Path, name: str, content: str) -> None:
    (folder / "new").write_text(content)
    (folder / "new").rename(folder / name)


def move_away_and_write(folder: Path, name: str, content: str) -> None:
    """As editors do that keep a backup."""
    (folder / name).rename(folder / f"{name}~")
    (folder / name).write_text(content)


def remove_and_write(folder: Path, name: str, content: str) -> None:
    (folder / name).unlink()
    (folder / name).write_text(content)


def rename_often(folder: Path, name: str, content: str) -> None:
    for _ in range(50):
        rename_over(folder, name, content)


REPLACING = [rename_over, move_away_and_write, remove_and_write, rename_often]


@pytest.mark.parametrize("replacing", REPLACING)
@pytest.mark.parametrize("name", [".env", "deep/.env"])
def test_a_hidden_file_stays_hidden(scene: Scene, box: Box, walls: str, replacing: Callable[..., None], name: str):
    command = Running(box, scene, f"cat {name} && echo went on")
    target = scene.workspace / name
    replacing(target.parent, target.name, SECRET)
    code, text = command.finish()
    assert SECRET not in text
    if walls == "bubblewrap":
        # It has given the right to mount away.
        assert code == 137 or code == -9, text
        assert "stopped" in text and str(target) in text
    else:
        assert (code, text) == (0, "went on\n")


@pytest.mark.parametrize("replacing", REPLACING)
def test_a_protected_file_stays_as_it_is(scene: Scene, box: Box, walls: str, replacing: Callable[..., None]):
    command = Running(box, scene, "echo evil > kept.txt; mv a.txt kept.txt; rm -f kept.txt; echo went on")
    kept = scene.workspace / "kept.txt"
    replacing(kept.parent, kept.name, "new\n")
    _, text = command.finish()
    assert kept.read_text() == "new\n"
    if walls != "bubblewrap" and replacing in (rename_over, rename_often):
        assert text.endswith("went on\n")


def test_a_command_ends_when_a_folder_above_is_replaced(scene: Scene, box: Box):
    command = Running(box, scene, "cat deep/.env; echo went on")
    (scene.workspace / "deep").rename(scene.folder / "away")
    (scene.workspace / "deep").mkdir()
    (scene.workspace / "deep" / ".env").write_text(SECRET)
    _, text = command.finish()
    assert SECRET not in text
    assert "went on" not in text
    assert "stopped. deep, a folder above" in text


def test_a_protected_file_that_is_taken_away_ends_the_command(scene: Scene, box: Box):
    command = Running(box, scene, "echo evil > kept.txt; echo went on")
    (scene.workspace / "kept.txt").unlink()
    rename_over(scene.workspace, "other.txt", "")
    _, text = command.finish()
    assert "went on" not in text
    assert not (scene.workspace / "kept.txt").exists()


def test_a_command_may_end_before_its_masks_are_kept(scene: Scene, box: Box):
    argv = box.wrap(["/bin/true"], scene.workspace)
    for _ in range(20):
        done = subprocess.run(argv, capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, "")
