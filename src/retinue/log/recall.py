"""The conversation of a run, rebuilt from the log without reading what it no longer needs.

A compaction replaces all messages before it, and going back leaves a part of the conversation behind. Of events that
do not count any more, the answers and outputs are not read: only that they were there. So a run takes as much memory as
its conversation does, and a conversation no more than a model could ever be told.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from msgspec import Struct

from retinue.core.events import Event, Rewound
from retinue.errors import StateError
from retinue.log.replay import Conversation, Rebuilding

if TYPE_CHECKING:
    from retinue.log.query import LogReader

OUTPUT_KEPT = 4_000_000
"""Characters of tool outputs in a conversation; the oldest go first. No model reads as many at once."""
_SPOKEN = ("message.added", "assistant.ended", "tool.started", "tool.ended", "tools.ended", "run.compacted")
"""Events that may be long, and of which only the conversation needs more than their number."""

Kinds = Sequence[tuple[int, str]]
"""Number and type of each event of a run."""
Ranges = list[tuple[int, int]]


class _Needed(Struct, frozen=True):
    """Which events of `_SPOKEN` are read: those inside of `ranges`, and `single` ones."""

    ranges: Ranges
    single: list[int]

    def __contains__(self, seq: int) -> bool:
        return any(first <= seq <= last for first, last in self.ranges) or seq in self.single

    def condition(self) -> str:
        spoken = ", ".join(f"'{kind}'" for kind in _SPOKEN)
        parts = [f"type NOT IN ({spoken})", *(f"seq BETWEEN {first} AND {last}" for first, last in self.ranges)]
        if self.single:
            parts.append(f"seq IN ({', '.join(map(str, self.single))})")
        return " OR ".join(parts)


def read_conversation(reader: LogReader, run_id: str) -> Conversation:
    """Return the run as it can be taken up again."""
    kinds = _kinds(reader, run_id)
    if any(kind == "run.pruned" for _, kind in kinds[-1:]):
        raise StateError(
            f"Run {run_id} cannot go on: its events were removed to save space.",
            remedy=f"Start a new run. How it ended and what it used: retinue runs show {run_id}",
        )
    branch = _branch(reader, run_id, kinds)
    needed = _needed(kinds, branch)
    rebuilding = Rebuilding(OUTPUT_KEPT)
    unread = [kind for seq, kind in kinds if kind in _SPOKEN and seq not in needed]
    rebuilding.tool_uses = unread.count("tool.ended")
    rebuilding.compactions = unread.count("run.compacted")
    for event in reader.stream(run_id, condition=needed.condition()):
        rebuilding.take(event.body, spoken=any(first <= event.seq <= last for first, last in branch))
    return rebuilding.done(reader.partial(run_id))


def read_branch(
    reader: LogReader, run_id: str, types: Collection[str] = (), most: int | None = None
) -> Iterator[Event]:
    """Yield the events that the conversation consists of now, newest first: those of `types`, or all; at most `most`.
    Only as many are read as are taken, and none of `tools.ended`, which only repeats the ends of the calls."""
    ranges = _branch(reader, run_id, _kinds(reader, run_id))
    within = " OR ".join(f"seq BETWEEN {first} AND {last}" for first, last in ranges)
    yield from islice(reader.backwards(run_id, types, f"type!='tools.ended' AND ({within})"), most)


def read_last_turn(reader: LogReader, run_id: str) -> Conversation:
    """Return how the run was cut off, from its last answer on: `unknown`, `unrun` and `partial` are those of the
    whole conversation."""
    last = reader.select(
        "SELECT seq FROM events WHERE run_id=? AND type='assistant.ended' ORDER BY seq DESC LIMIT 1", (run_id,)
    )
    rebuilding = Rebuilding()
    for event in reader.stream(run_id, after=int(last[0][0]) - 1 if last else 0):
        rebuilding.take(event.body)
    return rebuilding.done(reader.partial(run_id))


def _kinds(reader: LogReader, run_id: str) -> Kinds:
    rows = reader.select("SELECT seq, type FROM events WHERE run_id=? ORDER BY seq", (run_id,))
    return [(row[0], row[1]) for row in rows]


def _branch(reader: LogReader, run_id: str, kinds: Kinds) -> Ranges:
    """Return the ranges of events that the conversation consists of now, in order."""
    returns = {}
    if any(kind == "run.rewound" for _, kind in kinds):
        for event in reader.stream(run_id, types=("run.rewound",)):
            if isinstance(event.body, Rewound):
                returns[event.seq] = event.body.to
    return branch_ranges(returns, kinds[-1][0] if kinds else 0)


def branch_ranges(returns: Mapping[int, int], last: int) -> Ranges:
    """Return the ranges of events up to `last` that count, in order. `returns` are the numbers of the returns to an
    earlier event, each with the number of that event."""
    ranges: Ranges = []
    for seq in sorted(returns, reverse=True):
        if seq <= last:
            ranges.append((seq, last))
            last = returns[seq]
    ranges.append((1, last))
    return ranges[::-1]


def _needed(kinds: Kinds, branch: Ranges) -> _Needed:
    """Return what is read of the events that the conversation is made of, and of answers that no turn has counted."""
    start = 1
    for seq, kind in kinds:
        if kind == "run.compacted" and any(first <= seq <= last for first, last in branch):
            start = seq
    ranges = [(max(first, start), last) for first, last in branch if last >= start]
    single: list[int] = []
    answer = 0
    for seq, kind in kinds:
        if kind == "turn.ended":
            answer = 0
        elif kind in ("assistant.ended", "run.ended"):
            if answer:
                single.append(answer)
            answer = seq if kind == "assistant.ended" else 0
    newest = [seq for seq, kind in kinds if kind == "assistant.ended"][-1:]
    return _Needed(ranges, sorted({*single, *newest}))
