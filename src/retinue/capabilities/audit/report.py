"""The effects of a run, turn by turn, for people: reads, writes, commands, hosts and denials, who allowed each call,
and which effects are unknown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

from msgspec import Struct

from retinue.core.events import Event, Undone
from retinue.core.messages import ToolCall
from retinue.core.permission import ToolEffect, TouchedPath
from retinue.core.story import Entry, Story

WriteStatus = Literal["created", "changed", "deleted", "unchanged"]
CallStatus = Literal["finished", "failed", "denied", "unknown", "running"]


class WrittenFile(Struct, frozen=True):
    path: str
    status: WriteStatus
    before: str | None = None
    after: str | None = None


class CallEffect(Struct, frozen=True, kw_only=True):
    """The effects of one call. `unknown`: it started and never reported an end. `allowed` is who allowed it and why;
    `approval` is the answer of a person."""

    call_id: str
    tool: str
    status: CallStatus
    reads: tuple[str, ...] = ()
    writes: tuple[WrittenFile, ...] = ()
    command: str | None = None
    exit_code: int | None = None
    hosts: tuple[str, ...] = ()
    denied: str | None = None
    allowed: str | None = None
    approval: str | None = None


class TurnEffects(Struct, frozen=True):
    turn: int
    calls: tuple[CallEffect, ...] = ()


class RunEffects(Struct, frozen=True):
    run_id: str
    agent: str
    turns: tuple[TurnEffects, ...] = ()
    undone: tuple[Undone, ...] = ()


def effects_of(
    events: Iterable[Event],
    run_id: str,
    agent: str,
    *,
    live: bool = False,
    meanwhile: Mapping[str, tuple[WrittenFile, ...]] | None = None,
) -> RunEffects:
    """Return the effects of a run by turns. `meanwhile` has the changes during calls without a report, by call id;
    `live`: a call without an end may still be running."""
    story = Story()
    calls: list[Entry] = []
    undone: list[Undone] = []
    for event in events:
        for step in story.take(event.body, event.seq, event.at):
            if step.change == "added" and step.entry.call is not None:
                calls.append(step.entry)
        if isinstance(event.body, Undone):
            undone.append(event.body)
    return RunEffects(run_id, agent, call_effects(calls, live=live, meanwhile=meanwhile), tuple(undone))


def call_effects(
    calls: Iterable[Entry], *, live: bool = False, meanwhile: Mapping[str, tuple[WrittenFile, ...]] | None = None
) -> tuple[TurnEffects, ...]:
    """Return the effects of calls that began or ended, by turns."""
    turns: dict[int, dict[str, CallEffect]] = {}
    for entry in calls:
        if entry.call is not None and entry.state != "pending":
            effect = _effect(entry, entry.call, live, (meanwhile or {}).get(entry.call.id, ()))
            turns.setdefault(entry.turn, {})[entry.call.id] = effect
    return tuple(TurnEffects(number, tuple(calls.values())) for number, calls in sorted(turns.items()))


def write_status(before: object, after: object) -> WriteStatus:
    """Return the kind of change between two states of a file; None stands for no file."""
    if before == after:
        return "unchanged"
    if before is None:
        return "created"
    return "deleted" if after is None else "changed"


def written(touched: TouchedPath) -> WrittenFile:
    status = write_status(touched.before, touched.after)
    return WrittenFile(touched.path, status, touched.before, touched.after)


def _effect(entry: Entry, call: ToolCall, live: bool, meanwhile: tuple[WrittenFile, ...]) -> CallEffect:
    effect = entry.effect
    asked = call.arguments.get("command")
    command = asked if isinstance(asked, str) else None
    writes = tuple(map(written, effect.writes))
    if entry.result is None:
        status: CallStatus = "running" if live and entry.state == "running" else "unknown"
    else:
        status = _status(effect, entry.result.is_error)
    # Without a report of the call, its start and the ledger are used.
    if entry.result is None or effect.status == "unknown":
        writes = writes or meanwhile
        command = effect.command or command
    else:
        command = effect.command
    return CallEffect(
        call_id=call.id,
        tool=call.name,
        status=status,
        reads=effect.reads,
        writes=writes,
        command=command,
        exit_code=effect.exit_code,
        hosts=effect.hosts,
        denied=effect.denied,
        allowed=effect.allowed,
        approval=entry.approval or None,
    )


def _status(effect: ToolEffect, is_error: bool) -> CallStatus:
    if effect.denied is not None:
        return "denied"
    if effect.status in ("unknown", "started"):
        return "unknown"
    return "failed" if is_error or effect.status == "failed" else "finished"
