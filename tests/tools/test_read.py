"""read: windows of text, encodings, images, and refusals that never hang."""

import base64
import os
from hashlib import sha256
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retinue.core.messages import Image
from retinue.tools.read import MAX_BYTES, MAX_LINE_BYTES, MAX_LINES, window, window_of

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


async def test_lines_are_numbered_and_the_hash_is_remembered(use, root, context):
    data = b"one\ntwo\n\nfour"
    (root / "a.txt").write_bytes(data)
    result = await use("read", path="a.txt")
    assert result.text == "1\tone\n2\ttwo\n3\t\n4\tfour"
    assert not result.is_error
    assert context.seen == {str(root / "a.txt"): sha256(data).hexdigest()}
    assert result.effect.reads == (str(root / "a.txt"),)


@pytest.mark.parametrize("name", ["path", "file_path", "filePath", "filename", "absolute_path"])
async def test_the_path_is_taken_under_the_names_other_tools_use(use, root, name):
    (root / "a.txt").write_text("x")
    assert (await use("read", **{name: "a.txt"})).text == "1\tx"


async def test_offset_and_limit_may_be_strings_and_say_how_to_go_on(use, root):
    (root / "a.txt").write_text("".join(f"line {n}\n" for n in range(1, 101)))
    result = await use("read", path="a.txt", offset="10", limit=2.0)
    assert result.text == "10\tline 10\n11\tline 11\n[89 more lines; continue with offset=12]"
    last = await use("read", path="a.txt", offset=100)
    assert last.text == "100\tline 100"


async def test_an_offset_past_the_end_is_an_error_that_says_the_length(use, root):
    (root / "a.txt").write_text("a\nb\n")
    result = await use("read", path="a.txt", offset=9)
    assert result.is_error
    assert "has 2 lines" in result.text


@pytest.mark.parametrize("bad", [{"offset": "soon"}, {"limit": 0}, {"limit": -3}, {"offset": True}, {"limit": 1.5}])
async def test_bad_numbers_say_what_to_send(use_directly, root, bad):
    (root / "a.txt").write_text("a\n")
    result = await use_directly("read", path="a.txt", **bad)
    assert result.is_error
    assert f'"{next(iter(bad))}" must be' in result.text


@pytest.mark.parametrize("arguments", [{}, {"path": ""}, {"path": None}, {"path": 3}, {"path": ["a"]}])
async def test_a_missing_or_wrong_path_says_what_to_send(use_directly, arguments):
    result = await use_directly("read", **arguments)
    assert result.is_error
    assert '"path"' in result.text


async def test_long_files_are_bounded_by_lines(use, root):
    (root / "a.txt").write_text("x\n" * 5000)
    text = (await use("read", path="a.txt", limit=9999)).text
    assert text.count("\n") == MAX_LINES
    assert text.endswith(f"[3,000 more lines; continue with offset={MAX_LINES + 1}]")


async def test_long_files_are_bounded_by_bytes_and_can_be_read_to_their_end(use, root):
    lines = [f"{n} " + "y" * 900 for n in range(1, 201)]
    (root / "a.txt").write_text("\n".join(lines))
    read, offset = [], 1
    while True:
        text = (await use("read", path="a.txt", offset=offset)).text
        assert len(text) < 60_000
        *body, last = text.split("\n")
        if not last.startswith("["):
            read += [*body, last]
            break
        read += body
        offset = int(last.rpartition("=")[2].rstrip("]"))
    assert [line.partition("\t")[2] for line in read] == lines


async def test_long_lines_are_cut_between_characters(use, root):
    (root / "a.txt").write_text("é" * 3000 + "\nshort\n")
    first, second = (await use("read", path="a.txt")).text.split("\n")
    assert first.startswith("1\t" + "é" * 900)
    assert "line has 6,000 bytes" in first
    assert "\ufffd" not in first
    assert second == "2\tshort"


LINE = st.sampled_from([b"", b"a", b"word", "é".encode() * 1200, b"w" * 2001, b"v" * 1999, b"r\r", b"q" * 9000])


@given(
    lines=st.lists(LINE, max_size=40),
    ending=st.sampled_from([b"", b"\n"]),
    first=st.integers(1, 45),
    limit=st.integers(1, 20),
    size=st.sampled_from([1, 7, 2000, 2001, 4096, 1 << 20]),
)
@settings(deadline=None)
def test_a_window_is_the_same_however_the_file_is_read(lines, ending, first, limit, size):
    data = b"\n".join(lines) + ending
    whole = window_of(data, first, limit)
    pieces = window((data[start : start + size] for start in range(0, len(data), size)), first, limit, to_end=True)
    assert pieces == whole
    expected = data.split(b"\n") if data else []
    if expected and not expected[-1]:
        expected.pop()
    assert whole.total == len(expected)
    assert whole.digest == sha256(data).hexdigest()
    assert whole.full == (first - 1 + len(whole.lines) < len(expected) and first <= len(expected))
    for shown, line in zip(whole.lines, expected[first - 1 :], strict=False):
        assert line.startswith(shown)
        assert len(shown) == len(line) or len(line) > MAX_LINE_BYTES >= len(shown) > MAX_LINE_BYTES - 4
    if len(whole.lines) < limit and whole.full:
        assert sum(map(len, whole.lines)) > MAX_BYTES - MAX_LINE_BYTES - 8 * len(whole.lines) - 8


def test_a_line_of_any_length_takes_bounded_memory():
    found = window((b"z" * 65536 for _ in range(200)), 1, 5, to_end=True)
    assert len(found.lines[0]) == MAX_LINE_BYTES
    assert found.cut == {0: 65536 * 200}


async def test_an_empty_file_says_so(use, root, context):
    (root / "a.txt").touch()
    assert (await use("read", path="a.txt")).text == "(empty file)"
    assert str(root / "a.txt") in context.seen


async def test_a_missing_file_names_similar_ones(use, root):
    (root / "settings.py").touch()
    result = await use("read", path="setings.py")
    assert result.is_error
    assert "settings.py" in result.text
    assert "Similar" not in (await use("read", path="zzzz")).text
    assert "does not exist" in (await use("read", path="no/such/file")).text


async def test_a_folder_is_listed(use, root):
    (root / "sub" / "deep").mkdir(parents=True)
    (root / "sub" / "a.txt").touch()
    found = await use("read", path="sub")
    assert (found.is_error, found.text) == (False, "sub is a folder. In it:\na.txt\ndeep/")
    assert "sub/" in (await use("read", path=".")).text


async def test_images_come_as_images(use, root):
    (root / "a.bin").write_bytes(PNG)
    result = await use("read", path="a.bin")
    image = result.content[1]
    assert isinstance(image, Image)
    assert image.media_type == "image/png"
    assert base64.b64decode(image.data) == PNG


@pytest.mark.parametrize(
    ("head", "media_type"),
    [(b"\xff\xd8\xff\xe0", "image/jpeg"), (b"GIF89a", "image/gif"), (b"RIFF\0\0\0\0WEBPVP8 ", "image/webp")],
)
async def test_image_types_are_known_by_their_bytes(use, root, head, media_type):
    (root / "a.png").write_bytes(head + b"\0" * 20)
    assert media_type in (await use("read", path="a.png")).text


async def test_images_beyond_what_providers_take_are_refused(use, root):
    (root / "big.png").write_bytes(PNG + b"\0" * 4_000_000)
    result = await use("read", path="big.png")
    assert result.is_error
    assert "3.8MB" in result.text


@pytest.mark.parametrize(
    ("data", "kind"),
    [(b"\x7fELF\0\0", "ELF"), (b"%PDF-1.7 text", "PDF"), (b"SQLite format 3\0", "SQLite"), (b"ab\0cd", "binary data")],
)
async def test_binary_files_are_refused_with_type_and_size(use, root, data, kind):
    (root / "a").write_bytes(data)
    result = await use("read", path="a")
    assert result.is_error
    assert kind in result.text
    assert f"{len(data)}B" in result.text


@pytest.mark.parametrize("codec", ["utf-16", "utf-16-be", "utf-32", "utf-8-sig"])
async def test_text_with_a_byte_order_mark_is_decoded(use, root, codec):
    text = "\ufeffgrüß\nwelt" if codec == "utf-16-be" else "grüß\nwelt"
    (root / "a.txt").write_text(text, encoding=codec)
    assert (await use("read", path="a.txt")).text.startswith("1\tgrüß\n2\twelt")


async def test_other_encodings_are_shown_as_latin_1_with_a_note(use, root):
    (root / "a.txt").write_bytes("café".encode("latin-1"))
    assert (await use("read", path="a.txt")).text == "1\tcafé\n[not valid UTF-8: shown as Latin-1]"


async def test_a_broken_utf_16_file_is_refused(use, root):
    (root / "a.txt").write_bytes(b"\xff\xfea")
    assert (await use("read", path="a.txt")).is_error


async def test_crlf_is_said_and_not_shown(use, root):
    (root / "a.txt").write_bytes(b"a\r\nb\r\n")
    assert (await use("read", path="a.txt")).text == "1\ta\n2\tb\n[CRLF line ends, which edit keeps]"


async def test_pipes_and_sockets_are_refused_and_never_waited_for(use, root):
    os.mkfifo(root / "pipe")
    result = await use("read", path="pipe")
    assert result.is_error
    assert "named pipe" in result.text


async def test_devices_are_refused(use, context):
    context.roots = (Path("/dev"),)
    result = await use("read", path="zero")
    assert result.is_error
    assert "device" in result.text


async def test_a_huge_file_is_streamed_and_not_hashed(use, root, context):
    path = root / "huge.txt"
    with path.open("wb") as file:
        file.write(b"first\n" + b"next\n" * 4000)
        file.truncate(12 * 1024**3)
    result = await use("read", path="huge.txt", limit=1)
    assert result.text == "1\tfirst\n[more lines follow; continue with offset=2]"
    assert str(path) not in context.seen


async def test_a_pdf_that_is_too_large_to_send_is_read_as_text(use, root, context):
    async def convert(call_id, path, _):
        return "one\ntwo\nthree"

    context.takes_documents = lambda: True
    context.convert = convert
    (root / "big.pdf").write_bytes(b"%PDF-1.4\n" + b" " * 5_000_000)
    output = await use("read", path="big.pdf", offset=2, limit=1)
    assert output.text == "2\ttwo\n[1 more lines; continue with offset=3]\n[text of a PDF, without its images]"
    context.convert = None
    assert "is a PDF document" in (await use("read", path="big.pdf")).text
