"""Frontmatter as it is found in the wild: one hand-written file for each quirk of the survey."""

from __future__ import annotations

from typing import Any

import pytest
from agent_file import read_agent

from retinue.agents.frontmatter import MAX_BLOCK_CHARACTERS, MAX_KEYS
from retinue.agents.parse import parse


def claude(text: str | bytes) -> Any:
    return read_agent(text, ".claude/agents/file.md")


def head(*lines: str, body: str = "Body.") -> str:
    return "\n".join(["---", "name: x", *lines, "---", body]) + "\n"


def codes(parsed: Any) -> list[str]:
    return [problem.code for problem in parsed.problems]


def test_a_plain_file() -> None:
    parsed = claude(head("description: Does things.", "tools: Read, Grep", "model: sonnet"))
    assert parsed.error is None
    assert parsed.reading == "yaml"
    assert (parsed.name, parsed.description, parsed.tools, parsed.model) == (
        "x",
        "Does things.",
        ("Read", "Grep"),
        "sonnet",
    )
    assert parsed.prompt == "Body."
    assert parsed.problems == ()


def test_places_are_lines_of_the_file() -> None:
    parsed = claude(head("description: |", "  one", "  two", "tools:", "  - Read", "  - Grep", "model: opus"))
    assert {key: (place.line, place.column, place.end_line) for key, place in parsed.places.items()} == {
        "name": (2, 1, 2),
        "description": (3, 1, 5),
        "tools": (6, 1, 8),
        "model": (9, 1, 9),
    }


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"], ids=["lf", "crlf", "cr"])
def test_every_newline_form_reads_the_same(newline: str) -> None:
    """Claude Code loses a CRLF file with an unquoted colon; that is not copied."""
    text = head("description: Use when: it breaks", "tools: Read", body="One\n\nTwo")
    parsed = claude(text.replace("\n", newline))
    assert parsed.error is None
    assert parsed.description == "Use when: it breaks"
    assert parsed.prompt == "One\n\nTwo"


def test_mixed_newlines() -> None:
    parsed = claude(b"---\r\nname: x\ndescription: d\r\n---\nOne\r\nTwo\rThree\n")
    assert (parsed.name, parsed.prompt) == ("x", "One\nTwo\nThree")


def test_a_byte_order_mark_is_not_part_of_the_file() -> None:
    parsed = claude(b"\xef\xbb\xbf" + head("description: d").encode())
    assert (parsed.name, parsed.error) == ("x", None)


def test_utf16_is_read_and_reported() -> None:
    parsed = claude(head("description: Prüft").encode("utf-16"))
    assert (parsed.name, parsed.description) == ("x", "Prüft")
    assert codes(parsed) == ["not-utf8"]


def test_latin1_is_read_and_reported_with_its_line() -> None:
    parsed = claude(head("description: Prüft").encode("latin-1"))
    assert parsed.description == "Prüft"
    assert [(problem.code, problem.line) for problem in parsed.problems] == [("not-utf8", 3)]


@pytest.mark.parametrize("data", [b"---\nname: x\x00\n---\n", b"\x7fELF\x00\x01", b"\x89PNG\r\n\x1a\n\x00"])
def test_binary_files_are_refused(data: bytes) -> None:
    parsed = claude(data)
    assert parsed.spec is None
    assert parsed.error is not None
    assert parsed.error.code == "binary"


def test_unquoted_colons_are_recovered_by_quoting() -> None:
    parsed = claude(head("description: Use this agent when: a test fails. Examples: none", "tools: Read, Bash"))
    assert parsed.reading == "quoted"
    assert parsed.description == "Use this agent when: a test fails. Examples: none"
    assert parsed.tools == ("Read", "Bash")
    problem = parsed.problems[0]
    assert (problem.code, problem.severity, problem.line) == ("frontmatter-recovered", "warning", 3)


def test_quoting_keeps_backslashes_and_quotes_as_they_are() -> None:
    parsed = claude(head('description: Say "hi": first\\n<example>\\nuser: "x"\\n</example>'))
    assert parsed.description == 'Say "hi": first\\n<example>\\nuser: "x"\\n</example>'


def test_quoting_leaves_valid_lines_and_blocks_alone() -> None:
    lines = (
        "description: A: b",
        "color: blue # not red",
        "tools:",
        "  - Read",
        "  - Bash(git log: x)",
        'model: "opus"',
    )
    parsed = claude(head(*lines))
    assert parsed.reading == "quoted"
    assert parsed.tools == ("Read", "Bash(git log: x)")
    assert parsed.model == "opus"
    assert parsed.spec is not None
    assert parsed.spec.color == "blue"


def test_literal_backslash_n_stays_two_characters_unquoted_and_is_a_newline_in_double_quotes() -> None:
    assert claude(head("description: a\\nb")).description == "a\\nb"
    assert claude(head('description: "a\\nb"')).description == "a\nb"


@pytest.mark.parametrize(
    ("value", "meaning"),
    [("*", ["*"]), ("{{tools}}", []), ("@all", ["@all"]), ("%x", ["%x"])],
)
def test_values_that_no_yaml_can_begin_with(value: str, meaning: list[str]) -> None:
    parsed = claude(head("description: d", f"tools: {value}"))
    assert parsed.reading == "quoted"
    assert list(parsed.tools or ()) == meaning


def test_an_unindented_description_is_read_line_by_line() -> None:
    parsed = claude(
        head(
            "description: Use it for reports. Examples:",
            "<example>",
            "Context: the user asks",
            'user: "make one"',
            "</example>",
            "tools: Read, Write",
            "model: haiku",
        )
    )
    assert parsed.reading == "lines"
    assert parsed.error is None
    assert parsed.description is not None
    assert parsed.description.startswith("Use it for reports.")
    assert parsed.description.endswith("</example>")
    assert (parsed.tools, parsed.model) == (("Read", "Write"), "haiku")
    assert codes(parsed) == ["frontmatter-recovered"]


def test_line_by_line_still_understands_lists_and_nested_values() -> None:
    parsed = claude(
        head("description: First line", "second, not indented", "tools:", "  - Read", "  - Grep", "skills: [a, b]")
    )
    assert parsed.reading == "lines"
    assert parsed.tools == ("Read", "Grep")
    assert parsed.spec is not None
    assert parsed.spec.skills == ("a", "b")


def test_no_space_after_the_colon() -> None:
    parsed = claude("---\nname:x\ndescription: d\ntools:Read\n---\nBody\n")
    assert (parsed.name, parsed.tools, parsed.reading) == ("x", ("Read",), "lines")


def test_tabs() -> None:
    parsed = claude("---\nname:\tx\ndescription:\td\ntools:\tRead,\tGrep\n---\nBody\n")
    assert (parsed.name, parsed.tools) == ("x", ("Read", "Grep"))
    indented = claude("---\nname: x\ndescription: d\ntools:\n\t- Read\n\t- Grep\n---\n")
    assert (indented.tools, indented.reading) == (("Read", "Grep"), "lines")


def test_indented_keys() -> None:
    parsed = claude("---\n  name: x\n  description: a: b\n  tools: Read\n---\n")
    assert (parsed.name, parsed.tools) == ("x", ("Read",))


@pytest.mark.parametrize("fence", ["---", "--- ", "---\t"])
def test_fences_may_have_trailing_blanks(fence: str) -> None:
    parsed = claude(f"{fence}\nname: x\ndescription: d\n{fence}\nBody\n")
    assert (parsed.name, parsed.prompt) == ("x", "Body")


@pytest.mark.parametrize("close", ["----", "--- x", "...", "-- -", " ---"])
def test_a_block_closes_only_at_exactly_three_hyphens(close: str) -> None:
    parsed = claude(f"---\nname: x\ndescription: d\n{close}\nBody\n")
    assert parsed.error is not None
    assert parsed.error.code == "frontmatter-unclosed"
    assert parsed.name is None


def test_rules_and_a_second_block_belong_to_the_body() -> None:
    parsed = claude(head("description: d", body="One\n\n---\n\nname: y\n---\nTwo"))
    assert parsed.name == "x"
    assert parsed.prompt == "One\n\n---\n\nname: y\n---\nTwo"


def test_a_closing_fence_at_the_end_of_the_file() -> None:
    parsed = claude("---\nname: x\ndescription: d\n---")
    assert (parsed.name, parsed.prompt, parsed.error) == ("x", "", None)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("\n---\nname: x\n---\n", "frontmatter-not-first"),
        ("<!-- note -->\n---\nname: x\n---\n", "frontmatter-not-first"),
        ("    ---\n    name: x\n    ---\n", "frontmatter-not-first"),
        ('name: "x"\ndescription: d\n\nBody\n', "frontmatter-unfenced"),
        ("---\nname: x\ndescription: d\n", "frontmatter-unclosed"),
        ("---\n", "frontmatter-unclosed"),
        ("---\nname = 'toml'\n---\n", "frontmatter-unreadable"),
        ("---\n- a\n- b\n---\n", "frontmatter-unreadable"),
    ],
)
@pytest.mark.parametrize("dialect", ["claude", "pi", "gemini"])
def test_frontmatter_that_was_meant_but_does_not_count_never_becomes_an_agent_without_limits(
    text: str, code: str, dialect: str
) -> None:
    parsed = parse(text.encode(), path="agents/x.md", dialect=dialect)  # type: ignore[arg-type]
    assert parsed.spec is None
    assert parsed.error is not None
    assert parsed.error.code == code
    assert parsed.error.line is not None


def test_duplicate_keys_are_reported_with_both_lines() -> None:
    parsed = claude(head("description: one", "description: two"))
    assert parsed.description == "two"
    problem = parsed.problems[0]
    assert (problem.code, problem.line) == ("duplicate-key", 4)
    assert "line 3" in problem.message


def test_comments_and_blank_lines_in_frontmatter() -> None:
    parsed = claude(head("", "# a comment", "description: d # why", "", "tools: Read, Grep  # both"))
    assert (parsed.description, parsed.tools) == ("d", ("Read", "Grep"))


def test_folded_and_literal_blocks() -> None:
    folded = claude(head("description: >", "  One", "  two.", "", "  Three."))
    assert folded.description == "One two.\nThree."
    assert claude(head("description: |-", "  One", "    two", "  three")).description == "One\n  two\nthree"


def test_string_fields_keep_their_source_text() -> None:
    parsed = claude("---\nname: 007\ndescription: 1.10\nmodel: 2025-01-01\ncolor: Yes\nversion: 1.10\n---\n")
    assert (parsed.name, parsed.description, parsed.model) == ("007", "1.10", "2025-01-01")
    assert parsed.spec is not None
    assert parsed.spec.color == "Yes"
    assert parsed.spec.extra == {"version": "1.10"}
    assert claude("---\nname: True\ndescription: d\n---\n").name == "True"


def test_non_ascii_and_emoji() -> None:
    parsed = claude("---\nname: 審査\ndescription: 🔍 Prüft „alles“\ntools: Read\n---\nBody 🚀\n")
    assert (parsed.name, parsed.description, parsed.prompt) == ("審査", "🔍 Prüft „alles“", "Body 🚀")


def test_frontmatter_has_a_size_and_a_number_of_keys() -> None:
    long = claude(head("description: d", "x: " + "y" * MAX_BLOCK_CHARACTERS))
    assert long.error is not None
    assert long.error.code == "frontmatter-too-large"
    many = claude(head("description: d", *(f"k{number}: 1" for number in range(MAX_KEYS))))
    assert many.error is not None
    assert many.error.code == "frontmatter-too-large"


@pytest.mark.parametrize(
    "lines",
    [
        ("tools:", "- Read", "- Bash(git log: *)"),
        ("tools:", "  - Read", "  - Bash(git log: *)"),
        ("tools:", "\t- Read", "  - Grep"),
        ("tools:", "Read, Grep"),
        ("tools:", "  Read: [", "  Grep"),
        ("tools: Read,", "  Grep: x: y"),
        ("tools: {a: [}",),
        ("tools: [Read, Grep",),
        ('tools: "Read, Grep',),
    ],
)
def test_a_tool_list_that_cannot_be_read_as_yaml_still_limits(lines: tuple[str, ...]) -> None:
    parsed = claude(head("description: d", *lines))
    assert parsed.tools is not None
    assert parsed.spec is not None
    assert parsed.spec.tools.allow is not None
    assert parsed.problems


def test_broken_frontmatter_with_very_many_lines_ends() -> None:
    parsed = claude(head("description: d", "tools: Read", *("a:b: [" for _ in range(20_000))))
    assert parsed.tools is None or parsed.tools == ("Read",)
    keys = claude(head("description: d", *(f"k{number}: a: b: [" for number in range(5_000))))
    assert keys.error is not None


def test_an_empty_file_and_an_empty_block() -> None:
    assert claude("").error is not None
    empty = read_agent("---\n\n---\nContent\n", ".pi/agents/x.md")
    assert empty.spec is not None
    assert (empty.spec.name, empty.prompt) == ("x", "Content")
