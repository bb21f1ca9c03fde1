"""Results of agent tests: for people, for programs, for JUnit readers and for GitHub."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

from retinue.app.agent_tests import CaseResult, Trial
from retinue.app.output import workflow_command
from retinue.app.text import indent
from retinue.core.format import format_cost, format_duration, replace_unprintable

_VERDICT_SIGNS = {"passed": "✓", "failed": "✗", "skipped": "-", "tracked": "~", "unusable": "!"}


def result_lines(result: CaseResult) -> list[str]:
    """Return the lines about one case: its verdict, and the expectations that failed."""
    head = f"{_VERDICT_SIGNS[result.verdict]} {result.tests.agent} › {result.case.name}"
    facts = [format_duration(round(sum(trial.seconds for trial in result.trials) * 1000))]
    if result.repeats > 1:
        facts.append(f"{result.passes} of {len(result.trials)} passed")
    if result.live and result.usd:
        facts.append(format_cost(result.usd))
    if result.verdict == "unusable":
        return [head, f"    {result.problem}"]
    notes = []
    for trial in result.trials:
        notes += [note for note in trial.notes if note not in notes]
    if result.verdict == "skipped":
        return [f"{head}: skipped, {'; '.join(notes) or 'it did not run'}"]
    lines = [f"{head}  ({', '.join(facts)})"]
    lines += [f"    note: {note}" for note in notes]
    for trial in _failed(result):
        for unmet in trial.unmet:
            lines.append(f"    {unmet.assertion}: {unmet.reason}")
            lines += indent(unmet.ledger, "      ledger: ")
    return lines


def _failed(result: CaseResult) -> list[Trial]:
    return [trial for trial in result.trials if trial.status == "failed"]


def summary_line(results: Sequence[CaseResult], seconds: float) -> str:
    """Return the number of cases by verdict: `3 passed, 1 failed in 0.8s`."""
    counts = []
    for verdict in ("passed", "failed", "skipped", "tracked", "unusable"):
        number = sum(result.verdict == verdict for result in results)
        if number:
            counts.append(f"{number} {verdict}")
    # The cost of a recording was paid when it was recorded.
    cost = sum(result.usd or 0.0 for result in results if result.live)
    spent = f", {format_cost(cost)}" if cost else ""
    return f"{', '.join(counts) or 'no cases'} in {format_duration(round(seconds * 1000))}{spent}"


def junit(results: Sequence[CaseResult], problems: Sequence[str] = ()) -> bytes:
    """Return a JUnit document: a suite for each test file, a test case for each repetition, and an error for each
    file that cannot be used."""
    root = ElementTree.Element("testsuites", name="retinue test")
    suites: dict[Path, ElementTree.Element] = {}
    for result in results:
        path = result.tests.path
        if path not in suites:
            suites[path] = ElementTree.SubElement(root, "testsuite", name=result.tests.agent, file=str(path))
        _add_case(suites[path], result)
    for suite in suites.values():
        suite.set("tests", str(len(suite.findall("testcase"))))
        suite.set("failures", str(len(suite.findall("testcase[failure]"))))
        suite.set("errors", str(len(suite.findall("testcase/error"))))
        suite.set("skipped", str(len(suite.findall("testcase/skipped"))))
    if problems:
        broken = ElementTree.SubElement(root, "testsuite", name="files", errors=str(len(problems)))
        for problem in problems:
            case = ElementTree.SubElement(broken, "testcase", classname="files", name=_xml(problem.partition(" ")[0]))
            ElementTree.SubElement(case, "error", type="file", message=_xml(problem))
    ElementTree.indent(root)
    document: bytes = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
    return document + b"\n"


def _add_case(suite: ElementTree.Element, result: CaseResult) -> None:
    agent, name = result.tests.agent, result.case.name
    if result.verdict == "unusable":
        case = ElementTree.SubElement(suite, "testcase", classname=agent, name=name)
        ElementTree.SubElement(case, "error", type="file", message=_xml(result.problem))
        return
    for number, trial in enumerate(result.trials, 1):
        shown = f"{name} [{number}/{result.repeats}]" if result.repeats > 1 else name
        case = ElementTree.SubElement(suite, "testcase", classname=agent, name=_xml(shown), time=f"{trial.seconds:.3f}")
        _add_properties(case, trial)
        if trial.status == "skipped":
            ElementTree.SubElement(case, "skipped", message=_xml("; ".join(trial.notes)))
        # A repetition may fail although the case passes, and must then not be reported as a failure.
        if result.verdict != "failed":
            continue
        for unmet in trial.unmet:
            failure = ElementTree.SubElement(case, "failure", type=unmet.assertion, message=_xml(unmet.reason))
            failure.text = _xml("\n".join(unmet.ledger))


def _add_properties(case: ElementTree.Element, trial: Trial) -> None:
    if trial.record is None:
        return
    properties = ElementTree.SubElement(case, "properties")
    values = {"model": trial.model, "turns": trial.record.outcome.turns, "usd": trial.usd}
    for key, value in values.items():
        if value is not None:
            ElementTree.SubElement(properties, "property", name=key, value=str(value))


def _xml(text: str) -> str:
    """Return text that XML can contain: control characters are escaped."""
    return "\n".join(replace_unprintable(line) for line in text.split("\n"))


def workflow_commands(results: Sequence[CaseResult], base: Path) -> list[str]:
    """Return the commands by which GitHub marks the lines of failed cases."""
    lines = []
    for result in results:
        path = result.tests.path.resolve()
        shown = str(path.relative_to(base)) if path.is_relative_to(base) else str(path)
        values = {"file": shown, "line": result.tests.line_of(result.number), "title": result.case.name}
        if result.verdict == "unusable":
            lines.append(workflow_command("error", values, result.problem))
        if result.verdict != "failed":
            continue
        for trial in _failed(result):
            for unmet in trial.unmet:
                position = values | {"line": result.tests.line_of(result.number, f"expect.{unmet.assertion}")}
                text = "\n".join((f"{unmet.assertion}: {unmet.reason}", *unmet.ledger))
                lines.append(workflow_command("error", position, text))
    return lines


def step_summary(results: Sequence[CaseResult], seconds: float) -> str:
    """Return the Markdown that GitHub shows below a job."""
    rows = ["| agent | case | verdict | runs | cost |", "|---|---|---|---|---|"]
    for result in results:
        cost = format_cost(result.usd) if result.live and result.usd else ""
        name = replace_unprintable(result.case.name).replace("|", "\\|")
        runs = f"{result.passes}/{len(result.trials)}"
        rows.append(f"| {result.tests.agent} | {name} | {result.verdict} | {runs} | {cost} |")
    return f"### Tests of agents\n\n{summary_line(results, seconds)}\n\n" + "\n".join(rows) + "\n"
