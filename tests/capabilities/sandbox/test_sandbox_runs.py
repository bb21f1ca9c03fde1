"""Runs whose shells are confined: from the agent's definition to what its commands can do."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import pytest
from tests.runs.run_scene import Scene

from retinue.core.events import RunEnded, RunStarted, ToolEnded
from retinue.core.messages import ToolResult
from retinue.core.request import RunRequest
from retinue.core.spec import AgentSpec, ToolPolicy
from retinue.core.tool import ToolContext, ToolOutput, ToolSpec
from retinue.guard.sandbox import kernel
from retinue.runs.run import Run

needs_sandbox = pytest.mark.skipif(kernel.why_not() is not None, reason=str(kernel.why_not()))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "a.txt").write_text("alpha\n")
    return tmp_path


async def start(scene: Scene, task: str, parent: Run | None = None, **fields: Any) -> Run:
    mode = fields.pop("permission_mode", None)
    spec = AgentSpec(name=fields.pop("name", "worker"), prompt="Work.", **fields)
    request = RunRequest(
        spec=spec,
        task=task,
        cwd=scene.folder / "project",
        permission_mode=mode,
        parent_id=parent.id if parent else None,
        depth=parent.depth + 1 if parent else 0,
    )
    node = await scene.supervisor.start(request, parent=parent)
    await scene.model(task).asked()
    return node


async def bash(scene: Scene, node: Run, task: str, command: str) -> ToolResult:
    """Has the run call its shell, and gives what came back."""
    scene.model(task).call("bash", command=command)
    await scene.model(task).asked()
    await scene.supervisor.project.log.flush()
    bodies = [event.body for event in scene.supervisor.project.log.reader.events(node.id)]
    return [body.result for body in bodies if isinstance(body, ToolEnded)][-1]


async def end(scene: Scene, node: Run, task: str) -> RunEnded:
    scene.model(task).say("done")
    await scene.supervisor.wait_all()
    await scene.supervisor.project.log.flush()
    return [b for e in scene.supervisor.project.log.reader.events(node.id) if isinstance(b := e.body, RunEnded)][-1]


async def tools(scene: Scene, node: Run) -> tuple[str, ...]:
    await scene.supervisor.project.log.flush()
    bodies = [event.body for event in scene.supervisor.project.log.reader.events(node.id)]
    return next(body.tools for body in bodies if isinstance(body, RunStarted))


@needs_sandbox
async def test_a_read_only_agent_keeps_a_shell_that_changes_nothing(folder: Path, monkeypatch: Any):
    async with Scene(folder, monkeypatch) as scene:
        node = await start(scene, "look", readonly=True)
        assert "bash" in await tools(scene, node)
        assert "write" not in await tools(scene, node)
        result = await bash(scene, node, "look", "cat a.txt; echo $TMPDIR; echo x > a.txt; touch new")
        assert "alpha" in result.text
        scratch = Path(result.text.splitlines()[1])
        assert scratch.is_dir()
        ended = await end(scene, node, "look")
    assert (folder / "project" / "a.txt").read_text() == "alpha\n"
    assert not (folder / "project" / "new").exists()
    assert not scratch.exists()
    assert not [note for note in ended.outcome.notes if "bash" in note]


@needs_sandbox
async def test_plan_mode_is_read_only(folder: Path, monkeypatch: Any):
    async with Scene(folder, monkeypatch) as scene:
        node = await start(scene, "plan", permission_mode="plan")
        await bash(scene, node, "plan", "echo x > a.txt")
        await end(scene, node, "plan")
    assert (folder / "project" / "a.txt").read_text() == "alpha\n"


@needs_sandbox
async def test_a_child_of_a_read_only_agent_is_no_way_out(folder: Path, monkeypatch: Any):
    async with Scene(folder, monkeypatch) as scene:
        parent = await start(scene, "above", readonly=True, permission_mode="bypassPermissions")
        child = await start(scene, "below", parent, readonly=False, permission_mode="bypassPermissions")
        await bash(scene, child, "below", "echo x > a.txt")
        assert (folder / "project" / "a.txt").read_text() == "alpha\n"
        scene.model("below").say("done")
        await end(scene, parent, "above")
        resumed = await scene.again().resume(child.id, "again")
        assert resumed.readonly
        await scene.supervisor.stop_all("over")


async def test_without_a_sandbox_the_shell_is_withheld_and_the_outcome_says_so(folder: Path, monkeypatch: Any):
    monkeypatch.setattr(kernel, "why_not", lambda: "this is a test")
    async with Scene(folder, monkeypatch) as scene:
        node = await start(scene, "look", readonly=True)
        assert "bash" not in await tools(scene, node)
        ended = await end(scene, node, "look")
    assert [note for note in ended.outcome.notes if note.startswith("bash is withheld")]


async def test_switched_off_means_no_shell_for_read_only_agents(folder: Path, monkeypatch: Any):
    async with Scene(folder, monkeypatch, sandbox_mode="off") as scene:
        node = await start(scene, "look", readonly=True)
        assert "bash" not in await tools(scene, node)
        await end(scene, node, "look")


async def test_a_custom_tool_that_starts_programs_is_not_covered_by_the_sandbox(folder: Path, monkeypatch: Any):
    class Runner:
        spec = ToolSpec("runner", "Runs things.", {"type": "object"}, frozenset({"execute"}))

        async def run(self, *_: Any) -> ToolOutput:
            raise AssertionError("it must not be offered")

    runner = Runner()
    async with Scene(folder, monkeypatch, tools=(runner,)) as scene:
        node = await start(scene, "look", readonly=True, tools=ToolPolicy(allow=("read", "runner")))
        assert await tools(scene, node) == ("read",)
        await end(scene, node, "look")


@needs_sandbox
async def test_write_agents_stay_in_their_workspace_when_asked(folder: Path, monkeypatch: Any):
    async with Scene(folder, monkeypatch, sandbox_mode="workspace") as scene:
        node = await start(scene, "work", permission_mode="bypassPermissions")
        result = await bash(scene, node, "work", "echo beta > a.txt; echo x > ../outside")
        assert "Read-only file system" in result.text or "Permission denied" in result.text
        await end(scene, node, "work")
    assert (folder / "project" / "a.txt").read_text() == "beta\n"
    assert not (folder / "outside").exists()


async def test_write_agents_are_left_alone_by_default(folder: Path, monkeypatch: Any):
    async with Scene(folder, monkeypatch) as scene:
        node = await start(scene, "work", permission_mode="bypassPermissions")
        await bash(scene, node, "work", "echo x > ../outside")
        await end(scene, node, "work")
    assert (folder / "outside").exists()


@needs_sandbox
async def test_a_projects_own_settings_cannot_open_the_network(folder: Path, monkeypatch: Any):
    settings = folder / "project" / ".retinue" / "settings.json"
    settings.parent.mkdir()
    settings.write_text('{"sandbox": {"network": "on", "passEnvironment": ["X"]}}')
    async with Scene(folder, monkeypatch) as scene:
        node = await start(scene, "look", readonly=True)
        result = await bash(scene, node, "look", "echo x > /dev/tcp/127.0.0.1/1; cat < /dev/null")
        assert scene.supervisor.settings.sandbox_network == "off"
        await end(scene, node, "look")
    assert "refused" in result.text or "denied" in result.text


@needs_sandbox
@pytest.mark.parametrize("readonly", [True, False])
async def test_the_context_of_an_ended_run_goes_without_the_garbage_collector(
    folder: Path, monkeypatch: Any, readonly: bool
):
    async with Scene(folder, monkeypatch) as scene:
        gc.collect()
        gc.disable()
        try:
            node = await start(scene, "look", readonly=readonly)
            run_id = node.id
            await bash(scene, node, "look", "cat a.txt")
            assert contexts_of(run_id)
            await end(scene, node, "look")
            del node
            assert contexts_of(run_id) == []
        finally:
            gc.enable()


def contexts_of(run_id: str) -> list[ToolContext]:
    return [each for each in gc.get_objects() if type(each) is ToolContext and each.run_id == run_id]
