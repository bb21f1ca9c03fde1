"""A conversation of the log as its person remembers it: what they said, and what was answered.

`/copy` takes text from here, leaving shows the last exchange on the ordinary screen.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice

from retinue.app.rich_text import clean_lines, fit, wrap
from retinue.core.events import AssistantEnded, Event, MessageAdded, TurnStarted
from retinue.core.person_prompt import words_of
from retinue.core.run_state import RunState
from retinue.core.story import Story
from retinue.log.overview import tree_costs
from retinue.log.query import LogReader
from retinue.log.recall import read_branch

PERSON = frozenset({"task", "follow-up", "steer"})
FAREWELL_LINES = 12
MOST_EVENTS = 900
"""Of an earlier conversation that is shown again."""
MOST_CHARACTERS = 8_000_000
_SPOKEN = ("message.added", "turn.started", "assistant.ended")
_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})[^\n]*\n(.*?)^ {0,3}\1[`~]*[ \t]*$", re.DOTALL | re.MULTILINE)


@dataclass(slots=True)
class Exchange:
    """Something a person said, without what was attached to it, and what the main agent answered. `seq` is the place
    of the words in the run's log; `turn` the first turn after them, 0 where there was none."""

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
                found.append(Exchange(event.seq, event.at, words_of(message.text)))
            case TurnStarted(turn) if found and not found[-1].turn:
                found[-1].turn = turn
            case AssistantEnded(message=message) if found and message.text.strip():
                found[-1].answers.append(message.text.strip("\n"))
            case _:
                pass
    return found


def list_conversations(reader: LogReader, words: list[str], most: int) -> list[tuple[RunState, float | None]]:
    """Return the main runs that have all the words, newest first, each with its cost and that of its agents."""
    runs = reader.conversations(words, limit=most)
    costs = tree_costs(reader, [run.id for run in runs])
    return [(run, costs.get(run.id, run.usage.cost_usd)) for run in runs]


def read_end(reader: LogReader, run_id: str) -> list[Event]:
    """Return the newest events of a conversation, oldest first: as many as are shown."""
    found: list[Event] = []
    room = MOST_CHARACTERS
    for event in read_branch(reader, run_id, most=MOST_EVENTS):
        room -= _length(event)
        if room < 0 and found:
            break
        found.append(event)
    found.reverse()
    return found


def _length(event: Event) -> int:
    length = 0
    for step in Story().take(event.body):
        output = step.entry.result
        length += len(step.entry.text if output is None else output.text)
    return length


def newest_exchanges(reader: LogReader, run_id: str) -> Iterator[Exchange]:
    """Yield the exchanges of a conversation of the log, newest first. Only as much is read as is taken."""
    back: list[Event] = []
    for event in read_branch(reader, run_id, _SPOKEN):
        back.append(event)
        if isinstance(event.body, MessageAdded) and event.body.message.origin in PERSON:
            yield from exchanges(reversed(back))
            back.clear()


def answers(reader: LogReader, run_id: str, most: int) -> list[str]:
    """Return what the main agent said last before each time the person spoke again, newest first."""
    found = (each.answers[-1] for each in newest_exchanges(reader, run_id) if each.answers)
    return list(islice(found, most))


def code_blocks(text: str) -> list[str]:
    """Return the content of the fenced blocks of a Markdown text, in order."""
    return [found[2].rstrip("\n") for found in _FENCE.finditer(text)]


def farewell(reader: LogReader, run_id: str, width: int) -> list[str]:
    """Return the last exchange as lines for the ordinary screen; of a long answer its end."""
    last = next(newest_exchanges(reader, run_id), None)
    if last is None:
        return []
    said = " ".join(clean_lines(last.text))
    lines = [fit(f"❯ {said}", width)]
    if last.answers:
        answer = wrap(last.answers[-1], width)
        if len(answer) > FAREWELL_LINES:
            answer = ["…", *answer[-FAREWELL_LINES:]]
        lines += ["", *answer]
    return lines
