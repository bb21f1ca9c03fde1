"""Two recordings side by side: requests, calls, results, files, cost and answer.

Runs are paired by their place in the tree. The differences are sentences in order: later ones often follow from the
first one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from itertools import zip_longest
from typing import Literal

from msgspec import Struct, field

from retinue.core.events import RunEnded
from retinue.core.outcome import Outcome
from retinue.core.permission import ToolEffect
from retinue.log.replay import describe_call
from retinue.recordings.cassette import Cassette, RecordedRun, RequestMark
from retinue.recordings.record import call_entries, one_line

Kind = Literal["tree", "request", "call", "result", "file", "ending", "answer"]
_MAX_TEXT_CHARACTERS = 160


class RunDifference(Struct, frozen=True):
    """One difference, in a turn of an agent."""

    kind: Kind
    agent: str
    turn: int
    text: str


class RecordedCall(Struct, frozen=True):
    """One call of a recorded run. `result` is None for one that never reported."""

    turn: int
    text: str
    result: str | None
    effect: ToolEffect


class CallPair(Struct, frozen=True):
    """A call of each recording; None where one of them has none in this place."""

    agent: str
    left: str | None
    right: str | None

    @property
    def same(self) -> bool:
        return self.left == self.right


class RecordingFacts(Struct, frozen=True, kw_only=True):
    """The figures of a recording."""

    agent: str
    task: str
    model: str
    ended: str
    turns: int
    calls: int
    runs: int
    usd: float | None
    tokens: int
    answer: str
    files: dict[str, str | None] = field(default_factory=dict)
    """The files that were changed, each with the hash of its content afterwards; None if it was removed."""


class Comparison(Struct, frozen=True):
    """Two recordings. `notes` are differences of the machines and not of the runs, such as another system prompt."""

    left: RecordingFacts
    right: RecordingFacts
    calls: tuple[CallPair, ...]
    differences: tuple[RunDifference, ...]
    notes: tuple[str, ...] = ()

    @property
    def same(self) -> bool:
        return not self.differences


def compare(left: Cassette, right: Cassette) -> Comparison:
    """Return how two recordings differ."""
    differences: list[RunDifference] = []
    notes: list[str] = []
    pairs: list[CallPair] = []
    for one, other in zip_longest(left.runs, right.runs):
        if one is None or other is None:
            run = one or other
            side = "only the first has" if other is None else "only the second has"
            differences.append(
                RunDifference("tree", run.created.agent, 0, f"{side} this run: {_short(run.created.task)}")
            )
            continue
        differences += _compare_runs(one, other, notes, pairs)
    facts = facts_of(left), facts_of(right)
    differences += _compare_files(*facts)
    return Comparison(*facts, tuple(pairs), tuple(differences), tuple(dict.fromkeys(notes)))


def _compare_runs(
    one: RecordedRun, other: RecordedRun, notes: list[str], pairs: list[CallPair]
) -> Iterator[RunDifference]:
    agent = one.created.agent
    if other.created.agent != agent:
        text = f"the first has a run of {agent} here, the second one of {other.created.agent}"
        yield RunDifference("tree", agent, 0, text)
        return
    yield from _compare_requests(agent, marks_of(one), marks_of(other), notes)
    for left, right in _paired(calls_of(one), calls_of(other)):
        texts = [None if call is None else call.text for call in (left, right)]
        pairs.append(CallPair(agent, *texts))
        yield from _compare_calls(agent, left, right)
    yield from _compare_endings(agent, outcome_of_run(one), outcome_of_run(other))


def _compare_requests(
    agent: str, mine: Sequence[RequestMark], theirs: Sequence[RequestMark], notes: list[str]
) -> Iterator[RunDifference]:
    reported: set[str] = {"system"}
    for turn, (one, other) in enumerate(zip(mine, theirs, strict=False), 1):
        parts = one.differences(other)
        if "system" in parts:
            notes.append(f"{agent}: the system prompt is another one (its file, instructions or version changed)")
        # The conversation differs from its first difference on: it is reported once.
        new = [part for part in parts if part not in reported]
        reported.update(new)
        if new:
            words = {"tools": "other tools are offered", "messages": "another conversation is sent"}
            yield RunDifference("request", agent, turn, " and ".join(words[part] for part in new))
    if len(mine) != len(theirs):
        yield RunDifference("request", agent, 0, f"{len(mine)} requests against {len(theirs)}")


def _paired(
    mine: Sequence[RecordedCall], theirs: Sequence[RecordedCall]
) -> list[tuple[RecordedCall | None, RecordedCall | None]]:
    """Return the calls of both in order, those that are equal beside one another."""
    pairs: list[tuple[RecordedCall | None, RecordedCall | None]] = []
    texts = [call.text for call in mine], [call.text for call in theirs]
    for _, start, end, start_other, end_other in SequenceMatcher(None, *texts, autojunk=False).get_opcodes():
        pairs += zip_longest(mine[start:end], theirs[start_other:end_other])
    return pairs


def _compare_calls(agent: str, one: RecordedCall | None, other: RecordedCall | None) -> Iterator[RunDifference]:
    if one is None or other is None:
        call = one or other
        assert call is not None, "a pair has one call at least"
        side = "only the first calls" if other is None else "only the second calls"
        yield RunDifference("call", agent, call.turn, f"{side} {_short(call.text)}")
    elif one.text != other.text:
        yield RunDifference("call", agent, one.turn, f"{_short(one.text)} against {_short(other.text)}")
    elif one.result != other.result:
        text = f"{_short(one.text)}: {_first_difference(one.result or '', other.result or '')}"
        yield RunDifference("result", agent, one.turn, text)


def _compare_endings(agent: str, one: Outcome | None, other: Outcome | None) -> Iterator[RunDifference]:
    if one is None or other is None:
        if one is not other:
            yield RunDifference("ending", agent, 0, "only one of them has ended")
        return
    if one.ended != other.ended:
        yield RunDifference("ending", agent, one.turns, f"{one.ended} against {other.ended}")
    if one.text != other.text:
        yield RunDifference("answer", agent, one.turns, _first_difference(one.text, other.text))


def _compare_files(left: RecordingFacts, right: RecordingFacts) -> Iterator[RunDifference]:
    for path in sorted(left.files.keys() | right.files.keys()):
        if path not in right.files:
            yield RunDifference("file", left.agent, 0, f"only the first changes {path}")
        elif path not in left.files:
            yield RunDifference("file", left.agent, 0, f"only the second changes {path}")
        elif left.files[path] != right.files[path]:
            yield RunDifference("file", left.agent, 0, f"{path} is another one afterwards")


def facts_of(cassette: Cassette) -> RecordingFacts:
    """Return the figures of a recording."""
    outcome = outcome_of_run(cassette.first)
    calls = 0
    files: dict[str, str | None] = {}
    tokens = 0
    for run in cassette.runs:
        for call in calls_of(run):
            calls += 1
            for touched in call.effect.writes:
                if touched.before != touched.after:
                    files[touched.path] = touched.after
        ended = outcome_of_run(run)
        tokens += ended.usage.total_tokens if ended is not None else 0
    return RecordingFacts(
        agent=cassette.head.agent,
        task=cassette.head.task,
        model=cassette.head.model,
        ended=outcome.ended if outcome is not None else "not ended",
        turns=outcome.turns if outcome is not None else 0,
        calls=calls,
        runs=len(cassette.runs),
        usd=cassette.head.usd,
        tokens=tokens,
        answer=outcome.text if outcome is not None else "",
        files=files,
    )


def calls_of(run: RecordedRun) -> list[RecordedCall]:
    """Return the calls of a recorded run, in the order in which its model made them."""
    calls = []
    for call, entry in call_entries(run.bodies):
        result = None if entry.result is None else entry.result.text
        calls.append(RecordedCall(entry.turn, describe_call(call), result, entry.effect))
    return calls


def marks_of(run: RecordedRun) -> list[RequestMark]:
    return [event.mark for event in run.events if event.mark is not None]


def outcome_of_run(run: RecordedRun) -> Outcome | None:
    """Return how a recorded run ended at last."""
    for body in reversed(run.bodies):
        if isinstance(body, RunEnded):
            return body.outcome
    return None


def _first_difference(one: str, other: str) -> str:
    """Return the first lines of two texts that differ."""
    for mine, theirs in zip_longest(one.splitlines(), other.splitlines(), fillvalue=""):
        if mine != theirs:
            return f"{_short(mine)!r} against {_short(theirs)!r}"
    return "they differ in blanks at the end of lines"


def _short(text: str) -> str:
    return one_line(text, _MAX_TEXT_CHARACTERS)
