"""The /toolkit panel: reports about the installation and its work.

Reports change nothing and print nothing. Slow ones run in a thread or another process. If a report fails, the panel
shows the failure instead.
"""

from __future__ import annotations

import asyncio
import shlex
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from rich.text import Text
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.widgets import OptionList, Static

from retinue.app.agents import Catalog, LoadedAgent, fate_text, shadows
from retinue.app.doctor import DoctorFinding, Installation, examine
from retinue.app.models import without_keys
from retinue.app.rich_text import STYLES, one_line
from retinue.app.servers import list_language_servers
from retinue.app.text import clean, optional
from retinue.core.programs import TimeoutExpired, prepare, run
from retinue.errors import RetinueError
from retinue.frontends.tui.frame import sentence
from retinue.frontends.tui.screens.sheet import Sheet

if TYPE_CHECKING:
    from retinue.app.retinue import Project


# A text, and its style: a key of `STYLES`, or nothing.
Line = tuple[str, str]
Make = Callable[["Project", list[str]], Awaitable[list[Line]]]

REPORT_TIMEOUT_SECONDS = 30.0
MAX_REPORT_LINES = 500
_GRADES = {"ok": ("[PASS]", "success"), "info": ("[INFO]", "dim"), "warning": ("[WARN]", "warning")}
_ORDER = ("policy", "flag", "project", "user", "plugin", "builtin")


@dataclass(frozen=True, slots=True)
class Report:
    name: str
    help: str
    make: Make


async def doctor(project: Project, words: list[str]) -> list[Line]:
    """Report what this installation can enforce and which parts are missing; `words` select categories."""
    installation = Installation(project.cwd, project.environment)
    return doctor_lines(await asyncio.to_thread(lambda: list(examine(installation, words))))


def doctor_lines(findings: Iterable[DoctorFinding]) -> list[Line]:
    lines: list[Line] = []
    grades: Counter[str] = Counter()
    for category, group in groupby(findings, key=lambda finding: finding.category):
        lines.append((f"[{category.upper()}]", "accent"))
        for finding in group:
            grades[finding.grade] += 1
            sign, meaning = _GRADES.get(finding.grade, ("[FAIL]", "error"))
            lines.append((f"{sign} {one_line(f'{finding.name}: {finding.detail}')}", meaning))
            if finding.remedy:
                lines.append((f"       {one_line(finding.remedy)}", "dim"))
        lines.append(("", ""))
    sums = f"{grades['failure']} failed, {grades['warning']} warnings, {grades['ok']} passed."
    return [*lines, (sums, "")]


async def agents(project: Project, words: list[str]) -> list[Line]:
    """Report the agents by their origin."""
    return agent_lines(project.catalog())


def agent_lines(catalog: Catalog) -> list[Line]:
    lines: list[Line] = []
    ordered = sorted(catalog.winners, key=lambda entry: (_ORDER.index(entry.source), entry.name.casefold()))
    for source, group in groupby(ordered, key=lambda entry: entry.source):
        lines.append((f"[{source.upper()}]", "accent"))
        lines += [_agent(entry) for entry in group]
        lines.append(("", ""))
    for failed in catalog.failed:
        if failed.problem.severity == "error":
            lines.append((f"not loaded: {one_line(f'{failed.path}: {failed.reason}')}", "error"))
    lines.append(("Start one: say what to do, write @NAME and a task, or: retinue run NAME TASK", "dim"))
    return lines


def _agent(entry: LoadedAgent) -> Line:
    rights = "readonly" if entry.spec.readonly else "read/write"
    description = one_line(entry.spec.description)
    if not entry.enabled:
        return f"{entry.name} ({rights} · disabled): {description}", "dim"
    return f"{entry.name} ({rights}): {description}", ""


async def agent(project: Project, words: list[str]) -> list[Line]:
    """Report everything about one agent: its fields with their effects, and its instructions."""
    catalog = project.catalog()
    entry = catalog.find(" ".join(words))
    spec, parsed = entry.spec, entry.parsed
    state = "" if entry.enabled else ", disabled"
    lines: list[Line] = [(entry.name, "accent"), (one_line(spec.description), "")]
    lines.append((f"{entry.source}, {parsed.dialect}{state}: {entry.path}", "dim"))
    for other in shadows(catalog.entries, entry):
        lines.append((f"replaces {other.path} ({other.source})", "dim"))
    for problem in entry.problems:
        lines.append((f"{problem.severity}: {one_line(f'{problem.message} {problem.remedy}')}", "warning"))
    lines += [("", ""), ("Fields", "accent")]
    for key, fate in parsed.fates.items():
        lines.append((one_line(f"{key}: {fate_text(key, fate)}"), ""))
    lines += [("", ""), ("Instructions", "accent")]
    for line in spec.prompt.splitlines():
        lines.append((one_line(line), ""))
    return lines


async def lsp(project: Project, words: list[str]) -> list[Line]:
    """Report which language servers are installed, and which run."""
    if "lsp" not in project.tools:
        return [("Agents have no lsp tool here: see the settings allowLspTools and allowedLspActions.", "warning")]
    lines: list[Line] = []
    for server in await asyncio.to_thread(list_language_servers, project):
        state, meaning = optional("installed: {}", server.program), ""
        if server.running:
            state, meaning = "; ".join(server.running), "success"
        elif not server.program:
            state, meaning = "not installed", "dim"
        lines.append((one_line(f"{server.name}: {state}"), meaning))
    return lines


def program(word: str, *usual: str) -> Make:
    """Return a report made by the command `retinue WORD …` in another process. `usual` are its arguments by default."""

    async def make(project: Project, words: list[str]) -> list[Line]:
        # The panel has a key for another look.
        asked = [option for option in words if option != "--follow"]
        # It runs isolated and in its own folder, so that it cannot import a `retinue.py` of the project. Reports need
        # no keys.
        program = prepare(
            [sys.executable, "-I", "-m", "retinue", word, *(asked or usual), "--cwd", str(project.cwd)],
            clearance="own",
            environment=without_keys(project.environment),
            cwd=Path(sys.prefix),
        )
        try:
            done = await asyncio.to_thread(run, program, seconds=REPORT_TIMEOUT_SECONDS)
        except TimeoutExpired:
            return [(f"retinue {word} takes too long; run it in a terminal of its own.", "warning")]
        meaning = "error" if done.returncode else "dim"
        lines: list[Line] = []
        for output, style in ((done.stdout, ""), (done.stderr, meaning)):
            text = output.decode("utf-8", "replace")
            lines += [(clean(line.expandtabs(4)), style) for line in text.splitlines()]
        return lines

    return make


async def help_(project: Project, words: list[str]) -> list[Line]:
    wide = max(len(report.name) for report in REPORTS.values())
    lines = [(f"/toolkit {report.name:<{wide}}  {report.help}", "") for report in REPORTS.values()]
    return [
        *lines,
        ("", ""),
        ("Words after a report narrow it: /toolkit doctor models · /toolkit logs --limit 5", "dim"),
    ]


REPORTS: dict[str, Report] = {
    report.name: report
    for report in (
        Report("doctor", "check this installation", doctor),
        Report("agents", "agents, by where they come from", agents),
        Report("logs", "warnings and errors of runs", program("logs")),
        Report("activity", "calls of web, conversion and language tools", program("activity", "--recent", "20")),
        Report("lsp", "language servers", lsp),
        Report("help", "this list", help_),
    )
}
_ASIDE = {"agent": Report("agent", "everything about one agent", agent)}


def parse_report(text: str) -> tuple[Report, list[str]]:
    """Return the report and its words for a text such as `logs --limit 5`; an unknown report is help."""
    try:
        word, *others = shlex.split(text) or ["doctor"]
    except ValueError:
        word, *others = text.split() or ["help"]
    report = REPORTS.get(word) or _ASIDE.get(word)
    if report is None:
        return REPORTS["help"], []
    return report, others


async def make_report(report: Report, project: Project, words: list[str]) -> list[Line]:
    """Return the lines of a report. A failure becomes a line and is never raised."""
    try:
        lines = await report.make(project, words) or [("Nothing to report.", "dim")]
    except RetinueError as error:
        return [(sentence(error), "error")]
    except Exception as error:  # noqa: BLE001 - a report that breaks must not take the app along
        return [(f"Toolkit command failed: {type(error).__name__}: {error}", "error")]
    missing = len(lines) - MAX_REPORT_LINES
    if missing > 0:
        lines[MAX_REPORT_LINES:] = [(f"… {missing} more lines: run it in a terminal", "dim")]
    return lines


class ToolkitScreen(Sheet[None]):
    """`text` is the text after the command: a report and its words."""

    DEFAULT_CSS = """
    ToolkitScreen #report { height: 1fr; padding: 0 1; scrollbar-size-vertical: 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("r", "again", "look again"),
        Binding("right,tab,l", "turn(1)", "next report"),
        Binding("left,shift+tab,h", "turn(-1)", "report before"),
        Binding("j", "scroll(1)", show=False),
        Binding("k", "scroll(-1)", show=False),
        Binding("space", "page", show=False),
        *(Binding(str(n), f"open('{name}')", show=False) for n, name in enumerate(REPORTS, 1)),
    ]
    heading = "Toolkit"
    keys_line = "  ".join(f"{number} {name}" for number, name in enumerate(REPORTS, 1)) + (
        "\n←/→ report · ↑↓ PgUp PgDn Home End read · r look again · Esc back"
    )

    def __init__(self, text: str = "doctor") -> None:
        super().__init__()
        self._report, self._words = parse_report(text)

    def body(self) -> Iterable[Static | OptionList]:
        with VerticalScroll(id="report"):
            yield Static()

    def on_mount(self) -> None:
        self.query_one("#report").focus()
        self.action_again()

    def action_again(self) -> None:
        self.head(f"Toolkit · {' '.join([self._report.name, *self._words])} · looking…")
        self.do(self._look(self._report, self._words))

    def action_open(self, name: str) -> None:
        self._report, self._words = REPORTS[name], []
        self.query_one("#report Static", Static).update("")
        self.action_again()

    def action_turn(self, step: int) -> None:
        names = list(REPORTS)
        at = -1
        if self._report.name in REPORTS:
            at = names.index(self._report.name)
        self.action_open(names[(at + step) % len(names)])

    def action_scroll(self, lines: int) -> None:
        self.query_one("#report").scroll_relative(y=lines, animate=False)

    def action_page(self) -> None:
        self.query_one("#report").scroll_page_down(animate=False)

    async def _look(self, report: Report, words: list[str]) -> None:
        lines = await make_report(report, self.project, words)
        if not self.is_mounted or (report, words) != (self._report, self._words):
            # The person chose another report meanwhile.
            return
        text = Text("\n").join(Text(line, STYLES.get(meaning, "")) for line, meaning in lines)
        self.query_one("#report Static", Static).update(text)
        self.head(f"Toolkit · {' '.join([report.name, *words])}")
