"""After its conversation was shortened a run still knows which of its agents are at work."""

import pytest
from tests.runs.run_scene import Scene, message

from retinue.core.events import Compacted
from retinue.core.messages import ToolCall
from retinue.core.run_state import ActiveRun
from retinue.core.usage import Usage


@pytest.fixture
def scene(tmp_path, monkeypatch):
    scene = Scene(tmp_path, monkeypatch, max_concurrent=4)
    words = "alpha beta gamma\n" * 3_000
    (tmp_path / "project" / "long.txt").write_text(words)
    return scene


async def read_much(scene, times):
    for _ in range(times):
        scene.model("main").call("read", path="long.txt")
        request = await scene.model("main").asked()
    return request


async def test_a_compaction_names_the_agents_that_still_work_and_those_whose_result_is_unread(scene):
    async with scene:
        main = await scene.main()
        scene.model("main").call("Agent", prompt="look", description="the look", subagent_type="general-purpose")
        await scene.model("look").asked()
        await scene.model("main").asked()
        over = await scene.spawn(main, "done", background=True, description="the end")
        await scene.model("done").asked()
        scene.model("done").say("fine")
        await scene.supervisor.members[over.id].wait()
        await read_much(scene, 6)
        before = set(scene.models)
        assert main.controls.compact()
        scene.model("main").call("ls")
        while set(scene.models) == before:
            await scene.clock.advance(0.01)
        (asked,) = set(scene.models) - before
        scene.model(asked).say("It looked at things.")
        request = await scene.model("main").asked()
        said = "\n".join(m.text for m in request.messages if m.type == "user")
        child = next(m for m in scene.supervisor.members.values() if m.state.description == "the look")
        assert "It looked at things." in said
        assert f"{child.id} (general-purpose, running): the look" in said
        working, ended = said.split("still at work")[1].split("These have ended")
        assert over.id not in working and over.id in ended


async def test_a_roster_is_part_of_a_conversation_whose_outputs_were_only_cut(tmp_path, monkeypatch):
    scene = Scene(tmp_path, monkeypatch, max_concurrent=4)
    (tmp_path / "project" / "long.txt").write_text("alpha beta gamma delta\n" * 1_000)
    async with scene:
        main = await scene.main()
        view = await scene.spawn(main, "look", background=True, description="the look")
        assert isinstance(view, ActiveRun)
        await scene.model("look").asked()
        await read_much(scene, 6)
        full = message("", (ToolCall("last", "ls", {}),), Usage(main.launch.model.info.window, 5))
        scene.model("main")._reply(full)
        request = await scene.model("main").asked()
        await scene.supervisor.project.log.flush()
        events = scene.supervisor.project.log.reader.events(main.id)
        assert [event.body.method for event in events if isinstance(event.body, Compacted)] == ["pruned"]
        said = "\n".join(m.text for m in request.messages if m.type == "user")
        assert f"{view.id} (general-purpose, running): the look" in said
