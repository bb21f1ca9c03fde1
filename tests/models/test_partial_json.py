"""Arguments as models write them: one reading or none."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from retinue.models.draft import parse_arguments, parse_event
from tests.models.scripts import RELAXED


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        ("", {}),
        ("  \n", {}),
        ("null", {}),
        ("{}", {}),
        (' {"a": 1}\n', {"a": 1}),
        ('{"a": "line\nbreak\tand tab"}', {"a": "line\nbreak\tand tab"}),
        ('"{\\"a\\": 1}"', {"a": 1}),
        ('{"a": "\\ud83d\\ude00"}', {"a": "😀"}),
    ],
)
def test_what_has_one_reading_is_read(raw: str, value: dict[str, Any]) -> None:
    assert parse_arguments(raw) == (value, None)


@pytest.mark.parametrize(
    "raw",
    [
        '{"a": 1',
        '{"a": "cut',
        '{"a": 1} and more',
        '{"a": 1}{"b": 2}',
        '{}{"a": 1}',
        "[1, 2]",
        "42",
        '"text"',
        "true",
        "{a: 1}",
        "{'a': 1}",
        '{"a": NaN}',
        '{"a": 1,}',
        "```json\n{}\n```",
        "[" * 5000,
        '{"a":' * 3000,
    ],
)
def test_what_has_none_is_broken_and_kept(raw: str) -> None:
    assert parse_arguments(raw) == ({}, raw)


NUMBERS = st.floats(allow_nan=False, allow_infinity=False)


@RELAXED
@given(st.text())
def test_any_text_is_either_an_object_that_can_be_written_again_or_broken(raw: str) -> None:
    arguments, broken = parse_arguments(raw)
    assert isinstance(arguments, dict) and broken in (None, raw)
    orjson.dumps(arguments)


@RELAXED
@given(
    st.dictionaries(
        st.text(), st.recursive(st.none() | st.text() | st.floats(allow_nan=False, allow_infinity=False), st.lists)
    )
)
def test_every_object_is_read_as_it_is(value: dict[str, Any]) -> None:
    assert parse_arguments(json.dumps(value)) == (json.loads(json.dumps(value)), None)


@RELAXED
@given(st.binary())
def test_any_bytes_are_json_or_a_value_error(data: bytes) -> None:
    with contextlib.suppress(ValueError):
        orjson.dumps(parse_event(data))


def test_bad_utf8_and_lone_surrogates_become_replacement_characters() -> None:
    assert parse_event(b'{"text": "a\xff\xfeb"}') == {"text": "a\ufffd\ufffdb"}
    assert parse_event(b'{"text": "\\ud83d"}')["text"] in ("\ufffd", "?")
