"""The first draft of a test: it expects the next run to do what a past run did."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from retinue.agents.catalog import Catalog
from retinue.core.events import RunCreated
from retinue.core.files import read_text
from retinue.core.run_state import RunState
from retinue.errors import UsageError
from retinue.guard.redact import Redactor
from retinue.guard.trust import Trust
from retinue.log.query import LogReader
from retinue.recordings.case_file import SUFFIX, read_test_file
from retinue.recordings.cassette import SUFFIX as CASSETTE_SUFFIX
from retinue.recordings.cassette import export_cassette
from retinue.recordings.consent import consent_kept
from retinue.recordings.record import RunRecord, read_record
from retinue.runs.record import slug
from retinue.settings.load import load_settings
from retinue.settings.places import home, retinue_home

_MAX_CASE_NAME_CHARACTERS = 60


def draft_test(
    state: Path, row: RunState, agent: str, cwd: Path, target: Path | None, environment: Mapping[str, str]
) -> tuple[Path, Path]:
    """Write a cassette of the run and a test that plays it, and return both paths. An existing test file gets one more
    case. Raise UsageError if the run belongs to another agent or has not ended, or if the agent has no file."""
    if row.agent != agent:
        raise UsageError(
            f"Run {row.id} is a run of {row.agent}, not of {agent}.", remedy=f"retinue test new {row.agent}"
        )
    path = target or _default_test_file(agent, cwd, environment)
    with LogReader.open(state) as reader:
        record = read_record(reader, row.id, row.cwd)
        first = reader.events(row.id, limit=1)[0].body
        data = export_cassette(reader, row, home(environment), Redactor(environment))
    if record is None or not isinstance(first, RunCreated):
        raise UsageError(f"Run {row.id} has not ended.", remedy="Draft from one that has.")
    name = " ".join(first.task.split())[:_MAX_CASE_NAME_CHARACTERS]
    if path.is_file():
        read_test_file(path)
    stem = path.name.removesuffix(SUFFIX)
    cassette = path.parent / "cassettes" / f"{stem}-{slug(name)}{CASSETTE_SUFFIX}"
    mode = first.options.permission_mode
    if mode is None:
        # Tests do not use the settings that determined the mode of the run.
        mode = load_settings(cwd, environment=environment).settings.permissions_default_mode
    case = _draft_case(name, first, record, f"cassettes/{cassette.name}", mode)
    with consent_kept(path, Trust(retinue_home(environment))):
        cassette.parent.mkdir(parents=True, exist_ok=True)
        cassette.write_bytes(data)
        _add_case(path, agent, case)
    return path, cassette


def _default_test_file(agent: str, cwd: Path, environment: Mapping[str, str]) -> Path:
    entry = Catalog.load(cwd, environment=environment).find(agent)
    if entry.source == "builtin":
        folder = cwd / ".retinue" / "agents"
        return folder / f"{agent}{SUFFIX}"
    file = Path(entry.path)
    return file.with_name(f"{file.name.partition('.')[0]}{SUFFIX}")


def _draft_case(name: str, first: RunCreated, record: RunRecord, cassette: str, mode: str | None) -> dict[str, Any]:
    tools: list[str] = []
    written: list[str] = []
    for entry in record.entries:
        if entry.effect.tool not in tools and entry.effect.status == "finished":
            tools.append(entry.effect.tool)
        for write in entry.effect.writes:
            if write.status != "unchanged" and write.path not in written:
                written.append(write.path)
    expect: dict[str, Any] = {"ended": record.outcome.ended, "files": {"written": written}}
    if tools:
        expect["tools"] = {"called": tools}
    expect["children"] = {"agents": list(record.children)}
    expect["denials"] = sorted({entry.effect.tool for entry in record.denied})
    expect["turns"] = {"max": record.outcome.turns}
    case: dict[str, Any] = {"name": name, "task": first.task, "model": {"scenario": cassette}}
    if mode is not None:
        case["permission_mode"] = mode
    return {**case, "expect": expect}


def _add_case(path: Path, agent: str, case: Mapping[str, Any]) -> None:
    import yaml

    text = yaml.safe_dump([case], sort_keys=False, allow_unicode=True, width=110)
    indented = "".join(f"  {line}" if line.strip() else line for line in text.splitlines(keepends=True))
    if path.is_file():
        before = read_text(path)
        path.write_text(f"{before.rstrip()}\n{indented}", "utf-8")
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"agent: {agent}\ncases:\n{indented}", "utf-8")
