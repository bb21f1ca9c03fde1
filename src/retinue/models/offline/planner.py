"""The model that is always there: no weights, no network, no key.

It plans searches with the agent's own tools, reads the best places and reports them. It answers
through the same protocol as a language model and never claims to be one. It keeps no state: each
request is decided from its messages alone, so resuming, forking and replaying just work.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

from retinue.core.events import TextDelta
from retinue.core.messages import AssistantMessage, Text, ToolCall
from retinue.core.outcome import Failure
from retinue.models.offline.answer import Findings, fill, report
from retinue.models.offline.question import Query, Situation, read
from retinue.models.offline.ranking import Ranking
from retinue.models.offline.search import Wanted, gather, inspect, survey, widen
from retinue.models.offline.tools import Toolbox
from retinue.models.protocol import Finished, ModelInfo, ModelRequest, Part, Prices, ToolCallStarted

INFO = ModelInfo(
    provider="offline",
    id="planner",
    name="Search planner, no language model",
    window=1_000_000,
    max_output=8_192,
    images=False,
    prices=Prices(0.0, 0.0, 0.0, 0.0),
)


class OfflineModel:
    """Deterministic: the same request gives the same answer, and no tokens are counted because
    none are used."""

    @property
    def info(self) -> ModelInfo:
        return INFO

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Part, None]:
        try:
            decided = await asyncio.to_thread(decide, request)
        except Exception as error:  # noqa: BLE001 - the protocol allows nothing but cancellation to be raised
            failure = Failure("internal", f"The offline planner failed: {type(error).__name__}: {error}")
            yield Finished(AssistantMessage((), "error", model=INFO.full_name, failure=failure))
            return
        if isinstance(decided, str):
            for line in decided.splitlines(keepends=True):
                yield TextDelta(line)
            yield Finished(AssistantMessage((Text(decided),), "end", model=INFO.full_name))
            return
        for call in decided:
            yield ToolCallStarted(call.name)
        yield Finished(AssistantMessage(tuple(decided), "tool_use", model=INFO.full_name))

    async def close(self) -> None:
        """Nothing is open."""


def decide(request: ModelRequest) -> str | list[ToolCall]:
    """The next tool calls, or the final report."""
    situation = read(request.messages)
    toolbox = Toolbox.of(() if request.tool_choice == "none" else request.tools)
    query = Query.of(situation.task)
    evidence = gather([pair for turn in situation.turns for pair in turn], toolbox, query)
    ranked = Ranking(query, evidence).rank()
    findings = Findings(query, evidence, ranked, situation.wish, situation.last_call)
    if findings.searchable and not situation.last_call:
        wanted = _next(len(situation.turns), findings, toolbox)
        if wanted:
            turn = sum(isinstance(message, AssistantMessage) for message in request.messages) + 1
            return [
                ToolCall(f"offline_{turn}_{number}", tool.spec.name, tool.arguments(**values))
                for number, (tool, values) in enumerate(wanted, 1)
            ]
    return _final(request, situation, findings, toolbox)


def _next(turns: int, findings: Findings, toolbox: Toolbox) -> list[Wanted]:
    """Return the calls of the next turn: survey, widen if that found nothing, inspect; then none."""
    if turns == 0:
        return survey(findings.query, toolbox)
    if not findings.ranked:
        return widen(findings.query, toolbox, findings.evidence) if turns == 1 else []
    if findings.evidence.inspected:
        return []
    return inspect(findings.query, toolbox, [one.path for one in findings.ranked])


def _final(request: ModelRequest, situation: Situation, findings: Findings, toolbox: Toolbox) -> str | list[ToolCall]:
    if not toolbox.tools and situation.wish == "find" and not situation.turns:
        return _NO_TOOLS
    offered = next((spec for spec in request.tools if spec.ends_run or spec.name == "submit_result"), None)
    if offered is None or request.tool_choice == "none":
        return report(findings)
    refused = any(call.name == offered.name for turn in situation.turns for call, _ in turn)
    filled = None if refused else fill(offered.parameters, findings)
    if filled is None:
        return f"{_NO_SCHEMA}\n\n{report(findings)}"
    return [ToolCall("submit_1", offered.name, filled)]


_NO_TOOLS = (
    "I am Retinue's offline search planner, not a language model. I work only through tools that search and read "
    "files, and this run has none of them. `retinue models list` shows how to use a real model."
)
_NO_SCHEMA = (
    "A structured result is asked for that a search cannot fill honestly, so nothing is submitted. "
    "A language model could: see `retinue models list`."
)
