"""`!command`: a command that the person runs, with their own rights, beside the conversation.

It is shown as it works, and the model reads its output with the next words. Esc ends it and all that it has started.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

from rich.text import Text

from retinue.core.programs import prepare
from retinue.faces.text import optional
from retinue.faces.tui.attached import Attached
from retinue.faces.tui.board.marks import STYLES
from retinue.faces.tui.board.text import clean, one_line
from retinue.faces.tui.chat.folded import Folded
from retinue.faces.tui.chat.log import ChatLog
from retinue.runs.person_prompt import PromptBlock
from retinue.tools.capture import Capture
from retinue.tools.processes import run_program

SECONDS = 600.0
SHOWN_LINES = 20
_SHOWN_CHARACTERS = 8_000
_QUIET = {"TERM": "dumb", "PAGER": "cat", "GIT_PAGER": "cat", "GIT_TERMINAL_PROMPT": "0"}
"""The command has no terminal: nothing may draw or wait for keys."""


class ShellBlock(Folded):
    """A command of the person and the last lines of its output."""

    def __init__(self, command: str) -> None:
        super().__init__("shell", unfolded=True)
        self._command = command
        self._tail = ""
        self._end = "runs · esc to stop"
        self._style = "dim"

    def show(self, text: str) -> None:
        """Add output. Only its end is kept: the whole is in a file."""
        self._tail = (self._tail + text)[-_SHOWN_CHARACTERS:]
        self.redraw()

    def finish(self, text: str, end: str, *, good: bool) -> None:
        """Show how it ended, and what is known of its output then."""
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
    """The commands of the person that are at work. `app` is the app, which imports this module."""

    def __init__(self, app: Any) -> None:
        self._app = app
        self._tasks: list[asyncio.Task[None]] = []

    def start(self, command: str) -> None:
        """Run a command without waiting for it."""
        if isinstance(self._app.talk, Attached):
            self._app.tell("This conversation belongs to another process: !commands do not reach it.", "warning")
            return
        task = asyncio.create_task(self._run(command), name=f"!{command}")
        self._tasks.append(task)
        task.add_done_callback(self._tasks.remove)

    def interrupt(self) -> bool:
        """End the newest command. Return False when none is at work."""
        if not self._tasks:
            return False
        self._tasks[-1].cancel()
        return True

    async def close(self) -> None:
        """End every command: the app leaves."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _run(self, command: str) -> None:
        project = self._app.project
        block = ShellBlock(command)
        self._app.query_one(ChatLog).add(block)
        capture = Capture(project.state / "outputs" / "commands", "shell")
        environment = {**os.environ, **project.environment, **_QUIET}
        good = False
        try:
            ended = await run_program(
                prepare(
                    [_shell(environment), "-c", command],
                    clearance="person",
                    environment=environment,
                    cwd=project.cwd,
                ),
                receive=lambda _, data: block.show(capture.feed(data)),
                seconds=SECONDS,
            )
            good = ended.code == 0
            end = f"exit code {ended.code}"
            if ended.timed_out:
                end = f"stopped after {SECONDS:g} s"
        except asyncio.CancelledError:
            end = "stopped by you"
        except OSError as error:
            end = f"cannot be started: {error.strerror or error}"
        finally:
            text = capture.text().rstrip()
            capture.close()
        block.finish(text or "(no output)", end, good=good)
        output = project.redactor(f"{text}\n[{end}]".lstrip("\n"))
        self._app.session.outputs.append(PromptBlock("command_output", command, output))


def _shell(environment: dict[str, str]) -> str:
    own = environment.get("SHELL", "")
    return own if Path(own).is_file() else "/bin/sh"
