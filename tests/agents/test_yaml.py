"""The YAML reader: values without surprises, bounded, and its shortcut equal to the parser."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from retinue.agents.yaml_reader import MAX_NESTING, YamlError, load_mapping, load_plain, plain


def values(block: str) -> dict[str, Any]:
    return {item.key: item.value for item in load_mapping(block)}


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("true", True),
        ("False", False),
        ("TRUE", True),
        ("yes", "yes"),
        ("no", "no"),
        ("on", "on"),
        ("off", "off"),
        ("y", "y"),
        ("null", None),
        ("~", None),
        ("", None),
        ("5", 5),
        ("-3", -3),
        ("0.5", 0.5),
        ("1.10", "1.10"),
        ("007", "007"),
        ("0x1F", "0x1F"),
        ("0o17", "0o17"),
        ("1_000", "1_000"),
        ("1e3", "1e3"),
        ("+5", "+5"),
        (".inf", ".inf"),
        ("12:30:45", "12:30:45"),
        ("2025-01-01", "2025-01-01"),
        ("99999999999999999999999", "99999999999999999999999"),
    ],
)
def test_plain_scalars_become_typed_only_when_nothing_is_lost(text: str, meaning: Any) -> None:
    assert plain(text) == meaning
    assert type(plain(text)) is type(meaning)
    assert values(f"key: {text}\n") == {"key": meaning}


def test_quoted_scalars_stay_text_and_keep_their_escapes() -> None:
    assert values("a: \"5\"\nb: 'true'\nc: \"x\\ny\"\nd: 'x\\ny'\n") == {
        "a": "5",
        "b": "true",
        "c": "x\ny",
        "d": "x\\ny",
    }


def test_the_source_text_of_typed_scalars_is_kept() -> None:
    assert [item.text for item in load_mapping("a: TRUE\nb: 5\nc: word\nd:\n")] == ["TRUE", "5", None, ""]


def test_repeated_keys_are_all_there() -> None:
    assert [(item.key, item.value) for item in load_mapping("a: 1\nb: 2\na: 3\n")] == [
        ("a", 1),
        ("b", 2),
        ("a", 3),
    ]


def test_merge_keys_fill_what_the_mapping_does_not_say() -> None:
    assert values("base: &b {x: 1, y: 2}\n<<: *b\ny: 3\n") == {"base": {"x": 1, "y": 2}, "y": 3, "x": 1}


def test_a_block_that_is_empty_or_only_comments_is_an_empty_mapping() -> None:
    assert values("") == values("# nothing\n") == values("\n\n") == {}


@pytest.mark.parametrize(
    "block",
    [
        "just text",
        "- a\n- b",
        "[a]: 1",
        "a: {{placeholder}}",
        "a: *missing",
        "tools: *",
        "a: 1\n---\nb: 2",
        "a: !!python/name:os.system x",
        "a: !custom x",
        "a: \x07",
        'a: "\\ud800"',
        "a: [",
    ],
)
def test_what_is_not_a_plain_mapping_is_refused_with_a_reason(block: str) -> None:
    with pytest.raises(YamlError) as caught:
        load_mapping(block)
    assert caught.value.reason


@pytest.mark.parametrize(
    "block",
    [
        "a: " + "[" * 100_000,
        "a: " + "[" * 30_000 + "]" * 30_000,
        "a:\n" + "  - " + "- " * 20_000,
        "a: " + "{x: " * 20_000,
        "? " * 20_000,
        "a: &a [x, x, x, x, x, x, x, x, x]\n"
        + "".join(f"b{n}: &b{n} [{', '.join([f'*b{n - 1}' if n else '*a'] * 9)}]\n" for n in range(9)),
    ],
    ids=["open", "closed", "dashes", "maps", "question marks", "aliases"],
)
def test_deep_and_exploding_documents_are_refused_at_once(block: str) -> None:
    with pytest.raises(YamlError):
        load_mapping(block)


def test_an_alias_that_contains_itself_ends() -> None:
    assert values("a: &x [*x, y]\n") == {"a": [[], "y"]}


def test_nesting_within_the_bound_is_read() -> None:
    depth = MAX_NESTING - 1
    value = values("a: " + "[" * depth + "]" * depth)["a"]
    for _ in range(depth - 1):
        (value,) = value
    assert value == []


WORDS = st.sampled_from(
    [
        "Read", "a b", "x: y", "x:", "# c", "a # c", "a#b", "'q'", '"q"', '"a\\nb"', '"a\\tb"', "'it''s'", "[a, b]",
        "[a,b,]", "[]", "['x', \"y\"]", "{a: b}", "|", ">", "|-", ">-", "|+", ">2", "- x", "-", "5", "1.0", "0.50",
        "true", "No", "~", "null", "é", "日本", "*", "&a", "!x", "%", "@", "`", "?", ": ", "mcp__a__b", "a,b",
        "Bash(git:*)", "<x>", "…", "\t", "a\tb", "\u2028", "\xa0", "---", "...", "a  b", "=", "<<", "http://x",
    ]
)  # fmt: skip
LINES = st.one_of(
    st.builds("{}: {}".format, st.sampled_from(["name", "tools", "a-b", "x y", "1", "<<", "'k'", "#"]), WORDS),
    st.builds("{}:{}".format, st.sampled_from(["name", "tools"]), WORDS),
    st.builds("{}{}".format, st.sampled_from(["", " ", "  ", "   ", "    ", "\t"]), WORDS),
    st.builds("{}- {}".format, st.sampled_from(["", " ", "  ", "    "]), WORDS),
    st.sampled_from(["", " ", "tools:", "description: >", "description: |", "d: |-", "d: >-"]),
)


@settings(max_examples=1500)
@given(st.lists(LINES, max_size=7).map("\n".join), st.booleans())
@example("tools:\n - Read\n\nname: Read", False)
def test_the_short_way_agrees_with_the_full_parser(block: str, newline: bool) -> None:
    """Whatever the short way accepts, it reads as YAML does, places included."""
    block += "\n" if newline else ""
    short = load_plain(block)
    if short is not None:
        assert short == load_mapping(block)


@settings(max_examples=500)
@given(st.text(max_size=60))
def test_any_text_is_read_or_refused(block: str) -> None:
    try:
        full = load_mapping(block)
    except YamlError:
        assert load_plain(block) is None
    else:
        assert load_plain(block) in (None, full)
