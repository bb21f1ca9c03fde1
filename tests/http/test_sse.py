"""Server-sent events: the payloads do not depend on how the bytes were cut."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st
from tests.models.scripts import RELAXED

from retinue.http.transport import Events


def payloads(*pieces: bytes) -> list[bytes]:
    events = Events()
    found = [payload for piece in pieces for payload in events.feed(piece)]
    return found + events.finish()


def cut(data: bytes, places: Sequence[int]) -> list[bytes]:
    edges = sorted({min(place, len(data)) for place in places} | {0, len(data)})
    return [data[a:b] for a, b in pairwise(edges)]


def test_names_comments_ids_and_unknown_fields_are_passed_over() -> None:
    stream = b": ping\n\nevent: a\nid: 7\nretry: 10\ndata: 1\n\n:\n\ndata:2\n\nwhat: x\n\ndata\n\n"
    assert payloads(stream) == [b"1", b"2"]


def test_lines_of_data_are_joined() -> None:
    assert payloads(b"data: {\ndata:  1}\n\n") == [b"{\n 1}"]


def test_line_ends_of_every_kind_and_a_byte_order_mark() -> None:
    for end in (b"\n", b"\r\n", b"\r"):
        stream = end.join([b"\xef\xbb\xbfdata: 1", b"", b": x", b"data: 2", b"", b""])
        assert payloads(stream) == [b"1", b"2"]


def test_an_event_at_the_end_needs_no_empty_line() -> None:
    assert payloads(b"data: 1\n\ndata: 2") == [b"1", b"2"]
    assert payloads(b"data: 1\n\ndata: 2\n") == [b"1", b"2"]
    assert payloads(b"") == []


@RELAXED
@given(
    st.lists(st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\r\n"), max_size=20), max_size=6),
    st.sampled_from([b"\n", b"\r\n", b"\r"]),
    st.lists(st.integers(0, 300), max_size=30),
)
def test_cutting_never_changes_the_payloads(texts: list[str], end: bytes, places: list[int]) -> None:
    stream = b"".join(b"event: x" + end + b"data: " + text.encode() + end + b": c" + end + end for text in texts)
    expected = [text.encode() for text in texts]
    assert payloads(stream) == expected
    assert payloads(*cut(stream, places)) == expected
    assert payloads(*(stream[i : i + 1] for i in range(len(stream)))) == expected


@RELAXED
@given(st.binary(max_size=200), st.lists(st.integers(0, 200), max_size=20))
def test_cutting_never_changes_garbage_either(data: bytes, places: list[int]) -> None:
    assert payloads(*cut(data, places)) == payloads(data)
