"""One key of an agent file in a run of its own, and the list of proofs: what a key must do to a run to
be called honoured. Each proof is for a field of a spec, whatever the dialect calls the key."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from retinue import Retinue
from retinue.agents.dialects.table import FieldRow
from retinue.agents.dialects.tables import DIALECTS
from retinue.agents.parse import parse
from retinue.core.outcome import Outcome
from retinue.core.spec import AgentSpec, DialectName
from tests.program.conftest import Project
from tests.program.model_server import ModelServer, Reply, Request

HAIKU = "claude-haiku-4-5"
SERVER = Path(__file__).parents[1] / "capabilities" / "mcp" / "raw_server.py"
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
    row: FieldRow
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

    def retinue(self) -> Retinue:
        environment = {**self.project.environment, "RETINUE_ALLOW_WRITE": "true", **self.environment}
        return Retinue(self.project.cwd, environment=environment)

    async def run(self, value: str, *more: str, body: str = "Work.") -> tuple[Any, Outcome]:
        """The run of a file that says `value`, and how it ended."""
        async with self.retinue() as retinue:
            run = await retinue.spawn(self.spec(value, *more, body=body), "Do the task")
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
        async with self.retinue() as retinue:
            await (await retinue.prompt("PARENT TALK")).wait()
            await retinue.wait_all()
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


ROWS = [
    (dialect.name, row)
    for dialect in DIALECTS.values()
    for row in (*dialect.fields, *dialect.foreign)
    if row.to and dialect.exact[row.key].field is row
]
"""Every key that a dialect calls honoured or translated."""
