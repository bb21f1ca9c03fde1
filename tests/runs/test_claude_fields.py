"""What Claude Code's files and calls have had since August 2026, honoured in a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.runs.run_scene import Scene, until

from retinue.core.events import ToolEnded
from retinue.core.spec import AgentSpec
from retinue.runs.execute import compaction_share
from retinue.runs.run import Run


async def child_of(scene: Scene, *lines: str, task: str = "work", **options: Any) -> Run:
    """A child whose file, one of Claude Code's, says `lines` besides its name."""
    file = scene.folder / "project" / ".claude" / "agents" / "worker.md"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("\n".join(["---", "name: worker", "description: works", *lines, "---", "Work.", ""]))
    main = await scene.main()
    return await scene.child(main, task, agent="worker", **options)


async def test_effort_may_be_a_whole_number(tmp_path: Path, monkeypatch: Any) -> None:
    async with Scene(tmp_path, monkeypatch) as scene:
        child = await child_of(scene, "effort: 5000")
        assert child.launch.thinking == "5000"
        assert scene.model("work").requests[0].thinking == "5000"


async def test_the_permission_mode_manual_is_the_default_one(tmp_path: Path, monkeypatch: Any) -> None:
    async with Scene(tmp_path, monkeypatch, permissions_default_mode="default") as scene:
        child = await child_of(scene, "permissionMode: manual")
        assert child.mode == "default"
        assert child.launch.request.spec.fates["permissionMode"].fate == "honoured"


async def test_the_effort_of_a_call_counts_where_the_file_says_none(tmp_path: Path, monkeypatch: Any) -> None:
    async with Scene(tmp_path, monkeypatch) as scene:
        await scene.main()
        scene.model("main").call("Agent", prompt="work", description="d", subagent_type="Plan", effort="high")
        await scene.model("work").asked()
        assert scene.model("work").requests[0].thinking == "high"


async def test_a_file_that_says_its_effort_keeps_it_whatever_the_call_says(tmp_path: Path, monkeypatch: Any) -> None:
    async with Scene(tmp_path, monkeypatch) as scene:
        await child_of(scene, "effort: low", thinking="high")
        assert scene.model("work").requests[0].thinking == "low"


async def test_a_twin_that_omits_claude_md_is_not_told_what_it_says(tmp_path: Path, monkeypatch: Any) -> None:
    async with Scene(tmp_path, monkeypatch) as scene:
        (tmp_path / "project" / "CLAUDE.md").write_text("Always sing.\n")
        folder = tmp_path / "project" / ".retinue" / "agents"
        folder.mkdir(parents=True)
        for name, line in (("plain", ""), ("quiet", "omitClaudeMd: true\n")):
            (folder / f"{name}.md").write_text(f"---\nprompt_mode: append\n{line}---\nYou are {name}.\n")
        main = await scene.main(spec=AgentSpec(name="main", prompt="You are main.", source="builtin"))
        assert "Always sing." in scene.model("main").requests[0].system
        await scene.child(main, "one", agent="plain")
        quiet = await scene.child(main, "two", agent="quiet")
        assert "Always sing." in scene.model("one").requests[0].system
        told = scene.model("two").requests[0].system
        assert "Always sing." not in told
        assert "You are main." in told and "You are quiet." in told
        scene.model("two").say("done")
        await until(lambda: not quiet.live)
        await scene.supervisor.resume(quiet.id, "go on")
        await scene.model("two").asked()
        assert scene.model("two").requests[-1].system == told


async def test_an_agent_of_claude_code_reads_claude_md_unless_it_omits_it(tmp_path: Path, monkeypatch: Any) -> None:
    async with Scene(tmp_path, monkeypatch) as scene:
        (tmp_path / "project" / "CLAUDE.md").write_text("Always sing.\n")
        await child_of(scene, task="one")
        assert "Always sing." in scene.model("one").requests[0].system
    async with Scene(tmp_path, monkeypatch) as scene:
        await child_of(scene, "omitClaudeMd: true", task="two")
        assert "Always sing." not in scene.model("two").requests[0].system


async def test_auto_compact_window_lowers_the_size_at_which_a_sub_agent_is_shortened(
    tmp_path: Path, monkeypatch: Any
) -> None:
    async with Scene(tmp_path, monkeypatch) as scene:
        child = await child_of(scene, "autoCompactWindow: 50000")
        launch = child.launch
        assert compaction_share(launch, 0.85) == 50_000 / launch.model.info.window < 0.85


async def test_auto_compact_window_never_raises_what_the_settings_say(tmp_path: Path, monkeypatch: Any) -> None:
    async with Scene(tmp_path, monkeypatch) as scene:
        child = await child_of(scene, "autoCompactWindow: 900000000")
        launch = child.launch
        assert compaction_share(launch, 0.5) == 0.5
        assert compaction_share(launch, None) == 1.0


async def test_send_message_and_list_agents_are_names_of_our_tools(tmp_path: Path, monkeypatch: Any) -> None:
    async with Scene(tmp_path, monkeypatch) as scene:
        main = await scene.main()
        child = await scene.child(main, "work")
        scene.model("main").call("ListAgents")
        await scene.model("main").asked()
        scene.model("main").call("SendMessage", to=child.id, message="hurry")
        await scene.model("main").asked()
        scene.model("work").call("ls", path=".")
        await scene.model("work").asked()
        assert ("steer", "hurry") in await scene.said(child.id)
        results = [body.result for body in await ended(scene, main.id)]
        assert [result.text for result in results if result.is_error] == []
        assert child.id in results[0].text


async def ended(scene: Scene, run_id: str) -> list[ToolEnded]:
    await scene.supervisor.project.log.flush()
    bodies = [event.body for event in scene.supervisor.project.log.reader.events(run_id)]
    return [body for body in bodies if isinstance(body, ToolEnded)]
