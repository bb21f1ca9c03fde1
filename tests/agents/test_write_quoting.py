"""Values written by us come back the same from every YAML reader, and from a naive one."""

from __future__ import annotations

import math
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from retinue.agents import write as quoting

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
WORDS = "yes no null ~ 123 1.10 2025-01-01 1e3 0x1f 1_000 12:30 .inf NaN Infinity - -- --- ... [a] {a} a,b x: #y"
ODD = ["a: b", "a #b", " a", "a ", "", "\n", "a\nb", "a\rb", "\t", '"a"', "'a'", "\u2028", "\ufeff", "😀", "漢字"]
AWKWARD = st.sampled_from([*WORDS.split(" "), *ODD])
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXT | AWKWARD
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT | AWKWARD, inner, max_size=3),
    max_leaves=8,
)


def lines(data: dict[str, Any]) -> str:
    return "".join(line + "\n" for key, value in data.items() for line in quoting.entry(key, value))


@given(st.dictionaries(TEXT | AWKWARD, VALUES, max_size=4))
def test_every_value_survives_in_block_flow_and_json_form(data: dict[str, Any]) -> None:
    for text in (lines(data), quoting.flow(data), quoting.json_flow(data)):
        for loader in (yaml.SafeLoader, yaml.CSafeLoader):
            assert (yaml.load(text, loader) or {}) == data
    assert "\n" not in quoting.flow(data) + quoting.json_flow(data)


@given(TEXT | AWKWARD)
def test_plain_text_means_the_same_to_a_reader_that_splits_at_the_first_colon(text: str) -> None:
    if quoting.is_plain(text):
        key, _, value = f"key: {text}".partition(":")
        assert (key, value.strip()) == ("key", text)
        assert yaml.load(f"key: {text}", yaml.BaseLoader) == yaml.safe_load(f"key: {text}") == {"key": text}


@pytest.mark.parametrize("word", ["No", "on", "Null", "y", "1.10", "0755", "2025-01-01", "12:30:45", "1e3", "NaN", "="])
def test_words_that_readers_take_for_something_else_are_quoted(word: str) -> None:
    assert quoting.scalar(word) == f'"{word}"'


def test_ordinary_text_is_left_readable() -> None:
    text = "Use this agent (proactively) when code changed, e.g. anthropic/claude:fast, don't wait"
    assert quoting.scalar(text) == text


def test_half_a_surrogate_pair_is_replaced_because_no_file_can_hold_it() -> None:
    assert quoting.quote("a\ud800b").encode() == '"a\ufffdb"'.encode()


def test_numbers_without_a_finite_form_have_yaml_words() -> None:
    assert yaml.safe_load(quoting.scalar(math.inf)) == math.inf
    assert math.isnan(yaml.safe_load(quoting.scalar(math.nan)))


def test_a_key_of_two_thousand_characters_is_still_a_key() -> None:
    data = {"k" * 2000: {"a": 1}, "b" * 1500: "x"}
    assert yaml.safe_load(lines(data)) == data


def test_a_long_key_survives_on_one_line_too() -> None:
    data = {"k" * 2000: {"a b" * 900: [1]}, "b": 2}
    for text in (quoting.flow(data), quoting.json_flow(data)):
        assert yaml.safe_load(text) == yaml.load(text, yaml.CSafeLoader) == data
