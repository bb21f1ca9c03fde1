"""Completion of what stands before the cursor: a command, a model behind `/model`, an agent, a file.

The files of the project are found in a thread and remembered for a moment.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import time
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from retinue.core.programs import TimeoutExpired, prepare, run
from retinue.faces.text import optional
from retinue.faces.tui.frame import COMMANDS

if TYPE_CHECKING:
    from retinue.faces.api import Retinue
    from retinue.faces.tui.board.board import Board
    from retinue.runs.person_prompt import PromptCommand


Kind = Literal["command", "model", "mention", "history"]
MOST = 8
_COMMAND = re.compile(r"/([\w.:-]*)")
_MODEL = re.compile(r"/model +(\S*)")
_MENTION = re.compile(r"(?:^|(?<=\s))@([^\s@]*)$")


@dataclass(frozen=True, slots=True)
class Wanted:
    """`word` is what was typed of it, `start` where it begins in the line. `first` says that the
    whole text begins here: only there an agent can be addressed."""

    kind: Kind
    word: str
    start: int
    first: bool


@dataclass(frozen=True, slots=True)
class Candidate:
    """`text` replaces the word, its sign included; `note` is beside it in the list."""

    text: str
    note: str = ""


def wanted(line: str, column: int, *, first_line: bool) -> Wanted | None:
    """Return what the cursor at `column` of `line` stands behind; None for plain words."""
    before = line[:column]
    found = _COMMAND.fullmatch(before)
    if found and first_line:
        return Wanted("command", found[1], 0, first=True)
    model = _MODEL.fullmatch(before)
    if model and first_line:
        return Wanted("model", model[1], model.start(1), first=False)
    mention = _MENTION.search(before)
    if mention is None:
        return None
    return Wanted("mention", mention[1], mention.start(), first=first_line and mention.start() == 0)


def rank(word: str, names: Iterable[str], most: int = MOST) -> list[str]:
    """Return the names that fit, best first: those that begin with it, whose last part does, that have
    it somewhere, that have its letters in order. Shorter ones go first."""
    if not word:
        return sorted(names, key=lambda name: (name.rstrip("/").count("/"), name))[:most]
    low = word.lower()
    scored = [(score, len(name), name) for name in names if (score := _score(low, name.lower())) is not None]
    return [name for _, _, name in sorted(scored)[:most]]


def _score(word: str, name: str) -> int | None:
    if name.startswith(word):
        return 0
    if name.rstrip("/").rpartition("/")[2].startswith(word):
        return 1
    if word in name:
        return 2
    letters = iter(name)
    return 3 if all(sign in letters for sign in word) else None


@dataclass(slots=True)
class Choices:
    """The list that is open, and what is chosen in it."""

    found: Sequence[Candidate] = ()
    place: Wanted | None = None
    at: int = 0
    moved: bool = False
    """The person went to a row of it: before, the first row is only an offer."""

    @property
    def open(self) -> bool:
        return bool(self.found)

    @property
    def chosen(self) -> Candidate | None:
        return self.found[self.at] if self.found else None

    def show(self, place: Wanted, found: Sequence[Candidate]) -> None:
        kept = self.chosen if self.moved else None
        self.place, self.found = place, found
        self.moved = kept in found
        self.at = found.index(kept) if kept in found else 0

    def move(self, step: int) -> None:
        if self.found:
            self.at = (self.at + step) % len(self.found)
            self.moved = True

    def close(self) -> None:
        self.found, self.place, self.at, self.moved = (), None, 0, False


MOST_FILES = 50_000
FRESH_SECONDS = 10.0
PATIENCE_SECONDS = 5.0
_SKIPPED = {".git", "node_modules", "__pycache__", ".venv", ".mypy_cache"}


class Files:
    """Paths relative to `folder`, without what git ignores."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._found: list[str] = []
        self._at = -FRESH_SECONDS
        self._lock = asyncio.Lock()

    async def like(self, word: str, most: int) -> list[str]:
        # One listing at a time, however fast someone types.
        async with self._lock:
            if time.monotonic() - self._at > FRESH_SECONDS:
                self._found = await asyncio.to_thread(_listed, self._folder)
                self._at = time.monotonic()
        return await asyncio.to_thread(rank, word.removeprefix("./"), self._found, most)


def _listed(folder: Path) -> list[str]:
    """Return all files, and the folders they lie in, which end with a slash."""
    files = _known_to_git(folder) or _known_to_ripgrep(folder) or _walked(folder)
    folders = {f"{parent}/" for path in files for parent in _parents(path)}
    return [*files, *folders]


def _parents(path: str) -> list[str]:
    parts = path.split("/")[:-1]
    return ["/".join(parts[: count + 1]) for count in range(len(parts))]


def _known_to_git(folder: Path) -> list[str]:
    from retinue.guard.git import Git, GitError

    try:
        listed = Git(folder, os.environ)("ls-files", "-co", "--exclude-standard", seconds=PATIENCE_SECONDS)
    except GitError:
        return []
    return _paths(listed)


def _known_to_ripgrep(folder: Path) -> list[str]:
    if shutil.which("rg") is None:
        return []
    try:
        program = prepare(["rg", "--no-config", "--files"], clearance="own", environment=os.environ, cwd=folder)
        done = run(program, seconds=PATIENCE_SECONDS)
    except (OSError, TimeoutExpired):
        return []
    return _paths(done.stdout) if done.returncode == 0 else []


def _paths(output: bytes) -> list[str]:
    lines = output.decode("utf-8", "replace").splitlines()[:MOST_FILES]
    # Git quotes names with odd characters, which nobody could type or read here.
    return [line for line in lines if not line.startswith('"') and line.isprintable()]


def _walked(folder: Path) -> list[str]:
    found: list[str] = []
    deadline = time.monotonic() + PATIENCE_SECONDS
    for here, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name not in _SKIPPED]
        found += [os.path.relpath(os.path.join(here, name), folder) for name in names if name.isprintable()]  # noqa: PTH118
        if len(found) >= MOST_FILES or time.monotonic() > deadline:
            break
    return found[:MOST_FILES]


class Completer:
    def __init__(self, retinue: Retinue, board: Board) -> None:
        self._retinue = retinue
        self._board = board
        self._files = Files(retinue.supervisor.project.cwd)
        self._commands: dict[str, PromptCommand] = {}
        self._commands_at = -FRESH_SECONDS
        self._model_names: dict[str, str] | None = None
        self._models_at = 0.0

    async def __call__(self, wanted: Wanted) -> Sequence[Candidate]:
        if wanted.kind == "command":
            return self._command_names(wanted.word)
        if wanted.kind == "model":
            return await self._models(wanted.word)
        agents = self._agents(wanted.word) if wanted.first else []
        files = await self._files.like(wanted.word, MOST - len(agents))
        return [*agents, *(Candidate(f"@{_quoted(path)}", _kind(path)) for path in files)]

    def _command_names(self, word: str) -> list[Candidate]:
        """Return commands of the app, commands' files and skills whose names begin with the word, then those that have
        it elsewhere."""
        notes = {name: f"{each.arguments}  {each.help}".strip() for name, each in COMMANDS.items()}
        for name, command in self._called().items():
            about = optional("{}  ", command.hint) + optional("{} ", command.description)
            notes.setdefault(name, f"{about}({command.origin})")
        return [Candidate(f"/{name}", notes[name]) for name in _rank_few(word, notes)[:MOST]]

    async def _models(self, word: str) -> list[Candidate]:
        """Return models of the one list. Servers are asked for theirs at most once in a while."""
        from retinue.models.inventory import list_models

        if self._model_names is None or time.monotonic() - self._models_at > FRESH_SECONDS:
            project = self._retinue.supervisor.project
            listed = await list_models(project.settings.settings, project.environment, project.transport)
            self._model_names = {each.full_name: each.name for each in listed.models}
            self._models_at = time.monotonic()
        return [Candidate(name, self._model_names[name]) for name in _rank_few(word, self._model_names)[:MOST]]

    def _called(self) -> dict[str, PromptCommand]:
        """Return the commands' files and skills, looked up once for a word that is being typed."""
        if time.monotonic() - self._commands_at > FRESH_SECONDS:
            self._commands = self._retinue.supervisor.project.prompt_commands()
            self._commands_at = time.monotonic()
        return self._commands

    def _agents(self, word: str) -> list[Candidate]:
        """Return those that can be addressed: agents of this conversation, and types that start on being addressed."""
        settings = self._retinue.supervisor.settings
        if settings.agent_mentions == "off":
            return []
        notes = {
            card.handle: f"agent {card.status} · {card.name} · {card.description}"
            for card in self._board.agents()
            if card.handle and card.parent_id == self._board.main_id
        }
        if settings.agent_mentions == "direct":
            taken = {name.casefold() for name in notes}
            for name in self._retinue.agents.names:
                # One agent may go by several spellings of a name.
                if name.casefold() not in taken:
                    taken.add(name.casefold())
                    notes[name] = f"starts an agent · {self._about(name)}"
        return [Candidate(f"@{name}", notes[name]) for name in _rank_few(word, notes)[: MOST // 2]]

    def _about(self, name: str) -> str:
        return self._retinue.agents.find(name).spec.description


def _rank_few(word: str, names: Collection[str]) -> list[str]:
    """Return the names that have the word in them, best first: letters scattered over a name are no help among few."""
    return [name for name in rank(word, names, len(names)) if word.lower() in name.lower()]


def _quoted(path: str) -> str:
    return f'"{path}"' if " " in path else path


def _kind(path: str) -> str:
    return "folder" if path.endswith("/") else "file"
