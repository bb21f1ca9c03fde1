"""Slash commands in an editor: skills, command files, and a few commands of this front end.

`/agents`, `/runs`, `/cost` and `/inbox` show information without a turn of the model. `/compact` compacts the
conversation, `/stop` stops a conversation that works in another process.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from retinue.app.text import align, clean_line, first_line, plural
from retinue.core.delegation import LIVE, short_id
from retinue.core.format import count_tokens, format_cost, format_count
from retinue.core.person_prompt import PromptCommand
from retinue.core.run_state import RunState
from retinue.errors import RetinueError
from retinue.frontends.acp.questions import EDITOR_NAME

if TYPE_CHECKING:
    from retinue.frontends.acp.session import AcpSession

OWN_COMMANDS = (
    PromptCommand("agents", "the agents that can be started here"),
    PromptCommand("runs", "the runs of this conversation with their status and usage"),
    PromptCommand("cost", "what this conversation and its agents have cost"),
    PromptCommand("inbox", "the waiting questions; with ID and ANSWER, answer one", "[ID ANSWER]"),
    PromptCommand("compact", "compact the conversation before the next request; WORDS state what to keep", "[WORDS]"),
    PromptCommand("stop", "stop everything that works in this conversation, also in another process"),
)
_MAX_DESCRIPTION_CHARACTERS = 300


def listed_commands(commands: Sequence[PromptCommand]) -> list[dict[str, Any]]:
    """Return the commands in the form of the protocol, those of this front end first."""
    own = {command.name for command in OWN_COMMANDS}
    entries = []
    for command in (*OWN_COMMANDS, *(command for command in commands if command.name not in own)):
        about = clean_line(command.description, _MAX_DESCRIPTION_CHARACTERS) or command.name
        entry: dict[str, Any] = {"name": command.name, "description": about}
        if command.hint:
            entry["input"] = {"hint": command.hint}
        entries.append(entry)
    return entries


async def answer_command(session: AcpSession, words: str) -> str | None:
    """Return the output of a command of this front end; None for a message to the agent."""
    handlers = {
        "agents": _agents,
        "runs": _runs,
        "cost": _cost,
        "inbox": _inbox,
        "compact": _compact,
        "stop": _stop,
    }
    line = (await session.feed.retinue()).read_line(words, handlers)
    if line.kind != "command":
        return line.text if line.kind == "unknown" else None
    try:
        return await handlers[line.name](session, line.text)
    except RetinueError as error:
        return str(error)


async def _agents(session: AcpSession, arguments: str) -> str:
    catalog = (await session.feed.retinue()).agents
    lines = [
        f"- **{entry.name}**: {clean_line(entry.spec.description, _MAX_DESCRIPTION_CHARACTERS)}"
        for entry in catalog.agents
    ]
    lines += [f"- {failed.path} cannot be loaded: {failed.reason}" for failed in catalog.failed]
    return "\n".join(lines) or "There are no agents."


async def _runs(session: AcpSession, arguments: str) -> str:
    rows = await _rows(session)
    if not rows:
        return "Nothing has run in this conversation yet."
    table = [("run", "agent", "state", "calls", "tokens", "cost")]
    for row in rows:
        indent = "  " * row.depth
        tokens = format_count(row.usage.total_tokens) if row.usage.is_counted(row.turns, row.model) else "unknown"
        spent = (str(row.tool_uses), tokens, _money(row.usage.cost_usd))
        table.append((f"{indent}{short_id(row.id)}", row.agent, row.status, *spent))
    return "\n".join(["```", *align(table, 3), "```"])


async def _cost(session: AcpSession, arguments: str) -> str:
    spent: dict[tuple[str, str], list[RunState]] = {}
    rows = [row for row in await _rows(session) if row.usage.total_tokens]
    if not rows:
        return "Nothing was spent in this conversation yet. All of this project: retinue cost"
    for row in rows:
        spent.setdefault((row.agent, row.model), []).append(row)
    table = [_cost_line(agent, model, some) for (agent, model), some in spent.items()]
    table.append(_cost_line("together", "", rows))
    return "\n".join(["```", *align(table, 2), "```", "All of this project: retinue cost"])


def _cost_line(agent: str, model: str, rows: Sequence[RunState]) -> tuple[str, ...]:
    tokens = sum(row.usage.total_tokens for row in rows)
    costs = [row.usage.cost_usd for row in rows]
    cost = None if None in costs else sum(known_cost for known_cost in costs if known_cost is not None)
    return agent, model, plural(len(rows), "run"), count_tokens(tokens), _money(cost)


def _money(cost: float | None) -> str:
    if cost is None:
        return "no price known"
    return format_cost(cost) or "$0"


async def _inbox(session: AcpSession, arguments: str) -> str:
    item_id, _, choice = arguments.partition(" ")
    if item_id and choice.strip():
        item = await session.feed.answer(item_id, choice.strip(), by=EDITOR_NAME)
        return f"Answered: {item.title}"
    lines = []
    for row in await session.feed.inbox():
        item, options = row.item, ", ".join(row.item.options) or "any words"
        lines.append(f"- `{item.id}` {item.agent}: {clean_line(item.title, _MAX_DESCRIPTION_CHARACTERS)} ({options})")
    if not lines:
        return "Nothing waits for an answer."
    return "\n".join([*lines, "Answer one with: /inbox ID ANSWER"])


async def _compact(session: AcpSession, arguments: str) -> str:
    return await session.compact(arguments)


async def _stop(session: AcpSession, arguments: str) -> str:
    live = [row for row in await _rows(session) if row.state in LIVE]
    if not live:
        return "Nothing works in this conversation."
    for row in live:
        if row.parent_id not in {parent.id for parent in live}:
            await session.feed.stop(row.id, by="person", tree=True)
    return f"{plural(len(live), 'run')} stopping: {first_line(live[0].task)[:80]}"


async def _rows(session: AcpSession) -> list[RunState]:
    if not session.has_run:
        return []
    return (await session.feed.tree(session.id)).runs
