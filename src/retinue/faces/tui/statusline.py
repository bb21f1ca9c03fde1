"""The status line: a template, or what a command of the user's prints.

A template is text with `{facts}` in it. What stands in square brackets is left out when a fact in
it is empty: `[ · {cost}]`. A command gets all facts as one JSON object on standard input, in the
shape Claude Code gives to its statusLine commands, and the first line it prints is shown, colours
included. It is run when something changed, never twice at once, and is ended when it takes too
long. It counts only in the user's own settings: a project that was cloned cannot bring one.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.text import Text

from retinue.core.format import context_percent, format_cost
from retinue.faces.tui.chat.text import clean

TEMPLATE = "{state}[ · {model}][ · {folder}][ ⎇ {branch}][ · ctx {context}][ · {cost}][ · {agents}][ · {inbox}]"
TIMEOUT_SECONDS = 5.0
THROTTLE_SECONDS = 0.3
MOST_OUTPUT = 8_192
_OPTIONAL = re.compile(r"\[((?:[^\[\]{}]|\{\w+\})*)\]")
_CONTROL = re.compile(r"[\x00-\x1a\x1c-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ufeff]|\x1b(?!\[[0-9;:]*m)")
"""All but the sequences that set colours."""
_FACT = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True, slots=True)
class Facts:
    """What a status line can say, at one moment."""

    state: str = "idle"
    session_id: str = ""
    transcript: str = ""
    model: str = ""
    cwd: str = ""
    project: str = ""
    branch: str = ""
    mode: str = ""
    cost_usd: float = 0.0
    tokens: int = 0
    context_tokens: int = 0
    window: int | None = None
    running: int = 0
    queued: int = 0
    inbox: int = 0
    version: str = ""
    extra: Mapping[str, Any] = field(default_factory=dict)

    def words(self) -> dict[str, str]:
        """Every fact a template may name, as text; empty where there is nothing to say."""
        percent = context_percent(self.context_tokens, self.window)
        agents = [f"{self.running} running"] if self.running else []
        agents += [f"{self.queued} queued"] if self.queued else []
        return {
            **{name: str(value) for name, value in self.extra.items()},
            "state": self.state,
            "session": self.session_id[:8],
            "model": self.model.rpartition("/")[2],
            "provider": self.model.rpartition("/")[0],
            "cwd": self.cwd,
            "folder": Path(self.cwd).name if self.cwd else "",
            "branch": self.branch,
            "mode": self.mode,
            "cost": format_cost(self.cost_usd),
            "tokens": str(self.tokens) if self.tokens else "",
            "context": f"{percent:.0f}%" if percent is not None else "",
            "agents": f"{', '.join(agents)} agents" if agents else "",
            "inbox": f"{self.inbox} to answer" if self.inbox else "",
            "version": self.version,
        }

    def document(self) -> dict[str, Any]:
        """The object on the standard input of a command."""
        percent = context_percent(self.context_tokens, self.window)
        return {
            "hook_event_name": "Status",
            "session_id": self.session_id,
            "transcript_path": self.transcript,
            "cwd": self.cwd,
            "version": self.version,
            "model": {"id": self.model, "display_name": self.model.rpartition("/")[2]},
            "workspace": {"current_dir": self.cwd, "project_dir": self.project},
            "cost": {"total_cost_usd": self.cost_usd},
            "context_window": {
                "used_tokens": self.context_tokens,
                "context_window_size": self.window,
                "used_percentage": percent,
            },
            "state": self.state,
            "permission_mode": self.mode,
            "git_branch": self.branch,
            "agents": {"running": self.running, "queued": self.queued},
            "inbox": self.inbox,
        }


def fill(template: str, facts: Facts) -> str:
    """The template with its facts. A name that is no fact stays as it is written."""
    words = facts.words()

    def optional(found: re.Match[str]) -> str:
        names = _FACT.findall(found[1])
        if not names:
            return found[0]
        return "" if any(not words.get(name, name) for name in names) else found[1]

    return _FACT.sub(lambda found: words.get(found[1], found[0]), _OPTIONAL.sub(optional, template))


async def output_of(command: str, facts: Facts, environment: Mapping[str, str], cwd: Path) -> Text:
    """The first line of what the command prints; what went wrong otherwise. Never raises for
    what the command does, and leaves no process behind."""
    try:
        process = await asyncio.create_subprocess_shell(
            command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=dict(environment),
            cwd=cwd if cwd.is_dir() else None,
            start_new_session=True,
        )
    except OSError as error:
        return Text(f"status line: {error.strerror or error}")
    try:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            out, err = await process.communicate(json.dumps(facts.document()).encode() + b"\n")
    except TimeoutError:
        return Text(f"status line: the command took more than {TIMEOUT_SECONDS:.0f} s")
    finally:
        _end(process)
    if process.returncode and not out.strip():
        reason = clean(err[:MOST_OUTPUT].decode("utf-8", "replace")).strip().split("\n")[-1]
        return Text(f"status line: exit {process.returncode}" + (f": {reason}" if reason else ""))
    line = out[:MOST_OUTPUT].decode("utf-8", "replace").lstrip("\r\n").partition("\n")[0]
    return Text.from_ansi(_CONTROL.sub("", line.replace("\t", " ")))


def _end(process: asyncio.subprocess.Process) -> None:
    """With everything it started and that is still in its group."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)
        elif process.returncode is None:
            process.kill()


def branch_of(folder: Path) -> str:
    """The branch that is checked out, or the beginning of the commit; empty outside of git."""
    for each in (folder, *folder.parents):
        git = each / ".git"
        with contextlib.suppress(OSError, UnicodeDecodeError):
            if git.is_file():
                git = (each / git.read_text("utf-8").removeprefix("gitdir:").strip()).resolve()
            if git.is_dir():
                head = (git / "HEAD").read_text("utf-8").strip()
                return head.removeprefix("ref: refs/heads/") if head.startswith("ref: ") else head[:8]
    return ""
