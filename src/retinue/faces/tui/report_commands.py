"""Commands that tell about the conversation and the project, or open what tells it.

Reports are lines: what fills the window, what was spent, the conversation as Markdown. The app is not named here: it
imports this module.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from retinue.core.format import format_cost, format_count
from retinue.core.messages import AssistantMessage, Message, ToolCall, ToolMessage, UserMessage
from retinue.core.tool import ToolSpec
from retinue.core.usage import Usage
from retinue.errors import RetinueError
from retinue.faces.text import optional
from retinue.faces.tui.attached import Attached
from retinue.faces.tui.board.cards import RunCard
from retinue.faces.tui.board.text import clean, one_line
from retinue.faces.tui.frame import command
from retinue.models.tokens import estimate, overhead
from retinue.runs.person_prompt import describe_blocks, words_of
from retinue.runs.prompt import PromptPart

BAR = 24
_LABELS = {"instructions": "Instruction files", "delegation": "Agents", "skills": "Skills", "memory": "Memory"}
_ORDER = ("System prompt", "Tools", "MCP tools", "Agents", "Skills", "Instruction files", "Memory", "Messages")
_TOOL_LABELS = {"Agent": "Agents", "skill": "Skills"}
_SHOWN_ARGUMENTS = 200
_SHOWN_RESULT = 2_000


def measure_context(
    parts: Iterable[PromptPart], tools: Iterable[ToolSpec], messages: Sequence[Message]
) -> dict[str, int]:
    """Return how many tokens each part of the next request takes, as an estimate."""
    found = dict.fromkeys(_ORDER, 0)
    for part in parts:
        found[_LABELS.get(part.name, "System prompt")] += overhead(part.text, ())
    for tool in tools:
        label = _TOOL_LABELS.get(tool.name, "Tools")
        if tool.name.startswith("mcp__"):
            label = "MCP tools"
        found[label] += overhead("", (tool,))
    found["Messages"] = estimate(messages)
    return found


def context_lines(sizes: Mapping[str, int], model: str, window: int | None, counted: int = 0) -> list[str]:
    """Return a table with a bar for each part. `counted` is what the provider counted at the last answer."""
    total = sum(sizes.values())
    head = f"{model or 'The next request'}: {format_count(total)} tokens"
    if window:
        head += f" of {format_count(window)} ({_percent(total, window)}), estimated"
    lines = [head]
    rows = {name: size for name, size in sizes.items() if size}
    if window:
        rows["Free"] = max(window - total, 0)
    whole = window or max(total, 1)
    for name, size in rows.items():
        bar = _bar(size, whole)
        if name == "Free":
            bar = "·" * len(bar)
        lines.append(f"  {name:<17}  {format_count(size):>7}  {_percent(size, whole):>6}  {bar}".rstrip())
    if counted:
        lines.append(f"The provider counted {format_count(counted)} tokens at the last answer.")
    lines.append("Make room: /compact, or /new for another subject.")
    return lines


def _bar(size: int, whole: int) -> str:
    full = round(size / whole * BAR)
    return "█" * full or "▏"


def _percent(size: int, whole: int) -> str:
    return f"{size / whole * 100:.1f} %"


@dataclass(slots=True)
class CostLine:
    """What runs of one agent on one model took together."""

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
    """Return what the runs of one conversation cost, by agent and model. Each run counts once."""
    spent: dict[tuple[str, str], CostLine] = {}
    together = CostLine()
    for card in cards:
        if card.root_id == root_id and card.usage.total_tokens:
            spent.setdefault((card.name, card.model or "–"), CostLine()).add(card.usage)
            together.add(card.usage)
    if not spent:
        return ["Nothing was spent in this conversation yet. All of this project: retinue cost"]
    rows = [(name, model, each) for (name, model), each in spent.items()]
    rows.append(("together", "", together))
    first = max(len(name) for name, _, _ in rows)
    second = max(len(model) for _, model, _ in rows)
    lines = []
    for name, model, each in rows:
        count = f"{each.runs} run" + ("s" if each.runs != 1 else "")
        text = f"{one_line(name):<{first}}  {one_line(model):<{second}}  {count:>7}"
        lines.append(f"{text}  {format_count(each.tokens):>7} token  {each.money}")
    return [*lines, "All of this project: retinue cost"]


def conversation_markdown(title: str, messages: Iterable[Message]) -> str:
    """Return a conversation as Markdown: what was said, and a line for each call with the beginning of its result."""
    parts = [f"# {one_line(title)}"]
    results: dict[str, str] = {}
    listed = list(messages)
    for message in listed:
        if isinstance(message, ToolMessage):
            results |= {result.call_id: result.text for result in message.results}
    for message in listed:
        if isinstance(message, UserMessage):
            parts += _said(message)
        elif isinstance(message, AssistantMessage):
            parts += _answered(message, results)
    return clean("\n\n".join(parts)) + "\n"


def _said(message: UserMessage) -> list[str]:
    head = "## You"
    if message.origin not in ("task", "follow-up", "steer"):
        head = f"## ({message.origin})"
    lines = [f"- {line}" for line in describe_blocks(message.text)]
    return [head, words_of(message.text), *(["\n".join(lines)] if lines else [])]


def _answered(message: AssistantMessage, results: Mapping[str, str]) -> list[str]:
    parts = ["## Agent"]
    if message.text:
        parts.append(message.text)
    for call in message.tool_calls:
        parts.append(_call(call, results.get(call.id, "")))
    return parts if len(parts) > 1 else []


def _call(call: ToolCall, result: str) -> str:
    given = ", ".join(f"{name}: {one_line(str(value))}" for name, value in call.arguments.items())[:_SHOWN_ARGUMENTS]
    if not result:
        return f"**{call.name}** {given}"
    shown = result[:_SHOWN_RESULT]
    if len(result) > len(shown):
        shown += "\n…"
    # More backticks than the text has in a row, so that it cannot end the block.
    fence = "```"
    while fence in shown:
        fence += "`"
    return f"**{call.name}** {given}\n\n{fence}\n{shown}\n{fence}"


App = Any


@command("context", "what fills the model's window")
async def context(app: App, rest: str) -> None:
    """Show the parts of the next request. Before the first message: what that one would carry."""
    from retinue.core.request import RunRequest
    from retinue.faces.dialogue import main_agent
    from retinue.runs.preview import preview

    project = app.project
    node = app.retinue.supervisor.members.get(app.talk.main_id or "")
    seen = await preview(RunRequest(spec=main_agent(), task="context", cwd=project.cwd), project)
    tools = [tool.spec for tool in seen.tools]
    if node is not None:
        # What the run has, with the tools of servers that are connected.
        tools = [tool.spec for tool in node.handle.launch.tools]
    messages = _messages(app)
    model = app.status_facts().model
    card = app.board.cards.get(app.talk.main_id or "")
    full = card.model if card is not None else model
    counted = card.context_tokens if card is not None else 0
    sizes = measure_context(seen.parts, tools, messages)
    app.tell("\n".join(context_lines(sizes, model, app.finder.window(full), counted)))


def _messages(app: App) -> Any:
    if app.talk.main_id is None:
        return ()
    return app.project.log.reader.conversation(app.talk.main_id).messages


@command("cost", "what this conversation and its agents have cost")
async def cost(app: App, rest: str) -> None:
    app.tell("\n".join(cost_lines(app.board.cards.values(), app.talk.main_id)))


@command("mcp", "MCP servers of this project: state and tools")
async def mcp(app: App, rest: str) -> None:
    from retinue.capabilities.mcp.servers import project_servers
    from retinue.faces.cli.servers import describe, line

    found = project_servers(app.project)
    lines = [*found.problems]
    for config in found.servers.values():
        server = await asyncio.to_thread(describe, config, app.project)
        lines.append(line(server))
        if server["tools"]:
            lines.append(f"    {', '.join(server['tools'])}")
    if not lines:
        lines = ["No MCP servers. Add one to mcpServers in the settings (/settings), or to .mcp.json."]
    else:
        lines.append("Start one now and see what it answers: retinue servers check NAME")
    app.tell("\n".join(lines))


@command("export", "write this conversation to a Markdown file", "[FILE]")
async def export(app: App, rest: str) -> None:
    if app.talk.main_id is None:
        app.tell("There is no conversation to write yet.")
        return
    await app.project.log.flush()
    messages = _messages(app)
    name = rest or f"conversation-{app.talk.main_id[:8]}.md"
    path = app.project.cwd / Path(name).expanduser()
    title = words_of(messages[0].text) if messages else "Conversation"
    text = app.project.redactor(conversation_markdown(title[:100], messages))
    try:
        # Never over a file that is there.
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        app.tell(f"{path} exists, and is left as it is. Name another file: /export FILE", "warning")
    except OSError as error:
        app.tell(f"{path} cannot be written: {error.strerror or error}.", "error")
    else:
        app.tell(f"Written to {path}.")


@command("new", "begin a new conversation; the old one stays in the log")
async def new(app: App, rest: str) -> None:
    if app.is_busy():
        return
    await app.new_conversation()
    if rest:
        app.say(rest)


@command("resume", "earlier conversations, to go on with one", "[ID]")
async def resume(app: App, rest: str) -> None:
    if not rest:
        await app.open_screen("sessions")
        return
    from retinue.runs.resume import find_run

    if app.is_busy():
        return
    try:
        found = find_run(app.project.log.reader, rest)
    except RetinueError as error:
        app.tell(f"{error.message} See which there are: /resume", "warning")
        return
    await app.open_session(found.id)


@command("compact", "shorten the conversation before the next request; say what to keep", "[WORDS]")
async def compact(app: App, rest: str) -> None:
    app.tell(await app.talk.compact(rest))


@command("doctor", "what this installation can do, and what is missing")
async def doctor(app: App, rest: str) -> None:
    await app.open_screen("toolkit", f"doctor {rest}".strip())


@command("init", "let the main agent write AGENTS.md for this project", "[WORDS]")
async def init(app: App, rest: str) -> None:
    if isinstance(app.talk, Attached):
        app.tell("This conversation belongs to another process: begin one of your own with /new.", "warning")
        return
    # The text is a command's file that is shipped, so that `retinue -p /init` does the same.
    app.say(f"/init {rest}".strip())
