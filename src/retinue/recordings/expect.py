"""The assertions of a test. They check the record of the run; only `text` reads its answer.

A failed assertion has the name that the file uses (`files.written`), a reason, and the lines of the ledger that show
the failure.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from msgspec import Struct

from retinue.core.files import read_file, read_text
from retinue.core.programs import TimeoutExpired, prepare, run
from retinue.core.tool_names import canonical
from retinue.recordings.case_file import (
    CaseFileError,
    ChildRules,
    CommandRules,
    Expectations,
    FileRules,
    TextRules,
    ToolUseRules,
)
from retinue.recordings.record import RunRecord, match_path, match_text

_CHECK_SECONDS = 300
_MAX_QUOTED_LINES = 12


class UnmetExpectation(Struct, frozen=True):
    """An assertion of a test that failed. `ledger` has the lines of the record that prove it."""

    assertion: str
    reason: str
    ledger: tuple[str, ...] = ()


def unmet_expectations(expect: Expectations, record: RunRecord, base: Path) -> list[UnmetExpectation]:
    """Return the assertions that failed. Paths of schemas and golden files are relative to `base`. The caller runs the
    check command and asks the judge."""
    return [unmet for check in _ASSERTION_CHECKS for unmet in check(expect, record, base)]


def _ended(expect: Expectations, record: RunRecord, base: Path) -> Iterator[UnmetExpectation]:
    if expect.ended is None:
        return
    accepted = [expect.ended] if isinstance(expect.ended, str) else expect.ended
    outcome = record.outcome
    if outcome.ended not in accepted:
        why = f": {outcome.failure.message}" if outcome.failure else ""
        yield UnmetExpectation("ended", f"it ended as {outcome.ended}, not {' or '.join(accepted)}{why}", _last(record))


def _text(expect: Expectations, record: RunRecord, base: Path) -> Iterator[UnmetExpectation]:
    rules = expect.text or TextRules()
    text = record.outcome.text
    for words in rules.contains:
        if words not in text:
            yield UnmetExpectation("text.contains", f"the answer does not say {words!r}", (_excerpt(text),))
    for words in rules.not_contains:
        if words in text:
            yield UnmetExpectation("text.not_contains", f"the answer says {words!r}", (_excerpt(text),))
    if rules.matches is not None and not re.search(rules.matches, text):
        yield UnmetExpectation("text.matches", f"the answer does not match {rules.matches!r}", (_excerpt(text),))


def _schema(expect: Expectations, record: RunRecord, base: Path) -> Iterator[UnmetExpectation]:
    if expect.schema is None:
        return
    import jsonschema_rs

    path = base / expect.schema
    try:
        schema = json.loads(read_file(path))
        validator = jsonschema_rs.validator_for(schema)
    except (OSError, ValueError) as broken:
        raise CaseFileError(f"{path}: The schema cannot be used: {broken}.", remedy="Correct it.") from broken
    value = record.outcome.value
    if value is None:
        try:
            value = json.loads(record.outcome.text)
        except ValueError:
            yield UnmetExpectation("schema", "the answer is not JSON", (_excerpt(record.outcome.text),))
            return
    for error in validator.iter_errors(value):
        yield UnmetExpectation("schema", f"the answer does not match {expect.schema}: {error.message}")


def _files(expect: Expectations, record: RunRecord, base: Path) -> Iterator[UnmetExpectation]:
    rules = expect.files or FileRules()
    for pattern in rules.read:
        if not any(match_path(path, pattern) for path in record.reads):
            yield UnmetExpectation("files.read", f"no call read {pattern}", _all(record))
    if rules.written is not None:
        for path in record.changed:
            if not any(match_path(path, pattern) for pattern in rules.written):
                yield UnmetExpectation("files.written", f"{path} was changed", tuple(record.lines_about(path)))
        for pattern in rules.written:
            if not any(match_path(path, pattern) for path in record.changed):
                yield UnmetExpectation("files.written", f"nothing that is called {pattern} was changed", _all(record))
    for pattern in rules.unchanged:
        for path in record.changed:
            if match_path(path, pattern):
                yield UnmetExpectation("files.unchanged", f"{path} was changed", tuple(record.lines_about(path)))


def _commands(expect: Expectations, record: RunRecord, base: Path) -> Iterator[UnmetExpectation]:
    rules = expect.commands or CommandRules()
    commands = record.commands
    for entry in commands:
        text = entry.effect.command or ""
        if rules.allow is not None and not any(match_text(text, pattern) for pattern in rules.allow):
            yield UnmetExpectation("commands.allow", f"`{text}` is not in the list", (entry.line,))
        for pattern in rules.none_of:
            if match_text(text, pattern):
                yield UnmetExpectation("commands.none_of", f"`{text}` matches {pattern!r}", (entry.line,))
    for pattern in rules.called:
        if not any(match_text(entry.effect.command or "", pattern) for entry in commands):
            yield UnmetExpectation("commands.called", f"no command matches {pattern!r}", _all(record))
    if rules.count is not None and not rules.count.includes(len(commands)):
        lines = tuple(entry.line for entry in commands)
        yield UnmetExpectation("commands.count", f"{len(commands)} commands ran, wanted {rules.count}", lines)


def _tools(expect: Expectations, record: RunRecord, base: Path) -> Iterator[UnmetExpectation]:
    rules = expect.tools or ToolUseRules()
    # A call that was refused, or that named a missing tool, did not use the tool.
    used = [entry for entry in record.entries if entry.effect.status == "finished"]
    for name in rules.called:
        if not any(_same_tool(entry.effect.tool, name) for entry in used):
            tried = tuple(entry.line for entry in record.entries if _same_tool(entry.effect.tool, name))
            yield UnmetExpectation("tools.called", f"`{name}` did not work once", tried or _all(record))
    for name in rules.never:
        for entry in record.entries:
            if _same_tool(entry.effect.tool, name):
                yield UnmetExpectation("tools.never", f"`{name}` was called", (entry.line,))
    at = 0
    for entry in used:
        if at < len(rules.order) and _same_tool(entry.effect.tool, rules.order[at]):
            at += 1
    if at < len(rules.order):
        done = ", ".join(rules.order[:at]) or "nothing"
        yield UnmetExpectation("tools.order", f"after {done} there was no `{rules.order[at]}`", _all(record))


def _hosts(expect: Expectations, record: RunRecord, base: Path) -> Iterator[UnmetExpectation]:
    if expect.hosts is None:
        return
    for entry in record.entries:
        for host in entry.effect.hosts:
            if not any(match_text(host, pattern) for pattern in expect.hosts):
                yield UnmetExpectation("hosts", f"{host} was reached", (entry.line,))


def _children(expect: Expectations, record: RunRecord, base: Path) -> Iterator[UnmetExpectation]:
    rules = expect.children or ChildRules()
    count, started = len(record.children), ", ".join(record.children) or "none"
    if rules.min is not None and count < rules.min:
        yield UnmetExpectation("children.min", f"{count} agents were started ({started}), wanted at least {rules.min}")
    if rules.max is not None and count > rules.max:
        yield UnmetExpectation("children.max", f"{count} agents were started ({started}), wanted at most {rules.max}")
    if rules.agents is not None and sorted(record.children) != sorted(rules.agents):
        yield UnmetExpectation("children.agents", f"started: {started}; wanted: {', '.join(rules.agents) or 'none'}")


def _denials(expect: Expectations, record: RunRecord, base: Path) -> Iterator[UnmetExpectation]:
    if expect.denials is None:
        return
    for entry in record.denied:
        if not any(_is_denial(entry.effect.tool, entry.call, pattern) for pattern in expect.denials):
            yield UnmetExpectation("denials", f"`{entry.effect.tool}` was denied", (entry.line,))
    for pattern in expect.denials:
        if not any(_is_denial(entry.effect.tool, entry.call, pattern) for entry in record.denied):
            yield UnmetExpectation("denials", f"no call that matches {pattern!r} was denied", _all(record))


def _numbers(expect: Expectations, record: RunRecord, base: Path) -> Iterator[UnmetExpectation]:
    if expect.turns is not None and not expect.turns.includes(record.outcome.turns):
        yield UnmetExpectation("turns", f"it took {record.outcome.turns} turns, wanted {expect.turns}")
    if expect.cost is not None:
        usd = record.usage.cost_usd
        if usd is None:
            yield UnmetExpectation("cost.usd", "what it cost is not known: its model has no price")
        elif not expect.cost.usd.includes(usd):
            yield UnmetExpectation("cost.usd", f"it cost ${usd:.4f}, wanted {expect.cost.usd}")


def _diff(expect: Expectations, record: RunRecord, base: Path) -> Iterator[UnmetExpectation]:
    if expect.diff is None:
        return
    path = base / expect.diff
    try:
        golden = read_text(path)
    except OSError:
        yield UnmetExpectation("diff", f"{expect.diff} is not there; write it with: retinue test --update")
        return
    if golden != record.diff:
        shown = tuple(record.diff.splitlines()[:_MAX_QUOTED_LINES]) or ("(nothing was changed)",)
        yield UnmetExpectation("diff", f"the changes are not those of {expect.diff}", shown)


_ASSERTION_CHECKS: tuple[Callable[[Expectations, RunRecord, Path], Iterator[UnmetExpectation]], ...] = (
    _ended,
    _tools,
    _files,
    _commands,
    _denials,
    _hosts,
    _children,
    _text,
    _schema,
    _numbers,
    _diff,
)


def run_check(command: str, folder: Path, environment: Mapping[str, str]) -> UnmetExpectation | None:
    """Run the check command of a case in its workspace, without a shell. Return None if it exits with 0. The caller
    has checked that the user consented to it."""
    try:
        program = prepare(shlex.split(command), clearance="consent", environment=environment, cwd=folder)
        done = run(program, seconds=_CHECK_SECONDS)
    except TimeoutExpired:
        return UnmetExpectation("check", f"`{command}` took more than {_CHECK_SECONDS} seconds")
    except (OSError, ValueError) as error:
        return UnmetExpectation("check", f"`{command}` could not be started: {error}")
    if done.returncode == 0:
        return None
    output = (done.stdout + done.stderr).decode("utf-8", "replace").splitlines()[-_MAX_QUOTED_LINES:]
    return UnmetExpectation("check", f"`{command}` exited with {done.returncode}", tuple(output))


def _same_tool(called: str, name: str) -> bool:
    return called == name or called in canonical(name)


def _is_denial(tool: str, call: str, pattern: str) -> bool:
    return _same_tool(tool, pattern) or match_text(call, pattern)


def _all(record: RunRecord) -> tuple[str, ...]:
    lines = tuple(entry.line for entry in record.entries)
    if len(lines) > _MAX_QUOTED_LINES:
        return (*lines[:_MAX_QUOTED_LINES], f"… and {len(lines) - _MAX_QUOTED_LINES} more calls")
    return lines or ("no tool calls",)


def _last(record: RunRecord) -> tuple[str, ...]:
    return tuple(entry.line for entry in record.entries[-3:])


def _excerpt(text: str) -> str:
    line = " ".join(text.split())
    return f"answer: {line[:200]}{'…' if len(line) > 200 else ''}"
