"""A conversation of the log as its person remembers it: what they said, and what was answered.

`/copy` takes text from here, leaving shows the last exchange on the ordinary screen.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from retinue.core.events import AssistantEnded, Event, MessageAdded, TurnStarted
from retinue.faces.tui.board.text import clean_lines, fit, wrap

PERSON = frozenset({"task", "follow-up", "steer"})
FAREWELL_LINES = 12
_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})[^\n]*\n(.*?)^ {0,3}\1[`~]*[ \t]*$", re.DOTALL | re.MULTILINE)


@dataclass(slots=True)
class Exchange:
    """Something a person said, and what the main agent answered. `seq` is the place of the words in the run's log;
    `turn` the first turn after them, 0 where there was none."""

    seq: int
    at: float
    text: str
    turn: int = 0
    answers: list[str] = field(default_factory=list)


def exchanges(events: Iterable[Event]) -> list[Exchange]:
    """Return the exchanges of one run, oldest first."""
    found: list[Exchange] = []
    for event in events:
        match event.body:
            case MessageAdded(message) if message.origin in PERSON:
                found.append(Exchange(event.seq, event.at, message.text))
            case TurnStarted(turn) if found and not found[-1].turn:
                found[-1].turn = turn
            case AssistantEnded(message=message) if found and message.text.strip():
                found[-1].answers.append(message.text.strip("\n"))
            case _:
                pass
    return found


def answers(events: Iterable[Event]) -> list[str]:
    """Return what the main agent said last before each time the person spoke again, newest first."""
    return [each.answers[-1] for each in reversed(exchanges(events)) if each.answers]


def code_blocks(text: str) -> list[str]:
    """Return the content of the fenced blocks of a Markdown text, in order."""
    return [found[2].rstrip("\n") for found in _FENCE.finditer(text)]


def farewell(events: Iterable[Event], width: int) -> list[str]:
    """Return the last exchange as lines for the ordinary screen; of a long answer its end."""
    found = exchanges(events)
    if not found:
        return []
    last = found[-1]
    said = " ".join(clean_lines(last.text))
    lines = [fit(f"❯ {said}", width)]
    if last.answers:
        answer = wrap(last.answers[-1], width)
        if len(answer) > FAREWELL_LINES:
            answer = ["…", *answer[-FAREWELL_LINES:]]
        lines += ["", *answer]
    return lines
