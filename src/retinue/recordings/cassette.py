"""Cassettes: a run and its whole tree in one file that people can review, share and replay.

    {"type":"cassette","version":1,"agent":"reviewer","task":"Review src/io.py",…}
    {"run":1,"seq":1,"type":"run.created",…}

Each event is a line. Events are grouped by run, and parents precede their children, so that the order in which parallel
runs worked does not change the file. The text is portable (`portable.py`) and without secrets. It leaves out data that
only a provider can use (signatures of thinking, the data of images). A system prompt is reduced to a digest, because it
may hold the user's own instructions.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from itertools import groupby
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
    Rewound,
    RunCreated,
    RunStarted,
    ToolEnded,
    ToolsEnded,
    TurnStarted,
)
from retinue.core.files import read_file
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
from retinue.core.usage import Usage
from retinue.core.version import __version__
from retinue.errors import ConfigurationError, StateError
from retinue.guard.redact import Redactor
from retinue.log.query import LogReader
from retinue.recordings.portable import MachineFolders, PortableText
from retinue.runs.system_prompt import restored_prompt

CASSETTE_VERSION = 1
SUFFIX = ".cassette.jsonl"
_MAX_CASSETTE_BYTES = 200_000_000
_RECORD_AGAIN = "Export the run again: retinue runs export RUN --cassette FILE"


class CassetteError(ConfigurationError):
    """A file that is not a cassette, or has another version."""

    code = "BAD_CASSETTE"


class CassetteHead(Struct, frozen=True, kw_only=True):
    """The first line. `commit` is the checkout at the start of the first run, `usd` the cost of the tree."""

    type: str = "cassette"
    version: int = CASSETTE_VERSION
    retinue: str = __version__
    agent: str
    task: str
    model: str
    commit: str | None = None
    usd: float | None = None
    runs: int = 1
    events: int = 0


class RequestMark(Struct, frozen=True):
    """Digests of the three parts of one turn's request, so that a difference can be attributed to a part. Both the
    recording and its replay compute them from portable events, so equal requests have equal marks."""

    system: str
    tools: str
    messages: str

    def differences(self, other: RequestMark) -> list[str]:
        """Return the names of the parts that differ."""
        return [name for name in self.__struct_fields__ if getattr(self, name) != getattr(other, name)]


class RecordedEvent(Struct, frozen=True):
    """An event of a cassette. Only the start of a turn has a `mark`."""

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
        """The summaries that replaced older parts of the conversation; empty text for an unknown one."""
        compactions = [body for body in self.bodies if isinstance(body, Compacted) and body.method == "summarised"]
        return [_summary_of(body) for body in compactions]


class Cassette(Struct, frozen=True):
    """A recording. Its first run is the exported one; the others are below it."""

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
    """Return the cassette of a run and all runs below it. `home` is the home of the user who ran it. Raise StateError
    if the log lacks the run's first event."""
    tree = _tree(reader, row)
    events = {run.id: reader.events(run.id) for run in tree}
    first = events[row.id][0].body if events[row.id] else None
    if not isinstance(first, RunCreated):
        raise StateError(f"Run {row.id} has no beginning in the log.", remedy="It cannot be exported.")
    folders = MachineFolders(first.cwd, str(reader.path.parent), str(home))
    text = PortableText(folders, [run.id for run in tree])
    for run in tree:
        for event in events[run.id]:
            if isinstance(event.body, AssistantEnded):
                for call in event.body.message.tool_calls:
                    text.add_call(call.id)
    numbers = {run.id: number for number, run in enumerate(tree, 1)}
    lines: list[bytes] = []
    usage = Usage()
    for run in tree:
        usage += run.usage
        created = events[run.id][0].body if events[run.id] else None
        system = restored_prompt(reader, created if isinstance(created, RunCreated) else None, run.parent_id)
        lines += _run_lines(events[run.id], numbers, text, redact, system or "")
    head = CassetteHead(
        agent=first.agent,
        task=redact(first.task),
        model=row.model,
        commit=first.options.commit,
        usd=None if usage.cost_usd is None else round(usage.cost_usd, 6),
        runs=len(tree),
        events=len(lines),
    )
    return text(dump(head)) + b"\n" + b"".join(lines)


def _tree(reader: LogReader, row: RunState) -> list[RunState]:
    """Return the run and all runs below it in the order in which they were started, parents before their children."""
    tree = [row]
    for child in reversed(reader.list_runs(parent_id=row.id)):
        tree += _tree(reader, child)
    return tree


def _run_lines(
    events: list[Event], numbers: dict[str, int], text: PortableText, redact: Redactor, system: str
) -> Iterator[bytes]:
    prompt = text(dump(system)).decode("utf-8", "replace").replace("\\n", "\n")
    mark = RequestMark(_digest(_SURROUNDINGS.sub("", prompt).encode()), "", "")
    for event in _in_call_order(events):
        body = _without_provider_data(event.body)
        body = redact.body(body, dump(body))
        portable = text(dump(body))
        prefix = b'{"run":%d,"seq":%d,' % (numbers[event.run_id], event.seq)
        if isinstance(body, RunCreated) and event.parent_id in numbers:
            prefix = b'{"run":%d,"parent":%d,"seq":%d,' % (numbers[event.run_id], numbers[event.parent_id], event.seq)
        if isinstance(body, TurnStarted):
            prefix += b'"mark":%b,' % dump(mark)
        yield prefix + portable[1:] + b"\n"
        mark = _mark_after(mark, body, portable)


_DIGEST_CHARACTERS = 12
_SURROUNDINGS = re.compile(r"^(?:Git repository: |Not a git repository|Branch: |Platform: |Date: ).*\n?", re.MULTILINE)
"""Lines of a system prompt that depend on the machine or the day."""


def _mark_after(mark: RequestMark, body: Body, portable: bytes) -> RequestMark:
    """Return the mark of the next request. `portable` is the portable JSON of `body`."""
    match body:
        case RunStarted():
            return replace(mark, tools=_digest("\n".join(body.tools).encode()))
        case MessageAdded() | ToolsEnded() | Rewound():
            messages = mark.messages.encode() + portable
        case AssistantEnded():
            # Requests do not contain the usage of earlier answers.
            messages = mark.messages.encode() + portable.replace(b',"usage":' + dump(body.message.usage), b"", 1)
        case Compacted():
            messages = portable
        case _:
            return mark
    return replace(mark, messages=_digest(messages))


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:_DIGEST_CHARACTERS]


def _in_call_order(events: list[Event]) -> list[Event]:
    """Return the events with consecutive ends of calls in the order of the calls. Parallel calls may end in another
    order in every run."""
    ordered: list[Event] = []
    order: dict[str, int] = {}
    for is_end, neighbours in groupby(events, lambda event: isinstance(event.body, ToolEnded)):
        group = list(neighbours)
        if is_end:
            numbers = [event.seq for event in group]
            group.sort(key=lambda event: order.get(getattr(event.body, "call_id", ""), len(order)))
            group = [replace(event, seq=seq) for event, seq in zip(group, numbers, strict=True)]
        for event in group:
            if isinstance(event.body, AssistantEnded):
                order = {call.id: at for at, call in enumerate(event.body.message.tool_calls)}
        ordered += group
    return ordered


_CONTENT_FIELDS = ("call", "message", "messages", "result")


def _without_provider_data(body: Body) -> Body:
    plain = {name: _plain(getattr(body, name)) for name in _CONTENT_FIELDS if hasattr(body, name)}
    if isinstance(body, RunCreated):
        plain["options"] = replace(body.options, system=_describe_system(body.options.system))
    return replace(body, **plain)


def _describe_system(system: Any) -> dict[str, object]:
    if not isinstance(system, dict):
        return {}
    return {"characters": len(str(system.get("text", ""))), "inherits": system.get("inherits", 0)}


_DIGEST = "sha256:"


def _plain(value: Any) -> Any:
    match value:
        case tuple():
            return tuple(map(_plain, value))
        case ToolMessage():
            return ToolMessage(_plain(value.results))
        case UserMessage() | AssistantMessage() | ToolResult():
            return replace(value, content=_plain(value.content))
        case Text() | ToolCall():
            return value if value.signature is None else replace(value, signature=None)
        case Thinking():
            return replace(value, signature=None, redacted=None)
        # The images of an exported replay are digests already.
        case Image() | Document() if not value.data.startswith(_DIGEST):
            return replace(value, data=f"{_DIGEST}{hashlib.sha256(value.data.encode()).hexdigest()}")
        case _:
            return value


# From a file to values


class _EventHeader(Struct):
    run: int
    seq: int
    parent: int | None = None
    mark: RequestMark | None = None


def read_cassette(path: Path) -> Cassette:
    """Read a cassette. Raise CassetteError with file, line, reason and remedy."""
    try:
        data = read_file(path, _MAX_CASSETTE_BYTES)
    except OSError as error:
        reason = error.strerror or str(error)
        raise CassetteError(f"{path}: The cassette cannot be read: {reason}.", remedy=_RECORD_AGAIN) from error
    return parse_cassette(data, str(path))


def parse_cassette(data: bytes, path: str) -> Cassette:
    """Parse the text of a cassette. Errors name it by `path`."""
    lines = data.split(b"\n")
    if lines and not lines[-1]:
        lines.pop()
    head = _read_head(path, lines[0] if lines else b"")
    grouped: dict[int, list[RecordedEvent]] = {}
    parents: dict[int, int | None] = {}
    for number, line in enumerate(lines[1:], 2):
        try:
            header = msgspec.json.decode(line, type=_EventHeader)
            body = decode(line)
        except ValueError as error:
            raise CassetteError(
                f"{path}:{number}: This line is not an event: {error}.", remedy=_RECORD_AGAIN
            ) from error
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
        raise CassetteError(f"{path}:1: This is not a cassette: {error}.", remedy=_RECORD_AGAIN) from error
    if not isinstance(raw, dict) or raw.get("type") != "cassette":
        raise CassetteError(f"{path}:1: This is not a cassette: its first line is another one.", remedy=_RECORD_AGAIN)
    if raw.get("version") != CASSETTE_VERSION:
        reason = f"It is a cassette of version {raw.get('version')!r}; this program reads version {CASSETTE_VERSION}."
        raise CassetteError(f"{path}:1: {reason}", remedy=_RECORD_AGAIN)
    try:
        return msgspec.convert(raw, CassetteHead)
    except ValueError as error:
        raise CassetteError(f"{path}:1: The first line cannot be used: {error}.", remedy=_RECORD_AGAIN) from error
