"""Candidates for completion, from what the crew knows: commands, agents, files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from retinue.faces.tui.commands import matching
from retinue.faces.tui.editor.completion import MOST, Candidate, Wanted, rank
from retinue.faces.tui.editor.files import Files

if TYPE_CHECKING:
    from retinue.faces.api import Retinue
    from retinue.faces.tui.board.board import Board


class Completer:
    def __init__(self, crew: Retinue, board: Board) -> None:
        self._crew = crew
        self._board = board
        self._files = Files(crew.supervisor.world.cwd)

    async def __call__(self, wanted: Wanted) -> Sequence[Candidate]:
        if wanted.kind == "command":
            found = matching(wanted.word)[:MOST]
            return [Candidate(f"/{each.name}", f"{each.arguments}  {each.help}".strip()) for each in found]
        agents = self._agents(wanted.word) if wanted.first else []
        files = await self._files.like(wanted.word, MOST - len(agents)) if wanted.word or not agents else []
        return [*agents, *(Candidate(f"@{path}") for path in files)]

    def _agents(self, word: str) -> list[Candidate]:
        """Those that can be addressed by name: of this conversation, and where that is switched
        on types that start on being addressed."""
        settings = self._crew.supervisor.settings
        if settings.agent_mentions == "off":
            return []
        notes = {
            card.handle: f"{card.name} · {card.status} · {card.description}"
            for card in self._board.agents()
            if card.handle and card.parent_id == self._board.main_id
        }
        if settings.agent_mentions == "direct":
            for name in self._crew.agents.names:
                notes.setdefault(name.lower(), "starts it")
        return [Candidate(f"@{name}", notes[name]) for name in rank(word, notes, MOST // 2)]
