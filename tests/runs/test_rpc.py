"""Calls of other programs over the bus: envelopes, request ids, and what they may not decide."""

import asyncio
import subprocess

import pytest
from tests.runs.run_scene import Scene, until

from retinue.runs.rpc import PROTOCOL_VERSION


@pytest.fixture
def scene(tmp_path, monkeypatch):
    return Scene(tmp_path, monkeypatch)


async def ask(scene, method, request_id="r1", **fields):
    """As another program does it: listen on the reply's channel, then send."""
    bus = scene.supervisor.bridge.bus
    reply = asyncio.get_running_loop().create_future()
    off = bus.on(f"subagents:rpc:{method}:reply:{request_id}", reply.set_result)
    bus.emit(f"subagents:rpc:{method}", {"requestId": request_id, **fields})
    async with asyncio.timeout(20):
        data = await reply
    off()
    return data


async def test_ping_gives_the_protocol_version_on_its_own_channel_only(scene):
    async with scene:
        others = []
        scene.supervisor.bridge.bus.on("subagents:rpc:ping:reply:other", others.append)
        assert await ask(scene, "ping", "mine") == {"success": True, "data": {"version": 2}}
        assert PROTOCOL_VERSION == 2
        assert others == []


async def test_a_caller_that_stopped_listening_gets_nothing_and_breaks_nothing(scene):
    async with scene:
        told = []
        off = scene.supervisor.bridge.bus.on("subagents:rpc:ping:reply:a", told.append)
        off()
        scene.supervisor.bridge.bus.emit("subagents:rpc:ping", {"requestId": "a"})
        assert (await ask(scene, "ping", "b"))["success"]
        assert told == []


@pytest.mark.parametrize("request_data", [None, [], "text", {}, {"requestId": 7}, {"requestId": ""}])
async def test_a_request_nobody_can_be_answered_for_is_ignored(scene, request_data):
    async with scene:
        scene.supervisor.bridge.bus.emit("subagents:rpc:spawn", request_data)
        assert (await ask(scene, "ping"))["success"]
        assert scene.supervisor.members == {}


async def test_spawn_starts_an_agent_with_its_options_and_gives_its_id(scene):
    async with scene:
        reply = await ask(
            scene,
            "spawn",
            type="general-purpose",
            prompt="child",
            options={"description": "My task", "maxTurns": 3, "model": "anthropic/claude-opus-4-1", "name": "mine"},
        )
        assert reply["success"], reply
        node = scene.supervisor.members[reply["data"]["id"]]
        assert (node.state.description, node.state.background, node.state.name) == ("My task", True, "mine")
        launch = node.launch
        assert (launch.limits.max_turns, launch.model_name) == (3, "anthropic/claude-opus-4-1")
        await scene.model("child").asked()
        scene.model("child").say("done")
        assert (await node.wait()).text == "done"


async def test_a_model_may_be_an_object_and_an_unknown_one_gets_the_resolvers_words(scene):
    async with scene:
        model = {"provider": "anthropic", "id": "claude-opus-4-1", "apiKey": "x"}
        reply = await ask(scene, "spawn", type="general-purpose", prompt="child", options={"model": model})
        assert scene.supervisor.members[reply["data"]["id"]].launch.model_name == "anthropic/claude-opus-4-1"
        for wrong in ("no-such-model", {"id": 7}, 12):
            reply = await ask(scene, "spawn", type="general-purpose", prompt="child", options={"model": wrong})
            assert reply["success"] is False
        assert (
            'Model not found: "no-such-model"'
            in (await ask(scene, "spawn", type="general-purpose", prompt="x", options={"model": "no-such-model"}))[
                "error"
            ]
        )


@pytest.mark.parametrize(
    "options",
    [
        {"maxTurns": -1},
        {"maxTurns": "3"},
        {"maxTurns": True},
        {"thinking": "weird"},
        {"isolation": "weird"},
        {"budget": {"usd": -1}},
        {"budget": 5},
        [],
        "text",
    ],
)
async def test_options_that_mean_nothing_are_refused_and_not_ignored(scene, options):
    async with scene:
        reply = await ask(scene, "spawn", type="general-purpose", prompt="child", options=options or "text")
        assert reply["success"] is False and reply["error"], reply
        assert scene.supervisor.members == {}


async def test_without_a_session_there_is_an_error_and_no_run(scene):
    assert await scene.supervisor.bridge.rpc.call("spawn", {"type": "general-purpose", "prompt": "child"}) == {
        "success": False,
        "error": "No active session",
    }
    assert (await scene.supervisor.bridge.rpc.call("stop", {"agentId": "x"}))["error"] == "No active session"
    async with scene:
        pass
    assert await ask(scene, "spawn", type="general-purpose", prompt="child") == {
        "success": False,
        "error": "No active session",
    }
    assert scene.supervisor.members == {}


async def test_concurrent_requests_are_independent(scene):
    async with scene:
        replies = await asyncio.gather(
            *(ask(scene, "spawn", f"r{n}", type="general-purpose", prompt=f"child {n}") for n in range(5)),
            ask(scene, "spawn", "bad", type="general-purpose", prompt=" "),
        )
        ids = [reply["data"]["id"] for reply in replies[:5]]
        assert len(set(ids)) == 5
        assert [scene.supervisor.members[run_id].launch.request.task for run_id in ids] == [
            f"child {n}" for n in range(5)
        ]
        assert replies[5] == {"success": False, "error": "Missing required argument: prompt."}


async def test_a_folder_is_checked_before_anything_is_recorded(scene, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    (tmp_path / "file").write_text("")
    async with scene:
        for wrong, word in (
            ("relative", "absolute"),
            (str(tmp_path / "missing"), "does not exist"),
            (str(tmp_path / "file"), "not a directory"),
            (7, "absolute"),
            ([], "absolute"),
        ):
            reply = await ask(scene, "spawn", type="general-purpose", prompt="child", options={"cwd": wrong})
            assert word in reply["error"]
        assert scene.supervisor.members == {}
        for given, cwd in ((None, scene.folder / "project"), (str(other), other)):
            reply = await ask(scene, "spawn", type="general-purpose", prompt="child", options={"cwd": given})
            assert scene.supervisor.members[reply["data"]["id"]].launch.request.cwd == cwd


async def test_foreign_callers_cannot_set_what_only_the_supervisor_decides(scene):
    async with scene:
        main = await scene.main()
        forged = {
            "parentAgentId": main.id,
            "parent_id": main.id,
            "depth": 0,
            "rootSessionId": main.id,
            "root_id": main.id,
            "configCwd": "/",
            "resumeSessionFile": "/etc/passwd",
            "reclaim": main.state.name,
            "resume": main.id,
            "bypassQueue": True,
            "permissionMode": "acceptEdits",
            "tools": ["bash"],
        }
        reply = await ask(scene, "spawn", type="Explore", prompt="child", options=forged, **forged)
        node = scene.supervisor.members[reply["data"]["id"]]
        request = node.launch.request
        assert (request.parent_id, request.depth, request.permission_mode) == (None, 1, main.mode)
        assert request.permission_mode != "acceptEdits"
        assert node.place.root_id == node.id
        assert node.parent is None
        assert node.id != main.id
        assert "write" not in {tool.spec.name for tool in node.tools}


async def test_a_stop_of_an_agent_that_has_ended_says_so_and_a_fallback_is_named_in_the_reply(scene):
    async with scene:
        reply = await ask(scene, "spawn", type="no-such-type", prompt="work")
        assert any("no-such-type" in note for note in reply["data"]["notes"])
        node = scene.supervisor.members[reply["data"]["id"]]
        await scene.model("work").asked()
        scene.model("work").say("done")
        await node.wait()
        reply = await ask(scene, "stop", agentId=node.id)
        assert reply == {"success": False, "error": "Agent has already ended (completed)"}


async def test_stop_ends_a_live_agent_and_finds_no_other(scene):
    async with scene:
        reply = await ask(scene, "spawn", type="general-purpose", prompt="child")
        run_id = reply["data"]["id"]
        await scene.model("child").asked()
        assert await ask(scene, "stop", agentId=run_id) == {"success": True}
        node = scene.supervisor.members[run_id]
        assert (await node.wait()).ended == "stopped"
        for unknown in ("nobody", "", None, 7):
            reply = await ask(scene, "stop", agentId=unknown)
            assert reply == {"success": False, "error": "Agent not found"}


async def test_nothing_is_registered_before_the_session_and_nothing_twice(scene):
    told = []
    scene.supervisor.bridge.bus.on("subagents:rpc:ping:reply:r", told.append)
    scene.supervisor.bridge.bus.emit("subagents:rpc:ping", {"requestId": "r"})
    await asyncio.sleep(0)
    assert told == []
    async with scene:
        await scene.supervisor.__aenter__()
        scene.supervisor.bridge.rpc.open()
        scene.supervisor.bridge.bus.emit("subagents:rpc:ping", {"requestId": "r"})
        await until(lambda: told)
        assert len(told) == 1


async def test_an_unknown_type_falls_back_with_a_note_or_is_refused_by_setting(tmp_path, monkeypatch):
    scene = Scene(tmp_path, monkeypatch)
    async with scene:
        reply = await ask(scene, "spawn", type="nobody", prompt="child")
        node = scene.supervisor.members[reply["data"]["id"]]
        assert node.agent == "general-purpose"
        assert any("nobody" in note for note in node.notes)
    strict = Scene(tmp_path, monkeypatch, fallback_subagent="none")
    async with strict:
        reply = await ask(strict, "spawn", type="nobody", prompt="child")
        assert "Available agents" in reply["error"]


async def test_in_another_folder_the_agents_and_the_memory_are_the_sessions_own(scene, tmp_path):
    other = tmp_path / "other"
    for folder, name in ((scene.folder / "project", "ours"), (other, "theirs")):
        (folder / ".pi/agents").mkdir(parents=True)
        (folder / f".pi/agents/{name}.md").write_text("---\ndescription: d\nmemory: project\n---\nWork well.\n")
    async with scene:
        members = []
        for number, name in enumerate(("ours", "theirs")):
            reply = await ask(scene, "spawn", type=name, prompt=f"child {number}", options={"cwd": str(other)})
            members.append(scene.supervisor.members[reply["data"]["id"]].launch)
        assert [launch.request.spec.name for launch in members] == ["ours", "general-purpose"]
        assert str(other) in members[0].system, "the environment that it is told of"
        assert str(scene.folder / "project/.retinue/agent-memory/ours") in members[0].system


async def test_a_worktree_of_another_folder_is_made_from_its_repository_at_the_same_depth(tmp_path, monkeypatch):
    package = tmp_path / "other/packages/one"
    package.mkdir(parents=True)
    (package / "a.txt").write_text("a")
    git = ["git", "-c", "user.name=n", "-c", "user.email=e@example.com"]
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "first"]):
        subprocess.run([*git, *words], cwd=tmp_path / "other", check=True)
    async with Scene(tmp_path, monkeypatch, permissions_default_mode="bypassPermissions") as scene:
        options = {"cwd": str(package), "isolation": "worktree"}
        reply = await ask(scene, "spawn", type="general-purpose", prompt="child", options=options)
        node = scene.supervisor.members[reply["data"]["id"]]
        model = scene.model("child")
        model.call("write", path="new.txt", content="x")
        await model.asked()
        model.say("done")
        outcome = await node.wait()
    shown = subprocess.run([*git, "show", "--name-only", "--format=", outcome.branch], cwd=package, capture_output=True)
    assert shown.stdout.decode().split() == ["packages/one/new.txt"]
