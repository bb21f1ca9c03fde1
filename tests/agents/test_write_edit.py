"""Line edits leave every other byte alone."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retinue.agents.edit import FileLines, rename, write_atomically

SAMPLE = b"""---
name: x # c
"desc": >
  folded
   # still text

# a comment
tools:
- a   # one
# inside
- b

# between
b: [a,
 c]
c:
e:
  f:
    - |
      # text
  # comment
# last
---
body
"""


def spans(data: bytes) -> list[tuple[str, int, int]]:
    return [(entry.key, entry.line - 1, entry.end_line - 1) for entry in FileLines.read(data).entries()]


def test_entries_end_where_their_values_end_and_comments_after_them_are_nobody_s() -> None:
    assert spans(SAMPLE) == [
        ("name", 1, 1),
        ("desc", 2, 4),
        ("tools", 7, 10),
        ("b", 13, 14),
        ("c", 15, 15),
        ("e", 16, 19),
    ]


def test_entries_of_a_block_that_is_no_yaml_are_found_by_lines() -> None:
    data = b'---\r\nname: x: y\r\n"de": >\r\n  foo\r\n\r\n# c\r\nfoo bar : x\r\nz:\r\n---\r\n'
    assert spans(data) == [("name", 1, 1), ("de", 2, 3), ("foo bar", 6, 6), ("z", 7, 7)]


def test_duplicate_keys_are_all_listed() -> None:
    assert spans(b"---\na: 1\na: 2\n---\n") == [("a", 1, 1), ("a", 2, 2)]


def test_line_separators_that_only_yaml_counts_do_not_shift_lines() -> None:
    assert spans("---\na: x\u2028y\x85z\nb: 2\n---\n".encode()) == [("a", 1, 1), ("b", 2, 2)]


@given(st.binary(max_size=300) | st.binary(max_size=200).map(lambda data: b"---\n" + data + b"\n---\n"))
def test_any_bytes_survive_reading_and_have_entries_within_the_fences(data: bytes) -> None:
    text = FileLines.read(data)
    assert text.encode() == data
    for entry in text.entries():
        assert 1 < entry.line <= entry.end_line < (text.close or 0)


def test_rename_touches_the_key_only() -> None:
    text = FileLines.read(b'\xef\xbb\xbf---\r\n"Tools" : a # keep\r\nname: b\n---\r\nbody')
    new = rename(text, text.entries()[0], "tools")
    assert new.encode() == b"\xef\xbb\xbf---\r\ntools : a # keep\r\nname: b\n---\r\nbody"


def test_writing_keeps_mode_follows_links_and_leaves_no_spare_files(tmp_path: Path) -> None:
    real = tmp_path / "real.md"
    real.write_text("old")
    real.chmod(0o640)
    link = tmp_path / "link.md"
    link.symlink_to(real)
    write_atomically(link, b"new")
    assert link.is_symlink()
    assert real.read_bytes() == b"new"
    assert stat.S_IMODE(real.stat().st_mode) == 0o640
    assert sorted(os.listdir(tmp_path)) == ["link.md", "real.md"]


def test_exclusive_writing_never_replaces(tmp_path: Path) -> None:
    target = tmp_path / "deep" / "a.md"
    write_atomically(target, b"1", exclusive=True)
    with pytest.raises(FileExistsError):
        write_atomically(target, b"2", exclusive=True)
    assert target.read_bytes() == b"1"
    assert os.listdir(target.parent) == ["a.md"]


@pytest.mark.parametrize(
    "block",
    [
        "a: " + "[" * 100_000,
        "a: " + "{a: " * 50_000,
        "a:\n  " + "- " * 50_000 + "x",
        "b: c: d\nx" + " " * 100_000,
        "b: c: d\n" + "x: " * 50_000,
        "b: c: d\n'" + "a" * 100_000,
    ],
)
def test_hostile_blocks_are_read_in_no_time_and_without_stack(block: str) -> None:
    keys = [entry.key for entry in FileLines.read(f"---\n{block}\n---\n".encode()).entries()]
    assert keys[0] in ("a", "b")
