"""Cassettes: a run and its whole tree in one file that can be reviewed, shared and played again.

    {"type":"cassette","version":1,"agent":"reviewer","task":"Review src/io.py",…}
    {"run":1,"seq":1,"type":"run.created",…}

One event a line, run by run, parents before their children: what ran at the same time does not change the file. The
text is portable (`portable.py`) and without secrets. What only a provider can use (signatures of thinking, the data
of images) is left out; system prompts are there as a digest, because they may hold the user's own instructions.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from retinue.core.encode import decode, dump
from retinue.core.events import (
    AssistantEnded,
    Body,
    Compacted,
    Event,
    MessageAdded,
    RunCreated,
    RunStarted,
    ToolEnded,
    ToolsEnded,
    ToolStarted,
    TurnStarted,
)
from retinue.core.foreign import read_file
from retinue.core.messages import (
    AssistantMessage,
    Document,
    Image,
    Text,
    Thinking,
    ToolCall,
    ToolMessage,
    ToolResult,
    UserMessage,
)
from retinue.core.run_state import RunState
from retinue.core.version import __version__
from retinue.errors import ConfigurationError, StateError
from retinue.evidence.portable import MachineFolders, PortableText, RequestMark, RequestMarks
from retinue.guard.redact import Redactor
from retinue.log.query import LogReader

VERSION = 1
SUFFIX = ".cassette.jsonl"
_MAX_BYTES = 200_000_000
_RECORD_AGAIN = "Export the run again: retinue runs export RUN --cassette FILE"


class CassetteError(ConfigurationError):
    """A file that is no cassette, or one of another version."""

    code = "BAD_CASSETTE"


class CassetteHead(Struct, frozen=True, kw_only=True):
    """The first line. `commit` is what was checked out when the first run began; `usd` what the tree cost."""

    type: str = "cassette"
    version: int = VERSION
    retinue: str = __version__
    agent: str
    task: str
    model: str
    commit: str | None = None
    usd: float | None = None
    runs: int = 1
    events: int = 0


class RecordedEvent(Struct, frozen=True):
    """An event of a cassette. `mark` is there for the start of a turn."""

    seq: int
    body: Body
    mark: RequestMark | None = None


class RecordedRun(Struct, frozen=True):
    """One run of a cassette. `parent` is the number of the run that started it."""

    number: int
    parent: int | None
    events: tuple[RecordedEvent, ...]

    @property
    def created(self) -> RunCreated:
        body = self.events[0].body
        assert isinstance(body, RunCreated), "checked when the cassette was read"
        return body

    @property
    def bodies(self) -> list[Body]:
        return [event.body for event in self.events]

    @property
    def answers(self) -> list[AssistantMessage]:
        return [body.message for body in self.bodies if isinstance(body, AssistantEnded)]

    @property
    def summaries(self) -> list[str]:
        """The summaries by which the conversation was shortened; an empty one where it is not known."""
        compactions = [body for body in self.bodies if isinstance(body, Compacted) and body.method == "summarised"]
        return [_summary_of(body) for body in compactions]


class Cassette(Struct, frozen=True):
    """A recording. The first run is the one that was exported."""

    head: CassetteHead
    runs: tuple[RecordedRun, ...]
    path: str = ""

    @property
    def first(self) -> RecordedRun:
        return self.runs[0]


def _summary_of(body: Compacted) -> str:
    for message in body.messages:
        if isinstance(message, UserMessage) and message.origin == "summary":
            return message.text.partition("\n\n")[2]
    return ""


# From the log to a file


def export_cassette(reader: LogReader, row: RunState, home: Path, redact: Redactor) -> bytes:
    """Return the cassette of a run and all below it. `home` is the home of the user who ran it. Raise StateError for
    a run that has no beginning in the log."""
    tree = _tree(reader, row)
    events = {run.id: reader.events(run.id) for run in tree}
    first = events[row.id][0].body if events[row.id] else None
    if not isinstance(first, RunCreated):
        raise StateError(f"Run {row.id} has no beginning in the log.", remedy="It cannot be exported.")
    places = MachineFolders(first.cwd, str(reader.path.parent), str(home))
    text = PortableText(places, [run.id for run in tree])
    for run in tree:
        for event in events[run.id]:
            if isinstance(event.body, AssistantEnded):
                for call in event.body.message.tool_calls:
                    text.add_call(call.id)
    numbers = {run.id: number for number, run in enumerate(tree, 1)}
    lines: list[bytes] = []
    systems: dict[str, str] = {}
    for run in tree:
        system = _system_prompt(events[run.id], systems.get(run.parent_id or "", ""))
        systems[run.id] = system
        lines += _run_lines(events[run.id], numbers, text, redact, system)
    head = CassetteHead(
        agent=first.agent,
        task=redact(first.task),
        model=row.model,
        commit=first.options.commit,
        usd=_total_cost(tree),
        runs=len(tree),
        events=len(lines),
    )
    return text(dump(head)) + b"\n" + b"".join(lines)


def _tree(reader: LogReader, row: RunState) -> list[RunState]:
    """Return the run and all below it, each before those that it has started, in the order they were started."""
    tree = [row]
    for child in reversed(reader.list_runs(parent_id=row.id)):
        tree += _tree(reader, child)
    return tree


def _total_cost(tree: Iterable[RunState]) -> float | None:
    total = 0.0
    for row in tree:
        if row.usage.cost_usd is None:
            return None
        total += row.usage.cost_usd
    return round(total, 6)


def _system_prompt(events: list[Event], above: str) -> str:
    """Return the system prompt of a run; that of a twin begins with its parent's."""
    body = events[0].body if events else None
    system = body.options.system if isinstance(body, RunCreated) else None
    if not isinstance(system, dict) or not isinstance(system.get("text"), str):
        return ""
    inherits = system.get("inherits") or 0
    text: str = system["text"]
    return above[:inherits] + text


def _run_lines(
    events: list[Event], numbers: dict[str, int], text: PortableText, redact: Redactor, system: str
) -> Iterator[bytes]:
    marks = RequestMarks(text(dump(system)))
    for event in _in_call_order(events):
        body = _without_provider_data(event.body)
        body = redact.body(body, dump(body))
        if isinstance(body, RunStarted):
            marks.offer(body.tools)
        portable = text(dump(body))
        marks.take(body, portable)
        prefix = b'{"run":%d,"seq":%d,' % (numbers[event.run_id], event.seq)
        if isinstance(body, RunCreated) and event.parent_id in numbers:
            prefix = b'{"run":%d,"parent":%d,"seq":%d,' % (numbers[event.run_id], numbers[event.parent_id], event.seq)
        if isinstance(body, TurnStarted):
            prefix += b'"mark":%b,' % dump(marks.mark)
        yield prefix + portable[1:] + b"\n"


def _in_call_order(events: list[Event]) -> list[Event]:
    """Return the events with the ends of calls that ended one after the other in the order of their calls: which of
    two was quicker differs from run to run."""
    ordered: list[Event] = []
    order: dict[str, int] = {}
    ends: list[Event] = []
    for event in events:
        if isinstance(event.body, ToolEnded):
            ends.append(event)
            continue
        ordered += _renumbered(ends, order)
        ends = []
        if isinstance(event.body, AssistantEnded):
            order = {call.id: at for at, call in enumerate(event.body.message.tool_calls)}
        ordered.append(event)
    return ordered + _renumbered(ends, order)


def _renumbered(ends: list[Event], order: dict[str, int]) -> list[Event]:
    if len(ends) < 2:
        return ends

    def call_order(event: Event) -> int:
        return order.get(event.body.call_id, len(order)) if isinstance(event.body, ToolEnded) else 0

    sorted_ends = sorted(ends, key=call_order)
    return [replace(event, seq=old.seq) for event, old in zip(sorted_ends, ends, strict=True)]


def _without_provider_data(body: Body) -> Body:
    match body:
        case RunCreated():
            return replace(body, options=replace(body.options, system=_digest_of(body.options.system)))
        case AssistantEnded() | MessageAdded() | ToolsEnded():
            return replace(body, message=_plain(body.message))
        case ToolStarted():
            return replace(body, call=replace(body.call, signature=None))
        case ToolEnded():
            return replace(body, result=_plain_result(body.result))
        case Compacted():
            return replace(body, messages=tuple(map(_plain, body.messages)))
        case _:
            return body


def _digest_of(system: Any) -> dict[str, object]:
    if not isinstance(system, dict):
        return {}
    return {"characters": len(str(system.get("text", ""))), "inherits": system.get("inherits", 0)}


def _plain(message: Any) -> Any:
    if isinstance(message, ToolMessage):
        return ToolMessage(tuple(map(_plain_result, message.results)))
    return replace(message, content=tuple(map(_plain_part, message.content)))


def _plain_result(result: ToolResult) -> ToolResult:
    return replace(result, content=tuple(map(_plain_part, result.content)))


_DIGEST = "sha256:"


def _plain_part(part: Any) -> Any:
    match part:
        case Text() | ToolCall():
            return part if part.signature is None else replace(part, signature=None)
        case Thinking():
            return replace(part, signature=None, redacted=None)
        # A replay is recorded as well, and sees what a cassette has in place of an image.
        case Image() | Document() if not part.data.startswith(_DIGEST):
            return replace(part, data=f"{_DIGEST}{hashlib.sha256(part.data.encode()).hexdigest()}")
        case _:
            return part


# From a file to values


class _Line(Struct):
    run: int
    seq: int
    parent: int | None = None
    mark: RequestMark | None = None


def read_cassette(path: Path) -> Cassette:
    """Return the recording in a file. Raise CassetteError with the file, the line, the reason and the remedy."""
    try:
        data = read_file(path, _MAX_BYTES)
    except OSError as error:
        reason = error.strerror or str(error)
        raise CassetteError(f"{path}: The cassette cannot be read: {reason}.", remedy=_RECORD_AGAIN) from error
    return parse_cassette(data, str(path))


def parse_cassette(data: bytes, path: str) -> Cassette:
    """Return the recording in the text of a cassette. `path` names it in errors."""
    lines = data.split(b"\n")
    if lines and not lines[-1]:
        lines.pop()
    head = _read_head(path, lines[0] if lines else b"")
    grouped: dict[int, list[RecordedEvent]] = {}
    parents: dict[int, int | None] = {}
    for number, line in enumerate(lines[1:], 2):
        try:
            header = msgspec.json.decode(line, type=_Line)
            body = decode(line)
        except ValueError as error:
            raise CassetteError(f"{path}:{number}: This line is no event: {error}.", remedy=_RECORD_AGAIN) from error
        if header.run not in grouped:
            if not isinstance(body, RunCreated):
                reason = f"Run {header.run} does not begin with its creation."
                raise CassetteError(f"{path}:{number}: {reason}", remedy=_RECORD_AGAIN)
            parents[header.run] = header.parent
        grouped.setdefault(header.run, []).append(RecordedEvent(header.seq, body, header.mark))
    if not grouped:
        raise CassetteError(f"{path}:1: The cassette has no events.", remedy=_RECORD_AGAIN)
    runs = tuple(RecordedRun(number, parents[number], tuple(events)) for number, events in grouped.items())
    return Cassette(head, runs, path)


def _read_head(path: str, line: bytes) -> CassetteHead:
    try:
        raw = msgspec.json.decode(line)
    except ValueError as error:
        raise CassetteError(f"{path}:1: This is no cassette: {error}.", remedy=_RECORD_AGAIN) from error
    if not isinstance(raw, dict) or raw.get("type") != "cassette":
        raise CassetteError(f"{path}:1: This is no cassette: its first line does not say so.", remedy=_RECORD_AGAIN)
    if raw.get("version") != VERSION:
        reason = f"It is a cassette of version {raw.get('version')!r}; this program reads version {VERSION}."
        raise CassetteError(f"{path}:1: {reason}", remedy=_RECORD_AGAIN)
    try:
        return msgspec.convert(raw, CassetteHead)
    except ValueError as error:
        raise CassetteError(f"{path}:1: The first line cannot be used: {error}.", remedy=_RECORD_AGAIN) from error
