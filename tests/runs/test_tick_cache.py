"""What is asked twice in one round of the event loop is answered once, and never later."""

import asyncio
from pathlib import Path
from typing import Any

from tests.runs.run_scene import Scene

from retinue.core.request import RunRequest
from retinue.core.spec import AgentSpec
from retinue.runs.project import TickCache
from retinue.runs.system_prompt import MAX_INSTRUCTION_BYTES


async def test_an_answer_holds_until_the_next_round_of_the_event_loop():
    answers = TickCache()
    assert answers.keep("a", 1) == 1
    answers.keep("b", 2)
    assert (answers.get("a"), answers.get("b"), answers.get("c")) == (1, 2, None)
    await asyncio.sleep(0)
    assert answers.get("a") is answers.get("b") is None
    answers.keep("a", 3)
    assert answers.get("a") == 3


def test_without_an_event_loop_nothing_is_kept():
    answers = TickCache()
    assert answers.keep("a", 1) == 1
    assert answers.get("a") is None


async def test_runs_that_start_together_all_get_the_instructions_and_the_next_gets_what_changed(
    tmp_path: Path, monkeypatch: Any
):
    project = tmp_path / "project"
    project.mkdir()
    (project / "AGENTS.md").write_text("Speak French.\n" + "x" * MAX_INSTRUCTION_BYTES)
    spec = AgentSpec(name="worker", prompt="Work.", dialect="claude")

    async with Scene(tmp_path, monkeypatch) as scene:

        async def start(task: str) -> tuple[str, tuple[str, ...]]:
            node = await scene.supervisor.start(RunRequest(spec=spec, task=task, cwd=project))
            await scene.model(task).asked()
            return node.launch.system, node.launch.notes

        for system, notes in await asyncio.gather(start("one"), start("two")):
            assert "Speak French." in system
            assert any("AGENTS.md is cut" in note for note in notes)
        (project / "AGENTS.md").write_text("Speak Danish.\n")
        system, notes = await start("three")
        assert "Speak Danish." in system
        assert not any("AGENTS.md" in note for note in notes)
        for task in ("one", "two", "three"):
            scene.model(task).say("done")
        await scene.supervisor.wait_all()
