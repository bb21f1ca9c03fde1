"""The commands that need no screen of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from retinue.faces.tui.commands import COMMANDS, command

if TYPE_CHECKING:
    from retinue.faces.tui.app import RetinueApp


@command("help", "what can be done here")
async def show_help(app: RetinueApp, rest: str) -> None:
    width = max(len(f"{entry.name} {entry.arguments}") for entry in COMMANDS.values())
    lines = [
        f"/{f'{e.name} {e.arguments}':<{width}}  {e.help}" for e in sorted(COMMANDS.values(), key=lambda e: e.name)
    ]
    app.tell("\n".join(lines))


@command("compact", "shorten the conversation before the next request")
async def compact(app: RetinueApp, rest: str) -> None:
    app.tell("It will be shortened." if app.session.compact() else "Nothing runs that could be shortened.")


@command("clear", "begin a new conversation; the old one stays in the log")
async def clear(app: RetinueApp, rest: str) -> None:
    app.session.clear()
    await app.empty_chat()


@command("quit", "leave")
async def leave(app: RetinueApp, rest: str) -> None:
    app.exit(0)
