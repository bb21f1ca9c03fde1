"""The output of commands and the content of files.

The output of a command becomes plain, bounded text: its beginning and end are in memory, all of it is in a file.
Escape sequences and overwritten progress bars are removed. Text is never cut inside a character, and each cut states
how much is missing. Memory stays constant regardless of the amount of output. The file is created only if the output
does not fit the result, and its size is limited.

`head_and_tail` is for tool output, where the end matters as much as the start. The answer of a run keeps its beginning
under a marker line instead (`retinue.loop.result`).

For files, this module has the detection of images and binary data, forms of text, replacements, cells of notebooks, and
hashes. The form of a text (encoding, byte order mark, line endings) is stored apart from the text, so that an edit
changes nothing else. A change of one notebook cell does not change the others.
"""

from __future__ import annotations

import codecs
import hashlib
import json
import os
import re
import secrets
import unicodedata
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

from msgspec import Struct

from retinue.core.files import read_head
from retinue.core.format import format_bytes
from retinue.tools.base import Arguments, Properties, ToolError

_ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor
    r"|\x9b[0-?]*[ -/]*[@-~]"
    r"|\x1b\][^\x07\x1b\n]*(?:\x07|\x1b\\)?"  # OSC: titles, links
    r"|\x1b[PX^_][^\x1b\n]*(?:\x1b\\)?"  # DCS, SOS, PM, APC
    r"|\x1b[ -/]*[0-~]?"
)
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_OVERSTRUCK = re.compile(r"[^\n]\x08")


def clean(text: str) -> str:
    """Return `text` approximately as a terminal would finally show it. Only the last version of a line that carriage
    returns overwrite remains. Tabs and newlines are the only remaining control characters."""
    if _CONTROLS.search(text) is None:
        return text
    text = _ESCAPES.sub("", text)
    if "\r" in text:
        text = "\n".join(map(_last_version, text.split("\n")))
    return _CONTROLS.sub("", _OVERSTRUCK.sub("", text))


def _last_version(line: str) -> str:
    """Return the last version of a line with carriage returns."""
    return line.rstrip("\r").rpartition("\r")[2]


class StreamCleaner:
    """Cleans bytes that arrive in pieces. It returns complete lines. An unfinished line is held back until it has
    MAX_HELD_CHARACTERS characters."""

    MAX_HELD_CHARACTERS = 65_536

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._held = ""

    def feed(self, data: bytes, *, final: bool = False) -> str:
        text = self._held + self._decoder.decode(data, final)
        end = text.rfind("\n") + 1
        if final:
            end = len(text)
        # A progress bar without line ends: overwritten text is dropped before the line is cut.
        if len(text) - end > self.MAX_HELD_CHARACTERS:
            overwritten = text.rfind("\r", end, len(text) - 1)
            if overwritten >= 0:
                text = text[:end] + text[overwritten + 1 :]
            if len(text) - end > self.MAX_HELD_CHARACTERS:
                end = len(text)
        self._held = text[end:]
        return clean(text[:end])

    @property
    def pending(self) -> str:
        """The current unfinished line, for live displays."""
        return clean(self._held[-2000:])[-200:]


def line_count(text: str) -> int:
    """Count lines as an editor does: a final newline ends the last line and starts none."""
    return text.count("\n") + (bool(text) and not text.endswith("\n"))


def head_and_tail(text: str, most: int, advice: str, *, head_share: float = 0.4) -> str:
    """Return at most about `most` characters of `text`: its beginning and its end, cut at line ends
    where there are any, with a line between them that states the size of the gap and `advice`."""
    if len(text) <= most:
        return text
    head_size = int(most * head_share)
    head = trim_head(text[:head_size])
    tail = trim_tail(text[len(text) - (most - head_size) :])
    missing = len(text) - len(head) - len(tail)
    gap = f"{missing:,} of {len(text):,} characters ({line_count(text):,} lines in all) left out here"
    return join_parts(head, "; ".join(filter(None, (gap, advice))), tail)


def join_parts(head: str, gap: str, tail: str) -> str:
    return f"{head.rstrip()}\n\n[... {gap} ...]\n\n{tail.lstrip(chr(10))}"


def trim_head(text: str) -> str:
    """Return `text` without its last line, which is probably incomplete, unless that is most of the text."""
    end = text.rfind("\n")
    return text[: end + 1] if end > len(text) // 2 else text


def trim_tail(text: str) -> str:
    start = text.find("\n")
    return text[start + 1 :] if 0 <= start < len(text) // 2 else text


MAX_SHOWN_CHARACTERS = 30_000
"""Characters of a command's output that a model gets."""
_HEAD_CHARACTERS = 12_000
MAX_FILE_BYTES = 16 * 1024 * 1024

_TAIL_CHARACTERS = MAX_SHOWN_CHARACTERS - _HEAD_CHARACTERS


class Capture:
    """The bounded output of one command. Call `feed` with each piece, and `text` after the last one."""

    def __init__(self, outputs: Path, label: str) -> None:
        self._outputs = outputs
        self._label = label
        self._cleaner = StreamCleaner()
        # All output, until it does not fit.
        self._head = ""
        self._tail = ""
        # Output after the file was full, uncleaned.
        self._raw_tail = b""
        self._file: BinaryIO | None = None
        self._stored = 0
        self.bytes = 0
        self.lines = 0
        self.path: Path | None = None

    def feed(self, data: bytes) -> str:
        """Take a piece of output and return what it adds to the display."""
        self.bytes += len(data)
        self.lines += data.count(b"\n")
        # Cleaning costs far more than copying: past the cap only the newest bytes are stored, uncleaned.
        if self._stored >= MAX_FILE_BYTES:
            self._raw_tail = (self._raw_tail + data)[-4 * _TAIL_CHARACTERS :]
            return ""
        text = self._cleaner.feed(data)
        self._add(text)
        return text

    @property
    def pending(self) -> str:
        return self._cleaner.pending

    def _add(self, text: str) -> None:
        if self.path is not None:
            self._store(text)
            self._tail = (self._tail + text)[-_TAIL_CHARACTERS:]
        elif len(self._head) + len(text) <= MAX_SHOWN_CHARACTERS:
            self._head += text
        else:
            output = self._head + text
            self._open()
            self._store(output)
            self._head, self._tail = output[:_HEAD_CHARACTERS], output[_HEAD_CHARACTERS:][-_TAIL_CHARACTERS:]

    def _open(self) -> None:
        self.path = self._outputs / f"{self._label}-{secrets.token_hex(6)}.txt"
        with suppress(OSError):
            self._outputs.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._file = os.fdopen(os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")

    def _store(self, text: str) -> None:
        room = MAX_FILE_BYTES - self._stored
        data = text.encode("utf-8", "replace")
        self._stored += len(data)
        if len(data) > room:
            data = data[: max(0, room)].decode("utf-8", "ignore").encode()
        if self._file is not None:
            try:
                self._file.write(data)
            except OSError:  # a full disk must not end the command: the shown text stays correct
                self.close()
                self._file = None

    def text(self) -> str:
        """Return the text for the model. Call it once, after the last piece."""
        self._add(self._cleaner.feed(b"", final=True))
        self.close()
        if self.path is None:
            return self._head
        if self._raw_tail:
            self._tail = (self._tail + clean(self._raw_tail.decode("utf-8", "replace")))[-_TAIL_CHARACTERS:]
        gap = f"cut here: {format_bytes(self.bytes)} and {self.lines:,} lines in all; {self._rest()}"
        return join_parts(trim_head(self._head), gap, trim_tail(self._tail))

    def _rest(self) -> str:
        if self._file is None:
            return "the rest could not be stored"
        if self._stored > MAX_FILE_BYTES:
            return f"the first {format_bytes(MAX_FILE_BYTES)} are in {self.path}"
        return f"read or grep the whole in {self.path}"

    def close(self) -> None:
        """Safe to call at any time and more than once."""
        if self._file is not None:
            with suppress(OSError):
                self._file.close()


MAX_HASHED_BYTES = 64 * 1024 * 1024
"""Files beyond this size are neither hashed nor rewritten by tools."""
SNIFFED_BYTES = 8192
"""How many leading bytes decide what a file is."""

_IMAGES = ((b"\x89PNG\r\n\x1a\n", "image/png"), (b"\xff\xd8\xff", "image/jpeg"), (b"GIF8", "image/gif"))

_BINARIES = (
    (b"\x7fELF", "an ELF program or library"),
    (b"%PDF-", "a PDF document"),
    (b"PK\x03\x04", "a ZIP archive (or a document that is one)"),
    (b"\x1f\x8b", "gzip data"),
    (b"BZh", "bzip2 data"),
    (b"\xfd7zXZ\x00", "xz data"),
    (b"\x28\xb5\x2f\xfd", "zstd data"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive"),
    (b"SQLite format 3\x00", "an SQLite database"),
    (b"\xca\xfe\xba\xbe", "a Java class or Mach-O program"),
    (b"\xcf\xfa\xed\xfe", "a Mach-O program"),
    (b"MZ", "a Windows program"),
    (b"\x00asm", "a WebAssembly module"),
    (b"\x00\x00\x01\x00", "an icon"),
    (b"BM", "a bitmap image"),
    (b"OggS", "Ogg media"),
    (b"ID3", "MP3 audio"),
)

_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),  # before UTF-16, whose mark is a prefix of this one
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


def content_hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def is_image_file(path: Path) -> bool:
    """Return whether a readable file is an image, by its content and not by its name."""
    try:
        return image_type(read_head(path.expanduser(), 16)) is not None
    except (OSError, ValueError, RuntimeError):
        return False


def image_type(head: bytes) -> str | None:
    for magic, media_type in _IMAGES:
        if head.startswith(magic):
            return media_type
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "image/webp"
    return None


def binary_kind(head: bytes) -> str | None:
    """Return the kind of binary data, or None for text. Data with a NUL byte is binary, unless it starts with the mark
    of an encoding that uses NUL bytes."""
    if wide_encoding(head) is not None:
        return None
    # A PDF is not readable as text even if it has no NUL byte.
    if b"\0" not in head and not head.startswith(b"%PDF-"):
        return None
    for magic, label in _BINARIES:
        if head.startswith(magic):
            return label
    return "binary data"


def wide_encoding(head: bytes) -> str | None:
    """Return UTF-16 or UTF-32 by its mark. In these a newline is more than one byte."""
    for mark, codec in _MARKS:
        if codec != "utf-8" and head.startswith(mark):
            return codec
    return None


class TextForm(Struct, frozen=True):
    """The form of a text as bytes."""

    codec: str = "utf-8"
    errors: str = "strict"
    mark: bytes = b""
    crlf: bool = False

    def encode(self, text: str) -> bytes:
        """Undo `decode`. Raise UnicodeEncodeError for characters the encoding lacks."""
        if self.crlf:
            text = text.replace("\n", "\r\n")
        return self.mark + text.encode(self.codec, self.errors)

    def decode(self, data: bytes) -> str:
        """Return the text, with plain newlines if all of its line ends are CRLF."""
        text = data[len(self.mark) :].decode(self.codec, self.errors)
        return text.replace("\r\n", "\n") if self.crlf else text


def forms_of(data: bytes) -> tuple[TextForm, ...]:
    """Return the forms in which `data` can be read as text, best first. Each form encodes to the same bytes again.

    Bytes that are not valid UTF-8 have two forms: UTF-8 with escaped stray bytes, and Latin-1, in which every byte is
    a character.
    """
    mark, codec = b"", "utf-8"
    for prefix, encoding in _MARKS:
        if data.startswith(prefix):
            mark, codec = prefix, encoding
            break
    candidates = [TextForm(codec, "strict", mark)]
    if codec == "utf-8":
        candidates += [TextForm("utf-8", "surrogateescape", mark), TextForm("latin-1")]
    forms: list[TextForm] = []
    for form in candidates:
        try:
            text = form.decode(data)
        except UnicodeDecodeError:
            continue
        ends = text.count("\r\n")
        forms.append(TextForm(form.codec, form.errors, form.mark, crlf=0 < ends == text.count("\n")))
        if form.errors == "strict" and codec != "latin-1":
            break
    return tuple(forms)


_MAX_SHOWN_PLACES = 10


class Edit(Struct, frozen=True):
    old: str
    new: str
    every: bool = False


def apply(text: str, edits: list[Edit], shown: str) -> str:
    """Return `text` after all edits, which are applied in order. Raise ToolError, naming the edit, if one does not
    match exactly once (or, with `every`, at least once)."""
    for number, edit in enumerate(edits, 1):
        label = f"Edit {number} of {len(edits)}: " if len(edits) > 1 else ""
        fitted = fit_ends(edit, text)
        first = text.find(fitted.old)
        if first < 0:
            raise ToolError(f"{label}the old text is not in {shown}.{hint(text, edit)}{_none_made(edits)}")
        if not edit.every and text.find(fitted.old, first + 1) >= 0:
            raise ToolError(f"{label}{_ambiguous(text, fitted.old, shown)}{_none_made(edits)}")
        text = text.replace(fitted.old, fitted.new)
    return text


def fit_ends(edit: Edit, text: str) -> Edit:
    """Return the edit with the line ends of the text that it changes. A text with one kind of line end already has
    plain newlines. In a text with both kinds, the kind that occurs in the match is used."""
    plain = Edit(edit.old.replace("\r\n", "\n"), edit.new.replace("\r\n", "\n"), edit.every)
    if "\r\n" not in text:
        return plain
    if "\r\n" not in edit.old and edit.old in text:
        return edit
    wide = Edit(plain.old.replace("\n", "\r\n"), plain.new.replace("\n", "\r\n"), edit.every)
    return wide if wide.old in text else plain


def _none_made(edits: list[Edit]) -> str:
    return " None of the edits was made." if len(edits) > 1 else ""


def _ambiguous(text: str, old: str, shown: str) -> str:
    lines: list[str] = []
    start = text.find(old)
    while start >= 0 and len(lines) < _MAX_SHOWN_PLACES:
        lines.append(str(text.count("\n", 0, start) + 1))
        start = text.find(old, start + 1)
    if start >= 0:
        lines.append("...")
    return (
        f"the old text is not unique in {shown} (lines {', '.join(lines)}). "
        'Add surrounding lines to make it unique, or set "all" to replace every one.'
    )


def hint(text: str, edit: Edit) -> str:
    """Return what the model probably meant: lines that differ only in blanks, or the most similar line."""
    if edit.new and edit.new in text:
        line = text.count("\n", 0, text.find(edit.new)) + 1
        return f" The new text is already there, at line {line}: perhaps the edit was made before."
    lines = text.split("\n")
    old_lines = list(map(_fold, edit.old.strip("\n").split("\n")))
    start = _find_lines(list(map(_fold, lines)), old_lines)
    if start is not None:
        actual = "\n".join(lines[start : start + len(old_lines)])
        numbers = f"{start + 1}-{start + len(old_lines)}"
        return f" Lines {numbers} differ only in whitespace or quotes. The file has:\n{actual}\n"
    # Copied from the output of read, which numbers its lines.
    if re.match(r"\s*\d+\t", edit.old):
        return " It seems to include the line numbers that read shows; leave them out."
    return _nearest(lines, edit.old)


def _fold(line: str) -> str:
    """Return a line without blanks and with plain instead of typographic characters, the most common errors of
    models."""
    line = unicodedata.normalize("NFKC", line).translate(_PLAIN_CHARACTERS)
    return "".join(line.split())


_PLAIN_CHARACTERS = str.maketrans({"‘": "'", "’": "'", "“": '"', "”": '"', "–": "-", "—": "-", "−": "-"})


def _find_lines(lines: list[str], folded: list[str]) -> int | None:
    if not any(folded):
        return None
    for start in range(len(lines) - len(folded) + 1):
        if lines[start] == folded[0] and lines[start : start + len(folded)] == folded:
            return start
    return None


def _nearest(lines: list[str], old: str) -> str:
    import difflib

    first_line = old.strip().partition("\n")[0].strip()
    if not first_line or len(first_line) > 500:
        return " Read the file and copy the text exactly."
    stripped = [line.strip() for line in lines[:5000] if len(line) <= 500]
    close = difflib.get_close_matches(first_line, stripped, n=1, cutoff=0.7)
    if not close:
        return " Nothing like it was found. Read the file and copy the text exactly."
    number = list(map(str.strip, lines)).index(close[0]) + 1
    return f" The most similar line is {number}:\n{lines[number - 1]}\nRead around it and copy the text exactly."


CELL_PROPERTIES: Properties = {
    "cell_id": {"type": "string"},
    "cell_number": {"type": "integer"},
    "new_source": {"type": "string"},
    "cell_type": {"type": "string", "enum": ["code", "markdown"]},
    "edit_mode": {"type": "string", "enum": ["replace", "insert", "delete"]},
}


class CellChange(Struct, frozen=True):
    """`cell` is an id or a number from 0; None means the first. An insertion goes after it."""

    mode: str
    cell: str | None
    source: str
    kind: str | None


def read_cell_change(arguments: Arguments) -> CellChange | None:
    """Return the change of a cell that a call asks for; None for a call about text."""
    mode = arguments.optional_text("edit_mode") or "replace"
    source = arguments.find("new_source")
    if source is None and mode != "delete":
        return None
    number = arguments.whole_number("cell_number")
    cell = arguments.optional_text("cell_id")
    if cell is None and number is not None:
        cell = str(number)
    return CellChange(mode, cell, source or "", arguments.optional_text("cell_type"))


def change_notebook(data: bytes, change: CellChange, shown: str) -> bytes:
    """Return the changed notebook. Raise ToolError if the data is not a notebook or has no such cell."""
    try:
        book: Any = json.loads(data)
        cells = book["cells"]
    except (ValueError, KeyError, TypeError):
        raise ToolError(f"{shown} is not a Jupyter notebook. Use old_string and new_string for text.") from None
    index = _index(cells, change.cell, shown)
    lines = change.source.splitlines(keepends=True)
    if change.mode == "delete":
        del cells[index]
    elif change.mode == "insert":
        after = index + 1
        if change.cell is None:
            after = 0
        cells.insert(after, _cell(change.kind or "code", lines))
    else:
        cell = cells[index]
        cell["source"] = lines
        if change.kind not in (None, cell.get("cell_type")):
            cells[index] = _cell(change.kind or "code", lines)
            if "id" in cell:
                cells[index]["id"] = cell["id"]
        elif cell.get("cell_type") == "code":
            # The output belongs to the source that was replaced.
            cell["outputs"], cell["execution_count"] = [], None
    # One space and a final newline are how Jupyter itself writes notebooks.
    return (json.dumps(book, indent=1, ensure_ascii=False) + "\n").encode()


def _index(cells: list[Any], cell_id: str | None, shown: str) -> int:
    if cell_id is None:
        return 0
    for index, cell in enumerate(cells):
        if cell.get("id") == cell_id:
            return index
    number = cell_id.removeprefix("cell-")
    if number.isdigit() and int(number) < len(cells):
        return int(number)
    raise ToolError(f"{shown} has no cell {cell_id!r}. It has {len(cells)} cells, numbered from 0.")


def _cell(kind: str, lines: list[str]) -> dict[str, Any]:
    cell: dict[str, Any] = {"cell_type": kind, "metadata": {}, "source": lines}
    if kind == "code":
        return {**cell, "execution_count": None, "outputs": []}
    return cell
