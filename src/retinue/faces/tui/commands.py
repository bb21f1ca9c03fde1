"""What `/word` does: one table, from which `/help` and the completion come, too."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from retinue.faces.tui.app import RetinueApp

Handler = Callable[["RetinueApp", str], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class SlashCommand:
    """`arguments` is shown in the help, as in `/model NAME`."""

    name: str
    help: str
    handler: Handler
    arguments: str = ""


COMMANDS: dict[str, SlashCommand] = {}


def command(name: str, help: str, arguments: str = "") -> Callable[[Handler], Handler]:
    """Registers a handler under `/name`."""

    def register(handler: Handler) -> Handler:
        COMMANDS[name] = SlashCommand(name, help, handler, arguments)
        return handler

    return register


def parse(text: str) -> tuple[str, str] | None:
    """`/model gpt` as (`model`, `gpt`). None for what is no command: a path such as /etc/hosts
    in a question is none."""
    if not text.startswith("/") or text.startswith("//"):
        return None
    word, _, rest = text[1:].partition(" ")
    return (word, rest.strip()) if word and word.replace("-", "").isalpha() else None


def matching(prefix: str) -> list[SlashCommand]:
    return [entry for name, entry in sorted(COMMANDS.items()) if name.startswith(prefix)]
