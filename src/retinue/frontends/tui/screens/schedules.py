"""Scheduled agents: list, add, switch on or off, run now, and remove them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import datetime
from typing import ClassVar

from rich.text import Text
from textual.binding import Binding, BindingType

from retinue.app.rich_text import STYLES, one_line
from retinue.app.schedules import FORMS, ScheduledJob, job_sign, last_status, slots, when_problem, zone_of
from retinue.app.text import optional, relative
from retinue.errors import LaunchError, UnknownJobError
from retinue.frontends.tui.screens.dialogs import Ask, Pick, confirm
from retinue.frontends.tui.screens.external_editor import Write
from retinue.frontends.tui.screens.sheet import ListSheet, Row, columns

Status = Callable[[ScheduledJob], str | None]

_RESULTS = {
    "fired": "✓ started",
    "missed": "– passed over: nothing ran here",
    "overlap": "– passed over: still at work",
}


def job_rows(jobs: Iterable[ScheduledJob], status: Status, now: float, room: int) -> list[Row]:
    """Return the jobs as rows: ✓ will run or is done, ! failed last, ⋯ is running, ✗ is switched off."""
    rows = []
    for job in jobs:
        mark, meaning = job_sign(job, status(job))
        due = "–"
        if job.enabled and job.next_at is not None:
            due = relative(job.next_at, now)
        cells = [(mark, 1, meaning), (due, 11, ""), (job.agent, 16, "dim"), (job.text, 16, "dim"), (job.name, 0, "")]
        rows.append((job.id, columns(cells, room)))
    return rows


def about(job: ScheduledJob, status: str | None, slots: list[tuple[float, str, str | None]], now: float) -> Text:
    """Return the task of a job, its schedule and the results of its last runs."""
    text = Text()
    text.append(one_line(job.name), "bold")
    text.append(f"\n{one_line(job.prompt)}")
    zone = optional(" ({})", job.zone)
    state = "" if job.enabled else " · switched off"
    text.append(f"\n{job.id} · {job.kind} {one_line(job.text)}{zone} · missed: {job.missed}{state}", STYLES["dim"])
    text.append(f"\n{job.runs} runs, {job.skipped} passed over", STYLES["dim"])
    if job.last_at is not None:
        text.append(f" · last {relative(job.last_at, now)}", STYLES["dim"])
    if job.last_run is not None:
        text.append(f" · newest run {job.last_run[:8]} ({status or 'unknown'})", STYLES["dim"])
    if job.last_error:
        text.append(f"\n{one_line(job.last_error)}", STYLES["error"])
    for slot, result, run_id in slots:
        when = datetime.fromtimestamp(slot, zone_of(job.zone)).strftime("%d %b %H:%M:%S")
        run = optional(" as run {:.8}", run_id)
        text.append(f"\n{when}  {_RESULTS.get(result, result)}{run}", STYLES["dim"])
    return text


SLOTS = 5


class SchedulesScreen(ListSheet[None]):
    look_seconds = 1.0
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("a,n", "add", "add"),
        Binding("r", "run_now", "run now"),
        Binding("space", "switch", "switch on or off", priority=True),
        Binding("d,delete", "remove", "remove"),
        Binding("v", "watch", "watch its last run"),
    ]
    heading = "Scheduled jobs"
    keys_line = "✓ will fire or is done  ! failed last  ⋯ at work  ✗ off\n" + (
        "a add · r run now · Space on/off · d remove · v last run · Esc back"
    )

    def __init__(self) -> None:
        super().__init__()
        self._jobs: dict[str, ScheduledJob] = {}

    def on_option_list_option_selected(self) -> None:
        self.action_watch()

    def action_add(self) -> None:
        self.do(self._add())

    def action_run_now(self) -> None:
        if self._job is not None:
            self.do(self._run(self._job))

    def action_switch(self) -> None:
        if self._job is not None:
            self.do(self._switch(self._job))

    def action_remove(self) -> None:
        if self._job is not None:
            self.do(self._remove(self._job))

    def action_watch(self) -> None:
        job = self._job
        if job is None:
            return
        if job.last_run is None:
            self.say(f"{job.name} has not run yet.")
        else:
            self.host.watch_run(job.last_run)

    # Display

    @property
    def _job(self) -> ScheduledJob | None:
        return self._jobs.get(self.chosen)

    def _status(self, job: ScheduledJob) -> str | None:
        return last_status(self.retinue.supervisor.project.log.reader, job)

    def draw(self) -> None:
        schedules = self.retinue.schedules
        self._jobs = {job.id: job for job in schedules.jobs()}
        firing = "" if schedules.active else " · not fired from this session (schedulingEnabled)"
        self.head(f"Scheduled jobs · {len(self._jobs)}{firing}")
        self.rows.fill(job_rows(self._jobs.values(), self._status, self.now(), self.room))

    def about(self) -> Text | str:
        job = self._job
        if job is None:
            return "No jobs. a adds one: an agent, what it is to do, and when."
        return about(job, self._status(job), slots(self.project.log.reader, job.id, SLOTS), self.now())

    # Actions

    async def _add(self) -> None:
        """Ask for a new job step by step, and add it. Esc at any step cancels."""
        entries = sorted(self.retinue.agents.agents, key=lambda entry: entry.name.casefold())
        rows = [(entry.name, f"{entry.name} — {entry.spec.description}") for entry in entries]
        agent = await self.ask(Pick("Which agent?", rows))
        if agent is None:
            return
        task = await self.ask(Write(f"What is {agent} to do?"))
        if task is None or not task.strip():
            return
        now = self.now()
        when = await self.ask(Ask("When?", detail=FORMS, check=lambda text: when_problem(text, now)))
        if when is None:
            return
        name = await self.ask(Ask("What is the job called?", detail="Empty: by its agent", empty=True))
        if name is None:
            return
        job = await self.retinue.schedules.add(
            agent, task.strip(), when, name=name, session_id=self.host.session.main_id
        )
        self.redraw()
        self.rows.fill(job_rows(self._jobs.values(), self._status, self.now(), self.room), job.id)
        self.say(f"{job.name}: next {relative(job.next_at, self.now())}.", "success")

    async def _run(self, job: ScheduledJob) -> None:
        fired = await self.retinue.schedules.run_now(job.id)
        if fired.run_id is None:
            raise LaunchError(fired.error or f"{job.name} could not be started.")
        self.redraw()
        self.say(f"{job.name} started as run {fired.run_id[:8]}. v watches it.", "success")

    async def _switch(self, job: ScheduledJob) -> None:
        now = await self.retinue.schedules.enable(job.id, not job.enabled)
        self.redraw()
        state = "on" if now.enabled else "off"
        self.say(f"{now.name} is {state}.", "success")

    async def _remove(self, job: ScheduledJob) -> None:
        if not await confirm(self.app, f"Remove {job.name}?", "Runs it has started go on.", "Remove it"):
            return
        with suppress(UnknownJobError):
            # Another process removed the job first.
            await self.retinue.schedules.remove(job.id)
        self.redraw()
        self.say(f"{job.name} was removed.", "success")
