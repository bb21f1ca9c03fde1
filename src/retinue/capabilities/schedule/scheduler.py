"""The scheduler, which starts jobs when they are due.

It checks the jobs once a second, which tolerates clocks that jump in both directions and machines that sleep. Any
number of processes may do so for one project: each slot is claimed in the log by exactly one of them."""

from __future__ import annotations

import asyncio
import math
import secrets
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import asdict, replace

from retinue.capabilities.schedule.start import session_of, start_job
from retinue.capabilities.schedule.times import (
    Countdown,
    NextSlot,
    brought_forward,
    next_after,
    parse_schedule,
    plan,
    put_back,
)
from retinue.core.clock import Timer
from retinue.core.delegation import LIVE, new_run_id
from retinue.core.programs import this_process
from retinue.errors import RetinueError, StateError, UnknownRunError, UsageError
from retinue.log import schedules
from retinue.log.schedules import Missed, Orphan, ScheduledJob

if TYPE_CHECKING:
    from retinue.log.store import Log
    from retinue.runs.supervisor import Supervisor

TICK_SECONDS = 1.0
MAX_JOBS = 50
SESSION_PRIORITY_SECONDS = 10.0
"""The time for which a job of a session is reserved for the process in which that session is live."""


class Fired(Struct, frozen=True):
    """The result of one slot. `error` is the reason why no run started. For a skipped slot, `run_id` and `error` are
    None and `why` is the reason."""

    job: ScheduledJob
    slot: float
    run_id: str | None = None
    error: str | None = None
    why: str = ""


class Scheduler:
    """Starts the jobs of one project from this process. Does nothing until `begin`."""

    def __init__(self, supervisor: Supervisor, report: Callable[[Fired], None] = lambda fired: None) -> None:
        self._supervisor = supervisor
        self._report = report
        self._timer: Timer | None = None
        self._task: asyncio.Task[list[Fired]] | None = None
        self._orphans_at = -math.inf
        self._suspended_by_clock: frozenset[str] = frozenset()
        """The jobs whose next slot was too far away at the last tick."""
        self._countdowns: dict[str, Countdown] = {}

    @property
    def active(self) -> bool:
        return self._timer is not None

    @property
    def _log(self) -> Log:
        return self._supervisor.project.log

    # Jobs

    def jobs(self) -> list[ScheduledJob]:
        """Return the jobs of the project, the next one first."""
        return schedules.jobs(self._log.reader)

    async def add(
        self,
        agent: str,
        prompt: str,
        schedule: str,
        *,
        name: str = "",
        zone: str | None = None,
        missed: Missed | None = None,
        jitter: float | None = None,
        session_id: str | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> ScheduledJob:
        """Add a job. Raise UsageError for an invalid schedule, an unknown agent or a name that is taken."""
        settings, now = self._supervisor.settings, self._supervisor.clock.now()
        if not settings.scheduling_enabled:
            raise UsageError("Scheduling is switched off here.", remedy="retinue settings set schedulingEnabled true")
        if not prompt.strip():
            raise UsageError("The task is empty.", remedy="Say what the agent should do.")
        spec = self._supervisor.project.catalog().find(agent).spec
        when = parse_schedule(schedule, now, zone)
        job = ScheduledJob(
            id=secrets.token_hex(4),
            name=(name or f"{spec.name} {when.text}").strip()[:200],
            agent=spec.name,
            prompt=prompt,
            options=options or {},
            session_id=session_id,
            missed=missed or "skip",
            jitter=jitter or 0.0,
            created_at=now,
            anchor=now,
            next_at=next_after(when, now, now),
            **asdict(when),
        )
        added = await self._log.transact(lambda db: schedules.add(db, job, MAX_JOBS))
        self._emit("added", added)
        return added

    async def remove(self, name: str) -> ScheduledJob:
        job = self.find(name)
        await self._log.transact(lambda db: schedules.remove(db, job.id))
        self._emit("removed", job)
        return job

    async def enable(self, name: str, enabled: bool) -> ScheduledJob:
        """Switch a job on or off. Slots that passed while it was off are skipped. Raise UsageError for a job whose
        only time is over."""
        job, now = self.find(name), self._supervisor.clock.now()
        next_at = job.next_at
        if enabled:
            next_at = next_after(job, now, job.anchor)
            if next_at is None:
                raise UsageError(f"The time of {job.name} has passed.", remedy="Remove it and add it anew.")
        await self._log.transact(lambda db: schedules.enable(db, job.id, enabled, next_at))
        self._emit("updated", replace(job, enabled=enabled, next_at=next_at))
        return self.find(job.id)

    def find(self, name: str) -> ScheduledJob:
        return schedules.find(self._log.reader, name)

    async def run_now(self, name: str) -> Fired:
        """Start a job at once, besides its slots."""
        job = self.find(name)
        return await self._start(job, self._supervisor.clock.now(), new_run_id())

    # Time

    def begin(self) -> None:
        """Let this process start due jobs from now on."""
        if self._timer is not None:
            return
        self._timer = self._supervisor.clock.call_later(0.0, self._schedule_tick)
        # Reading the cached property would create the bridge, which is not needed before a program listens.
        if "bridge" in self._supervisor.__dict__:
            self._supervisor.bridge.scheduler_ready(sum(job.enabled for job in self.jobs()))

    async def end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)

    def _schedule_tick(self) -> None:
        self._timer = self._supervisor.clock.call_later(TICK_SECONDS, self._schedule_tick)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self.tick(), name="schedules")
            # A failed tick is repeated a second later; without this asyncio would report the exception.
            self._task.add_done_callback(lambda task: task.cancelled() or task.exception())

    async def tick(self) -> list[Fired]:
        """Decide every slot that is due. A start that failed is reported in the returned list."""
        if not self._supervisor.settings.scheduling_enabled:
            return []
        now, reader = self._supervisor.clock.now(), self._log.reader
        await self._correct_slots(now)
        fired: list[Fired] = []
        for job in schedules.due(reader, now):
            decided = plan(job, now)
            if decided is not None and decided.act != "wait" and not self._leave_to_session(job, now):
                fired += await self._decide(job, decided, now)
        # The search for claims of dead processes reads every slot of the log, so it runs once a minute.
        passed = self._supervisor.clock.monotonic()
        if passed - self._orphans_at >= 60 * TICK_SECONDS:
            self._orphans_at = passed
            for orphan in schedules.orphans(reader, this_process()):
                fired += await self._take_over(orphan, now)
        for result in fired:
            self._report(result)
        return fired

    async def _correct_slots(self, now: float) -> None:
        """Correct the slots of jobs that would wait too long because the clock was set back, or would be missed because
        it was set right again. If a clock that was set back is corrected before the next tick, nothing changes."""
        monotonic, previous = self._supervisor.clock.monotonic(), self._countdowns
        self._countdowns, too_far = {}, set[str]()
        for job in self.jobs():
            if job.next_at is None or not job.enabled:
                continue
            countdown = Countdown.observe(job, job.next_at, now, monotonic, previous.get(job.id))
            self._countdowns[job.id] = countdown
            corrected = put_back(job, countdown, now, monotonic)
            if corrected is None:
                corrected = brought_forward(job, now, countdown.deadline - monotonic)
                if corrected is not None:
                    too_far.add(job.id)
                    if job.id not in self._suspended_by_clock:
                        continue
            if corrected is not None:
                await self._log.transact(partial(schedules.move, before=job, after=corrected))
        self._suspended_by_clock = frozenset(too_far)

    async def _decide(self, job: ScheduledJob, decided: NextSlot, now: float) -> list[Fired]:
        log = self._log
        result: schedules.Result = "fired"
        if decided.act == "pass":
            result = "missed"
        elif job.last_run is not None and self._is_live(job.last_run):
            result = "overlap"
        run_id = new_run_id() if result == "fired" else None
        # An overlapping slot is skipped as well; `plan` has counted only those before it.
        passed = decided.passed + (result == "overlap")
        claimed = await log.transact(
            lambda db: schedules.claim(
                db,
                job,
                decided.slot,
                decided.next_at,
                result,
                owner=log.owner,
                now=now,
                run_id=run_id,
                skipped=passed,
            )
        )
        if not claimed:
            return []
        if run_id is None:
            return [Fired(job, decided.slot, why=result)]
        return [await self._start(job, decided.slot, run_id)]

    async def _start(self, job: ScheduledJob, slot: float, run_id: str) -> Fired:
        started: str | None = run_id
        error, what = None, "fired"
        try:
            await start_job(self._supervisor, job, run_id)
        except RetinueError as failure:
            started, error, what = None, str(failure), "error"
        await self._log.transact(lambda db: schedules.record(db, job.id, slot, started, error))
        self._emit(what, job, agentId=started, error=error)
        return Fired(job, slot, started, error)

    async def _take_over(self, orphan: Orphan, now: float) -> list[Fired]:
        """Take over the slot of a process that died between claiming it and starting its run."""
        log, again = self._supervisor.project.log, orphan.job.missed == "catch-up"
        result: schedules.Result = "fired" if again else "missed"
        if not await log.transact(lambda db: schedules.reclaim(db, orphan, log.owner, result, now)):
            return []
        if not again:
            return [Fired(orphan.job, orphan.slot, why="missed")]
        return [await self._start(orphan.job, orphan.slot, orphan.run_id)]

    def _is_live(self, run_id: str) -> bool:
        try:
            return self._log.reader.run(run_id).state in LIVE
        except (UnknownRunError, StateError):
            return False

    def _leave_to_session(self, job: ScheduledJob, now: float) -> bool:
        """Return whether the session of a job is live in another process, which can notify its main agent."""
        if job.session_id is None or session_of(self._supervisor, job) is not None or job.next_at is None:
            return False
        return now - job.next_at < SESSION_PRIORITY_SECONDS and self._is_live(job.session_id)

    def _emit(self, what: str, job: ScheduledJob, **details: Any) -> None:
        """Notify programs that listen. There are none before the bridge is first used."""
        if "bridge" in self._supervisor.__dict__:
            data = {"type": what, "jobId": job.id, "name": job.name, "schedule": job.text, **details}
            self._supervisor.bridge.scheduled(data)
