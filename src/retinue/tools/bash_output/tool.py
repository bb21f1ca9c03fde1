"""bash_output: what a command in the background has printed, and its end."""

from __future__ import annotations

import asyncio
from typing import ClassVar

from retinue.core.effects import ToolEffect
from retinue.core.tool import ToolContext, ToolOutput, ok
from retinue.tools.arguments import Arguments
from retinue.tools.base import Aliases, BuiltinTool, Properties
from retinue.tools.bash.background import BackgroundCommand, BackgroundCommands
from retinue.tools.errors import ToolError

LONGEST_WAIT = 120.0


class BashOutputTool(BuiltinTool):
    name = "bash_output"
    required = ()
    properties: ClassVar[Properties] = {
        "id": {"type": "string", "description": "Without one: a list"},
        "wait": {"type": "number", "description": "Seconds to wait for its end"},
        "stop": {"type": "boolean"},
    }
    aliases: ClassVar[Aliases] = {
        "id": ("bash_id", "shell_id", "task_id", "pid", "session_id"),
        "wait": ("timeout",),
        "stop": ("kill",),
    }
    ignored = frozenset({"filter", "block"})

    async def call(self, call_id: str, given: Arguments, context: ToolContext) -> ToolOutput:
        commands = context.commands
        if not isinstance(commands, BackgroundCommands):
            raise ToolError("No command can be in the background here.")
        name = given.optional_text("id")
        if name is None:
            lines = [f"{each.id} ({each.state()}): {each.command[:160]}" for each in commands.every()]
            return ok("\n".join(lines) or "You have started no command in the background.")
        command = commands.find(name.strip())
        if given.flag("stop"):
            await commands.stop(command)
        elif command.task is not None:
            seconds = min(given.number("wait") or 0.0, LONGEST_WAIT)
            await asyncio.wait({command.task}, timeout=seconds)
        return ok(shown(command), ToolEffect(command=None))


def shown(command: BackgroundCommand) -> str:
    """New output, then how the command stands."""
    new = command.take()
    return f"{new or '(no new output)'}\n[{command.id} {command.state()}]"
