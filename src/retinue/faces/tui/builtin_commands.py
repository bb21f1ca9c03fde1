"""The commands that need no screen of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from retinue.core.format import format_cost, format_count
from retinue.errors import UnknownModelError
from retinue.faces.tui.frame import command
from retinue.faces.tui.session import Attached

if TYPE_CHECKING:
    from retinue.faces.tui.app import RetinueApp


@command("compact", "shorten the conversation before the next request")
async def compact(app: RetinueApp, rest: str) -> None:
    app.tell(await app.talk.compact())


@command("clear", "begin a new conversation; the old one stays in the log")
async def clear(app: RetinueApp, rest: str) -> None:
    if app.talk.state == "working" and not isinstance(app.talk, Attached):
        app.tell("The main agent is at work: interrupt it with Esc first.", "warning")
        return
    await app.new_conversation()


@command("model", "which model is used, or another from the next message on", "[NAME]")
async def model(app: RetinueApp, rest: str) -> None:
    if rest:
        await _switch(app, rest)
        return
    from retinue.faces.cli.models import gather_models, line

    project = app.retinue.supervisor.project
    models, active, problem = await gather_models(project.settings)
    now = app.status_facts().model or (active.info.full_name if active is not None else "")
    rows = [f"{'*' if info.full_name == now else ' '} {line(info)}" for info in models]
    if problem is not None:
        rows.append(problem.message)
    app.tell("\n".join([*rows, "Another one: /model NAME"]))


async def _switch(app: RetinueApp, name: str) -> None:
    from retinue.models.select import select_model

    if isinstance(app.talk, Attached):
        app.tell("This conversation belongs to another process: its model cannot be changed from here.", "warning")
        return
    project = app.retinue.supervisor.project
    try:
        chosen = await select_model(
            name, settings=project.settings.settings, environment=project.environment, transport=project.transport
        )
    except UnknownModelError as error:
        app.tell(f"{error.message}\n{error.remedy}".strip(), "error")
        return
    app.session.model = chosen.info.full_name
    app.tell(f"From your next message on: {chosen.info.full_name}.")


@command("cost", "what this conversation and its agents have cost")
async def cost(app: RetinueApp, rest: str) -> None:
    cards = [card for card in app.board.cards.values() if card.usage.total_tokens]
    if not cards:
        app.tell("Nothing was spent yet.")
        return
    width = max(len(card.name) for card in cards)
    rows = [
        f"{card.name:<{width}}  {format_count(card.usage.total_tokens):>7} token  {format_cost(card.usage.cost_usd)}"
        for card in cards
    ]
    tokens = sum(card.usage.total_tokens for card in cards)
    spent = sum(card.usage.cost_usd or 0.0 for card in cards)
    unpriced = sum(card.usage.cost_usd is None for card in cards)
    note = f" + {unpriced} unpriced" if unpriced else ""
    total = f"{'together':<{width}}  {format_count(tokens):>7} token  {format_cost(spent) or '$0'}{note}"
    app.tell("\n".join([*rows, total, "All of this project: retinue cost"]))


@command("theme", "light or dark colours", "[light|dark|auto]")
async def choose_theme(app: RetinueApp, rest: str) -> None:
    if rest not in ("light", "dark", "auto", ""):
        app.tell(f"There is no theme '{rest}': light, dark or auto.", "warning")
        return
    if not rest:
        rest = "light" if app.current_theme.dark else "dark"
    from retinue.settings.write import save_settings

    project = app.retinue.supervisor.project
    saved = save_settings({"theme": rest}, cwd=project.cwd, target="user", environment=project.environment)
    app.retinue.supervisor.reload_settings(persisted=saved.persisted)
    app.use_theme(rest)


@command("stop", "stop a run of this conversation, by its @name; without one all agents", "[@NAME]")
async def stop(app: RetinueApp, rest: str) -> None:
    if isinstance(app.talk, Attached):
        app.tell(await app.talk.stop())
        return
    supervisor = app.retinue.supervisor
    name = rest.removeprefix("@").lower()
    members = [
        each
        for each in supervisor.members.values()
        if each.live and each.id != app.talk.main_id and (not name or each.name == name)
    ]
    count = sum(supervisor.stop_tree(each, "Stopped by the user.") for each in members if each.live)
    app.tell(f"{count} stopping." if count else "Nothing of that name runs." if name else "No agent runs.")


@command("statusline", "let an agent set up the status line; say what it should show", "[WISH]")
async def statusline(app: RetinueApp, rest: str) -> None:
    wish = rest or "Show what is useful; follow my shell's prompt (PS1) if I have one."
    run = await app.retinue.spawn("statusline-setup", wish)
    app.tell(f"The agent {run.agent} works on it; you will see it in the list of agents.")
    outcome = await run.wait()
    app.retinue.supervisor.reload_settings()
    app.tell(outcome.text or "It said nothing.", "info" if outcome.ok else "error")


@command("quit", "leave")
async def leave(app: RetinueApp, rest: str) -> None:
    await app.leave()


@command("exit", "leave")
async def leave_too(app: RetinueApp, rest: str) -> None:
    await app.leave()
