"""Commands that tell about the conversation and the project, or open what tells it.

The app is not named here: it imports this module.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from retinue.errors import RetinueError
from retinue.faces.tui.attached import Attached
from retinue.faces.tui.board.reports import context_lines, conversation_markdown, cost_lines, measure_context
from retinue.faces.tui.frame import command
from retinue.runs.person_prompt import words_of

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
