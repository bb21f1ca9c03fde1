"""Times of jobs: parsing schedules, finding the next slot, and deciding to fire, skip or wait.

    +10m                        once, ten minutes from now (s, m, h, d; combined: +1h30m)
    5m, every 5m                every five minutes
    0 0 9 * * 1-5               cron with seconds: weekdays at nine; five fields mean minutes
    2027-03-01T09:00[+01:00]    once, at that time; without a zone, local time

Cron slots follow the local clock of the zone through daylight-saving changes: a slot that a change skips fires once
after it, and a slot that occurs twice fires once.

A slot that is at most `TOLERANCE_SECONDS` late is on time. An earlier slot was missed, because no process ran, the
machine slept or its clock was set. Depending on the job's policy, missed slots are skipped, or one run makes up for all
of them. This module reads neither a clock nor the log.
"""

from __future__ import annotations

import hashlib
import math
import os
import re
from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from pathlib import Path
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from retinue.errors import UsageError
from retinue.log.schedules import Kind, ScheduledJob

FORMS = (
    "Accepted: a delay such as +10m or +1h30m (once), an interval such as 5m or 2h (repeated), a time such as "
    "2027-03-01T09:00 (once), or cron with 5 or 6 fields such as 0 0 9 * * 1-5 (with 6, seconds come first)."
)
MIN_SPAN_SECONDS = 1.0
MAX_SPAN_SECONDS = 100 * 366 * 86_400.0
_UNIT_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_SPAN_PATTERN = re.compile(r"(\+)?((?:\d{1,12}[smhd])+)", re.ASCII)
_SPAN_PART = re.compile(r"(\d+)([smhd])", re.ASCII)
_DATE_START = re.compile(r"\d{4}-\d{2}-\d{2}[T ]")


class When(Struct, frozen=True):
    """A parsed schedule. `at` belongs to `once`, `seconds` to `interval` and to a `once` that is a delay, `expression`
    and `zone` to `cron`; `text` is stored and shown."""

    kind: Kind
    text: str
    at: float = 0.0
    seconds: float = 0.0
    expression: str = ""
    zone: str = ""


def parse_schedule(text: str, now: float, zone: str | None = None) -> When:
    """Parse a schedule. Raise UsageError, with the accepted forms, for one that would never or always fire."""
    plain = " ".join(text.split()).removeprefix("every ")
    span = _SPAN_PATTERN.fullmatch(plain.lower())
    if span:
        return _span(plain, bool(span[1]), span[2], now)
    if _DATE_START.match(plain):
        return _moment(plain, now, zone)
    if len(plain.split()) in (5, 6):
        return _cron(plain, now, zone)
    raise _invalid(text)


def next_after(when: When | ScheduledJob, after: float, anchor: float) -> float | None:
    """Return the first slot later than `after`, or None. Intervals count from `anchor`, so that a restart does not
    move them."""
    if when.kind == "once":
        return when.at if when.at > after else None
    if when.kind == "interval":
        if after < anchor:
            return anchor + when.seconds
        steps = math.floor((after - anchor) / when.seconds) + 1
        slot = anchor + steps * when.seconds
        # Rounding of large numbers may put the computed slot on `after` itself.
        return slot if slot > after else slot + when.seconds
    return _next_cron(when.expression, zone_of(when.zone), after)


def zone_of(name: str | None) -> tzinfo:
    """Return the zone of that name, or this machine's zone. Raise UsageError for an unknown name."""
    try:
        return _zone(name) if name else _local_zone()
    except (KeyError, ValueError, OSError) as error:
        raise UsageError(
            f"There is no time zone '{name}'.", remedy="Use a name such as Europe/Berlin or UTC."
        ) from error


def local_zone_name() -> str:
    """Return the name of this machine's zone, or an empty text where it has no name. It is stored with a job, so that
    the job fires by the clock of the person who made it."""
    return getattr(_local_zone(), "key", "") or ""


def _span(text: str, is_once: bool, span: str, now: float) -> When:
    seconds = float(sum(int(number) * _UNIT_SECONDS[unit] for number, unit in _SPAN_PART.findall(span)))
    if not MIN_SPAN_SECONDS <= seconds <= MAX_SPAN_SECONDS:
        raise UsageError(f'Invalid schedule "{text}": it must be between 1 second and 100 years.', remedy=FORMS)
    return When("once", text, now + seconds, seconds) if is_once else When("interval", text, seconds=seconds)


def _moment(text: str, now: float, zone: str | None) -> When:
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=zone_of(zone))
        at = moment.timestamp()
    except (ValueError, OverflowError, OSError):
        raise _invalid(text) from None
    if at <= now:
        raise UsageError(f"Scheduled time {text} is in the past.", remedy=FORMS)
    return When("once", text, at=at)


def _cron(text: str, now: float, zone: str | None) -> When:
    expression = text.replace("?", "*")
    name = zone or local_zone_name()
    first = _next_cron(expression, zone_of(name), now)
    if first is None:
        raise UsageError(f'The schedule "{text}" would never fire.', remedy=FORMS)
    return When("cron", text, expression=expression, zone=name)


def _next_cron(expression: str, zone: tzinfo, after: float) -> float | None:
    from cronsim import CronSim, CronSimError

    try:
        slots = CronSim(expression, datetime.fromtimestamp(after, zone))
        slot = next(slots).timestamp()
        # In the hour that comes twice, the library yields times that have passed.
        while slot <= after:
            slot = next(slots).timestamp()
        return slot
    except StopIteration:
        return None
    except (CronSimError, ValueError, OverflowError):
        raise _invalid(expression) from None


def _zone(name: str) -> tzinfo:
    # Most lists of schedules name no zone, and importing this takes 4 ms.
    from zoneinfo import ZoneInfo

    return ZoneInfo(name)


def _local_zone() -> tzinfo:
    name = os.environ.get("TZ", "").lstrip(":")
    if not name:
        with suppress(OSError):
            name = str(Path("/etc/localtime").resolve()).partition("zoneinfo/")[2]
    with suppress(KeyError, ValueError, OSError):
        if name:
            return _zone(name)
    # Of a zone without a name only the current offset from UTC is known.
    return timezone(datetime.now(UTC).astimezone().utcoffset() or timedelta())


def _invalid(text: str) -> UsageError:
    return UsageError(f'Invalid schedule "{text}".', remedy=FORMS)


TOLERANCE_SECONDS = 30.0
MAX_COUNTED_SLOTS = 10_000
"""Missed slots are counted up to this number, because a machine may have been off for years."""


class NextSlot(Struct, frozen=True):
    """A decision about a slot. `passed` is the number of slots missed before it; `next_at` is None after the last slot
    of a job. `act` is `wait` while jitter delays the slot."""

    act: Literal["fire", "pass", "wait"]
    slot: float
    next_at: float | None
    passed: int = 0


def plan(job: ScheduledJob, now: float) -> NextSlot | None:
    """Return what to do about the slot of a job that is due; None when nothing is due."""
    if not job.enabled or job.next_at is None or job.next_at > now:
        return None
    due, following = _due_slots(job, now)
    newest = due[-1]
    if now < newest + jitter(job, newest):
        if len(due) == 1:
            return NextSlot("wait", newest, job.next_at)
        # Jitter still delays the newest slot: decide the older ones first.
        due, following, newest = due[:-1], newest, due[-2]
    if now - newest - jitter(job, newest) <= TOLERANCE_SECONDS or job.missed == "catch-up":
        return NextSlot("fire", newest, following, len(due) - 1)
    return NextSlot("pass", newest, following, len(due))


class Countdown(Struct, frozen=True):
    """The time until a slot as this process measures it: by monotonic time, which no one sets."""

    slot: float
    deadline: float
    brought_forward: bool
    """Whether the slot was moved to an earlier time, because the clock was set back."""

    @classmethod
    def observe(
        cls, job: ScheduledJob, slot: float, now: float, monotonic: float, previous: Countdown | None
    ) -> Countdown:
        """Return the countdown to the slot of a job. It starts again when the slot moves to a later time."""
        if previous is not None and slot <= previous.slot:
            return previous if slot == previous.slot else cls(slot, previous.deadline, True)
        return cls(slot, monotonic + min(slot - now, job.seconds), False)


def brought_forward(job: ScheduledJob, now: float, remaining: float) -> ScheduledJob | None:
    """Return a job with a corrected next slot, if that slot is too far away because the clock was set back; None
    otherwise. An interval or a delay ends after `remaining` seconds. A cron job gets its next slot, and a slot that
    was fired already is not fired again."""
    if not job.enabled or job.next_at is None or job.next_at <= now:
        return None
    if job.kind == "cron":
        slot = next_after(job, now, job.anchor)
        return replace(job, next_at=slot) if slot is not None and slot < job.next_at else None
    if not job.seconds or job.next_at <= now + job.seconds + 1.0:
        return None
    return _moved_to(job, now + max(remaining, 0.0))


def put_back(job: ScheduledJob, countdown: Countdown, now: float, monotonic: float) -> ScheduledJob | None:
    """Return a job whose slot was brought forward, with a corrected slot, if it seems to be missed only because the
    clock is right again; None otherwise."""
    if not (job.enabled and job.seconds and countdown.brought_forward):
        return None
    if now - countdown.slot <= TOLERANCE_SECONDS or monotonic - countdown.deadline > TOLERANCE_SECONDS:
        return None
    return _moved_to(job, now + max(countdown.deadline - monotonic, 0.0))


def _moved_to(job: ScheduledJob, slot: float) -> ScheduledJob:
    return replace(job, next_at=slot, anchor=slot - job.seconds, at=slot if job.kind == "once" else job.at)


def jitter(job: ScheduledJob, slot: float) -> float:
    """Return the delay of a slot, within the job's jitter and the same in every process."""
    if job.jitter <= 0:
        return 0.0
    digest = hashlib.sha256(f"{job.id} {slot:.0f}".encode()).digest()
    return job.jitter * int.from_bytes(digest[:8], "big") / 2**64


def _due_slots(job: ScheduledJob, now: float) -> tuple[list[float], float | None]:
    """Return the slots up to now, oldest first, and the one after them."""
    slot = job.next_at
    due: list[float] = []
    while slot is not None and slot <= now:
        due.append(slot)
        # A job that is years behind is not counted slot by slot.
        slot = next_after(job, slot if len(due) <= MAX_COUNTED_SLOTS else now, job.anchor)
    return due, slot
