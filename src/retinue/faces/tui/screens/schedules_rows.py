"""Jobs as rows: when each is due, how it went, and whether a schedule can be understood."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime

from rich.text import Text

from retinue.capabilities.schedule.times import parse_schedule, zone_of
from retinue.core.format import format_wait
from retinue.errors import RetinueError
from retinue.faces.tui.board.marks import STYLES
from retinue.faces.tui.board.text import one_line
from retinue.faces.tui.screens.sheet import Row, columns
from retinue.log.schedules import Job

Status = Callable[[Job], str | None]
_AT_WORK = ("running", "queued", "starting", "waiting")
_RESULTS = {
    "fired": "✓ started",
    "missed": "– passed over: nothing ran here",
    "overlap": "– passed over: still at work",
}


def job_rows(jobs: Iterable[Job], status: Status, now: float, room: int) -> list[Row]:
    """✓ will fire, ! failed last, ⋯ at work, ✗ switched off or over."""
    rows = []
    for job in jobs:
        sign, meaning = mark(job, status(job))
        due = relative(job.next_at, now) if job.enabled and job.next_at is not None else "–"
        cells = [(sign, 1, meaning), (due, 11, ""), (job.agent, 16, "dim"), (job.text, 16, "dim"), (job.name, 0, "")]
        rows.append((job.id, columns(cells, room)))
    return rows


def mark(job: Job, status: str | None) -> tuple[str, str]:
    if not job.enabled or job.next_at is None:
        return "✗", "dim"
    if status in _AT_WORK:
        return "⋯", "accent"
    return ("!", "error") if status == "error" else ("✓", "success")


def relative(at: float | None, now: float) -> str:
    if at is None:
        return ""
    away = at - now
    return f"in {format_wait(away)}" if away >= 0 else f"{format_wait(-away)} ago"


def about(job: Job, status: str | None, slots: list[tuple[float, str, str | None]], now: float) -> Text:
    """What it does, when, and how its last times went."""
    text = Text()
    text.append(one_line(job.name), "bold")
    text.append(f"\n{one_line(job.prompt)}")
    zone = f" ({job.zone})" if job.zone else ""
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
        run = f" as run {run_id[:8]}" if run_id else ""
        text.append(f"\n{when}  {_RESULTS.get(result, result)}{run}", STYLES["dim"])
    return text


def when_problem(text: str, now: float) -> str:
    """Why a text is no schedule; empty when it is one. What is accepted is said beside it."""
    try:
        parse_schedule(text, now)
    except RetinueError as error:
        return error.message
    return ""
