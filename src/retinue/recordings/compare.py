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
from retinue.core.story import Entry
from retinue.log.replay import describe_call
from retinue.recordings.cassette import Cassette, RecordedRun, RequestMark
from retinue.recordings.record import call_entries, one_line

DifferenceKind = Literal["tree", "request", "call", "result", "file", "ending", "answer"]
_MAX_EXCERPT_CHARACTERS = 160


class RunDifference(Struct, frozen=True):
    """One difference, in a turn of an agent."""

    kind: DifferenceKind
    agent: str
    turn: int
    text: str


class CallPair(Struct, frozen=True):
    """One call of each recording. None: that recording has no call at this position."""

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
    """The changed files, each with the hash of its content afterwards; None for a removed file."""


class Comparison(Struct, frozen=True):
    """Two recordings. `notes` are differences of the machines and not of the runs, such as another system prompt."""

    same: bool
    left: RecordingFacts
    right: RecordingFacts
    calls: tuple[CallPair, ...]
    differences: tuple[RunDifference, ...]
    notes: tuple[str, ...]


def compare(first: Cassette, second: Cassette) -> Comparison:
    """Return how two recordings differ."""
    differences: list[RunDifference] = []
    notes: list[str] = []
    pairs: list[CallPair] = []
    for one, other in zip_longest(first.runs, second.runs):
        if one is None or other is None:
            run = one or other
            side = "only the first has" if other is None else "only the second has"
            differences.append(
                RunDifference("tree", run.created.agent, 0, f"{side} this run: {_short(run.created.task)}")
            )
            continue
        differences += _compare_runs(one, other, notes, pairs)
    facts = facts_of(first), facts_of(second)
    differences += _compare_files(*facts)
    return Comparison(not differences, *facts, tuple(pairs), tuple(differences), tuple(dict.fromkeys(notes)))


def _compare_runs(
    one: RecordedRun, other: RecordedRun, notes: list[str], pairs: list[CallPair]
) -> Iterator[RunDifference]:
    agent = one.created.agent
    if other.created.agent != agent:
        text = f"the first has a run of {agent} here, the second one of {other.created.agent}"
        yield RunDifference("tree", agent, 0, text)
        return
    yield from _compare_requests(agent, marks_of(one), marks_of(other), notes)
    for call, other_call in _pair_calls(calls_of(one), calls_of(other)):
        pairs.append(CallPair(agent, _describe(call), _describe(other_call)))
        yield from _compare_calls(agent, call, other_call)
    yield from _compare_endings(agent, outcome_of_run(one), outcome_of_run(other))


def _compare_requests(
    agent: str, mine: Sequence[RequestMark], theirs: Sequence[RequestMark], notes: list[str]
) -> Iterator[RunDifference]:
    reported: set[str] = {"system"}
    for turn, (one, other) in enumerate(zip(mine, theirs, strict=False), 1):
        changed = one.differences(other)
        if "system" in changed:
            notes.append(f"{agent}: the system prompt is another one (its file, instructions or version changed)")
        # Once the conversation differs, it differs in every later request: report it once.
        unreported = [section for section in changed if section not in reported]
        reported.update(unreported)
        if unreported:
            words = {"tools": "other tools are offered", "messages": "another conversation is sent"}
            yield RunDifference("request", agent, turn, " and ".join(words[section] for section in unreported))
    if len(mine) != len(theirs):
        yield RunDifference("request", agent, 0, f"{len(mine)} requests against {len(theirs)}")


def _pair_calls(mine: Sequence[Entry], theirs: Sequence[Entry]) -> list[tuple[Entry | None, Entry | None]]:
    """Return the calls of both runs in order, with equal calls beside one another."""
    pairs: list[tuple[Entry | None, Entry | None]] = []
    matcher = SequenceMatcher(None, list(map(_describe, mine)), list(map(_describe, theirs)), autojunk=False)
    for _, start, end, start_other, end_other in matcher.get_opcodes():
        pairs += zip_longest(mine[start:end], theirs[start_other:end_other])
    return pairs


def _describe(entry: Entry | None) -> str | None:
    return None if entry is None or entry.call is None else describe_call(entry.call)


def _compare_calls(agent: str, one: Entry | None, other: Entry | None) -> Iterator[RunDifference]:
    text, other_text = _short(_describe(one) or ""), _short(_describe(other) or "")
    if one is None:
        assert other is not None, "a pair has at least one call"
        yield RunDifference("call", agent, other.turn, f"only the second calls {other_text}")
    elif other is None:
        yield RunDifference("call", agent, one.turn, f"only the first calls {text}")
    elif _describe(one) != _describe(other):
        yield RunDifference("call", agent, one.turn, f"{text} against {other_text}")
    elif _output(one) != _output(other):
        difference = _first_difference(_output(one) or "", _output(other) or "")
        yield RunDifference("result", agent, one.turn, f"{text}: {difference}")


def _output(entry: Entry) -> str | None:
    """Return the output of a call; None for a call that never reported."""
    return None if entry.result is None else entry.result.text


def _compare_endings(agent: str, one: Outcome | None, other: Outcome | None) -> Iterator[RunDifference]:
    if one is None or other is None:
        if one is not other:
            yield RunDifference("ending", agent, 0, "only one of them has ended")
        return
    if one.ended != other.ended:
        yield RunDifference("ending", agent, one.turns, f"{one.ended} against {other.ended}")
    if one.text != other.text:
        yield RunDifference("answer", agent, one.turns, _first_difference(one.text, other.text))


def _compare_files(first: RecordingFacts, second: RecordingFacts) -> Iterator[RunDifference]:
    for path in sorted(first.files.keys() | second.files.keys()):
        if path not in second.files:
            yield RunDifference("file", first.agent, 0, f"only the first changes {path}")
        elif path not in first.files:
            yield RunDifference("file", first.agent, 0, f"only the second changes {path}")
        elif first.files[path] != second.files[path]:
            yield RunDifference("file", first.agent, 0, f"{path} has other content afterwards")


def facts_of(cassette: Cassette) -> RecordingFacts:
    """Return the figures of a recording."""
    outcome = outcome_of_run(cassette.first)
    calls = 0
    files: dict[str, str | None] = {}
    tokens = 0
    for run in cassette.runs:
        for entry in calls_of(run):
            calls += 1
            for write in entry.effect.writes:
                if write.before != write.after:
                    files[write.path] = write.after
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


def calls_of(run: RecordedRun) -> list[Entry]:
    """Return the calls of a recorded run, in the order in which its model made them."""
    return [entry for _, entry in call_entries(run.bodies)]


def marks_of(run: RecordedRun) -> list[RequestMark]:
    return [event.mark for event in run.events if event.mark is not None]


def outcome_of_run(run: RecordedRun) -> Outcome | None:
    """Return the last outcome of a recorded run."""
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
    return one_line(text, _MAX_EXCERPT_CHARACTERS)
