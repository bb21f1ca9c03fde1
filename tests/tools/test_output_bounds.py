"""Bounding and cleaning text: never inside a character, never without a count."""

import re

from hypothesis import given
from hypothesis import strategies as st

from retinue.core.format import format_bytes
from retinue.tools.content import Capture, StreamCleaner, clean, head_and_tail, line_count


def test_sizes_have_one_decimal():
    assert [format_bytes(n) for n in (0, 512, 1024, 1536, 204800, 5 * 1024 * 1024)] == [
        "0B",
        "512B",
        "1.0KB",
        "1.5KB",
        "200.0KB",
        "5.0MB",
    ]


def test_head_and_tail_count_the_gap_and_tell_the_way():
    text = "\n".join(f"line {n}" for n in range(1000))
    result = head_and_tail(text, 500, "see FILE")
    assert result.startswith("line 0\nline 1\n")
    assert result.endswith("line 998\nline 999")
    assert "1,000 lines in all" in result
    assert "see FILE" in result
    assert len(result) < 650


@given(st.text(alphabet="ab\n", max_size=300), st.integers(10, 200))
def test_head_and_tail_are_parts_of_the_text(text, most):
    result = head_and_tail(text, most, "")
    if len(text) <= most:
        assert result == text
    else:
        head, _, tail = re.split(r"\n\n(\[\.\.\. .* \.\.\.\])\n\n", result, maxsplit=1)
        assert text.startswith(head)
        assert text.endswith(tail)


def test_lines_are_counted_as_editors_do():
    assert [line_count(text) for text in ("", "a", "a\n", "a\nb", "\n")] == [0, 1, 1, 2, 1]


def test_cleaning():
    assert clean("\x1b[1;31mred\x1b[0m \x1b]0;title\x07x\x1b]8;;http://a\x1b\\link\x1b]8;;\x1b\\") == "red xlink"
    assert clean("10%\r20%\r30%\ndone\r\n") == "30%\ndone\n"
    assert clean("b\bbo\bol\bld tab\there\x00\x7f\x9b2K") == "bold tab\there"
    assert clean("plain é 日本\n") == "plain é 日本\n"


@given(st.text(max_size=60))
def test_cleaned_text_has_no_controls_and_stays_clean(text):
    once = clean(text)
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", once)
    assert clean(once) == once


LINES = st.lists(st.sampled_from(["plain", "é日😀", "\x1b[31mred\x1b[0m", "1%\r2%\r3%", ""]), max_size=12)


@given(LINES, st.integers(1, 7))
def test_cleaning_in_pieces_gives_the_same_as_at_once(lines, size):
    data = "\n".join(lines).encode()
    cleaner = StreamCleaner()
    pieces = [cleaner.feed(data[start : start + size]) for start in range(0, len(data), size)]
    assert "".join(pieces) + cleaner.feed(b"", final=True) == clean(data.decode())


def test_cleaning_takes_time_in_proportion_to_the_text():
    """Each of these took minutes with a pattern that looks back."""
    for text in ("x" * 200_000 + "\r\ny", "\b" * 200_000, "\x1b]" * 100_000, "\x1bP" * 100_000, "\r" * 200_000):
        assert len(clean(text)) <= 200_002


def test_an_endless_progress_bar_takes_bounded_memory():
    cleaner = StreamCleaner()
    for number in range(20_000):
        cleaner.feed(b"\r%d%% of a long job, still going" % number)
    assert len(cleaner._held) <= StreamCleaner.MAX_HELD_CHARACTERS + 100
    assert cleaner.feed(b"", final=True) == "19999% of a long job, still going"


def test_what_fits_is_not_written_to_disk(tmp_path):
    capture = Capture(tmp_path / "out", "x")
    capture.feed(b"small\n")
    assert capture.text() == "small\n"
    assert not (tmp_path / "out").exists()
