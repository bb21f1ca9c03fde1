"""The record of a run, turn by turn: what it read, wrote, ran and reached, who let it, and what
nobody knows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from retinue.core.events import Event, InboxClosed, ToolEnded, ToolStarted, TurnStarted, Undone
from retinue.core.messages import ToolCall
from retinue.core.permission import ToolEffect, TouchedPath

WriteStatus = Literal["created", "changed", "deleted", "unchanged"]
CallStatus = Literal["finished", "failed", "denied", "unknown", "running"]


class WrittenFile(Struct, frozen=True):
    path: str
    status: WriteStatus
    before: str | None = None
    after: str | None = None


class CallEffect(Struct, frozen=True, kw_only=True):
    """One call. `unknown`: it started and never reported back. `allowed` says who let it happen
    and why; `approval` what a person answered."""

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
    """`meanwhile` has what changed during calls that gave no report, by call id; `live` says
    that a call without an end may still be at work."""
    turns: dict[int, dict[str, CallEffect]] = {}
    undone: list[Undone] = []
    turn = 0
    for event in events:
        match event.body:
            case TurnStarted(number):
                turn = number
            case ToolStarted(call):
                turns.setdefault(turn, {})[call.id] = _started(call, live, meanwhile or {})
            case ToolEnded():
                calls = turns.setdefault(turn, {})
                calls[event.body.call_id] = _ended(event.body, calls.get(event.body.call_id), meanwhile or {})
            case InboxClosed(_, _, choice, by, _, call_id) if call_id is not None and call_id in turns.get(turn, {}):
                known = turns[turn][call_id]
                said = f"{choice or event.body.state} by {by or 'nobody'}"
                turns[turn][call_id] = _with_approval(known, said)
            case Undone():
                undone.append(event.body)
            case _:
                pass
    found = tuple(TurnEffects(number, tuple(calls.values())) for number, calls in sorted(turns.items()))
    return RunEffects(run_id, agent, found, tuple(undone))


def written(touched: TouchedPath) -> WrittenFile:
    status: WriteStatus = "changed"
    if touched.before is None:
        status = "created"
    elif touched.after is None:
        status = "deleted"
    elif touched.before == touched.after:
        status = "unchanged"
    return WrittenFile(touched.path, status, touched.before, touched.after)


def _started(call: ToolCall, live: bool, meanwhile: Mapping[str, tuple[WrittenFile, ...]]) -> CallEffect:
    command = call.arguments.get("command")
    if not isinstance(command, str):
        command = None
    status: CallStatus = "running" if live else "unknown"
    return CallEffect(
        call_id=call.id, tool=call.name, status=status, command=command, writes=meanwhile.get(call.id, ())
    )


def _ended(body: ToolEnded, started: CallEffect | None, meanwhile: Mapping[str, tuple[WrittenFile, ...]]) -> CallEffect:
    effect = body.effect
    writes, command = tuple(map(written, effect.writes)), effect.command
    if effect.status == "unknown":  # it gave no report: what is known from elsewhere has to do
        writes = writes or meanwhile.get(body.call_id, ())
        if started is not None:
            command = command or started.command
    return CallEffect(
        call_id=body.call_id,
        tool=body.name,
        status=_status(effect, body.result.is_error),
        reads=effect.reads,
        writes=writes,
        command=command,
        exit_code=effect.exit_code,
        hosts=effect.hosts,
        denied=effect.denied,
        allowed=effect.allowed,
        approval=None if started is None else started.approval,
    )


def _status(effect: ToolEffect, is_error: bool) -> CallStatus:
    if effect.denied is not None:
        return "denied"
    if effect.status in ("unknown", "started"):
        return "unknown"
    return "failed" if is_error or effect.status == "failed" else "finished"


def _with_approval(call: CallEffect, said: str) -> CallEffect:
    return replace(call, approval=said)
