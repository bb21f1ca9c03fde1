"""The content of a viewer: the messages and actions of one run in order."""

from __future__ import annotations

from dataclasses import dataclass, field

from msgspec.structs import replace

from retinue.core.events import Event, RunCreated, RunStarted, Undone
from retinue.core.messages import Text
from retinue.core.story import Entry, Story, StoryStep
from retinue.frontends.tui.board.cards import RunCard

# Characters of a result that are shown.
RESULT_CHARACTERS = 500
# Characters of an unfinished answer that are shown, counted from its end.
MAX_LIVE_CHARACTERS = 20_000


@dataclass(slots=True)
class RunStory:
    """The events of one run so far. `blocks` only grow, so that a caller may cache the lines of drawn blocks;
    `version` changes whenever the display could change."""

    card: RunCard
    blocks: list[StoryStep] = field(default_factory=list)
    """The displayed steps; a call has one for its start and one for its end."""
    calls: list[Entry] = field(default_factory=list)
    undone: list[Undone] = field(default_factory=list)
    created: RunCreated | None = None
    started: RunStarted | None = None
    progress: dict[str, str] = field(default_factory=dict)
    """The newest output line of each running call."""
    version: int = 0
    _story: Story = field(default_factory=Story)

    def take(self, event: Event) -> None:
        self.version += 1
        self.card.apply(event)
        for step in self._story.take(event.body, event.seq, event.at):
            if step.change != "grew":
                self._show(step)
            elif step.entry.call is not None:
                self.progress[step.entry.call.id] = step.piece
        match event.body:
            case RunCreated():
                self.created = event.body
            case RunStarted():
                self.started = event.body
            case Undone():
                self.undone.append(event.body)
            case _:
                pass

    def mark_lost(self, at: float) -> None:
        """Note that its process is gone."""
        self.version += 1
        self.card.mark_lost(at)

    @property
    def saying(self) -> str:
        """Return the end of the unfinished answer."""
        return self._writing("answer")

    @property
    def thinking(self) -> str:
        return self._writing("thinking")

    def _writing(self, kind: str) -> str:
        texts = [entry.text for entry in self._story.writing if entry.kind == kind]
        return texts[-1][-MAX_LIVE_CHARACTERS:] if texts else ""

    def _show(self, step: StoryStep) -> None:
        entry = step.entry
        match entry.kind, step.change:
            case "call", "added":
                self.calls.append(entry)
                self.blocks.append(step)
            case "call", "ended" if entry.call is not None and entry.result is not None:
                self.progress.pop(entry.call.id, None)
                # Outputs make up most of a long run. Little of each is shown; the log has the full text.
                text = entry.result.text.strip("\n")
                missing = len(text) - RESULT_CHARACTERS
                entry.detail = f"… {missing:,} more characters" if missing > 0 else ""
                entry.result = replace(entry.result, content=(Text(text[:RESULT_CHARACTERS]),))
                self.blocks.append(step)
            case ("answer" | "thinking", "ended") | ("message" | "note" | "ended", "added"):
                self.blocks.append(step)
            case _:
                pass
