"""Asking the offline planner through the real loop and the real tools."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from retinue.core.events import AssistantEnded, RunEnded
from retinue.core.messages import AssistantMessage, ToolCall, UserMessage, user
from retinue.core.outcome import Outcome
from retinue.core.tool import Tool, ToolContext
from retinue.core.usage import Limits
from retinue.loop import Controls, Job, run_loop
from retinue.testing import ModelRequest, Part, ProviderModel, ToolBench

PLACE = re.compile(r"`([^`\s:]+):(\d+)`: (`` .+? ``|`.+?`)(?=\n|$)")
NAMED = re.compile(r"`([^`\s:]+\.\w+)(?::\d+)?`")


@dataclass
class Asked:
    outcome: Outcome
    answers: list[AssistantMessage] = field(default_factory=list)

    @property
    def text(self) -> str:
        return self.outcome.text

    @property
    def calls(self) -> list[ToolCall]:
        return [call for answer in self.answers for call in answer.tool_calls]

    @property
    def named(self) -> list[str]:
        """The paths of the answer, in order."""
        return list(dict.fromkeys(NAMED.findall(self.text)))

    @property
    def quotes(self) -> list[tuple[str, int, str]]:
        return [(path, int(line), text.strip("`").strip()) for path, line, text in PLACE.findall(self.text)]


def planner() -> ProviderModel:
    return ProviderModel("embedded", "", provider="offline")


async def ask(
    question: str | Sequence[UserMessage],
    tree: Path,
    *,
    tools: Iterable[Tool] | None = None,
    limits: Limits | None = None,
    schema: Mapping[str, Any] | None = None,
) -> Asked:
    messages = (user(question),) if isinstance(question, str) else tuple(question)
    if tools is None:
        bench = ToolBench(tree)
        tools = [bench.tool(name) for name in ("read", "grep", "find", "ls")]
    job = Job(
        system="You find things.",
        messages=messages,
        context=ToolContext("run", (tree.resolve(),), tree.parent / "outputs"),
        tools=tuple(tools),
        limits=limits or Limits(),
        schema=schema,
    )
    answers = []
    async with aclosing(run_loop(job, planner(), Controls())) as bodies:
        async for body in bodies:
            if isinstance(body, AssistantEnded):
                answers.append(body.message)
            if isinstance(body, RunEnded):
                return Asked(body.outcome, answers)
    raise AssertionError("no outcome")


async def parts_of(request: ModelRequest) -> list[Part]:
    return [part async for part in planner().stream(request)]


def plant(tree: Path, files: Mapping[str, str]) -> Path:
    for path, text in files.items():
        target = tree / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
    return tree
