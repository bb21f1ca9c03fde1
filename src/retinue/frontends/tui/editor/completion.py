"""Completion of the word before the cursor: a command, a model after `/model`, an agent or a file.

The files of the project are found in a thread and cached for a moment.
"""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from retinue.app.model_choice import find_models
from retinue.app.project_files import FRESH_SECONDS, MAX_MATCHES, ProjectFiles, rank
from retinue.app.text import optional, status_word
from retinue.frontends.tui.frame import COMMANDS

if TYPE_CHECKING:
    from retinue.app.retinue import Retinue
    from retinue.core.person_prompt import PromptCommand
    from retinue.frontends.tui.board.board import Board


Kind = Literal["command", "model", "mention", "history"]
_COMMAND = re.compile(r"/([\w.:-]*)")
_MODEL = re.compile(r"/model +(\S*)")
_MENTION = re.compile(r"(?:^|(?<=\s))@([^\s@]*)$")


@dataclass(frozen=True, slots=True)
class CompletionTarget:
    """`word` is the typed part of it, and `start` its column in the line. `first` means that it begins the whole text:
    an agent can be addressed only there."""

    kind: Kind
    word: str
    start: int
    first: bool


@dataclass(frozen=True, slots=True)
class Candidate:
    """`text` replaces the word and its sign; `note` is beside it in the list."""

    text: str
    note: str = ""


def completion_target(line: str, column: int, *, first_line: bool) -> CompletionTarget | None:
    """Return what the cursor at `column` of `line` stands behind; None for plain words."""
    before = line[:column]
    command = _COMMAND.fullmatch(before)
    if command and first_line:
        return CompletionTarget("command", command[1], 0, first=True)
    model = _MODEL.fullmatch(before)
    if model and first_line:
        return CompletionTarget("model", model[1], model.start(1), first=False)
    mention = _MENTION.search(before)
    if mention is None:
        return None
    return CompletionTarget("mention", mention[1], mention.start(), first=first_line and mention.start() == 0)


@dataclass(slots=True)
class Choices:
    """The open list of candidates, and its selection."""

    candidates: Sequence[Candidate] = ()
    target: CompletionTarget | None = None
    at: int = 0
    moved: bool = False
    """Whether the person moved to a row. Before that, the first row is only a suggestion."""

    @property
    def open(self) -> bool:
        return bool(self.candidates)

    @property
    def chosen(self) -> Candidate | None:
        return self.candidates[self.at] if self.candidates else None

    def show(self, target: CompletionTarget, candidates: Sequence[Candidate]) -> None:
        chosen = self.chosen if self.moved else None
        self.target, self.candidates = target, candidates
        self.moved = chosen in candidates
        self.at = candidates.index(chosen) if chosen in candidates else 0

    def move(self, step: int) -> None:
        if self.candidates:
            self.at = (self.at + step) % len(self.candidates)
            self.moved = True

    def close(self) -> None:
        self.candidates, self.target, self.at, self.moved = (), None, 0, False


class Completer:
    def __init__(self, retinue: Retinue, board: Board) -> None:
        self._retinue = retinue
        self._board = board
        self._files = ProjectFiles(retinue.supervisor.project.cwd)
        self._commands: dict[str, PromptCommand] = {}
        self._commands_at = -FRESH_SECONDS
        self._model_names: dict[str, str] | None = None
        self._models_at = 0.0

    async def __call__(self, target: CompletionTarget) -> Sequence[Candidate]:
        if target.kind == "command":
            return self._command_names(target.word)
        if target.kind == "model":
            return await self._models(target.word)
        agents = self._agents(target.word) if target.first else []
        files = await self._files.like(target.word, MAX_MATCHES - len(agents))
        return [*agents, *(Candidate(f"@{_quoted(path)}", _kind(path)) for path in files)]

    def _command_names(self, word: str) -> list[Candidate]:
        """Return commands of the app, command files and skills whose names begin with the word, then those that contain
        it elsewhere."""
        notes = {name: f"{command.arguments}  {command.help}".strip() for name, command in COMMANDS.items()}
        for name, command in self._called().items():
            about = optional("{}  ", command.hint) + optional("{} ", command.description)
            notes.setdefault(name, f"{about}({command.origin})")
        return [Candidate(f"/{name}", notes[name]) for name in _rank_few(word, notes)[:MAX_MATCHES]]

    async def _models(self, word: str) -> list[Candidate]:
        """Return models of the common list. Servers are asked for theirs from time to time."""
        if self._model_names is None or time.monotonic() - self._models_at > FRESH_SECONDS:
            listed = await find_models(self._retinue.supervisor.project)
            self._model_names = {model.full_name: model.name for model in listed.models}
            self._models_at = time.monotonic()
        return [Candidate(name, self._model_names[name]) for name in _rank_few(word, self._model_names)[:MAX_MATCHES]]

    def _called(self) -> dict[str, PromptCommand]:
        """Return the command files and skills, looked up once while a word is typed."""
        if time.monotonic() - self._commands_at > FRESH_SECONDS:
            self._commands = self._retinue.supervisor.project.prompt_commands()
            self._commands_at = time.monotonic()
        return self._commands

    def _agents(self, word: str) -> list[Candidate]:
        """Return the agents that can be addressed: those of this conversation, and types that start when addressed."""
        settings = self._retinue.supervisor.settings
        if settings.agent_mentions == "off":
            return []
        notes = {
            card.name: f"agent {status_word(card.status)} · {card.label} · {card.about}"
            for card in self._board.agents()
            if card.name and card.parent_id == self._board.main_id
        }
        if settings.agent_mentions == "direct":
            taken = {name.casefold() for name in notes}
            for name in self._retinue.agents.names:
                # One agent may have several spellings of its name.
                if name.casefold() not in taken:
                    taken.add(name.casefold())
                    notes[name] = f"starts an agent · {self._about(name)}"
        return [Candidate(f"@{name}", notes[name]) for name in _rank_few(word, notes)[: MAX_MATCHES // 2]]

    def _about(self, name: str) -> str:
        return self._retinue.agents.find(name).spec.description


def _rank_few(word: str, names: Collection[str]) -> list[str]:
    """Return the names that contain the word, best first. A name that contains only its
    scattered letters does not match."""
    return [name for name in rank(word, names, len(names)) if word.lower() in name.lower()]


def _quoted(path: str) -> str:
    return f'"{path}"' if " " in path else path


def _kind(path: str) -> str:
    return "folder" if path.endswith("/") else "file"
