"""Switching agents off and on: cases A42 to A46, and every way a file can be off."""

from __future__ import annotations

from pathlib import Path

import pytest
from agent_project import Project
from agent_specs import calm
from hypothesis import given
from hypothesis import strategies as st
from messy_files import messy

from retinue.agents.manage import CannotSwitchError, is_stub, locate, stub, switch_off, switch_on
from retinue.agents.parse import parse
from retinue.core.spec import DialectName
from retinue.errors import ConfigurationError

PLAIN = "---\nname: a\ndescription: d\n---\nDo the work.\n"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    return Project(tmp_path, monkeypatch)


def off(project: Project, text: str | bytes) -> bytes:
    """Return what a file is after its agent was switched off."""
    file = project.write(".pi/agents/a.md", text)
    assert project.agents("disable", "a")["path"] == str(file)
    return file.read_bytes()


def on(project: Project, text: str | bytes) -> bytes:
    """Return what a file is after its agent was switched on."""
    file = project.write(".pi/agents/a.md", text)
    project.agents("enable", "a")
    return file.read_bytes()


def is_off(project: Project, text: str | bytes) -> bool:
    project.write(".pi/agents/a.md", text)
    return not project.agent("a").enabled


def test_disabling_inserts_the_key_once(project: Project) -> None:
    once = off(project, PLAIN)
    assert once == b"---\nenabled: false\nname: a\ndescription: d\n---\nDo the work.\n"
    assert off(project, once) == once


@pytest.mark.parametrize("line", ["enabled: false", "enabled:   FALSE  # c", '"enabled": false', "'enabled' : False"])
@pytest.mark.parametrize("where", [1, 2, 3])
def test_disabling_is_idempotent_wherever_the_key_already_is(project: Project, line: str, where: int) -> None:
    lines = PLAIN.splitlines()
    lines.insert(where, line)
    text = "\n".join(lines)
    assert off(project, text) == text.encode()


def test_line_endings_are_kept_and_recognised(project: Project) -> None:
    crlf = PLAIN.replace("\n", "\r\n").encode()
    done = off(project, crlf)
    assert done == b"---\r\nenabled: false\r\n" + crlf[5:]
    assert is_off(project, done)
    assert off(project, done) == done
    assert on(project, done) == crlf


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\xef\xbb\xbf" + PLAIN.encode(), "byte order mark"),
        (b"Just a prompt, no frontmatter.\n", "no frontmatter"),
        (b"", "no frontmatter"),
    ],
)
def test_a_file_without_visible_frontmatter_is_reported_and_left_alone(
    project: Project, data: bytes, reason: str
) -> None:
    file = project.write(".pi/agents/a.md", data)
    assert reason in project.refused("disable", "a")
    assert file.read_bytes() == data


def test_frontmatter_that_takes_no_further_line_is_reported_and_left_alone(project: Project) -> None:
    data = b"---\n{name: a, description: d}\n---\nbody\n"
    file = project.write(".pi/agents/a.md", data)
    assert "key: value" in project.refused("disable", "a")
    assert file.read_bytes() == data


@pytest.mark.parametrize("where", [1, 2, 3])
def test_enabling_removes_the_key_first_middle_or_last(project: Project, where: int) -> None:
    lines = PLAIN.splitlines(keepends=True)
    lines.insert(where, "enabled: false  # for now\n")
    assert on(project, "".join(lines).encode()) == PLAIN.encode()


@pytest.mark.parametrize("text", [PLAIN, PLAIN.replace("name: a", "name: a\nenabled: true")])
def test_nothing_to_strip_changes_nothing(project: Project, text: str) -> None:
    assert on(project, text) == text.encode()
    assert project.agents("enable", "a")["action"] == "unchanged"


@pytest.mark.parametrize(
    "text",
    [
        PLAIN,
        "---\r\nname: a\r\n# c\r\n\r\ndescription: d\r\n---\r\nenabled: false\r\n",
        "---\nname: a\nenabled: true   # mine\ndescription: d\n---\n",
        "---\nenabled:\n  true\nname: a\ndescription: d\n---\nno newline at the end",
        '---\nname: a\nenabled: "false"\ndescription: >\n  d\n  # not a comment\n---\n',
        "---\n---\nbody",
        "---\nname: a\ndescription: one: two\ntools: a: b\n---\nbroken YAML that was recovered\n",
        "---\nname: a\nenabled: true\ndescription: d\nenabled: true\n---\ntwice\n",
    ],
)
def test_off_and_on_restores_every_byte(project: Project, text: str) -> None:
    data = text.encode()
    done = off(project, data)
    assert is_off(project, done)
    assert on(project, done) == data


@pytest.mark.parametrize(
    "line",
    [
        "enabled: false",
        "enabled: False",
        "enabled: FALSE",
        "enabled: false # c",
        '"enabled": false',
        "enabled: false   ",
    ],
)
def test_forms_that_switch_off(project: Project, line: str) -> None:
    text = PLAIN.replace("description", f"{line}\ndescription")
    assert is_off(project, text)
    assert on(project, text.encode()) == PLAIN.encode()


@pytest.mark.parametrize(
    "text",
    [
        PLAIN.replace("name: a", 'name: a\nenabled: "false"'),
        PLAIN.replace("name: a", "name: a\nenabled: no"),
        PLAIN + "enabled: false\n",
        "---\nname: a\n---\n---\nenabled: false\n---\n",
    ],
)
def test_forms_that_do_not(project: Project, text: str) -> None:
    assert not is_off(project, text)
    assert is_off(project, off(project, text))


@pytest.mark.parametrize("fence", ["----", "--- x"])
def test_only_a_line_of_three_dashes_closes_the_block(project: Project, fence: str) -> None:
    """Then the key stands in the block, or the file has none: the reader decides, not a pattern."""
    data = f"---\nname: a\n{fence}\nenabled: false\n---\nbody\n".encode()
    file = project.write(".pi/agents/a.md", data)
    was_on = project.agent("a").enabled
    assert (project.agents("enable", "a")["action"] == "unchanged") == was_on
    assert (file.read_bytes() == data) == was_on


def test_the_recorded_file_is_preferred_and_a_guess_replaces_a_deleted_one(project: Project) -> None:
    other = project.write(".agents/agents/reviewer.md", PLAIN.replace("name: a", "name: reviewer"))
    recorded = project.write(".pi/agents/odd-name.md", PLAIN.replace("name: a", "name: reviewer"))
    entry = project.agent("reviewer")
    assert locate(entry, project.root) == recorded
    recorded.unlink()
    assert locate(entry, project.root) == other
    strongest = project.write(".pi/agents/reviewer.md", PLAIN)
    assert locate(entry, project.root) == strongest
    strongest.unlink()
    other.unlink()
    personal = project.home / ".pi/agent/agents/reviewer.md"
    personal.parent.mkdir(parents=True)
    personal.write_text(PLAIN)
    assert locate(entry, project.root) == personal
    personal.unlink()
    with pytest.raises(ConfigurationError, match="gone"):
        locate(entry, project.root)


def test_a_built_in_agent_is_hidden_by_a_stub_and_the_stub_deleted_again(project: Project) -> None:
    done = project.agents("disable", "explore")
    assert done["action"] == "stub-written"
    stub_file = Path(done["path"])
    assert stub_file.read_bytes() == b"---\nname: Explore\nenabled: false\n---\n"
    assert "Explore" not in project.catalog().names
    assert project.agents("disable", "Explore")["action"] == "unchanged"
    assert project.agents("enable", "Explore")["action"] == "stub-deleted"
    assert not stub_file.exists()
    assert project.agent("Explore").source == "builtin"
    assert project.agents("enable", "Explore")["action"] == "unchanged"


def test_a_stub_that_says_only_enabled_false_as_pi_writes_it_is_deleted_too(project: Project) -> None:
    path = project.write(".pi/agents/Plan.md", "---\nenabled: false\n---\n")
    assert not project.agent("Plan").enabled
    assert project.agents("enable", "Plan")["action"] == "stub-deleted"
    assert not path.exists()


def test_a_file_with_a_prompt_is_no_stub() -> None:
    data = stub("a")
    assert is_stub(data, parse(data, path="x.md", dialect="retinue"))
    for more in (data + b"Do it.\n", data.replace(b"name", b"model: x\nname")):
        assert not is_stub(more, parse(more, path="x.md", dialect="retinue"))


def test_a_stub_never_replaces_a_file_of_another_agent(project: Project) -> None:
    path = project.write(".retinue/agents/Explore.md", PLAIN.replace("name: a", "name: something-else"))
    assert "exists" in project.refused("disable", "Explore")
    assert b"something-else" in path.read_bytes()


CASES: list[tuple[str, DialectName, str]] = [
    (".retinue/agents/a.md", "retinue", "enabled: false"),
    (".claude/agents/a.md", "claude", "enabled: false"),
    (".pi/agents/a.md", "pi", "enabled: false"),
    (".agents/a.md", "devkit", "enabled: false"),
    (".codingcode/agents/a.md", "codingcode", "disabled: true"),
    (".opencode/agent/a.md", "opencode", "disable: true"),
    (".gemini/agents/a.md", "gemini", "enabled: false"),
    (".github/agents/a.agent.md", "copilot", "enabled: false"),
    (".cursor/agents/a.md", "cursor", "enabled: false"),
]


@pytest.mark.parametrize(("path", "dialect", "line"), CASES)
def test_every_dialect_has_its_own_switch(project: Project, path: str, dialect: DialectName, line: str) -> None:
    file = project.write(path, PLAIN)
    assert project.agent("a").parsed.dialect == dialect
    assert project.agents("disable", "a")["action"] == "edited"
    assert line in file.read_text().splitlines()
    assert not project.agent("a").enabled
    assert project.agents("enable", "a")["action"] == "edited"
    assert file.read_text() == PLAIN


def test_refusals_name_the_file_and_the_remedy(project: Project) -> None:
    project.write(".retinue/agents/b.md", b"\xef\xbb\xbf" + PLAIN.replace("name: a", "name: b").encode())
    said = project.refused("disable", "b")
    assert "byte order mark" in said and "lint --fix" in said
    assert "nobody" in project.refused("disable", "nobody")


DIALECTS: tuple[DialectName, ...] = ("retinue", "claude", "pi", "codingcode", "opencode", "gemini", "copilot", "cursor")


@pytest.mark.parametrize("dialect", DIALECTS)
@given(data=st.data())
@calm(40)
def test_off_and_on_restores_any_file_that_can_be_switched(dialect: DialectName, data: st.DataObject) -> None:
    end = data.draw(st.sampled_from(["\n", "\r\n"]))
    text = data.draw(messy(dialect)).replace("\n", end).encode()
    parsed = parse(text, path="x/agent.md", dialect=dialect)
    try:
        done = switch_off(text, parsed)
    except CannotSwitchError:
        return
    after = parse(done, path="x/agent.md", dialect=dialect)
    assert after.spec is not None
    assert not after.spec.enabled
    assert done == text or switch_on(done, after) == text
