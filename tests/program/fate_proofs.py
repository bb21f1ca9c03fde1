"""Proofs for the fields that say who an agent is and what its model is told: the request is looked at."""

from __future__ import annotations

import json
from pathlib import Path

from retinue.agents.parse import parse
from retinue.frontends.tui.board.board import Board
from retinue.runs.execute import compaction_share
from tests.program.fate_scene import HAIKU, HOMES, Scene, proves


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


@proves("session.transcript", "session.persist")
async def transcript(scene: Scene) -> None:
    scene.environment = {"RETINUE_OUTPUT_TRANSCRIPT": "false"}
    run, _ = await scene.run("true")
    assert run.launch.transcript and Path(run.launch.transcript).is_file()


@proves("session.directory")
async def session_directory(scene: Scene) -> None:
    run, _ = await scene.run("kept/sessions")
    assert (scene.project.cwd / f"kept/sessions/{run.id}.jsonl").read_text().count("\n") >= 2


@proves("prompt")
async def prompt(scene: Scene) -> None:
    value = "Seek pearls only" if "mapping" not in scene.row.kind.type else "{ROLE_ADDITIONAL: Seek pearls only}"
    await scene.run(value, body="")
    assert "Seek pearls only" in scene.system
