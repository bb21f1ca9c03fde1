"""The documentation is in the wheel, and the agent that answers from it can read it."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
from tests.runs.run_scene import Scene, until

from retinue.core.events import ToolEnded
from retinue.runs.system_prompt import documentation_folder

ROOT = Path(__file__).parent.parent.parent
PAGES = sorted(path.name for path in (ROOT / "docs").glob("*.md"))


@pytest.mark.slow
def test_a_wheel_that_is_built_holds_the_pages_and_finds_them(tmp_path: Path) -> None:
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", str(tmp_path), str(ROOT)]
    built = subprocess.run(pip, capture_output=True, text=True)
    if built.returncode != 0 and "hatchling" in built.stderr:
        pytest.skip("the build backend cannot be had here")
    assert built.returncode == 0, built.stderr
    (wheel,) = tmp_path.glob("retinue-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
    assert sorted(path.name for path in (tmp_path / "site/retinue/docs").iterdir()) == PAGES
    ask = "from retinue.runs.system_prompt import documentation_folder; print(documentation_folder())"
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "site")}
    said = subprocess.run([sys.executable, "-c", ask], env=environment, capture_output=True, text=True, check=True)
    assert said.stdout.strip() == str((tmp_path / "site/retinue/docs").resolve())


@pytest.mark.parametrize("mode", ["default", "bypassPermissions"])
async def test_the_guide_is_told_where_the_documentation_is_and_may_read_it(
    mode: str, tmp_path: Path, monkeypatch: Any
) -> None:
    folder = documentation_folder()
    assert folder is not None
    async with Scene(tmp_path, monkeypatch, permissions_default_mode=mode) as scene:
        main = await scene.main()
        guide = await scene.child(main, "How are agents listed?", agent="retinue-guide")
        model = scene.model("How are agents listed?")
        assert str(folder / "commands.md") in model.requests[0].system
        model.call("read", path=str(folder / "commands.md"), limit=5)
        await model.asked()
        model.call("read", path=str(folder / "generate.py"))
        await model.asked()
        model.say("With: retinue agents list")
        await until(lambda: not guide.live)
        bodies = [event.body for event in scene.supervisor.project.log.reader.events(guide.id)]
        page, other = [body.result for body in bodies if isinstance(body, ToolEnded)]
    assert "# Commands" in page.text and not page.is_error
    assert other.is_error
