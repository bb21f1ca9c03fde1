"""A comparison of two recordings for people: facts in two columns, calls in pairs, then the differences."""

from __future__ import annotations

import shutil
from collections.abc import Sequence

from retinue.app.recordings import CallPair, Comparison, RecordingFacts
from retinue.core.controls import in_line, visible
from retinue.core.format import format_cost, format_count

_MAX_REPORT_COLUMNS = 160
_MAX_CALLS = 60
_MAX_ANSWER_LINES = 3


def comparison_lines(report: Comparison, names: tuple[str, str]) -> list[str]:
    """Return a comparison as lines for a terminal."""
    width = min(shutil.get_terminal_size((100, 24)).columns, _MAX_REPORT_COLUMNS)
    column = max((width - 14) // 2, 20)
    lines = [_row("", *names, column), *_fact_rows(report.left, report.right, column), ""]
    lines += _call_rows(report.calls, column)
    lines += difference_lines(report)
    return [visible(line).rstrip() for line in lines]


def difference_lines(report: Comparison) -> list[str]:
    """Return the differences, one line each."""
    lines = [f"note: {note}" for note in report.notes]
    for difference in report.differences:
        where = f"{difference.agent} turn {difference.turn}" if difference.turn else difference.agent
        lines.append(f"≠ {where}: {difference.kind}: {in_line(difference.text)}")
    if report.same:
        lines.append("No differences.")
    return lines


def _fact_rows(left: RecordingFacts, right: RecordingFacts, column: int) -> list[str]:
    rows: list[tuple[str, str, str]] = []
    for name in ("agent", "model", "ended", "turns", "calls", "runs"):
        rows.append((name, str(getattr(left, name)), str(getattr(right, name))))
    rows.append(("tokens", format_count(left.tokens), format_count(right.tokens)))
    rows.append(("cost", _cost(left), _cost(right)))
    rows.append(("files", ", ".join(left.files) or "none", ", ".join(right.files) or "none"))
    rows.append(("answer", _answer(left), _answer(right)))
    return [_row(*row, column) for row in rows]


def _cost(facts: RecordingFacts) -> str:
    return "unknown" if facts.usd is None else format_cost(facts.usd) or "$0"


def _answer(facts: RecordingFacts) -> str:
    return " / ".join(facts.answer.strip().splitlines()[:_MAX_ANSWER_LINES])


def _call_rows(calls: Sequence[CallPair], column: int) -> list[str]:
    rows = []
    for pair in calls[:_MAX_CALLS]:
        sign = "  " if pair.same else "≠ "
        rows.append(sign + _row(pair.agent, pair.left or "–", pair.right or "–", column))
    if len(calls) > _MAX_CALLS:
        rows.append(f"… and {len(calls) - _MAX_CALLS} more calls")
    return [*rows, ""] if rows else []


def _row(name: str, left: str, right: str, column: int) -> str:
    return f"{_cut(name, 10):<10}  {_cut(left, column):<{column}}  {_cut(right, column)}"


def _cut(text: str, width: int) -> str:
    line = in_line(text)
    return line if len(line) <= width else f"{line[: width - 1]}…"
