"""Settings of schedules: a part of the table in `table.py`."""

from __future__ import annotations

from typing import Literal

from retinue.settings.field import Values, setting
from retinue.settings.kinds import Choice, Flag, Number, Whole

_FLAG = Flag()


# fmt: off
class ScheduleSettings(Values):
    scheduling_enabled: bool = setting(
        True, _FLAG, section="schedules", applies="next session",
        doc="Let agents be started on a schedule; switching it off stops all timers at once.",
    )
    schedule_missed: Literal["skip", "catch-up"] = setting(
        "skip", Choice("skip", "catch-up"), name="schedule.missed", section="schedules", applies="next session",
        doc="What happens to times of a schedule at which nothing ran here: passed over, or made up for by one run.",
    )
    schedule_jitter_seconds: float = setting(
        0.0, Number(0, 86_400, unit="seconds"), name="schedule.jitterSeconds", section="schedules",
        applies="next session",
        doc="New jobs start up to this much later than their time, each by an amount of its own.",
    )
    schedule_max_jobs: int = setting(
        50, Whole(1, 10_000), name="schedule.maxJobs", section="schedules",
        doc="How many jobs there may be at a time.",
    )
# fmt: on
