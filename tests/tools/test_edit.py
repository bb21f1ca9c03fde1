"""edit: exact, unique, all or nothing, and faithful to how the file is written."""

from hashlib import sha256

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retinue.testing import ToolBench
from retinue.tools.base import ToolError
from retinue.tools.content import Edit, apply, forms_of
from retinue.tools.edit import short_diff, unified_diff


async def test_one_edit_changes_one_place_and_returns_a_diff(use, root):
    (root / "a.py").write_text("a = 1\nb = 2\nc = 3\n")
    result = await use("edit", path="a.py", edits=[{"old": "b = 2", "new": "b = 20"}])
    assert (root / "a.py").read_text() == "a = 1\nb = 20\nc = 3\n"
    assert "-b = 2\n+b = 20" in result.text
    (touched,) = result.effect.writes
    assert touched.before == sha256(b"a = 1\nb = 2\nc = 3\n").hexdigest()
    assert touched.after == sha256(b"a = 1\nb = 20\nc = 3\n").hexdigest()


@pytest.mark.parametrize(
    "form",
    [
        {"old_string": "b", "new_string": "B"},
        {"old": "b", "new": "B"},
        {"oldText": "b", "newText": "B"},
        {"old_str": "b", "new_str": "B", "replace_all": "false"},
        {"edits": {"old_string": "b", "new_string": "B"}},
        {"edits": '[{"old": "b", "new": "B"}]'},
    ],
)
async def test_every_spelling_of_an_edit_is_taken(use, root, form):
    (root / "a").write_text("abc")
    assert not (await use("edit", file_path="a", **form)).is_error
    assert (root / "a").read_text() == "aBc"


async def test_edits_apply_in_order_each_to_what_the_last_one_left(use, root):
    (root / "a").write_text("one two")
    edits = [{"old": "one", "new": "two"}, {"old": "two two", "new": "three"}]
    assert not (await use("edit", path="a", edits=edits)).is_error
    assert (root / "a").read_text() == "three"


async def test_if_one_edit_fails_none_is_made(use, root):
    (root / "a").write_text("one two")
    edits = [{"old": "one", "new": "1"}, {"old": "three", "new": "3"}]
    result = await use("edit", path="a", edits=edits)
    assert result.is_error
    assert "Edit 2 of 2" in result.text
    assert "None of the edits was made" in result.text
    assert (root / "a").read_text() == "one two"


async def test_text_that_is_not_unique_names_the_lines(use, root):
    (root / "a").write_text("x\ny\nx\nz x\n")
    result = await use("edit", path="a", edits=[{"old": "x", "new": "w"}])
    assert result.is_error
    assert "lines 1, 3, 4" in result.text
    assert not (await use("edit", path="a", edits=[{"old": "x", "new": "w", "all": True}])).is_error
    assert (root / "a").read_text() == "w\ny\nw\nz w\n"


async def test_overlapping_places_are_not_unique(use, root):
    (root / "a").write_text("aaa")
    assert "not unique" in (await use("edit", path="a", old="aa", new="b")).text


async def test_a_whitespace_difference_is_shown(use, root):
    (root / "a.py").write_text("def f():\n\treturn 1\n")
    result = await use("edit", path="a.py", old="def f():\n    return 1", new="x")
    assert result.is_error
    assert "Lines 1-2 differ only in whitespace" in result.text
    assert "\treturn 1" in result.text


async def test_typographic_quotes_are_recognised(use, root):
    (root / "a").write_text('say "hello"\n')
    assert "differ only in" in (await use("edit", path="a", old="say “hello”", new="x")).text


async def test_the_nearest_line_is_named(use, root):
    (root / "a.py").write_text("import os\n\ndef load_settings(path):\n    pass\n")
    result = await use("edit", path="a.py", old="def load_setings(path):", new="x")
    assert "most similar line is 3" in result.text


async def test_line_numbers_copied_from_read_are_noticed(use, root):
    (root / "a").write_text("alpha\nbeta\n")
    assert "line numbers" in (await use("edit", path="a", old="1\talpha\n2\tbeta", new="x")).text


async def test_an_edit_that_was_made_before_is_noticed(use, root):
    (root / "a").write_text("new text\n")
    assert "already there" in (await use("edit", path="a", old="old text", new="new text")).text


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"edits": []},
        {"edits": "nonsense"},
        {"edits": [1]},
        {"old": "x"},
        {"old": "", "new": "y"},
        {"old": "x", "new": "x"},
        {"old": 1, "new": "x"},
        {"edits": [{"old": "x"}]},
    ],
)
async def test_wrong_arguments_say_what_to_send(use, root, arguments):
    (root / "a").write_text("x")
    result = await use("edit", path="a", **arguments)
    assert result.is_error
    assert "edit" in result.text
    assert (root / "a").read_text() == "x"


async def test_a_missing_file_points_to_write(use):
    assert "write" in (await use("edit", path="none", old="a", new="b")).text


async def test_a_file_that_changed_since_it_was_read_is_kept(use, root):
    (root / "a").write_text("one")
    await use("read", path="a")
    (root / "a").write_text("one more")
    result = await use("edit", path="a", old="one", new="two")
    assert "changed since" in result.text
    assert (root / "a").read_text() == "one more"


async def test_two_edits_in_a_row_need_no_reading_in_between(use, root):
    (root / "a").write_text("one two")
    assert not (await use("edit", path="a", old="one", new="1")).is_error
    assert not (await use("edit", path="a", old="two", new="2")).is_error
    assert (root / "a").read_text() == "1 2"


async def test_crlf_bom_and_missing_final_newline_stay(use, root):
    (root / "a").write_bytes(b"\xef\xbb\xbfone\r\ntwo\r\nthree")
    assert not (await use("edit", path="a", old="one\ntwo", new="1\n1.5\n2")).is_error
    assert (root / "a").read_bytes() == b"\xef\xbb\xbf1\r\n1.5\r\n2\r\nthree"


async def test_mixed_line_ends_are_left_as_they_are(use, root):
    (root / "a").write_bytes(b"one\r\ntwo\nthree\r\nfour\n")
    assert not (await use("edit", path="a", old="three\nfour", new="3\n4")).is_error
    assert not (await use("edit", path="a", old="two\n", new="2\n")).is_error
    assert (root / "a").read_bytes() == b"one\r\n2\n3\r\n4\n"


async def test_utf_16_and_latin_1_are_kept(use, root):
    (root / "wide").write_text("grüß\nwelt\n", encoding="utf-16")
    await use("edit", path="wide", old="welt", new="wörld")
    assert (root / "wide").read_text(encoding="utf-16") == "grüß\nwörld\n"
    (root / "latin").write_bytes("café ole\n".encode("latin-1"))
    await use("edit", path="latin", old="café", new="thé")
    assert (root / "latin").read_bytes() == "thé ole\n".encode("latin-1")
    assert "cannot hold" in (await use("edit", path="latin", old="thé", new="日")).text


async def test_utf_8_with_a_stray_byte_can_be_edited_as_utf_8(use, root):
    (root / "a").write_bytes("grüß".encode() + b" \xff end\n")
    assert not (await use("edit", path="a", old="grüß", new="hallö")).is_error
    assert (root / "a").read_bytes() == "hallö".encode() + b" \xff end\n"


async def test_binary_files_are_refused(use, root):
    (root / "a").write_bytes(b"a\0b")
    assert (await use("edit", path="a", old="a", new="b")).is_error


TEXT = st.text(alphabet="ab \n\tü", max_size=40)


@given(text=TEXT, old=TEXT.filter(bool), new=TEXT, every=st.booleans())
def test_an_edit_is_str_replace_or_a_reason(text, old, new, every):
    places = sum(text.startswith(old, start) for start in range(len(text)))
    try:
        result = apply(text, [Edit(old, new, every)], "a")
    except ToolError:
        assert places == 0 or (places > 1 and not every)
    else:
        assert result == text.replace(old, new)
        assert places == 1 or every


@given(text=TEXT, edits=st.lists(st.tuples(TEXT.filter(bool), TEXT), min_size=1, max_size=4))
@settings(max_examples=60, deadline=None)
async def test_crlf_files_are_edited_as_if_they_were_plain(tmp_path_factory, text, edits):
    root = tmp_path_factory.mktemp("crlf")
    bench = ToolBench(root)
    plain, wide = root / "plain", root / "wide"
    plain.write_bytes(text.encode())
    wide.write_bytes(text.replace("\n", "\r\n").encode())
    items = [{"old": old, "new": new, "all": True} for old, new in edits if old != new] or [{"old": "a", "new": "b"}]
    first = await bench.call("edit", path="plain", edits=items)
    second = await bench.call("edit", path="wide", edits=items)
    assert first.is_error == second.is_error
    if "\n" in text:
        assert wide.read_bytes() == plain.read_bytes().replace(b"\n", b"\r\n")


@given(st.binary(max_size=60))
def test_every_reading_of_bytes_writes_back_the_same_bytes(data):
    for form in forms_of(data):
        assert form.encode(form.decode(data)) == data


@given(TEXT, TEXT)
def test_a_diff_never_fails_and_is_empty_only_for_equal_texts(old, new):
    assert bool(short_diff(old, new)) == (old != new)


def test_a_diff_of_a_large_rewrite_is_short():
    old = "\n".join(f"old {n}" for n in range(50_000))
    new = "\n".join(f"new {n}" for n in range(40_000))
    assert short_diff(old, new) == "@@ line 1 @@ 50000 lines became 40000"


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("alpha\n", "beta\n", "@@ -1,1 +1,1 @@\n-alpha\n+beta"),
        ("a\nb\n", "a\nb", "@@ -1,3 +1,2 @@\n a\n b\n-"),
    ],
)
def test_a_diff_shows_the_lines_there_are_and_no_more(old, new, expected):
    assert short_diff(old, new) == expected


def test_a_new_file_is_shown_with_as_many_lines_as_it_has():
    assert unified_diff("a", "", "one\ntwo\n", fresh=True) == "--- /dev/null\n+++ a\n@@ -0,0 +1,2 @@\n+one\n+two"
