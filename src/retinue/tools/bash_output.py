"""bash_output, and the background commands of a run: started, read, stopped, and ended with the run.

Each is a program like any other command: in the run's sandbox, marked, in a session of its own.
What it prints goes to a file of the run's outputs, of which a model reads what is new.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import ClassVar

from retinue.core.permission import ToolEffect
from retinue.core.programs import PreparedProgram
from retinue.core.tool import ToolContext, ToolOutput, ok
from retinue.tools.base import Aliases, Arguments, BuiltinTool, Properties, ToolError
from retinue.tools.capture import StreamCleaner, head_and_tail
from retinue.tools.processes import ProcessEnd, run_program

MOST = 8
SHOWN = 20_000
FILE_BYTES = 16 * 1024 * 1024
_SETTLE_SECONDS = 0.3
"""How long a start waits: a command that fails at once says so in the result of its start."""


class BackgroundCommand:
    """One command at work. `read` is how much of its output the model has seen, in characters."""

    def __init__(self, number: int, command: str, path: Path) -> None:
        self.id = f"shell-{number}"
        self.command = command
        self.path = path
        self.task: asyncio.Task[ProcessEnd] | None = None
        self._cleaner = StreamCleaner()
        self._unread: list[str] = []
        self._stored = 0

    @property
    def live(self) -> bool:
        return self.task is not None and not self.task.done()

    def receive(self, stream: int, data: bytes) -> None:
        """Keep a piece of output, for the model and in the file."""
        text = self._cleaner.feed(data)
        self._unread.append(text)
        # A model may never ask: memory stays bounded, and the file has the rest.
        if sum(map(len, self._unread)) > 4 * SHOWN:
            self._unread = ["".join(self._unread)[-2 * SHOWN :]]
        raw = text.encode("utf-8", "replace")
        if self._stored + len(raw) <= FILE_BYTES:
            self._stored += len(raw)
            # A full disk does not end the command.
            with suppress(OSError), self.path.open("ab") as file:
                file.write(raw)

    def take(self) -> str:
        """Return what came since the last time, cut in the middle where it is long."""
        if not self.live:
            self._unread.append(self._cleaner.feed(b"", final=True))
        text = "".join(self._unread)
        self._unread.clear()
        return head_and_tail(text, SHOWN, f"the whole is in {self.path}").rstrip() if text else ""

    def state(self) -> str:
        """Return its state in a few words."""
        if self.task is None or not self.task.done():
            return "still running"
        if self.task.cancelled():
            return "stopped"
        error = self.task.exception()
        if error is not None:
            return f"could not be run: {error}"
        return f"ended with exit code {self.task.result().code}"


class BackgroundCommands:
    """The background commands of one run. `close` ends those still running."""

    def __init__(self) -> None:
        self._commands: dict[str, BackgroundCommand] = {}

    async def start(self, command: str, program: PreparedProgram, *, outputs: Path, owner: str) -> BackgroundCommand:
        live = self._live()
        if len(live) >= MOST:
            names = ", ".join(each.id for each in live)
            raise ToolError(f"{MOST} commands are at work already: {names}. Stop one with bash_output and stop: true.")
        number = len(self._commands) + 1
        outputs.mkdir(parents=True, exist_ok=True, mode=0o700)
        made = BackgroundCommand(number, command, outputs / f"shell-{number}.txt")
        # Made before the command starts, so that a model can look at it at once.
        made.path.touch(mode=0o600)
        work = run_program(program, receive=made.receive, seconds=None, owner=owner)
        made.task = asyncio.create_task(work)
        self._commands[made.id] = made
        await asyncio.wait({made.task}, timeout=_SETTLE_SECONDS)
        return made

    def find(self, name: str) -> BackgroundCommand:
        found = self._commands.get(name) or self._commands.get(f"shell-{name}")
        if found is None:
            known = ", ".join(self._commands) or "none"
            raise ToolError(f"There is no background command {name!r}. There is: {known}.")
        return found

    def every(self) -> list[BackgroundCommand]:
        return list(self._commands.values())

    async def stop(self, command: BackgroundCommand) -> None:
        """End it with everything it has started."""
        if command.task is not None and not command.task.done():
            command.task.cancel()
            await asyncio.wait({command.task})

    async def close(self) -> tuple[str, ...]:
        """End all commands at work, and return what they were."""
        stopped: list[str] = []
        for each in self._live():
            await self.stop(each)
            stopped.append(f"{each.id}: {each.command[:200]}")
        return tuple(stopped)

    def _live(self) -> list[BackgroundCommand]:
        return [each for each in self._commands.values() if each.live]


async def stop_commands(context: ToolContext) -> tuple[str, ...]:
    """End the background commands of a run that ends. Return what they were, for the outcome."""
    if not isinstance(context.commands, BackgroundCommands) or not context.commands.every():
        return ()
    # A run that is cancelled must not leave its commands behind.
    stopped = await asyncio.shield(context.commands.close())
    return tuple(f"Still running in the background when the run ended, and stopped: {each}" for each in stopped)


LONGEST_WAIT = 120.0


class BashOutputTool(BuiltinTool):
    name = "bash_output"
    required = ()
    properties: ClassVar[Properties] = {
        "id": {"type": "string", "description": "Without one: a list"},
        "wait": {"type": "number", "description": "Seconds"},
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
        return ok(show_command(command), ToolEffect(command=None))


def show_command(command: BackgroundCommand) -> str:
    """Return new output, then the state of the command."""
    new = command.take()
    return f"{new or '(no new output)'}\n[{command.id} {command.state()}]"
