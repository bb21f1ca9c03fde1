"""Names of tools: every dialect's words lead to Retinue's own tools."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from retinue.core.tool_names import BUILT_IN_SEVEN, TOOL_EFFECTS, TOOL_NAME_ALIASES, base_name, canonical, is_read_only

TABLE = Path(__file__).parents[3] / "shared" / "corpus" / "tools.csv"
OURS = {"glob": "find", "web_fetch": "fetch_content", "subagent": "Agent", "read_many": "read"}


@pytest.mark.parametrize(
    ("name", "tools"),
    [
        ("Read", ("read",)),
        ("Glob", ("find",)),
        ("MultiEdit", ("edit",)),
        ("Bash(git:*)", ("bash",)),
        ("Task(worker, researcher)", ("Agent",)),
        ("kimi_cli.tools.shell:Shell", ("bash",)),
        ("read_file", ("read",)),
        ("tool_search", ("tool_search",)),
        ("search_code", ("grep",)),
        ("search_files", ("find",)),
        ("execute_command", ("bash",)),
        ("fetch_url", ("fetch_content",)),
        ("edit/createFile", ("write",)),
        ("search", ("grep", "find", "ls")),
        ("mcp__github__search", ()),
        ("made_up", ()),
        ("", ()),
    ],
)
def test_aliases(name: str, tools: tuple[str, ...]) -> None:
    assert canonical(name) == tools


def test_every_alias_leads_to_a_tool_and_is_written_in_lower_case() -> None:
    for alias, tools in TOOL_NAME_ALIASES.items():
        assert alias == alias.lower()
        assert set(tools) <= set(TOOL_EFFECTS)
    # Who allows or denies apply_patch means the right to edit: the tool itself has no rights.
    assert canonical("apply_patch") == ("edit",)
    assert all(canonical(name) == (name,) for name in TOOL_EFFECTS if name != "apply_patch")
    assert set(BUILT_IN_SEVEN) <= set(TOOL_EFFECTS)


def test_what_leaves_files_alone() -> None:
    assert is_read_only("Read") is True
    assert is_read_only("WebFetch") is True
    assert is_read_only("Bash") is False
    assert is_read_only("edit") is False
    assert is_read_only("Agent") is False
    assert is_read_only("unknown") is None


def test_a_name_without_what_surrounds_it() -> None:
    assert base_name("Bash(npm run test:*)") == "Bash"
    assert base_name("my_tools.ls:Ls") == "Ls"
    assert base_name("server:tool") == "server:tool"


@pytest.mark.skipif(not TABLE.exists(), reason="the corpus is not here")
def test_the_survey_of_tool_names_agrees() -> None:
    with TABLE.open(encoding="utf-8") as lines:
        for row in csv.DictReader(lines):
            suggested = row["suggested_canonical"]
            wanted = OURS.get(suggested, suggested)
            if wanted in TOOL_EFFECTS and not row["tool"].startswith("mcp__") and row["tool"] not in TOOL_EFFECTS:
                assert wanted in canonical(row["tool"]), row["tool"]
