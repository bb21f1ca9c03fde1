"""A job that an agent asked for: it fires in whatever session that was, with no more rights than
the agent had, and its end reaches the conversation."""

from __future__ import annotations

import pytest

from retinue.capabilities.schedule import scheduler_of
from retinue.core.delegation import Scheduled, SpawnCall
from retinue.core.spec import AgentSpec, ToolPolicy
from retinue.runs.delegate import Delegate
from tests.runs.run_scene import Scene, until

READER = AgentSpec(name="main", prompt="x", tools=ToolPolicy(allow=("read", "Agent")))
LIMITED = AgentSpec(name="main", prompt="x", tools=ToolPolicy(allow=("read", "Bash(git *)", "write", "Agent")))


@pytest.fixture
def scene(tmp_path, monkeypatch):
    return Scene(tmp_path, monkeypatch)


async def ask(scene: Scene, main, schedule: str = "10s") -> Scheduled:
    call = SpawnCall(prompt="look again", description="watch", name="watch", agent="general-purpose", schedule=schedule)
    found = await Delegate(scene.supervisor, main.id).schedule(call)
    assert isinstance(found, Scheduled), found
    return found


async def test_a_session_without_a_screen_fires_what_its_agents_have_scheduled(scene):
    async with scene:
        main = await scene.main()
        await ask(scene, main)
        assert scheduler_of(scene.supervisor).active
        await scene.clock.advance(11)
        await scene.model("look again").asked()
        assert [child.state.description for child in main.children] == ["watch"]


async def test_a_job_of_an_idle_session_is_its_child_and_the_session_is_told_of_the_end(scene):
    told: list[str] = []
    async with scene:
        main = await scene.main()
        scene.supervisor.idle_news = told.append
        await ask(scene, main, "1h")
        scene.model("main").say("scheduled")
        await main.wait()
        fired = await scheduler_of(scene.supervisor).run_now("watch")
        assert fired.error is None
        await scene.model("look again").asked()
        scene.model("look again").say("nothing new")
        await until(lambda: not scene.supervisor.busy)
        await scene.clock.advance(0.2)
        assert told == [main.id]
        assert [view.result for view in scene.supervisor.news_for(main.id)] == ["nothing new"]


@pytest.mark.parametrize(
    ("asker", "mode"), [(READER, None), (LIMITED, None), (None, "plan")], ids=["no-writer", "patterns", "plan"]
)
async def test_a_job_that_fires_when_its_session_is_gone_has_no_more_rights_than_who_asked_for_it(scene, asker, mode):
    async with scene:
        options = {**({"spec": asker} if asker else {}), **({"permission_mode": mode} if mode else {})}
        main = await scene.main(**options)
        await ask(scene, main, "1h")
    async with scene.again():
        fired = await scheduler_of(scene.supervisor).run_now("watch")
        assert fired.run_id is not None, fired.error
        await scene.model("look again").asked()
        run = scene.supervisor.members[fired.run_id]
        assert run.readonly
        assert not {"write", "edit"} & {tool.spec.name for tool in run.tools}
        assert run.place.parent_id == main.id, "its main agent hears of it when it is taken up"
        scene.model("look again").say("nothing new")
        await run.wait()
        again = await scene.supervisor.resume(main.id, "Go on.")
        await scene.model("main").asked()
        assert await scene.heard(again) == [run.id]
