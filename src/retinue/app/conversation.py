"""Conversations with a main agent: one that another process runs, and past ones in the log.

`/copy` takes its text from here. When the app exits, it prints the last exchange.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice

from retinue.app.feed import Feed, command_text
from retinue.app.progress import Phase, State
from retinue.app.rich_text import clean_lines, fit, wrap
from retinue.app.session import MessageDelivery
from retinue.core.events import AssistantEnded, Event, MessageAdded, RunEnded, RunResumed, TurnStarted
from retinue.core.person_prompt import words_of
from retinue.core.run_state import RunState
from retinue.core.story import Story
from retinue.log.overview import tree_costs
from retinue.log.query import LogReader
from retinue.log.replay import read_branch


class AttachedConversation:
    """A conversation whose main run works in another process. Events come from the log; messages are sent as commands
    through the log. Closing it does not affect the run. `waiting` is always empty, because the other process queues the
    messages."""

    def __init__(self, feed: Feed, run_id: str, *, changed: Callable[[], None] = lambda: None) -> None:
        self._feed = feed
        self._changed = changed
        self._phase = Phase()
        # It has ended in its process and can be resumed here.
        self.over = False
        self.main_id: str | None = run_id
        self.state: State = "working"
        self.waiting: tuple[str, ...] = ()

    async def say(self, text: str) -> MessageDelivery:
        """Send a message to the run or to one of its agents. Raise CommandRefusedError if it cannot be delivered."""
        answer = await self._feed.say(self.main_id or "", text, by="")
        if answer.run_id == self.main_id:
            return MessageDelivery("sent")
        return MessageDelivery("steered", text.split()[0].removeprefix("@"))

    def interrupt(self) -> bool:
        """Return False: a person who only watches cannot interrupt another process with Esc."""
        return False

    async def resend(self) -> bool:
        return False

    def unqueue(self) -> str:
        return ""

    async def compact(self, wish: str = "") -> str:
        return await command_text(self._feed.compact(self.main_id or "", wish, by=""))

    async def stop(self) -> str:
        """Stop the run and everything below it in its process. Return the answer."""
        return await command_text(self._feed.stop(self.main_id or "", by="", tree=True))

    def observe(self, event: Event) -> None:
        if isinstance(event.body, (RunEnded, RunResumed)):
            self.over = isinstance(event.body, RunEnded)
        state = self._phase.take(event.body)
        if state is not None:
            self._become(state)

    async def pump(self) -> bool:
        return False

    def _become(self, state: State) -> None:
        self.state = state
        self._changed()


PERSON_ORIGINS = frozenset({"task", "follow-up", "steer"})
FAREWELL_LINES = 12
MAX_REPLAYED_EVENTS = 900
"""Events of an earlier conversation that are shown again."""
MAX_REPLAYED_CHARACTERS = 8_000_000
_SPOKEN_TYPES = ("message.added", "turn.started", "assistant.ended")
_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})[^\n]*\n(.*?)^ {0,3}\1[`~]*[ \t]*$", re.DOTALL | re.MULTILINE)


@dataclass(slots=True)
class Exchange:
    """A message of a person, without its attachments, and the answers of the main agent. `seq` is the number of the
    message in the run's log. `turn` is the first turn after it, or 0."""

    seq: int
    at: float
    text: str
    turn: int = 0
    answers: list[str] = field(default_factory=list)


def exchanges(events: Iterable[Event]) -> list[Exchange]:
    """Return the exchanges of one run, oldest first."""
    spoken: list[Exchange] = []
    for event in events:
        match event.body:
            case MessageAdded(message) if message.origin in PERSON_ORIGINS:
                spoken.append(Exchange(event.seq, event.at, words_of(message.text)))
            case TurnStarted(turn) if spoken and not spoken[-1].turn:
                spoken[-1].turn = turn
            case AssistantEnded(message=message) if spoken and message.text.strip():
                spoken[-1].answers.append(message.text.strip("\n"))
            case _:
                pass
    return spoken


def list_conversations(reader: LogReader, words: list[str], most: int) -> list[tuple[RunState, float | None]]:
    """Return the main runs that match all words, newest first, each with the cost of its tree."""
    runs = reader.conversations(words, limit=most)
    costs = tree_costs(reader, [run.id for run in runs])
    return [(run, costs.get(run.id, run.usage.cost_usd)) for run in runs]


def read_end(reader: LogReader, run_id: str) -> list[Event]:
    """Return the newest events of a conversation, oldest first, up to the limits of the display."""
    newest: list[Event] = []
    room = MAX_REPLAYED_CHARACTERS
    for event in read_branch(reader, run_id, limit=MAX_REPLAYED_EVENTS):
        room -= _length(event)
        if room < 0 and newest:
            break
        newest.append(event)
    newest.reverse()
    return newest


def _length(event: Event) -> int:
    length = 0
    for step in Story().take(event.body):
        output = step.entry.result
        length += len(step.entry.text if output is None else output.text)
    return length


def newest_exchanges(reader: LogReader, run_id: str) -> Iterator[Exchange]:
    """Yield the exchanges of a conversation in the log, newest first. Reads only as far as the caller iterates."""
    back: list[Event] = []
    for event in read_branch(reader, run_id, _SPOKEN_TYPES):
        back.append(event)
        if isinstance(event.body, MessageAdded) and event.body.message.origin in PERSON_ORIGINS:
            yield from exchanges(reversed(back))
            back.clear()


def answers(reader: LogReader, run_id: str, most: int) -> list[str]:
    """Return the last answer of each exchange, newest first."""
    texts = (exchange.answers[-1] for exchange in newest_exchanges(reader, run_id) if exchange.answers)
    return list(islice(texts, most))


def code_blocks(text: str) -> list[str]:
    """Return the contents of the fenced code blocks of a Markdown text, in order."""
    return [match[2].rstrip("\n") for match in _FENCE.finditer(text)]


def farewell(reader: LogReader, run_id: str, width: int) -> list[str]:
    """Return the last exchange as lines for the ordinary screen. A long answer is reduced to its end."""
    last = next(newest_exchanges(reader, run_id), None)
    if last is None:
        return []
    words = " ".join(clean_lines(last.text))
    lines = [fit(f"❯ {words}", width)]
    if last.answers:
        answer = wrap(last.answers[-1], width)
        if len(answer) > FAREWELL_LINES:
            answer = ["…", *answer[-FAREWELL_LINES:]]
        lines += ["", *answer]
    return lines
