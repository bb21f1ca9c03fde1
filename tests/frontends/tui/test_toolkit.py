"""/toolkit: reports in a panel, never on standard output."""

from __future__ import annotations

import pytest

from retinue.app.doctor import DoctorFinding
from retinue.cluster import open_project
from retinue.frontends.tui.screens import toolkit as toolkit_reports
from retinue.frontends.tui.screens.toolkit import (
    REPORTS,
    Report,
    ToolkitScreen,
    doctor_lines,
    make_report,
    parse_report,
    program,
)
from tests.frontends.tui.screen_scene import at_home, opened, picture, press, until
from tests.program.conftest import project

__all__ = ["project"]


@pytest.fixture
def home(project, monkeypatch):
    at_home(project, monkeypatch)
    return project


async def test_reports_are_shown_in_a_panel_and_nothing_is_printed(home, capfd):
    async with opened(home) as (app, pilot):
        await press(pilot, *"/toolkit doctor settings agents", "enter")
        await until(pilot, lambda: "[PASS] settings" in picture(app))
        assert "[SETTINGS]" in picture(app) and "[AGENTS]" in picture(app)
        await press(pilot, "2")
        await until(pilot, lambda: "Explore (readonly)" in picture(app))
        assert "general-purpose (read/write)" in picture(app)
        await press(pilot, "left", "left")
        await until(pilot, lambda: "/toolkit doctor" in picture(app))
        await press(pilot, "3")
        await until(pilot, lambda: "No warnings and no errors" in picture(app))
        await press(pilot, "4")
        await until(pilot, lambda: "No searches" in picture(app))
        await press(pilot, "5")
        await until(pilot, lambda: "ty: " in picture(app))
        await press(pilot, "escape")
        assert len(app.screen_stack) == 1
    assert capfd.readouterr().out == ""


async def test_a_long_report_is_scrolled(home):
    async with opened(home) as (app, pilot):
        await press(pilot, *"/toolkit agents", "enter")
        await until(pilot, lambda: "Explore (readonly)" in picture(app))
        await press(pilot, "end")
        await until(pilot, lambda: "retinue run NAME TASK" in picture(app))
        await press(pilot, "home")
        await until(pilot, lambda: "[BUILTIN]" in picture(app))
        await press(pilot, "pagedown")
        await until(pilot, lambda: "[BUILTIN]" not in picture(app))


async def test_it_looks_again_when_asked(home):
    async with opened(home) as (app, pilot):
        await press(pilot, *"/toolkit agents", "enter")
        await until(pilot, lambda: "[BUILTIN]" in picture(app))
        folder = home.cwd / ".retinue" / "agents"
        folder.mkdir(parents=True)
        (folder / "mine.md").write_text("---\nname: mine\ndescription: Fresh\n---\nx")
        await press(pilot, "r")
        await until(pilot, lambda: "mine (read/write): Fresh" in picture(app))


@pytest.mark.parametrize("text", ["nonsense", "'unclosed", "  ", "--help"])
async def test_anything_unknown_is_help_or_the_doctor(home, text):
    async with opened(home) as (app, pilot):
        app.push_screen(ToolkitScreen(text))
        await until(pilot, lambda: "/toolkit doctor" in picture(app) or "[SYSTEM]" in picture(app))


def test_words_after_a_report_are_its_own():
    assert parse_report("logs --limit 5")[1] == ["--limit", "5"]
    assert parse_report("agent 'a b'")[1] == ["a b"]
    assert parse_report("")[0].name == "doctor" and parse_report("what")[0].name == "help"
    assert list(REPORTS) == ["doctor", "agents", "logs", "activity", "lsp", "help"]


def test_the_doctor_counts_and_says_what_to_do():
    found = [
        DoctorFinding("a", "one", "ok", "fine"),
        DoctorFinding("a", "two", "warning", "hm\x1b[2J", "Do that."),
        DoctorFinding("b", "three", "failure", "bad", "Do this."),
        DoctorFinding("b", "four", "info", "so"),
    ]
    lines = [line for line, _ in doctor_lines(found)]
    assert lines[:4] == ["[A]", "[PASS] one: fine", "[WARN] two: hm", "       Do that."]
    assert "[FAIL] three: bad" in lines and "[INFO] four: so" in lines
    assert lines[-1] == "1 failed, 1 warnings, 1 passed."


async def test_a_report_that_breaks_says_so(home):
    async def broken(project, words):
        raise RuntimeError("no idea")

    project = open_project(home.cwd, environment=home.environment)
    assert await make_report(Report("x", "", broken), project, []) == [
        ("Toolkit command failed: RuntimeError: no idea", "error")
    ]

    async def long(project, words):
        return [(str(number), "") for number in range(10_000)]

    lines = await make_report(Report("x", "", long), project, [])
    assert len(lines) < 1_000 and "9500 more lines" in lines[-1][0]
    (line, kind), *_ = await make_report(parse_report("agent nobody-9")[0], project, ["nobody-9"])
    assert kind == "error" and "nobody-9" in line


async def test_a_report_runs_no_code_of_the_project(home):
    trace = home.cwd / "trace"
    (home.cwd / "retinue.py").write_text(f"import os\nopen({str(trace)!r}, 'w').write(str(dict(os.environ)))\n")
    environment = {**home.environment, "ANTHROPIC_API_KEY": "sk-ant-secret"}
    project = open_project(home.cwd, environment=environment)
    for name in ("logs", "activity"):
        report, words = parse_report(name)
        lines = await make_report(report, project, words)
        assert all(meaning != "error" for _, meaning in lines), lines
    assert not trace.exists()


async def test_a_command_of_its_own_is_run_in_another_process(home, monkeypatch, capfd):
    project = open_project(home.cwd, environment=home.environment)
    lines = await make_report(Report("settings", "", program("settings")), project, ["get", "graceTurns"])
    assert ("5", "") in lines
    lines = await make_report(Report("settings", "", program("settings")), project, ["get", "nonsense-9"])
    assert lines[-1][1] == "error" and any("nonsense-9" in line for line, _ in lines)
    monkeypatch.setattr(toolkit_reports, "REPORT_TIMEOUT_SECONDS", 0.001)
    ((line, kind),) = await make_report(Report("settings", "", program("settings")), project, ["list"])
    assert kind == "warning" and "too long" in line
    assert capfd.readouterr() == ("", "")
