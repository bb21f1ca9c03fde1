"""A shell command that a person runs with their own rights, beside the conversation."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from retinue.core.person_prompt import PromptBlock
from retinue.core.programs import prepare
from retinue.tools.content import Capture
from retinue.tools.processes import run_program

if TYPE_CHECKING:
    from retinue.runs.project import Project

MAX_COMMAND_SECONDS = 600.0
_NO_TERMINAL_VARIABLES = {"TERM": "dumb", "PAGER": "cat", "GIT_PAGER": "cat", "GIT_TERMINAL_PROMPT": "0"}
"""The command has no terminal, so nothing may draw or wait for keys."""


class EndedCommand(Struct, frozen=True):
    """`block` is the output for the model, with secrets redacted."""

    text: str
    end: str
    good: bool
    block: PromptBlock


async def run_command(project: Project, command: str, show: Callable[[str], None]) -> EndedCommand:
    """Run a shell command, and call `show` with its output as it arrives. Cancelling ends it with all its processes;
    the output so far is still returned."""
    capture = Capture(project.state / "outputs" / "commands", "shell")
    environment = {**os.environ, **project.environment, **_NO_TERMINAL_VARIABLES}
    good = False
    try:
        ended = await run_program(
            prepare([_shell(environment), "-c", command], clearance="person", environment=environment, cwd=project.cwd),
            receive=lambda _, data: show(capture.feed(data)),
            seconds=MAX_COMMAND_SECONDS,
        )
        good = ended.code == 0
        end = f"exit code {ended.code}"
        if ended.timed_out:
            end = f"stopped after {MAX_COMMAND_SECONDS:g} s"
    except asyncio.CancelledError:
        end = "stopped by you"
    except OSError as error:
        end = f"cannot be started: {error.strerror or error}"
    finally:
        text = capture.text().rstrip()
        capture.close()
    output = project.redactor(f"{text}\n[{end}]".lstrip("\n"))
    return EndedCommand(text, end, good, PromptBlock("command_output", command, output))


def _shell(environment: dict[str, str]) -> str:
    own = environment.get("SHELL", "")
    return own if Path(own).is_file() else "/bin/sh"
