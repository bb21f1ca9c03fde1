"""Settings that change while a program runs: noticed when they are used, told as events (case S04)."""

from __future__ import annotations

import json

import pytest
from tests.runs.run_scene import Scene, until

from retinue.cluster import open_project


@pytest.fixture
def scene(tmp_path, monkeypatch):
    return Scene(tmp_path, monkeypatch)


def write(scene, **values):
    folder = scene.folder / "project" / ".retinue"
    folder.mkdir(exist_ok=True)
    (folder / "settings.json").write_text(json.dumps(values))


def heard(scene):
    """Settings events as they come: name and data."""
    said = []
    for name in ("subagents:settings_loaded", "subagents:settings_changed"):
        scene.supervisor.bridge.bus.on(name, lambda data, name=name: said.append((name.rpartition("_")[2], data)))
    return said


async def test_the_loaded_event_has_the_merged_settings_also_when_no_file_says_anything(scene):
    said = heard(scene)
    async with scene:
        ((name, data),) = said
        assert name == "loaded"
        assert data["settings"]["maxConcurrent"] == 4
        assert data["settings"]["questions"] == "wait"
        assert "providers" not in data["settings"]


async def test_a_change_is_an_event_that_says_whether_it_was_written(scene):
    said = heard(scene)
    async with scene:
        scene.supervisor.reload_settings()
        scene.supervisor.reload_settings(persisted=False)
        assert [data["persisted"] for name, data in said if name == "changed"] == [True, False]


async def test_a_change_by_another_process_is_told_in_a_session_where_nothing_runs(scene):
    said = heard(scene)
    async with scene:
        write(scene, graceTurns=7)
        await scene.clock.advance(2)
        (changed,) = [data for name, data in said if name == "changed"]
        assert (changed["settings"]["graceTurns"], changed["persisted"]) == (7, True)
        await scene.clock.advance(5)
        assert len(said) == 2, "told once"


async def test_a_file_that_anyone_changes_applies_to_the_next_run_and_starts_who_waits(scene):
    write(scene, maxConcurrent=1, agentMentions="off")
    scene.again()
    said = heard(scene)
    async with scene:
        main = await scene.main()
        await scene.child(main, "first")
        waiting = await scene.spawn(main, "second", background=True)
        assert waiting.status == "queued"
        write(scene, maxConcurrent=3, agentMentions="many")
        await scene.child(main, "third")
        await scene.model("second").asked()
        assert scene.supervisor.queue.limit == 3
        assert scene.supervisor.settings.agent_mentions != "off"
        (changed,) = [data for name, data in said if name == "changed"]
        assert changed["settings"]["maxConcurrent"] == 3
        assert changed["persisted"] is True
        warnings = scene.supervisor.project.settings.warnings
        assert [("settings.json: agentMentions" in each) for each in warnings] == [True]


async def test_what_applies_live_is_in_what_a_running_agent_reads(scene):
    write(scene, maxConcurrent=1)
    scene.again()
    async with scene:
        main = await scene.main()
        await scene.child(main, "first")
        waiting = await scene.spawn(main, "second", background=True)
        write(scene, maxConcurrent=2, showCost=True)
        await scene.spawn(main, "third", background=True)
        await scene.model("second").asked()
        late = await scene.spawn(main, "fourth", background=True)
        assert (waiting.status, late.status) == ("queued", "queued")
        scene.model("main").call("get_subagent_result", agent_id=late.id)
        request = await scene.model("main").asked()
        assert "queued (max 2 concurrent)" in str(request.messages[-1])
        scene.model("first").say("done")
        await until(lambda: main.children[0].status == "completed")
        scene.model("main").say("and now?")
        await scene.clock.advance(0.3)
        request = await scene.model("main").asked()
        assert "<estimated_cost_usd>" in str(request.messages[-1])


async def test_nothing_is_read_again_while_nothing_changes(scene, monkeypatch):
    async with scene:
        main = await scene.main()
        before = scene.supervisor.project.settings
        for number in range(3):
            await scene.child(main, f"child {number}")
        assert scene.supervisor.project.settings is before


async def test_a_file_that_appears_nearer_and_one_that_goes_are_noticed(tmp_path):
    cwd = tmp_path / "project"
    cwd.mkdir()
    project = open_project(cwd, environment={"HOME": str(tmp_path), "RETINUE_HOME": str(tmp_path / "home")})
    assert not project.settings_changed  # nobody has used them yet
    assert project.settings.settings.grace_turns == 5
    await until(lambda: not project.round.get("settings"))
    assert not project.settings_changed
    (cwd / ".retinue").mkdir()
    (cwd / ".retinue" / "settings.json").write_text('{"graceTurns": 2}')
    await until(lambda: project.settings_changed)
    project.__dict__.pop("settings")
    assert project.settings.settings.grace_turns == 2
    (cwd / ".retinue" / "settings.json").unlink()
    await until(lambda: project.settings_changed)


async def test_consent_given_elsewhere_counts_for_the_next_run(scene):
    write(scene, extraRoots=["../elsewhere"])
    async with scene:
        await scene.main()
        assert scene.supervisor.settings.extra_roots == ()
        file = scene.folder / "project" / ".retinue" / "settings.json"
        open_project(scene.folder / "project", environment=scene._environment).trust.grant(file, file.read_bytes())
        await scene.main("another")
        assert scene.supervisor.settings.extra_roots == ("../elsewhere",)
