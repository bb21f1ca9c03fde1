"""What a moment means for a job that is due: fire, pass over, or wait a little. No clock, no store.

A slot that is at most `TOLERANCE` late is on time. Earlier ones were missed: nobody was there, the
machine slept, or its clock was set. By the job's policy they are counted and passed over, or
together made up for by one run.
"""

from __future__ import annotations

import hashlib
from typing import Literal

from retinue.capabilities.schedule.times import When, next_after
from retinue.core.lean import dataclass
from retinue.log.schedules import Job

TOLERANCE = 30.0
MOST_COUNTED = 10_000
"""Missed slots are counted up to here; a machine may have been off for years."""


@dataclass(frozen=True, slots=True)
class Plan:
    """`slot` is the one that is decided; `passed` were missed before it. `next_at` is None when
    the job is over. `act` is `wait` while jitter holds the slot back."""

    act: Literal["fire", "pass", "wait"]
    slot: float
    next_at: float | None
    passed: int = 0


def when_of(job: Job) -> When:
    return When(job.kind, job.text, job.at, job.seconds, job.expression, job.zone)


def plan(job: Job, now: float) -> Plan | None:
    """None when nothing is due."""
    if not job.enabled or job.next_at is None or job.next_at > now:
        return None
    when = when_of(job)
    due, following = _due(when, job, now)
    newest = due[-1]
    if now < newest + jitter(job, newest):
        if len(due) == 1:
            return Plan("wait", newest, job.next_at)
        due, following, newest = due[:-1], newest, due[-2]  # the older ones are decided first
    late = now - newest - jitter(job, newest)
    if late <= TOLERANCE:
        return Plan("fire", newest, following, len(due) - 1)
    if job.missed == "catch-up":
        return Plan("fire", newest, following, len(due) - 1)
    return Plan("pass", newest, following, len(due))


def jitter(job: Job, slot: float) -> float:
    """The same for the same slot in every process, spread over the job's jitter."""
    if job.jitter <= 0:
        return 0.0
    digest = hashlib.sha256(f"{job.id} {slot:.0f}".encode()).digest()
    return job.jitter * int.from_bytes(digest[:8], "big") / 2**64


def _due(when: When, job: Job, now: float) -> tuple[list[float], float | None]:
    """The slots up to now, oldest first, and the one after them."""
    slot = job.next_at
    found: list[float] = []
    while slot is not None and slot <= now:
        found.append(slot)
        if len(found) > MOST_COUNTED:  # far behind: straight to the present
            break
        slot = next_after(when, slot, job.anchor)
    if slot is not None and slot <= now:
        slot = next_after(when, now, job.anchor)
    return found, slot
