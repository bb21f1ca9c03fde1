"""Proofs for the fields that give or limit: tools, calls, places, other agents, turns, time and money."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from retinue.errors import DisabledAgentError, LaunchError
from tests.program.fate_scene import FORECAST, HOMES, SERVER, Scene, proves
from tests.program.model_server import Reply


@proves("tools.allow")
async def allowed_tools(scene: Scene) -> None:
    await scene.run("read")
    assert "read" in scene.tools and not scene.tools & {"write", "edit", "bash", "grep"}


@proves("tools.deny")
async def denied_tools(scene: Scene) -> None:
    await scene.run("write")
    assert "read" in scene.tools and "write" not in scene.tools


@proves("tools.rules")
async def tool_rules(scene: Scene) -> None:
    await scene.run("[read]" if "list" in scene.row.kind.type else "{write: deny, edit: deny}")
    assert "read" in scene.tools and not scene.tools & {"write", "edit"}


@proves("tools.extensions", "tools.exclude_extensions", "isolated")
async def extensions(scene: Scene) -> None:
    plugin = scene.project.home / ".retinue/plugins/weather.py"
    plugin.parent.mkdir(parents=True)
    plugin.write_text(FORECAST)
    value = {"tools.extensions": "false", "tools.exclude_extensions": "weather", "isolated": "true"}[str(scene.row.to)]
    await scene.run({"isolated": "false", "tools.extensions": "true"}.get(str(scene.row.to), "another"))
    assert "forecast" in scene.tools
    await scene.run(value)
    assert "forecast" not in scene.tools and "read" in scene.tools


@proves("isolation")
async def isolation(scene: Scene) -> None:
    git = ["git", "-c", "user.name=n", "-c", "user.email=e@example.com"]
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "first"]):
        subprocess.run([*git, *words], cwd=scene.project.cwd, check=True)
    scene.calls(("write", {"path": "new.txt", "content": "x"}))
    _, outcome = await scene.run("true" if scene.row.key == "worktree" else "worktree")
    assert outcome.branch and not (scene.project.cwd / "new.txt").exists()


@proves("max_turns")
async def max_turns(scene: Scene) -> None:
    scene.calls_for_ever()
    scene.environment = {"RETINUE_GRACE_TURNS": "1"}
    _, outcome = await scene.run("2")
    assert (outcome.ended, outcome.turns) == ("aborted", 3)


@proves("timeout_seconds")
async def timeout(scene: Scene) -> None:
    run, _ = await scene.run("3")
    assert run.launch.limits.seconds == (180.0 if "minutes" in scene.row.kind.type else 3.0)


@proves("budget")
async def budget(scene: Scene) -> None:
    scene.calls_for_ever()
    _, outcome = await scene.run("\n  turns: 2")
    assert (outcome.ended, outcome.turns) == ("over-budget", 2)


@proves("permission_mode")
async def permission_mode(scene: Scene) -> None:
    scene.project.mode = ""  # a parent that bypasses all questions goes before the file
    scene.calls(("write", {"path": "new.txt", "content": "x"}))
    run, _ = await scene.run("plan")
    assert run.mode == "plan" and "write" not in scene.tools
    assert not (scene.project.cwd / "new.txt").exists()


@proves("readonly")
async def readonly(scene: Scene) -> None:
    scene.calls(("write", {"path": "new.txt", "content": "x"}))
    await scene.run("read-only" if scene.row.key == "sandbox" else "true")
    assert "write" not in scene.tools and not (scene.project.cwd / "new.txt").exists()


@proves("rollback")
async def rollback(scene: Scene) -> None:
    scene.calls(("write", {"path": "new.txt", "content": "x"}), then=Reply(status=400))
    _, outcome = await scene.run("on-failure")
    assert not outcome.ok and not (scene.project.cwd / "new.txt").exists()


@proves("servers")
async def servers(scene: Scene) -> None:
    scene.environment = {"RETINUE_MCP_START_TIMEOUT_SECONDS": "120"}  # a busy machine is no failure
    config = {"light": {"command": sys.executable, "args": [str(SERVER), "names=add"]}}
    await scene.run(json.dumps(config))
    assert "mcp__light__add" in scene.tools


@proves("required_servers")
async def required_servers(scene: Scene) -> None:
    with pytest.raises(LaunchError, match="nowhere"):
        await scene.run("[nowhere]")


@proves("hooks")
async def hooks(scene: Scene) -> None:
    mark = scene.project.home / "mark"
    handler = {"type": "command", "command": f"touch {mark}"}
    scene.calls(("read", {"path": "f0.txt"}))
    await scene.run(json.dumps({"PreToolUse": [{"matcher": "", "hooks": [handler]}]}))
    assert mark.exists()


@proves("subagents")
async def subagents(scene: Scene) -> None:
    await scene.run("[Explore]")
    (agent,) = [tool for tool in scene.first["tools"] if tool["name"] == "Agent"]
    assert "- Explore" in agent["description"] and "- Plan" not in agent["description"]


@proves("output_schema")
async def output_schema(scene: Scene) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    scene.calls(("submit_result", {"a": 5}))
    _, outcome = await scene.run(json.dumps(schema))
    assert outcome.value == {"a": 5}


@proves("enabled")
async def enabled(scene: Scene) -> None:
    with pytest.raises(DisabledAgentError):
        await scene.run("false" if scene.row.key == "enabled" else "true")


@proves("offered")
async def offered(scene: Scene) -> None:
    if scene.dialect not in HOMES:
        assert not scene.spec("true").offered, "nobody can find it to delegate to it"
        return
    shown, hidden = ("all", "primary") if scene.row.key == "mode" else ("false", "true")
    assert "- prober" in await _delegation_tool(scene, shown)
    assert "- prober" not in await _delegation_tool(scene, hidden)


async def _delegation_tool(scene: Scene, value: str) -> str:
    """How the tool that starts agents is described beside a file that says `value`."""
    scene.server.requests.clear()
    place = scene.project.home / HOMES[scene.dialect]
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(scene.file(value))
    async with scene.retinue() as retinue:
        await (await retinue.prompt("PARENT TALK")).wait()
    (agent,) = [tool for tool in scene.first["tools"] if tool["name"] == "Agent"]
    return str(agent["description"])


@proves("placement")
async def placement(scene: Scene) -> None:
    _, outcome = await scene.run("local")
    assert outcome.ok
    # Without a cluster to place it on, the run does not start: the key was read.
    with pytest.raises(LaunchError, match="placed on a cluster"):
        await scene.run("cluster")
