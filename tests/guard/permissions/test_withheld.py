"""A search over a folder shows nothing of files that the rules keep from being read."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from retinue.core.tool import ToolContext
from retinue.guard.permissions import PermissionPolicy
from retinue.guard.permissions.locations import RunFolders
from retinue.guard.permissions.rule import Kind, Rule, parse_rule
from retinue.tools.grep import GrepTool


def context(folder: Path, kind: Kind, *texts: str) -> ToolContext:
    rules = [parse_rule(text, kind, source="test", base=str(folder)) for text in texts]
    policy = PermissionPolicy(
        "bypassPermissions", RunFolders.of(folder), [rule for rule in rules if isinstance(rule, Rule)]
    )
    environment = {"PATH": os.environ["PATH"]}
    return ToolContext("run", (folder,), folder / "out", environment, withheld=policy.withheld)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path.resolve() / "project"
    (made / "secrets").mkdir(parents=True)
    (made / "secrets" / "key.txt").write_text("token = hunter2\n")
    (made / "notes.pem").write_text("token = hunter3\n")
    (made / "code.py").write_text("token = read()\n")
    (made / "link.py").symlink_to("secrets/key.txt")
    return made


@pytest.mark.parametrize("mode", ["content", "files", "count"])
@pytest.mark.parametrize("kind", ["deny", "ask"])
async def test_what_must_not_be_read_is_not_shown_by_a_search(folder: Path, kind: Kind, mode: str) -> None:
    output = await GrepTool().run(
        "c", {"pattern": "token", "mode": mode}, context(folder, kind, "Read(secrets/**)", "Read(*.pem)")
    )
    assert "code.py" in output.text
    assert "hunter" not in output.text and "key.txt" not in output.text and "notes.pem" not in output.text
    assert "2 more not shown" in output.text


async def test_nothing_is_said_where_nothing_is_left_out(folder: Path) -> None:
    output = await GrepTool().run("c", {"pattern": "read"}, context(folder, "deny", "Read(secrets/**)"))
    assert output.text == "code.py:1:token = read()"


async def test_rules_about_writing_keep_nobody_from_reading(folder: Path) -> None:
    output = await GrepTool().run("c", {"pattern": "hunter2"}, context(folder, "deny", "Edit(secrets/**)"))
    assert "hunter2" in output.text
