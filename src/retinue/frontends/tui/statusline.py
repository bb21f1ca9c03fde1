"""The status line: a template, or the output of a command from the user's settings.

A template is text with `{facts}` in it. A part in square brackets is left out when a fact in it is empty:
`[ · {cost}]`. A command gets all facts as one JSON object on standard input, in the shape that Claude Code gives to its
statusLine commands. The first line of its output is shown, colours included. The command runs after a change, one
process at a time, and is ended when it takes too long. Only the user's own settings can name a command, so that a
cloned project cannot bring one.

In a narrow terminal the least important parts in square brackets are left out first; the facts that wait for an answer
stay. No fact is gathered by a slow operation.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import time
from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from rich.cells import cell_len
from rich.text import Text

from retinue.app.instructions import what_was_loaded
from retinue.app.model_choice import ModelWindows, choose_model
from retinue.app.modes import mode_words
from retinue.app.rich_text import clean
from retinue.app.text import optional, plural, status_count, status_word
from retinue.core import version
from retinue.core.files import read_text
from retinue.core.format import context_percent, format_cost
from retinue.core.programs import prepare, spawn
from retinue.frontends.tui.board.cards import RunCard

if TYPE_CHECKING:
    from retinue.app.models import ModelSelection
    from retinue.app.retinue import Project, Retinue
    from retinue.app.session import ActiveConversation, Session
    from retinue.frontends.tui.board.board import Board


TEMPLATE = "{mode}[ · {model}][ · {folder}][ ⎇ {branch}][ · ctx {context}][ · {cost}][ · {agents}][ · {inbox}]"
TIMEOUT_SECONDS = 5.0
THROTTLE_SECONDS = 0.3
MAX_OUTPUT_BYTES = 8_192
# The order in which parts are left out for lack of room. Parts with other facts are left out before these.
_SPARE = ("version", "tokens", "session", "provider", "cwd", "cost", "context", "branch", "folder", "model", "state")
_KEPT = ("agents", "mode", "inbox")
_OPTIONAL = re.compile(r"\[((?:[^\[\]{}]|\{\w+\})*)\]")
# All escape sequences except those that set colours.
_CONTROL = re.compile(r"[\x00-\x1a\x1c-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ufeff]|\x1b(?!\[[0-9;:]*m)")
_FACT = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True, slots=True)
class Facts:
    """The facts of a status line at one moment."""

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
        """Return every fact that a template may name, as text; unknown facts are empty."""
        percent = context_percent(self.context_tokens, self.window)
        context = ""
        if percent is not None:
            context = f"{percent:.0f}%"
        return {
            **{name: str(value) for name, value in self.extra.items()},
            "state": _STATE_WORDS.get(self.state, self.state),
            "session": self.session_id[:8],
            "model": self.model.rpartition("/")[2],
            "provider": self.model.rpartition("/")[0],
            "cwd": self.cwd,
            "folder": Path(self.cwd).name,
            "branch": self.branch,
            "mode": mode_words(self.mode) or "watching",
            "cost": format_cost(self.cost_usd),
            "tokens": optional("{}", self.tokens),
            "context": context,
            "agents": _agents(self.running, self.queued),
            "inbox": optional("{} to answer", self.inbox),
            "version": self.version,
        }

    def document(self) -> dict[str, Any]:
        """Return the JSON object for the standard input of a command."""
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


_STATE_WORDS = {"holding": "waiting for agents"}


def _agents(running: int, queued: int) -> str:
    """Return `2 agents running, 1 queued`."""
    if not running:
        return optional(f"{{}} {status_word('queued')}", queued and plural(queued, "agent"))
    others = optional(", {}", status_count("queued", queued))
    return f"{plural(running, 'agent')} {status_word('running')}{others}"


def fill(template: str, facts: Facts, width: int | None = None) -> str:
    """Return the template with its facts, without the parts in brackets that lack a fact or do not fit into `width`
    cells. An unknown name stays as it is written."""
    words = facts.words()
    parts = list(_OPTIONAL.finditer(template))
    missing = {
        optional_part.start()
        for optional_part in parts
        if not all(words.get(name, name) for name in _FACT.findall(optional_part[1]))
    }
    line = _without(template, missing, words)
    for optional_part in sorted(parts, key=_importance):
        if width is None or cell_len(line) <= width:
            break
        if _FACT.search(optional_part[1]):
            missing.add(optional_part.start())
            line = _without(template, missing, words)
    return line


def _without(template: str, missing: Container[int], words: Mapping[str, str]) -> str:
    """Return the template with its facts; parts that begin at `missing` are left out."""

    def choose(match: re.Match[str]) -> str:
        if not _FACT.search(match[1]):
            return match[0]
        if match.start() in missing:
            return ""
        return match[1]

    return _FACT.sub(lambda match: words.get(match[1], match[0]), _OPTIONAL.sub(choose, template))


def _importance(match: re.Match[str]) -> int:
    """Return the importance of a part in brackets, which is that of its most important fact."""
    order = (*_SPARE, *_KEPT)
    return max((order.index(name) for name in _FACT.findall(match[1]) if name in order), default=-1)


async def output_of(command: str, facts: Facts, environment: Mapping[str, str], cwd: Path) -> Text:
    """Return the first line of the command's output, or a description of its failure. A failing command never raises,
    and leaves no process behind."""
    try:
        # Only the user's own settings can name the command.
        program = prepare(
            ["/bin/sh", "-c", command],
            clearance="person",
            environment=environment,
            cwd=cwd if cwd.is_dir() else None,
        )
        process = await spawn(program)
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
        reason = clean(err[:MAX_OUTPUT_BYTES].decode("utf-8", "replace")).strip().split("\n")[-1]
        return Text(f"status line: exit {process.returncode}{optional(': {}', reason)}")
    line = out[:MAX_OUTPUT_BYTES].decode("utf-8", "replace").lstrip("\r\n").partition("\n")[0]
    return Text.from_ansi(_CONTROL.sub("", line.replace("\t", " ")))


def _end(process: asyncio.subprocess.Process) -> None:
    """End a process with all processes that are still in its group."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)
        elif process.returncode is None:
            process.kill()


def branch_of(folder: Path) -> str:
    """Return the current branch, or the beginning of a detached commit; empty outside of git."""
    for parent in (folder, *folder.parents):
        git = parent / ".git"
        with contextlib.suppress(OSError, UnicodeDecodeError):
            if git.is_file():
                git = (parent / read_text(git).removeprefix("gitdir:").strip()).resolve()
            if git.is_dir():
                head = read_text(git / "HEAD").strip()
                if head.startswith("ref: "):
                    return head.removeprefix("ref: refs/heads/")
                return head[:8]
    return ""


BRANCH_SECONDS = 5.0


class FactSource(Protocol):
    """The part of the app that supplies facts."""

    retinue: Retinue
    project: Project
    board: Board
    session: Session
    talk: ActiveConversation
    facts: dict[str, Any]


class FactFinder:
    """Gathers the facts. After `look_around`, `selection` is the model of a new conversation, and `loaded` describes
    what the main agent starts with."""

    def __init__(self, app: FactSource) -> None:
        self._app = app
        self.selection: ModelSelection | None = None
        self.loaded: tuple[str, ...] = ()
        self.looked = False
        self._branch = ""
        self._branch_at = -BRANCH_SECONDS
        self._looking: asyncio.Task[None] | None = None
        self._windows = ModelWindows()

    def facts(self) -> Facts:
        app = self._app
        self._look()
        main = app.board.cards.get(app.talk.main_id or "", RunCard(""))
        running, queued = app.board.counts()
        tokens, spent = 0, 0.0
        for card in app.board.cards.values():
            # Like /cost, this excludes other conversations of this app.
            if card.root_id == app.talk.main_id:
                tokens += card.usage.total_tokens
                spent += card.usage.cost_usd or 0.0
        model, mode = main.model, ""
        if app.talk is app.session:
            model, mode = app.session.model or model, app.session.mode
        if not model and self.selection is not None:
            model = self.selection.info.full_name
        return Facts(
            state=app.talk.state,
            session_id=app.talk.main_id or "",
            transcript=self._transcript(app.talk.main_id),
            model=model,
            cwd=str(app.project.cwd),
            project=str(app.project.cwd),
            branch=self._branch,
            mode=mode,
            cost_usd=round(spent, 6),
            tokens=tokens,
            context_tokens=main.context_tokens,
            window=self.window(model),
            running=running,
            queued=queued,
            inbox=int(app.facts.get("inbox", 0)),
            version=version.__version__,
            extra={name: value for name, value in app.facts.items() if name != "inbox"},
        )

    def window(self, model: str) -> int | None:
        """Return the context size of a model by its full name. The result is cached."""
        return self._windows.find(model, self._app.project)

    async def look_around(self) -> None:
        """Find the model of a new conversation, as its first message would, and the loaded files. Raise RetinueError
        if the named model does not exist."""
        project = self._app.project
        self.loaded = await asyncio.to_thread(what_was_loaded, project)
        self.looked = True
        self.selection = await choose_model(project, self._app.session.model or self._app.retinue.model)

    @property
    def branch(self) -> str:
        return self._branch

    def _transcript(self, run_id: str | None) -> str:
        node = self._app.retinue.supervisor.members.get(run_id or "")
        if node is None:
            return ""
        return node.launch.transcript or ""

    def _look(self) -> None:
        """Find the branch from time to time, in a thread."""
        if time.monotonic() - self._branch_at < BRANCH_SECONDS or self._looking is not None:
            return
        self._looking = asyncio.create_task(self._find_branch(), name="branch for the status line")

    async def _find_branch(self) -> None:
        try:
            self._branch = await asyncio.to_thread(branch_of, self._app.project.cwd)
        finally:
            self._branch_at, self._looking = time.monotonic(), None
