"""The working line above the prompt: the activity of the main agent, its duration, and how to interrupt it.

    ⠋ Reading 3 files… (12s · ↑ 4.1k ↓ 380 tokens · esc to interrupt)

The line is visible exactly while the main agent works or waits for agents. Its text is computed from the board and from
the events of the main run, without a terminal.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from rich.text import Text

from retinue.app.progress import State, WorkProgress
from retinue.app.rich_text import STYLES, fit, fit_line, one_line
from retinue.app.text import plural
from retinue.core.format import format_wait
from retinue.core.tool_names import canonical
from retinue.frontends.tui.board.board import Board
from retinue.frontends.tui.board.cards import RunCard, describe
from retinue.frontends.tui.board.marks import FRAMES, STILL
from retinue.frontends.tui.panels import LinesPanel

_ANSWERED = re.compile(r"^.* answered \d+:? ?")
_DELEGATING = frozenset({"Agent", "subagent", "dispatch_agent", "get_subagent_result"})


@dataclass(frozen=True, slots=True)
class WorkLook:
    """The display options of the line. `interrupt_key` is empty if no key interrupts the main agent."""

    width: int = 80
    frame: int = 0
    motion: bool = True
    interrupt_key: str = "esc"


def working_line(board: Board, progress: WorkProgress, state: State, now: float, look: WorkLook) -> Text | None:
    """Return the line, at most as wide as the terminal; None while the main agent does nothing."""
    if state == "idle":
        return None
    main = board.cards.get(board.main_id or "", RunCard(""))
    words = describe_work(board, main, progress, state, now)
    notes = [format_wait(now - (progress.began or main.began or now)), progress.tokens()]
    if state == "working" and look.interrupt_key:
        notes.append(f"{look.interrupt_key} to interrupt")
    elif state == "holding":
        notes.append("you can go on")
    notes = [note for note in notes if note]
    # In a narrow terminal the tokens are left out, then the words are cut. The interrupt key stays.
    if len(notes) > 2 and len(words) + len(" · ".join(notes)) + 5 > look.width:
        del notes[1]
    suffix = f" ({' · '.join(notes)})"
    sign = FRAMES[look.frame % len(FRAMES)] if look.motion else STILL
    shown = fit(words, max(look.width - len(suffix) - 2, 0))
    return fit_line(Text.assemble((f"{sign} {shown}", STYLES["accent"]), (suffix, STYLES["dim"])), look.width)


def describe_work(board: Board, main: RunCard, progress: WorkProgress, state: State, now: float) -> str:
    """Return a description of the current work for a person."""
    at_work = [card for card in board.recent(now) if card.live and card.parent_id == main.id]
    if state == "holding":
        return _waiting_for([card for card in at_work if card.background])
    asked = [card for card in (main, *at_work) if card.asks and (card is main or not card.background)]
    if asked:
        return f"Waiting for your answer: {one_line(next(iter(asked[0].asks.values())))}"
    if progress.retry_reason:
        return _retrying(progress, now)
    delegating = [name for name in main.tools.values() if _DELEGATING & {name, *canonical(name)}]
    if delegating and len(delegating) == len(main.tools):
        return _waiting_for([card for card in at_work if not card.background] or at_work)
    if main.tools:
        words = describe(main.tools.values())
        return words[0].upper() + words[1:]
    if main.status == "queued":
        return "Starting…"
    if main.text.strip():
        return "Writing…"
    return "Thinking…"


def _waiting_for(agents: list[RunCard]) -> str:
    if not agents:
        return "Waiting for agents"
    return f"Waiting for {plural(len(agents), 'agent')}"


def _retrying(progress: WorkProgress, now: float) -> str:
    # The conversation shows `anthropic/sonnet answered 529: Overloaded`; here its end is enough.
    problem = one_line(progress.retry_reason).rstrip(".")
    reason = _ANSWERED.sub("", problem) or problem
    seconds = round(progress.retry_at - now)
    if seconds <= 0:
        return f"Trying again: {reason}"
    return f"Trying again in {seconds} s: {reason}"


class WorkingLine(LinesPanel):
    """The line on the screen, above the agents and the prompt."""

    def __init__(self) -> None:
        super().__init__(id="working")
        self.progress = WorkProgress()

    def paint(self, board: Board, state: State, now: float, look: WorkLook) -> None:
        line = working_line(board, self.progress, state, now, look)
        if line is None:
            self.show([])
        else:
            self.show([line])
