"""The agents that come with the package have the tools and limits that the systems they come from
promise, and a file of a dialect has that dialect's limits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.runs.run_scene import Scene, until

from retinue.core.events import RunEnded, RunStarted, ToolEnded
from retinue.core.outcome import Outcome
from retinue.core.run_state import ActiveRun
from retinue.guard.sandbox import kernel
from retinue.runs.run import Run

needs_sandbox = pytest.mark.skipif(kernel.why_not() is not None, reason=str(kernel.why_not()))


async def events(scene: Scene, run_id: str, kind: type) -> list[Any]:
    await scene.supervisor.project.log.flush()
    return [event.body for event in scene.supervisor.project.log.reader.events(run_id) if isinstance(event.body, kind)]


async def tools(scene: Scene, node: Run) -> tuple[str, ...]:
    return (await events(scene, node.id, RunStarted))[0].tools


async def outcome(scene: Scene, run_id: str) -> Outcome:
    ended = await events(scene, run_id, RunEnded)
    return ended[-1].outcome


def agent(scene: Scene, path: str, text: str) -> None:
    file = scene.folder / "project" / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


@needs_sandbox
@pytest.mark.parametrize("name", ["Explore", "Plan"])
async def test_explore_and_plan_have_a_shell_that_can_look_and_cannot_write(
    name: str, tmp_path: Path, monkeypatch: Any
) -> None:
    async with Scene(tmp_path, monkeypatch) as scene:
        (tmp_path / "project" / "a.txt").write_text("alpha\n")
        main = await scene.main()
        child = await scene.child(main, "look", agent=name)
        assert set(await tools(scene, child)) - {"exit_plan"} == {"read", "bash", "grep", "find", "ls"}
        scene.model("look").call("bash", command="cat a.txt; echo x > a.txt; touch new")
        await scene.model("look").asked()
        (ended,) = await events(scene, child.id, ToolEnded)
        assert "alpha" in ended.result.text
        assert (tmp_path / "project" / "a.txt").read_text() == "alpha\n"
        assert not (tmp_path / "project" / "new").exists()


async def test_where_nothing_can_confine_a_shell_explore_has_none_and_says_so(tmp_path: Path, monkeypatch: Any) -> None:
    async with Scene(tmp_path, monkeypatch, sandbox_mode="off") as scene:
        main = await scene.main()
        child = await scene.child(main, "look", agent="Explore")
        assert set(await tools(scene, child)) == {"read", "grep", "find", "ls"}
        scene.model("look").say("found")
        await until(lambda: not child.live)
        notes = (await outcome(scene, child.id)).notes
    assert "bash is withheld: the agent is read-only, and no sandbox here can keep a shell from writing" in notes


@needs_sandbox
async def test_dispatch_agent_finds_the_two_profiles_of_codingcode_with_their_tools_and_180_turns(
    tmp_path: Path, monkeypatch: Any
) -> None:
    async with Scene(tmp_path, monkeypatch) as scene:
        main = await scene.main()
        explore = await scene.child(main, "look", agent="explore", vocabulary="codingcode")
        plan = await scene.child(main, "think", agent="plan", vocabulary="codingcode")
        assert set(await tools(scene, explore)) == {"read", "find", "grep", "fetch_content"}
        assert set(await tools(scene, plan)) == {"read", "find", "grep", "fetch_content", "bash"}
        for each in (explore, plan):
            assert each.readonly
            assert each.launch.limits.max_turns == 180
            assert each.launch.notes == ()


async def test_the_agent_tool_means_explore_and_plan_in_any_case(tmp_path: Path, monkeypatch: Any) -> None:
    async with Scene(tmp_path, monkeypatch) as scene:
        main = await scene.main()
        for number, name in enumerate(("explore", "EXPLORE", "Explore")):
            view = await scene.spawn(main, f"look {number}", agent=name, background=True)
            assert isinstance(view, ActiveRun)
            assert (view.agent, scene.supervisor.members[view.id].launch.limits.max_turns) == ("Explore", None)


def test_each_vocabulary_lists_one_of_explore_and_explore(tmp_path: Path, monkeypatch: Any) -> None:
    catalog = Scene(tmp_path, monkeypatch).supervisor.project.catalog()
    named = {
        vocabulary: {
            entry.name for entry in catalog.offered(vocabulary) if entry.name.casefold() in ("explore", "plan")
        }
        for vocabulary in ("claude", "devkit", "codingcode")
    }
    assert named == {"claude": {"Explore", "Plan"}, "devkit": {"Explore", "Plan"}, "codingcode": {"explore", "plan"}}
    assert catalog.find("codingcode:explore").spec.max_turns == 180


DEVKIT = "---\nname: checker\nreadonly: true\ntools: read\n---\nCheck.\n"


@pytest.mark.parametrize(
    ("path", "text", "expected"),
    [
        (".pi/agents/checker.md", DEVKIT, (None, 900.0, 180.0)),
        (".pi/agents/checker.md", "---\nmax_turns: 7\n---\nCheck.\n", (7, None, 180.0)),
        (".gemini/agents/checker.md", "---\nname: checker\n---\nCheck.\n", (30, 600.0, 180.0)),
        (".gemini/agents/checker.md", "---\nname: checker\nmax_turns: 4\ntimeout_mins: 2\n---\nC\n", (4, 120.0, 180.0)),
        (".claude/agents/checker.md", "---\nname: checker\ndescription: d\n---\nCheck.\n", (None, None, 180.0)),
        (".codingcode/agents/checker.md", "---\nname: checker\ndescription: d\n---\nCheck.\n", (12, None, 180.0)),
        (
            ".codingcode/agents/checker.md",
            "---\nname: checker\ndescription: d\nmaxSteps: 5\n---\nC\n",
            (5, None, 180.0),
        ),
    ],
)
async def test_a_file_has_the_limits_that_its_dialect_promises(
    path: str, text: str, expected: tuple[Any, ...], tmp_path: Path, monkeypatch: Any
) -> None:
    async with Scene(tmp_path, monkeypatch) as scene:
        agent(scene, path, text)
        main = await scene.main(limits={"max_turns": 12})
        child = await scene.child(main, "check", agent="checker")
        limits = child.launch.limits
        assert (limits.max_turns, limits.seconds, limits.idle_seconds) == expected


async def test_a_time_limit_of_the_settings_counts_more_than_that_of_a_dialect(
    tmp_path: Path, monkeypatch: Any
) -> None:
    async with Scene(tmp_path, monkeypatch, timeout_seconds=1800) as scene:
        main = await scene.main()
        child = await scene.child(main, "look", agent="explorer")
        assert child.launch.limits.seconds == 1800


async def test_the_five_agents_of_devkit_have_its_hard_and_its_idle_limit(tmp_path: Path, monkeypatch: Any) -> None:
    async with Scene(tmp_path, monkeypatch, max_concurrent=8) as scene:
        main = await scene.main()
        for name in ("explorer", "researcher", "reviewer", "implementer", "tester"):
            child = await scene.child(main, name, agent=name)
            limits = child.launch.limits
            assert (limits.seconds, limits.idle_seconds, child.readonly) == (900.0, 180.0, True)
