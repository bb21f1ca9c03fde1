"""`--fix`: it changes what it says, nothing else, once, and never for more rights."""

from __future__ import annotations

import difflib
import stat
from pathlib import Path
from typing import Any

import pytest
from agent_project import Project
from agent_specs import calm
from hypothesis import given
from hypothesis import strategies as st
from messy_files import messy

from retinue.agents.convert import adds_rights, differences
from retinue.agents.lint.runner import lint_catalog, lint_paths, lint_subject, repair_file
from retinue.agents.lint.subject import LintSubject
from retinue.agents.parse import parse
from retinue.core.spec import DialectName


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    return Project(tmp_path, monkeypatch)


BEFORE = b"""---\r
# the reviewer\r
name: a\r
description: Use it: often # and well\r
\r
allowed_tools : [ Read,  'Grep' ]   # only these\r
maxturns: 5\r
vibe: calm\r
permision_mode: bypassPermissions\r
---\r
\r
allowed_tools: this is the body, which nobody touches\r
maxturns: 5"""

AFTER = b"""---\r
# the reviewer\r
name: a\r
description: "Use it: often # and well"\r
\r
tools : [ Read,  'Grep' ]   # only these\r
maxTurns: 5\r
vibe: calm\r
permision_mode: bypassPermissions\r
---\r
\r
allowed_tools: this is the body, which nobody touches\r
maxturns: 5"""


def test_only_the_stated_lines_differ(project: Project) -> None:
    path = project.write(".claude/agents/a.md", BEFORE)
    path.chmod(0o640)
    done = lint_paths([path], fix=True)
    assert [(change.line, change.what) for change in done.changes] == [
        (4, "put the value of 'description' in quotes"),
        (6, "renamed 'allowed_tools' to 'tools'"),
        (7, "renamed 'maxturns' to 'maxTurns'"),
    ]
    assert path.read_bytes() == AFTER
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert not any(each.fixable for each in done.findings)
    again = lint_paths([path], fix=True)
    assert again.changes == ()
    assert path.read_bytes() == AFTER


FIXES = [
    (".claude", "\ufeff---\nname: a\n---\nx", "---\nname: a\n---\nx"),
    (".claude", "---\r\nname: a\n---\r\nx\r\n", "---\r\nname: a\r\n---\r\nx\r\n"),
    (
        ".claude",
        "---\nname: a\ndescription: d\ncolor: red\ncolor: blue\n---\n",
        "---\nname: a\ndescription: d\ncolor: blue\n---\n",
    ),
    (
        ".claude",
        "---\nname: a\ndescription: one\n\n<example>\nUser: hi\n</example>\nmodel: opus\n---\nx\n",
        '---\nname: a\ndescription: "one\\n\\n<example>\\nUser: hi\\n</example>"\nmodel: opus\n---\nx\n',
    ),
    (
        ".codingcode",
        "---\nname: a\ndescription: d\ntools: read_file, bash\n---\nx\n",
        "---\nname: a\ndescription: d\ntools: [read_file, bash]\n---\nx\n",
    ),
    (
        ".claude",
        "---\nname: a\ndescription: d\nthinking: high # c\n---\nx\n",
        "---\nname: a\ndescription: d\neffort: high # c\n---\nx\n",
    ),
    (
        ".claude",
        '---\nname: a\ndescription: d\n"colour" : red\n---\nx\n',
        "---\nname: a\ndescription: d\ncolor : red\n---\nx\n",
    ),
]


@pytest.mark.parametrize(("home", "before", "after"), FIXES)
def test_repair(project: Project, home: str, before: str, after: str) -> None:
    path = project.write(f"{home}/agents/a.md", before)
    assert lint_paths([path], fix=True).changes
    assert path.read_bytes() == after.encode()


UNTOUCHED = [
    "---\nname: a\ndescription: d\npermision_mode: acceptEdits\n---\nx\n",
    "---\nname: a\ndescription: d\nmcpservers: [x]\n---\nx\n",
    "---\nname: a\ndescription: d\nhook: {Stop: [{command: x}]}\n---\nx\n",
    "---\nname: a\ndescription: d\nmemmory: user\n---\nx\n",
    "---\nname: a\ndescription: d\ntools: Raed\n---\nx\n",
    "---\nname: a\ndescription: d\ntools: Read, Write\ntools: Read, Grep\n---\nx\n",
    "---\nname: a\ndescription: d\ntools: Read\nallowed_tools: Write\n---\nx\n",
    "---\nname: a\ndescripton: d\n---\nx\n",
    "---\ndescription: d\n---\nx\n",
    "---\nname: a\ndescription: d\nmaxTurns: 0\n---\nx\n",
]


@pytest.mark.parametrize("text", UNTOUCHED)
def test_what_would_add_rights_load_a_new_agent_or_need_a_guess_is_left_alone(project: Project, text: str) -> None:
    path = project.write(".claude/agents/a.md", text)
    assert lint_paths([path], fix=True).changes == ()
    assert path.read_text() == text


def test_without_a_path_only_files_of_the_project_are_changed(project: Project) -> None:
    text = "---\nname: {}\ndescription: d\nallowed_tools: Read\n---\nx\n"
    own = project.write(".claude/agents/a.md", text.format("a"))
    personal = project.home / ".claude/agents/b.md"
    personal.parent.mkdir(parents=True)
    personal.write_text(text.format("b"))
    done = lint_catalog(project.root, fix=True)
    assert [change.file for change in done.changes] == [str(own)]
    assert "allowed_tools" in personal.read_text()
    assert lint_paths([personal], fix=True).changes


def test_a_file_that_cannot_be_written_is_an_error_and_stays(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    path = project.write(".claude/agents/a.md", BEFORE)
    original = Path.replace

    def refuse(self: Path, target: Path) -> Path:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "replace", refuse)
    done = lint_paths([path], fix=True)
    monkeypatch.setattr(Path, "replace", original)
    assert done.changes == ()
    assert [each.code for each in done.findings if each.severity == "error"] == ["not-writable"]
    assert path.read_bytes() == BEFORE
    assert [each.name for each in path.parent.iterdir()] == ["a.md"]


DIALECTS: tuple[DialectName, ...] = ("retinue", "claude", "pi", "codingcode", "opencode", "gemini", "copilot", "cursor")
HOMES = {"copilot": ".github/agents/a.agent.md", "opencode": ".opencode/agent/a.md"}


@pytest.mark.parametrize("dialect", DIALECTS)
@given(data=st.data())
@calm(50)
def test_fixing_any_file_is_safe_stated_and_idempotent(dialect: DialectName, data: Any) -> None:
    text: str = data.draw(messy(dialect))
    if data.draw(st.booleans()):
        text = text.replace("description: dd", "description: use: it")
    if data.draw(st.booleans()):
        text = text.replace("\n", "\r\n")
    content = ("\ufeff" if data.draw(st.booleans()) else "").encode() + text.encode()
    path = HOMES.get(dialect, f".{dialect}/agents/a.md")
    before = LintSubject(parse(content, path=path), content)
    after, changes = repair_file(before, lint_subject)
    assert after.data is not None
    assert (after.parsed.spec is None) is (before.parsed.spec is None)
    if before.parsed.spec is not None and after.parsed.spec is not None:
        assert not adds_rights(before.parsed.spec, after.parsed.spec)
        assert before.parsed.spec.prompt == after.parsed.spec.prompt
        if not any(change.what.startswith("renamed") for change in changes):
            assert differences(before.parsed.spec, after.parsed.spec) == ()
    assert (after.data == content) is (not changes)
    assert repair_file(after, lint_subject)[1] == ()
    _only_stated_lines(content, after.data, changes)


def _only_stated_lines(before: bytes, after: bytes, changes: Any) -> None:
    """Comments, order and untouched lines are the same: every replaced line has a change."""
    old, new = (data.removeprefix(b"\xef\xbb\xbf").splitlines(keepends=True) for data in (before, after))
    touched = sum(
        stop - start
        for tag, start, stop, _, _ in difflib.SequenceMatcher(None, old, new, False).get_opcodes()
        if tag != "equal"
    )
    body = after.partition(b"\n---")[2].replace(b"\r\n", b"\n")
    assert body == before.partition(b"\n---")[2].replace(b"\r\n", b"\n")
    if not any("line end" in change.what or "in quotes" in change.what for change in changes):
        assert touched <= 4 * len(changes)
