"""The actions of a run and all runs below it, read from the log and the working folder. Assertions check this record.

Files are compared by their hashes before and after the run, so that changes by commands are included. The ledger has
one line for each call, and failed assertions quote it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase

from msgspec import Struct
from msgspec.structs import replace

from retinue.capabilities.audit.report import CallEffect, effects_of
from retinue.core.events import Body, Event
from retinue.core.format import relative
from retinue.core.messages import ToolCall
from retinue.core.outcome import Outcome
from retinue.core.story import Entry, Story
from retinue.core.usage import Usage
from retinue.log.query import LogReader
from retinue.log.replay import describe_call

MAX_LEDGER_LINE_CHARACTERS = 200


class LedgerEntry(Struct, frozen=True):
    """One call of the tree. Calls of a run are in the order in which they began."""

    agent: str
    turn: int
    call: str
    effect: CallEffect
    error: str = ""
    """The output of a failed call."""

    @property
    def line(self) -> str:
        """The entry as one line for people."""
        status = self.effect.denied or self.error if self.effect.status in ("denied", "failed") else ""
        end = f": {one_line(status)}" if status else ""
        if self.effect.exit_code is not None:
            end = f" (exit {self.effect.exit_code}){end}"
        return f"{self.agent} turn {self.turn}: {one_line(self.call)} {self.effect.status}{end}"


class RunRecord(Struct, frozen=True, kw_only=True):
    """A tree of runs that has ended. Paths are relative to the working folder where they are in it."""

    outcome: Outcome
    entries: tuple[LedgerEntry, ...]
    children: tuple[str, ...]
    """The started agents of all depths, in order."""
    usage: Usage
    changed: tuple[str, ...] = ()
    diff: str = ""

    @property
    def reads(self) -> list[str]:
        return [path for entry in self.entries for path in entry.effect.reads]

    @property
    def commands(self) -> list[LedgerEntry]:
        """The commands that ran, without denied ones."""
        return [entry for entry in self.entries if entry.effect.command and entry.effect.status != "denied"]

    @property
    def denied(self) -> list[LedgerEntry]:
        return [entry for entry in self.entries if entry.effect.status == "denied"]

    def lines_about(self, path: str) -> list[str]:
        """Return the ledger's lines of the calls that wrote a file."""
        return [entry.line for entry in self.entries if path in [write.path for write in entry.effect.writes]]


def read_record(reader: LogReader, run_id: str, cwd: str) -> RunRecord | None:
    """Return the record of a run without the changes in its folder; None if the run has not ended."""
    outcome = reader.outcome(run_id)
    if outcome is None:
        return None
    entries: list[LedgerEntry] = []
    usage = Usage()
    tree = reader.tree(reader.run(run_id))
    for run in tree:
        usage += run.usage
        entries += ledger_of(reader.events(run.id), run.id, run.agent, cwd)
    children = tuple(run.agent for run in tree[1:])
    return RunRecord(outcome=outcome, entries=tuple(entries), children=children, usage=usage)


def call_entries(bodies: Iterable[Body]) -> Iterator[tuple[ToolCall, Entry]]:
    """Yield the calls of a run, each with its entry, in the order in which its model made them."""
    story = Story()
    # The story has an entry for every call, also for refused calls, which never begin.
    entries = [step.entry for body in bodies for step in story.take(body) if step.change == "added"]
    return ((entry.call, entry) for entry in entries if entry.call is not None)


def ledger_of(events: list[Event], run_id: str, agent: str, cwd: str) -> list[LedgerEntry]:
    """Return the ledger of one run."""
    texts: dict[str, tuple[str, str]] = {}
    for call, entry in call_entries(event.body for event in events):
        error = entry.result.text if entry.result is not None and entry.result.is_error else ""
        texts[call.id] = describe_call(call), error
    entries = []
    for turn in effects_of(events, run_id, agent).turns:
        for effect in turn.calls:
            text, error = texts.get(effect.call_id, (effect.tool, ""))
            entries.append(LedgerEntry(agent, turn.turn, text, _relative(effect, cwd), error))
    return entries


def _relative(effect: CallEffect, cwd: str) -> CallEffect:
    reads = tuple(relative(path, cwd) for path in effect.reads)
    writes = tuple(replace(write, path=relative(write.path, cwd)) for write in effect.writes)
    return replace(effect, reads=reads, writes=writes)


def match_path(path: str, pattern: str) -> bool:
    """Return whether a path matches a pattern: `*` is any text without `/`, `**` any text."""
    if pattern in ("**", "**/*"):
        return True
    return bool(_path_pattern(pattern).fullmatch(path))


def _path_pattern(pattern: str) -> re.Pattern[str]:
    tokens = re.split(r"(\*\*/|\*\*|\*|\?)", pattern)
    wildcards = {"**/": r"(?:.*/)?", "**": r".*", "*": r"[^/]*", "?": r"[^/]"}
    return re.compile("".join(wildcards.get(token, re.escape(token)) for token in tokens))


def match_text(text: str, pattern: str) -> bool:
    """Return whether a command, host or denial matches a pattern, in which `*` is any text."""
    return fnmatchcase(text, pattern.replace("[", "[[]"))


def one_line(text: str, max_characters: int = MAX_LEDGER_LINE_CHARACTERS) -> str:
    """Return a text as one line; `…` marks a cut end."""
    line = " ".join(text.split())
    return line if len(line) <= max_characters else f"{line[: max_characters - 1]}…"
