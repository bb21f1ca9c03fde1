"""One run for remote front ends: its description, its result, its conversation; and the search of the log."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import orjson
from msgspec import UNSET, Struct
from msgspec.structs import asdict

from retinue.app.changes import run_effects
from retinue.app.feed import Feed
from retinue.app.views import RunDetail, SearchList, TranscriptView
from retinue.capabilities.audit.report import RunEffects
from retinue.core.events import AssistantEnded, RunCreated
from retinue.core.format import relative
from retinue.core.outcome import Ended
from retinue.core.run_state import RunState
from retinue.errors import StateError, UsageError
from retinue.guard.redact import sanitise
from retinue.log.overview import describe_activity, run_tools, search
from retinue.log.overview import tree_usage as tree_usage
from retinue.log.query import LogReader
from retinue.log.replay import describe_call
from retinue.log.transcript import TranscriptLines
from retinue.loop.result import ResultDetails, display_items, result_document
from retinue.models.keys import environment as process_environment
from retinue.tools.delegation.frame import framed as framed
from retinue.tools.delegation.frame import one_line as one_line


async def describe_run(feed: Feed, row: RunState) -> RunDetail:
    """Return the full description of one run."""

    def read(reader: LogReader) -> RunDetail:
        first = reader.created(row.id)
        asked = first.options.asked if first is not None else None
        unknown = reader.last_turn(row.id).unknown if row.state == "interrupted" else ()
        describe_activity(reader, [row])
        return RunDetail(
            row,
            first.task if first is not None else row.task,
            reader.outcome(row.id),
            reader.partial(row.id),
            asked.get("by") if asked else None,
            [describe_call(call) for call in unknown],
            str(first.spec.get("prompt") or "") if first is not None else "",
            run_tools(reader, row.id),
            first.options.budget or {} if first is not None else {},
            tree_usage(reader, row.id),
        )

    return await feed.read(read)


class RecordedCommand(Struct, frozen=True, rename="camel"):
    """A command that a run has completed."""

    command: str
    exit_code: int | None


class EffectRecord(Struct, frozen=True, kw_only=True, rename="camel"):
    """The files, commands and hosts that runs touched, each once. It is computed from recorded effects, not from the
    agents' text."""

    files_read: Sequence[str]
    files_written: Sequence[str]
    commands: Sequence[RecordedCommand]
    hosts: Sequence[str]
    denials: Sequence[str]
    unknown_effects: Sequence[str]


class RecordedResult(ResultDetails, frozen=True, kw_only=True, rename="camel"):
    """The details of `retinue run --json`, with the status of the run and the record of its tree."""

    status: Ended
    record: EffectRecord


async def describe_result(feed: Feed, row: RunState, *, verbose: bool = False) -> tuple[str, RecordedResult]:
    """Return the text and the details of a run, as `retinue run --json` prints them. Without `verbose`, single messages
    and calls are left out. Raise StateError for a run that has not ended."""

    def read(reader: LogReader) -> tuple[str, RecordedResult]:
        outcome = reader.outcome(row.id)
        if outcome is None:
            raise StateError(f"Run {row.id} has not ended.", remedy="Wait for it, or resume it if it is interrupted.")
        types = ("run.created", "assistant.ended")
        events = [event.body for event in reader.stream(row.id, types=types, limit=None if verbose else 1)]
        items = display_items(body.message for body in events if isinstance(body, AssistantEnded))
        environment = process_environment()
        document = result_document(
            outcome,
            agent=row.agent,
            task=next((body.task for body in events if isinstance(body, RunCreated)), row.task),
            run_id=row.id,
            session_file=row.transcript,
            display_items=items if verbose else UNSET,
            sanitise=lambda text: sanitise(text, environment, feed.redact),
        )
        record = _record((run_effects(reader, feed.folder, run) for run in reader.tree(row)), row.cwd)
        details = RecordedResult(**asdict(document.details), status=outcome.ended, record=record)
        return document.content[0].text, details

    return await feed.read(read)


def _record(runs: Iterable[RunEffects], cwd: str) -> EffectRecord:
    read: dict[str, None] = {}
    written: dict[str, None] = {}
    hosts: dict[str, None] = {}
    commands, denials, unknown = [], [], []
    for call in (call for run in runs for turn in run.turns for call in turn.calls):
        if call.denied is not None:
            denials.append(f"{call.tool}: {call.denied}")
            continue
        read |= dict.fromkeys(relative(path, cwd) for path in call.reads)
        written |= dict.fromkeys(relative(file.path, cwd) for file in call.writes)
        hosts |= dict.fromkeys(call.hosts)
        if call.status == "unknown":
            unknown.append(f"{call.tool}: {call.command}" if call.command is not None else call.tool)
        elif call.command is not None:
            commands.append(RecordedCommand(call.command, call.exit_code))
    return EffectRecord(
        files_read=[*read],
        files_written=[*written],
        commands=commands,
        hosts=[*hosts],
        denials=denials,
        unknown_effects=unknown,
    )


async def read_transcript(feed: Feed, row: RunState, *, after: int, limit: int) -> TranscriptView:
    """Return at most `limit` events of the conversation, starting after event `after`."""

    def read(reader: LogReader) -> TranscriptView:
        events = reader.events(row.id, after, limit)
        lines = TranscriptLines()
        documents: list[Any] = []
        for event in events:
            documents += [orjson.loads(line) for line in lines.take(event)]
        next_seq = events[-1].seq if len(events) == limit else None
        return TranscriptView(row.id, documents, next_seq)

    return await feed.read(read)


async def search_log(feed: Feed, words: str, limit: int) -> SearchList:
    """Return the newest events that contain `words`."""
    if not words.strip():
        raise UsageError("There is nothing to search for.", remedy="Say what, with `q`.")
    return SearchList(await feed.read(search, words, limit=limit))
