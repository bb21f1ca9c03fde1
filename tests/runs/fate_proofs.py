"""What a key of an agent file must do to a run to be called honoured: one proof for each field of a
spec, whatever the dialect calls the key. Each writes the key into a file of the dialect, launches it
and looks at the request, the tools, the files or the outcome."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from retinue import Retinue
from retinue.definitions.dialects import DIALECTS
from retinue.definitions.dialects.table import Field
from retinue.definitions.parse import parse
from retinue.domain.outcome import Outcome
from retinue.domain.spec import AgentSpec, DialectName
from retinue.errors import DisabledAgentError, LaunchError
from retinue.faces.tui.board.board import Board
from retinue.supervisor.runner import compaction_share
from tests.runs.conftest import Project
from tests.runs.model_server import ModelServer, Reply, Request

HAIKU = "claude-haiku-4-5"
SERVER = Path(__file__).parents[1] / "extensions" / "raw_server.py"
FORECAST = """
from retinue import tool

@tool(effects=["read"])
def forecast(city: str) -> str:
    "The weather in a city."
    return "sunny"
"""
HOMES: dict[DialectName, str] = {
    "claude": ".claude/agents/prober.md",
    "pi": ".pi/agent/agents/prober.md",
    "devkit": ".pi/agent/agents/prober.md",
    "codingcode": ".codingcode/agents/prober.md",
    "opencode": ".config/opencode/agent/prober.md",
    "gemini": ".gemini/agents/prober.md",
    "cursor": ".cursor/agents/prober.md",
    "retinue": ".retinue/agents/prober.md",
}
"""Where the user's own agents of a dialect lie. Files of the others are found in projects, or only
when they are named."""


@dataclass
class Scene:
    """One key of one dialect in a project of its own."""

    project: Project
    server: ModelServer
    dialect: DialectName
    row: Field
    environment: dict[str, str] = field(default_factory=dict)
    beside: tuple[str, ...] = ()
    """Further lines of the file of an agent that another one starts."""

    def file(self, value: str, *more: str, body: str = "Work.") -> str:
        """The text of a file that says `value` under the key; `more` are lines beside it."""
        lines = {"name": "name: prober", "description": "description: A prober of things"}
        lines[self.row.key] = f"{self.row.key}: {value}"
        text = "\n".join([*lines.values(), *more])
        return f"{text}\n" if self.dialect == "kimi" else f"---\n{text}\n---\n{body}\n"

    def spec(self, value: str, *more: str, body: str = "Work.") -> AgentSpec:
        text = self.file(value, *more, body=body)
        parsed = parse(text.encode(), path=f"{self.project.home}/prober.md", dialect=self.dialect, source="user")
        assert parsed.spec is not None, parsed.error
        assert parsed.fates[self.row.key].fate != "ignored"
        return parsed.spec

    def crew(self) -> Retinue:
        environment = {**self.project.environment, "RETINUE_ALLOW_WRITE": "true", **self.environment}
        return Retinue(self.project.cwd, environment=environment)

    async def run(self, value: str, *more: str, body: str = "Work.") -> tuple[Any, Outcome]:
        """The run of a file that says `value`, and how it ended."""
        async with self.crew() as crew:
            run = await crew.spawn(self.spec(value, *more, body=body), "Do the task")
            return run, await run.wait()

    async def delegated(self, value: str, **call: Any) -> tuple[Request, str]:
        """The first request of the agent when another starts it, and what that one was told."""
        place = self.project.home / HOMES[self.dialect]
        place.parent.mkdir(parents=True, exist_ok=True)
        writable = ("readonly: false",) if self.dialect == "devkit" else ()
        place.write_text(self.file(value, *writable, *self.beside))
        arguments = {"subagent_type": "prober", "prompt": "CHILD TASK", "description": "d", **call}

        def answer(request: Request) -> Reply:
            if _is_child(request):
                return Reply("the child's answer")
            return Reply("done", calls=[("Agent", arguments)] if request.turn == 0 else [])

        self.server.answer = answer
        async with self.crew() as crew:
            await (await crew.prompt("PARENT TALK")).wait()
            await crew.wait_all()
        child = next(each for each in self.server.requests if _is_child(each))
        told = next(each for each in self.server.requests if each.turn == 1 and not _is_child(each))
        return child, json.dumps(told.results)

    @property
    def first(self) -> dict[str, Any]:
        return self.server.requests[0].body

    @property
    def tools(self) -> set[str]:
        return {tool["name"] for tool in self.server.requests[-1].body.get("tools", [])}

    @property
    def system(self) -> str:
        return json.dumps(self.first["system"], ensure_ascii=False)

    def calls(self, *calls: tuple[str, dict[str, Any]], then: Reply | None = None) -> None:
        """Let the model make one call a turn, and then answer."""

        def answer(request: Request) -> Reply:
            return Reply("", calls=[calls[request.turn]]) if request.turn < len(calls) else then or Reply("done")

        self.server.answer = answer

    def calls_for_ever(self) -> None:
        self.server.answer = lambda request: Reply("", calls=[("read", {"path": f"f{request.turn % 5}.txt"})])


def _is_child(request: Request) -> bool:
    return "CHILD TASK" in json.dumps(request.body["messages"][0])


Proof = Callable[[Scene], Awaitable[None]]
PROOFS: dict[str, Proof] = {}


def proves(*fields: str) -> Callable[[Proof], Proof]:
    def keep(proof: Proof) -> Proof:
        PROOFS.update(dict.fromkeys(fields, proof))
        return proof

    return keep


@proves("name")
async def name(scene: Scene) -> None:
    run, _ = await scene.run("prober")
    assert run.agent == "prober"


@proves("display_name", "color")
async def looks(scene: Scene) -> None:
    run, _ = await scene.run("green")
    board = Board()
    cards = [board.take(event) for event in run.recorded()]
    assert "green" in (cards[-1].label, cards[-1].color)


@proves("description")
async def description(scene: Scene) -> None:
    more = {"description": "seeks pearls"}.get(scene.row.key, "seeks pearls")
    if scene.dialect not in HOMES:
        only = scene.file(more).replace("description: A prober of things\n", "")
        parsed = parse(only.encode(), path="prober.yaml", dialect=scene.dialect)
        assert parsed.spec is not None and parsed.spec.description == more, "nobody can find it to delegate to it"
        return
    await scene.delegated(more)
    (agent,) = [tool for tool in scene.first["tools"] if tool["name"] == "Agent"]
    assert "seeks pearls" in agent["description"]


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


@proves("skills")
async def skills(scene: Scene) -> None:
    skill = scene.project.home / ".claude/skills/pdf/SKILL.md"
    skill.parent.mkdir(parents=True)
    skill.write_text("---\nname: pdf\ndescription: About pages\n---\nTurn every page.\n")
    await scene.run("pdf")
    assert "Turn every page." in scene.system


@proves("memory")
async def memory(scene: Scene) -> None:
    await scene.run("project")
    assert str(scene.project.cwd / ".retinue/agent-memory/prober") in scene.system


@proves("isolation")
async def isolation(scene: Scene) -> None:
    git = ["git", "-c", "user.name=n", "-c", "user.email=e@example.com"]
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "first"]):
        subprocess.run([*git, *words], cwd=scene.project.cwd, check=True)
    scene.calls(("write", {"path": "new.txt", "content": "x"}))
    _, outcome = await scene.run("worktree")
    assert outcome.branch and not (scene.project.cwd / "new.txt").exists()


@proves("model.name")
async def model(scene: Scene) -> None:
    await scene.run(f"anthropic/{HAIKU}")
    assert scene.first["model"].startswith(HAIKU)


@proves("model.fallbacks")
async def fallback_models(scene: Scene) -> None:
    await scene.run(f"anthropic/{HAIKU}", "model: mistral/nowhere")
    assert scene.first["model"].startswith(HAIKU)


@proves("model.thinking")
async def thinking(scene: Scene) -> None:
    await scene.run("high")
    assert scene.first["thinking"]["budget_tokens"] > 0


@proves("model.temperature")
async def temperature(scene: Scene) -> None:
    await scene.run("0.3")
    assert scene.first["temperature"] == 0.3


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


@proves("prompt_mode")
async def prompt_mode(scene: Scene) -> None:
    await scene.run("replace")
    alone = len(scene.system)
    scene.server.requests.clear()
    await scene.run("append")
    assert len(scene.system) > alone and "Work." in scene.system


@proves("initial_prompt")
async def initial_prompt(scene: Scene) -> None:
    await scene.run("Look around first")
    assert "Look around first\\n\\nDo the task" in json.dumps(scene.first["messages"][0])


@proves("inherit_context")
async def inherit_context(scene: Scene) -> None:
    if scene.dialect in HOMES:
        child, _ = await scene.delegated("true")
        assert "PARENT TALK" in json.dumps(child.body["messages"])


@proves("omit_instructions")
async def omit_instructions(scene: Scene) -> None:
    if scene.dialect not in HOMES:
        return
    (scene.project.cwd / "CLAUDE.md").write_text("Always sing.\n")
    if scene.dialect == "retinue":
        scene.beside = ("prompt_mode: append",)
        told, _ = await scene.delegated("false")
        assert "Always sing." in json.dumps(told.body["system"])
        scene.server.requests.clear()
    child, _ = await scene.delegated("true")
    assert "Always sing." not in json.dumps(child.body["system"])


@proves("compact_at_tokens")
async def compact_at_tokens(scene: Scene) -> None:
    run, _ = await scene.run("50000")
    assert compaction_share(run.launch, 0.85) == 50_000 / run.launch.model.info.window


@proves("background")
async def background(scene: Scene) -> None:
    if scene.dialect not in HOMES:
        return
    scene.environment = {"RETINUE_BACKGROUND_BY_DEFAULT": "false"}
    _, told = await scene.delegated("true")
    assert "in the background" in told and "the child's answer" not in told


@proves("permission_mode")
async def permission_mode(scene: Scene) -> None:
    scene.project.mode = ""  # a parent that bypasses all questions goes before the file
    scene.calls(("write", {"path": "new.txt", "content": "x"}))
    run, _ = await scene.run("plan")
    assert run.launch.mode == "plan" and "write" not in scene.tools
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


@proves("session.transcript", "session.persist")
async def transcript(scene: Scene) -> None:
    scene.environment = {"RETINUE_OUTPUT_TRANSCRIPT": "false"}
    run, _ = await scene.run("true")
    assert run.launch.transcript and Path(run.launch.transcript).is_file()


@proves("session.directory")
async def session_directory(scene: Scene) -> None:
    run, _ = await scene.run("kept/sessions")
    assert (scene.project.cwd / f"kept/sessions/{run.id}.jsonl").read_text().count("\n") >= 2


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
    async with scene.crew() as crew:
        await (await crew.prompt("PARENT TALK")).wait()
    (agent,) = [tool for tool in scene.first["tools"] if tool["name"] == "Agent"]
    return str(agent["description"])


@proves("prompt")
async def prompt(scene: Scene) -> None:
    value = "Seek pearls only" if "mapping" not in scene.row.kind.type else "{ROLE_ADDITIONAL: Seek pearls only}"
    await scene.run(value, body="")
    assert "Seek pearls only" in scene.system


ROWS = [
    (dialect.name, row)
    for dialect in DIALECTS.values()
    for row in (*dialect.fields, *dialect.foreign)
    if row.to and dialect.exact[row.key].field is row
]
"""Every key that a dialect calls honoured or translated."""
