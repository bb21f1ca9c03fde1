"""What Claude Code's files and calls have had since August 2026, honoured in a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.supervisor.crew_scene import Scene

from retinue.supervisor.member import Member


async def child_of(scene: Scene, *lines: str, task: str = "work", **options: Any) -> Member:
    """A child whose file, one of Claude Code's, says `lines` besides its name."""
    file = scene.folder / "project" / ".claude" / "agents" / "worker.md"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("\n".join(["---", "name: worker", "description: works", *lines, "---", "Work.", ""]))
    main = await scene.main()
    return await scene.child(main, task, agent="worker", **options)


async def test_effort_may_be_a_whole_number(tmp_path: Path, monkeypatch: Any) -> None:
    async with Scene(tmp_path, monkeypatch) as scene:
        child = await child_of(scene, "effort: 5000")
        assert child.handle.launch.thinking == "5000"
        assert scene.desk("work").requests[0].thinking == "5000"


async def test_the_permission_mode_manual_is_the_default_one(tmp_path: Path, monkeypatch: Any) -> None:
    async with Scene(tmp_path, monkeypatch, permissions_default_mode="default") as scene:
        child = await child_of(scene, "permissionMode: manual")
        assert child.handle.launch.mode == "default"
        assert child.handle.launch.request.spec.fates["permissionMode"].fate == "honoured"


async def test_the_effort_of_a_call_counts_where_the_file_says_none(tmp_path: Path, monkeypatch: Any) -> None:
    async with Scene(tmp_path, monkeypatch) as scene:
        await scene.main()
        scene.desk("main").call("Agent", prompt="work", description="d", subagent_type="Plan", effort="high")
        await scene.desk("work").asked()
        assert scene.desk("work").requests[0].thinking == "high"


async def test_a_file_that_says_its_effort_keeps_it_whatever_the_call_says(tmp_path: Path, monkeypatch: Any) -> None:
    async with Scene(tmp_path, monkeypatch) as scene:
        await child_of(scene, "effort: low", thinking="high")
        assert scene.desk("work").requests[0].thinking == "low"
