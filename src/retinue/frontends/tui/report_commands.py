"""Commands that report on the conversation and the project, or open a screen that does.

Reports are lines of text: the use of the context window, the cost, the conversation as Markdown. This module does not
import the app, because the app imports it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from retinue.app.context import conversation_markdown, measure_context
from retinue.app.conversation import AttachedConversation
from retinue.app.rich_text import one_line
from retinue.app.servers import list_servers, server_line
from retinue.app.text import optional, plural
from retinue.core.format import count_tokens, format_cost, format_count, format_tokens
from retinue.core.person_prompt import words_of
from retinue.core.usage import Usage
from retinue.errors import RetinueError
from retinue.frontends.tui.board.cards import RunCard
from retinue.frontends.tui.frame import Frame, command

BAR_CELLS = 24


def context_lines(sizes: Mapping[str, int], model: str, window: int | None, counted: int = 0) -> list[str]:
    """Return a table with a bar for each part. `counted` is the token count of the provider at the last answer."""
    total = sum(sizes.values())
    head = f"{model or 'The next request'}: {count_tokens(total)}"
    if window:
        head += f" of {format_count(window)} ({_percent(total, window)}), estimated"
    lines = [head]
    rows = {name: size for name, size in sizes.items() if size}
    if window:
        rows["Free"] = max(window - total, 0)
    scale = window or max(total, 1)
    for name, size in rows.items():
        bar = _bar(size, scale)
        if name == "Free":
            bar = "·" * len(bar)
        lines.append(f"  {name:<17}  {format_count(size):>7}  {_percent(size, scale):>6}  {bar}".rstrip())
    if counted:
        lines.append(f"The provider counted {count_tokens(counted)} at the last answer.")
    lines.append("Make room: /compact, or /new for another subject.")
    return lines


def _bar(size: int, scale: int) -> str:
    full = round(size / scale * BAR_CELLS)
    return "█" * full or "▏"


def _percent(size: int, scale: int) -> str:
    return f"{size / scale * 100:.1f} %"


@dataclass(slots=True)
class CostLine:
    """The total use of all runs of one agent on one model."""

    runs: int = 0
    tokens: int = 0
    cost: float = 0.0
    unpriced: int = 0

    def add(self, usage: Usage) -> None:
        self.runs += 1
        self.tokens += usage.total_tokens
        self.cost += usage.cost_usd or 0.0
        self.unpriced += usage.cost_usd is None

    @property
    def money(self) -> str:
        if not self.cost and self.unpriced:
            return "no price known"
        return (format_cost(self.cost) or "$0") + optional(" + {} unpriced", self.unpriced)


def cost_lines(cards: Iterable[RunCard], root_id: str | None) -> list[str]:
    """Return the cost of the runs of one conversation, by agent and model. Each run is counted once."""
    spent: dict[tuple[str, str], CostLine] = {}
    together = CostLine()
    for card in cards:
        if card.root_id == root_id and card.usage.total_tokens:
            spent.setdefault((card.label, card.model or "–"), CostLine()).add(card.usage)
            together.add(card.usage)
    if not spent:
        return ["Nothing was spent in this conversation yet. All of this project: retinue cost"]
    rows = [(name, model, line) for (name, model), line in spent.items()]
    rows.append(("together", "", together))
    first = max(len(name) for name, _, _ in rows)
    second = max(len(model) for _, model, _ in rows)
    lines = []
    for name, model, line in rows:
        count = plural(line.runs, "run")
        text = f"{one_line(name):<{first}}  {one_line(model):<{second}}  {count:>7}"
        lines.append(f"{text}  {format_tokens(line.tokens):>13}  {line.money}")
    return [*lines, "All of this project: retinue cost"]


@command("context", "what fills the model's window")
async def context(app: Frame, words: str) -> None:
    """Show the parts of the next request; before the first message, the parts of the first request."""
    model = app.status_facts().model
    card = app.board.cards.get(app.talk.main_id or "")
    full = card.model if card is not None else model
    counted = card.context_tokens if card is not None else 0
    sizes = await measure_context(app.retinue, app.talk.main_id, _messages(app))
    app.tell("\n".join(context_lines(sizes, model, app.finder.window(full), counted)))


def _messages(app: Frame) -> Any:
    if app.talk.main_id is None:
        return ()
    return app.project.log.reader.conversation(app.talk.main_id).messages


@command("cost", "what this conversation and its agents have cost")
async def cost(app: Frame, words: str) -> None:
    app.tell("\n".join(cost_lines(app.board.cards.values(), app.talk.main_id)))


@command("mcp", "MCP servers of this project: state and tools")
async def mcp(app: Frame, words: str) -> None:
    listed = await asyncio.to_thread(list_servers, app.project)
    lines = [*listed.problems]
    for server in listed.servers:
        lines.append(server_line(server))
        if server.tools:
            lines.append(f"    {', '.join(server.tools)}")
    if not lines:
        lines = ["No MCP servers. Add one to mcpServers in the settings (/settings), or to .mcp.json."]
    else:
        lines.append("Start one now and see what it answers: retinue servers check NAME")
    app.tell("\n".join(lines))


@command("touched", "runs of this project that read or wrote a file", "PATH")
async def touched(app: Frame, words: str) -> None:
    if not words:
        app.tell("Name a file: /touched PATH", "warning")
        return
    await app.project.log.flush()
    runs = (await app.feed.snapshot(touched=words, limit=20)).runs
    lines = [f"{run.id[:8]}  {one_line(run.agent)}  {one_line(run.task)[:60]}" for run in runs]
    app.tell("\n".join(lines or [f"No run read or wrote {one_line(words)}."]))


@command("export", "write this conversation to a Markdown file", "[FILE]")
async def export(app: Frame, words: str) -> None:
    if app.talk.main_id is None:
        app.tell("There is no conversation to export yet.")
        return
    await app.project.log.flush()
    messages = _messages(app)
    name = words or f"conversation-{app.talk.main_id[:8]}.md"
    path = app.project.cwd / Path(name).expanduser()
    title = words_of(messages[0].text) if messages else "Conversation"
    text = app.project.redactor(conversation_markdown(title[:100], messages))
    try:
        # An existing file is never overwritten.
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        app.tell(f"{path} exists, and is left as it is. Name another file: /export FILE", "warning")
    except OSError as error:
        app.tell(f"{path} cannot be written: {error.strerror or error}.", "error")
    else:
        app.tell(f"Written to {path}.")


@command("new", "begin a new conversation; the old one stays in the log")
async def new(app: Frame, words: str) -> None:
    if app.is_busy():
        return
    await app.new_conversation()
    if words:
        app.say(words)


@command("resume", "earlier conversations, to go on with one", "[ID]")
async def resume(app: Frame, words: str) -> None:
    if not words:
        await app.open_screen("sessions")
        return
    if app.is_busy():
        return
    try:
        run = await app.feed.find(words)
    except RetinueError as error:
        app.tell(f"{error.message} See which there are: /resume", "warning")
        return
    await app.open_session(run.id)


@command("compact", "shorten the conversation before the next request; say what to keep", "[WORDS]")
async def compact(app: Frame, words: str) -> None:
    app.tell(await app.talk.compact(words))


@command("doctor", "what this installation can do, and what is missing")
async def doctor(app: Frame, words: str) -> None:
    await app.open_screen("toolkit", f"doctor {words}".strip())


@command("init", "let the main agent write AGENTS.md for this project", "[WORDS]")
async def init(app: Frame, words: str) -> None:
    if isinstance(app.talk, AttachedConversation):
        app.tell("This conversation belongs to another process: begin one of your own with /new.", "warning")
        return
    # The prompt is a command file of the package, so that `retinue -p /init` does the same.
    app.say(f"/init {words}".strip())
