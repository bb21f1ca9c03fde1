"""Jobs in the terminal app: added, run, switched and removed by keys."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from retinue.app.schedules import job_sign as mark
from retinue.app.schedules import when_problem
from retinue.app.text import relative
from retinue.frontends.tui.screens.dialogs import Ask, ConfirmScreen, Pick
from retinue.frontends.tui.screens.external_editor import Write
from retinue.frontends.tui.screens.schedules import SchedulesScreen, about, job_rows
from retinue.frontends.tui.screens.sheet import Rows
from retinue.log.schedules import ScheduledJob
from tests.frontends.tui.screen_scene import NOW, at_home, opened, picture, press, until
from tests.program.conftest import project, serve
from tests.program.model_server import Reply

__all__ = ["project", "serve"]

JOB = ScheduledJob(
    id="ab12cd34", name="morning", agent="Explore", prompt="What changed?", kind="interval", text="2h", next_at=NOW + 90
)


@pytest.fixture
def home(project, monkeypatch):
    at_home(project, monkeypatch)
    return project


async def shown(app, pilot) -> None:
    app.action_open_screen("schedules")
    await until(pilot, lambda: isinstance(app.screen, SchedulesScreen) and "Esc back" in picture(app))


async def test_a_job_is_added_step_by_step(home):
    async with opened(home) as (app, pilot):
        await shown(app, pilot)
        assert "a adds one" in picture(app)
        await press(pilot, "a")
        await until(pilot, lambda: isinstance(app.screen, Pick))
        app.screen.query_one(Rows).highlighted = app.screen._values.index("Plan")
        await press(pilot, "enter")
        await until(pilot, lambda: isinstance(app.screen, Write))
        await press(pilot, *"look", "ctrl+s")
        await until(pilot, lambda: isinstance(app.screen, Ask))
        await press(pilot, *"soon", "enter")
        assert "Invalid schedule" in picture(app)
        app.screen.query_one("Input").value = "0 0 9 * * 1-5"
        await press(pilot, "enter")
        await until(pilot, lambda: "called" in picture(app))
        await press(pilot, *"morning", "enter")
        await until(pilot, lambda: "morning: next in" in picture(app))
        (job,) = app.retinue.schedules.jobs()
    assert (job.name, job.agent, job.prompt, job.kind) == ("morning", "Plan", "look", "cron")


@pytest.mark.parametrize("steps", range(4))
async def test_leaving_at_any_step_adds_nothing(home, steps):
    async with opened(home) as (app, pilot):
        await shown(app, pilot)
        await press(pilot, "a")
        for keys in (["enter"], [*"look", "ctrl+s"], [*"2h", "enter"])[:steps]:
            await press(pilot, *keys)
        await press(pilot, "escape")
        await until(pilot, lambda: isinstance(app.screen, SchedulesScreen))
        assert app.retinue.schedules.jobs() == []


async def test_run_now_switch_and_remove(home, serve):
    serve(lambda request: Reply(text="done"))
    async with opened(home) as (app, pilot):
        job = await app.retinue.schedules.add("Explore", "look", "2h", name="mine")
        await shown(app, pilot)
        await press(pilot, "r")
        await until(pilot, lambda: "started as run" in picture(app))
        run = app.retinue.schedules.find(job.id).last_run
        assert run is not None
        await app.retinue.supervisor.members[run].wait()
        await press(pilot, "space")
        await until(pilot, lambda: not app.retinue.schedules.find(job.id).enabled)
        await until(pilot, lambda: "✗" in picture(app).splitlines()[1])
        await press(pilot, "space")
        await until(pilot, lambda: app.retinue.schedules.find(job.id).enabled)
        await press(pilot, "d")
        await until(pilot, lambda: isinstance(app.screen, ConfirmScreen))
        await press(pilot, "enter")
        assert app.retinue.schedules.jobs(), "Enter keeps it"
        await press(pilot, "d")
        await until(pilot, lambda: isinstance(app.screen, ConfirmScreen))
        await press(pilot, "y")
        await until(pilot, lambda: not app.retinue.schedules.jobs())


async def test_a_job_that_cannot_start_says_why(home):
    folder = home.cwd / ".retinue" / "agents"
    folder.mkdir(parents=True)
    (folder / "gone.md").write_text("---\nname: gone\ndescription: x\n---\nx")
    (home.cwd / ".retinue" / "settings.json").write_text('{"fallbackSubagent": "none"}')
    async with opened(home) as (app, pilot):
        await app.retinue.schedules.add("gone", "look", "2h", name="mine")
        (folder / "gone.md").unlink()
        await shown(app, pilot)
        await press(pilot, "r")
        await until(pilot, lambda: "gone" in picture(app).splitlines()[-3] or "nknown" in picture(app))
        assert app.retinue.runs == []


async def test_a_job_removed_elsewhere_meanwhile_is_gone(home):
    async with opened(home) as (app, pilot):
        job = await app.retinue.schedules.add("Explore", "look", "2h", name="mine")
        await shown(app, pilot)
        await press(pilot, "d")
        await until(pilot, lambda: isinstance(app.screen, ConfirmScreen))
        await app.retinue.schedules.remove(job.id)
        await press(pilot, "y")
        await until(pilot, lambda: "was removed" in picture(app))


# Rows


def test_marks_tell_what_will_happen():
    assert mark(JOB, None)[0] == mark(JOB, "success")[0] == "✓"
    assert mark(JOB, "running")[0] == "⋯"
    assert mark(JOB, "error")[0] == "!"


@pytest.mark.parametrize(("status", "sign"), [("success", "✓"), ("error", "!"), ("running", "⋯"), (None, "✗")])
def test_a_job_that_is_over_is_marked_by_how_it_ended(status, sign):
    over = replace(JOB, kind="once", next_at=None)
    assert mark(over, status)[0] == mark(replace(over, enabled=False), status)[0] == sign
    assert mark(replace(JOB, enabled=False), "success")[0] == "✗"


@pytest.mark.parametrize("room", [10, 30, 75, 115])
def test_rows_fit(room):
    wide = ScheduledJob(
        id="x", name="編集 " * 50, agent="a" * 90, prompt="p", kind="cron", text="0 0 9 * * *\t", next_at=NOW
    )
    rows = job_rows([JOB, wide], lambda job: None, NOW, room)
    assert all(line.cell_len <= room for _, line in rows)


def test_what_is_said_about_a_job():
    text = about(JOB, "success", [(NOW, "fired", "abcdef012345"), (NOW - 60, "overlap", None)], NOW).plain
    assert "What changed?" in text and "as run abcdef01" in text and "still at work" in text
    assert relative(NOW + 90, NOW) == "in 1m 30s" and relative(NOW - 5, NOW) == "5s ago"
    assert when_problem("2h", NOW) == "" and "Invalid" in when_problem("soon", NOW)
