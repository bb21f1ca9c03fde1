"""devkit-pi's guards: three words to the person, each once."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.runs.run_scene import Scene, until

from retinue.core.events import Warned

ALL = ["git_context", "first_write", "not_verified"]


async def codes(scene: Scene, run_id: str) -> list[str]:
    await scene.supervisor.project.log.flush()
    bodies = [event.body for event in scene.supervisor.project.log.reader.events(run_id)]
    return [body.code for body in bodies if isinstance(body, Warned) and body.code in ALL]


async def work(scene: Scene, *commands: str) -> str:
    """A main run that writes two files, runs commands and ends."""
    main = await scene.main()
    for name in ("a.txt", "b.txt"):
        scene.model("main").call("write", path=name, content="x")
        await scene.model("main").asked()
    for command in commands:
        scene.model("main").call("bash", command=command)
        await scene.model("main").asked()
    scene.model("main").say("done")
    await until(lambda: not main.live)
    return main.id


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "project").mkdir()
    subprocess.run(["git", "init", "-q", "-b", "main", "project"], cwd=tmp_path, check=True)
    return tmp_path


async def test_branch_first_change_and_missing_checks_are_said_once_each(project: Path, monkeypatch: Any) -> None:
    async with Scene(project, monkeypatch, delegation_vocabulary="devkit") as scene:
        assert await codes(scene, await work(scene, "echo hello")) == ALL


async def test_a_run_that_goes_on_says_none_of_it_again(project: Path, monkeypatch: Any) -> None:
    async with Scene(project, monkeypatch, delegation_vocabulary="devkit") as scene:
        run_id = await work(scene)
        again = await scene.supervisor.resume(run_id, "more")
        await scene.model("main").asked()
        scene.model("main").call("write", path="c.txt", content="x")
        await scene.model("main").asked()
        scene.model("main").say("done")
        await until(lambda: not again.live)
        assert await codes(scene, run_id) == ALL


@pytest.mark.parametrize("command", ["true || pytest -q", "true || npm run lint", "true || make check"])
async def test_a_run_that_checked_its_work_is_not_reminded(command: str, project: Path, monkeypatch: Any) -> None:
    async with Scene(project, monkeypatch, delegation_vocabulary="devkit") as scene:
        assert await codes(scene, await work(scene, command)) == ["git_context", "first_write"]


async def test_outside_devkits_vocabulary_nothing_is_said(project: Path, monkeypatch: Any) -> None:
    async with Scene(project, monkeypatch) as scene:
        assert await codes(scene, await work(scene)) == []
