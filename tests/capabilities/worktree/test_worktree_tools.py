"""Tools of others, called by a run in a worktree: not sent into the main checkout."""

from __future__ import annotations

from pathlib import Path

import pytest

from retinue.capabilities.worktree.tools import check_foreign_tools
from retinue.core.tool import ToolContext, ToolSpec, ok
from retinue.runs.guard import Isolation


class Foreign:
    def __init__(self, name="mcp__files__write", effects=frozenset({"write"})):
        self.spec = ToolSpec(name, "", {"type": "object"}, effects)
        self.calls = []

    async def run(self, call_id, arguments, context):
        self.calls.append(arguments)
        return ok("done")


@pytest.fixture
def isolation(tmp_path: Path) -> Isolation:
    main, top = tmp_path / "main", tmp_path / "state" / "worktrees" / "r1"
    main.mkdir()
    top.mkdir(parents=True)
    (top / "way-out").symlink_to(main)
    (tmp_path / "alias").symlink_to(main)
    return Isolation("r1", top, top / ".git", main, main)


async def outcome(isolation: Isolation, arguments, **tool):
    foreign = Foreign(**tool)
    (kept,) = check_foreign_tools((foreign,), isolation)
    context = ToolContext("r1", (isolation.top,), isolation.top / "out")
    return await kept.run("c", arguments, context), foreign.calls


@pytest.mark.parametrize(
    "arguments",
    [
        {"path": "{main}/a.txt"},
        {"path": "{main}"},
        {"path": "src/a.txt"},
        {"file_path": "../a.txt"},
        {"paths": ["{top}/a.txt", "{main}/a.txt"]},
        {"options": {"target_file": "a.txt"}},
        {"path": "{top}/way-out/a.txt"},
        {"path": "{main}/../alias/a.txt"},
        {"path": "{top}/../../../alias/a.txt"},
        {"path": "file://{main}/a.txt"},
        {"command": "echo x > {main}/a.txt"},
    ],
    ids=str,
)
async def test_a_path_of_the_main_checkout_or_a_relative_one_is_refused(isolation, arguments):
    filled = _filled(arguments, isolation)
    output, calls = await outcome(isolation, filled)
    assert output.is_error and calls == []
    assert str(isolation.top) in output.text and output.effect.denied


@pytest.mark.parametrize(
    "arguments", [{"path": "{top}/a.txt"}, {"query": "a/b"}, {"title": "x", "count": 3}, {}], ids=str
)
async def test_other_calls_go_through(isolation, arguments):
    output, calls = await outcome(isolation, _filled(arguments, isolation))
    assert not output.is_error and len(calls) == 1


async def test_what_only_reads_and_what_is_ours_is_not_looked_at(isolation):
    for tool in ({"effects": frozenset({"read"})}, {"name": "write"}):
        output, _ = await outcome(isolation, {"path": "a.txt"}, **tool)
        assert not output.is_error


def _filled(value, isolation):
    if isinstance(value, str):
        return value.replace("{main}", str(isolation.main)).replace("{top}", str(isolation.top))
    if isinstance(value, dict):
        return {key: _filled(inner, isolation) for key, inner in value.items()}
    return [_filled(inner, isolation) for inner in value] if isinstance(value, list) else value
