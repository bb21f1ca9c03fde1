"""`!command`: a command that the person runs, with their own rights, beside the conversation.

Its output is shown while it runs, and the model reads the output with the next message. Esc ends the command with all
processes that it has started.
"""

from __future__ import annotations

import asyncio
from typing import Any

from rich.text import Text

from retinue.app.conversation import AttachedConversation
from retinue.app.rich_text import STYLES, clean, one_line
from retinue.app.shell import run_command
from retinue.app.text import optional
from retinue.frontends.tui.chat.folded import Folded
from retinue.frontends.tui.chat.log import ChatLog

SHOWN_LINES = 20
_SHOWN_CHARACTERS = 8_000


class ShellBlock(Folded):
    """A command of the person and the last lines of its output."""

    def __init__(self, command: str) -> None:
        super().__init__("shell", unfolded=True)
        self._command = command
        self._tail = ""
        self._end = "runs · esc to stop"
        self._style = "dim"

    def show(self, text: str) -> None:
        """Add output. The block keeps only its end; a file has all of it."""
        self._tail = (self._tail + text)[-_SHOWN_CHARACTERS:]
        self.redraw()

    def finish(self, text: str, end: str, *, good: bool) -> None:
        """Show how the command ended, and the end of its output."""
        self._tail = text[-_SHOWN_CHARACTERS:]
        self._end = end
        self._style = "success" if good else "error"
        self.redraw()

    def head(self) -> Text:
        line = Text(f"! {one_line(self._command)}")
        line.append(optional(" · {}", self._end), STYLES[self._style])
        return line

    def body(self) -> Text:
        lines = clean(self._tail).rstrip("\n").split("\n")
        missing = len(lines) - SHOWN_LINES
        shown = lines[-SHOWN_LINES:]
        if missing > 0:
            shown.insert(0, f"… {missing} lines above")
        return Text("\n".join(shown), STYLES["dim"])


class PersonShell:
    """The running commands of the person. `app` is the app; its type is not named, because it imports this module."""

    def __init__(self, app: Any) -> None:
        self._app = app
        self._tasks: list[asyncio.Task[None]] = []

    def start(self, command: str) -> None:
        """Run a command without waiting for it."""
        if isinstance(self._app.talk, AttachedConversation):
            self._app.tell("This conversation belongs to another process: !commands do not reach it.", "warning")
            return
        task = asyncio.create_task(self._run(command), name=f"!{command}")
        self._tasks.append(task)
        task.add_done_callback(self._tasks.remove)

    def interrupt(self) -> bool:
        """End the newest command. Return False if no command is running."""
        if not self._tasks:
            return False
        self._tasks[-1].cancel()
        return True

    async def close(self) -> None:
        """End every command, because the app closes."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _run(self, command: str) -> None:
        block = ShellBlock(command)
        self._app.query_one(ChatLog).add(block)
        done = await run_command(self._app.project, command, block.show)
        block.finish(done.text or "(no output)", done.end, good=done.good)
        self._app.session.outputs.append(done.block)
