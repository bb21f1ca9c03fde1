"""RunNames of runs and mentions: cases J20, Y02, Y03, Y04."""

import pytest

from retinue.runs.record import Mention, RunNames, assign, parse_mention, slug, without_prefix


@pytest.mark.parametrize(
    ("name", "taken", "expected"),
    [
        ("x", (), "x"),
        ("x", ("x",), "x-2"),
        ("x", ("x", "x-2"), "x-3"),
        ("x", ("x", "x-3"), "x-2"),
        ("main", (), "main-2"),
        ("Code Reviewer!", (), "code-reviewer"),
        ("日本", (), "agent"),
        ("a" * 80, ("a" * 64,), "a" * 62 + "-2"),
    ],
)
def test_a_handle_is_the_slug_with_the_lowest_free_number(name, taken, expected):
    assert assign(name, taken) == expected
    assert len(expected) <= 64


def test_names_go_on_counting_whatever_was_added_in_between():
    names, given = RunNames(), []
    for name in ("x", "X!", "x", "y-2", "y", "y", "x", "a" * 80, "a" * 80, "a" * 80):
        given.append(names.free(name))
        names.add(given[-1])
    assert given == ["x", "x-2", "x-3", "y-2", "y", "y-3", "x-4", "a" * 64, "a" * 62 + "-2", "a" * 62 + "-3"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("@explore check it", Mention("explore", "check it")),
        ("@Explore   check it  ", Mention("explore", "check it")),
        ("@explore\ncheck\nit", Mention("explore", "check\nit")),
        ("@explore", None),
        ("@explore   ", None),
        ("@src/index.ts look", None),
        ("@README.md look", None),
        ("ask @explore something", None),
        (" @explore look", None),
    ],
)
def test_only_a_handle_at_the_very_start_with_a_message_is_a_mention(text, expected):
    assert parse_mention(text) == expected


@pytest.mark.parametrize(
    ("handle", "expected"),
    [
        ("agent-explore", "explore"),
        ("agent-agent-foo", "agent-foo"),
        ("agent-", None),
        ("agentexplore", None),
        ("sub-agent-x", None),
    ],
)
def test_the_agent_prefix_is_a_synonym(handle, expected):
    assert without_prefix(handle) == expected


def test_names_that_cannot_be_typed_are_slugged():
    assert slug("  Ünïcode & spaces  ") == "n-code-spaces"
