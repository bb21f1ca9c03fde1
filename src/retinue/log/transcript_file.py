"""The files of transcripts: appended to while runs go on, mended when a run is taken up again.

Only the writer's thread appends to them, after each commit.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from itertools import islice
from pathlib import Path

from retinue.core.events import TRANSIENT, Compacted, Event, RunCreated, RunEnded, RunStarted, TurnEnded
from retinue.log.transcript import TranscriptLines, transcript_lines
from retinue.settings.places import private_folder


def transcript_path(folder: Path, run_id: str) -> str:
    """Return the path of the transcript of a run of this project."""
    return os.path.join(folder, "transcripts", f"{run_id}.jsonl")  # noqa: PTH118 - a quarter of the time


def wants_transcript(of_file: bool | None, of_settings: bool | None, persist: bool | None = None) -> bool:
    """The agent's file decides before the settings; without either there is a transcript. With
    `persist` the file asks for its session to be kept, which is the same here."""
    if of_file is not None:
        return of_file
    return persist is True or of_settings is not False


OUTPUT_KEPT = 4_000
"""Characters of a tool's output that a transcript has; the log has all of them."""
_CHUNK = 1 << 20
_APPENDING = os.O_WRONLY | os.O_APPEND | os.O_CREAT
_FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0)
_BREAKS = frozenset({RunCreated, RunStarted, TurnEnded, Compacted, RunEnded})


class Transcripts:
    """Lines gather per run and are written when a turn, a run or a compaction ends. Files are
    only ever appended to; none is held open, so thousands of runs need no more descriptors.

    What cannot be written is told to `complain` once per run and tried again with the next line.
    A file outside of `folder`, the log's own, lies where agents may write (`session_dir`): it is
    reached without following links, or an agent could lead its transcript into any file of the
    user's.
    """

    def __init__(self, complain: Callable[[str, str], None], folder: Path) -> None:
        self._complain = complain
        self._folder = f"{folder}{os.sep}"
        self._files: dict[str, _File] = {}

    def take(self, events: Iterable[Event]) -> None:
        ready: dict[str, None] = {}
        over: list[str] = []
        for event in events:
            body = event.body
            kind = type(body)
            if kind in TRANSIENT:
                continue
            if isinstance(body, RunCreated):
                self._files[event.run_id] = _File(_early_path(body))
            file = self._files.get(event.run_id)
            if file is None:
                continue
            if isinstance(body, RunStarted):
                file.path = body.transcript or None
            file.lines += file.making.take(event)
            if kind in _BREAKS:
                ready[event.run_id] = None
                if kind is RunStarted and file.path is None:
                    del self._files[event.run_id]
                if kind is RunEnded:
                    over.append(event.run_id)
        for run_id in ready:
            self._write(run_id)
        for run_id in over:
            self._files.pop(run_id, None)

    def reopen(self, run_id: str, path: Path, events: Iterable[Event]) -> None:
        """Go on with the file of a run that is taken up again: what a crash left half-written
        is cut off, what it left unwritten is added, and all the rest stays."""
        file = self._files[run_id] = _File(str(path))
        leads_elsewhere = not self._is_own(str(path)) and path.resolve() != path
        past = (line for event in events for line in file.making.take(event))
        written = 0 if leads_elsewhere else mend(path)
        unwritten = list(islice(past, written, None))
        file.lines = [] if leads_elsewhere else unwritten
        self._write(run_id)

    def _write(self, run_id: str) -> None:
        file = self._files.get(run_id)
        if file is None or file.path is None or not file.lines:
            return
        try:
            append(file.path, file.lines, follow=self._is_own(file.path))
            file.lines = []
        except OSError as error:
            if not file.failed:
                file.failed = True
                self._complain(run_id, f"the transcript {file.path} cannot be written ({error.strerror or error})")

    def _is_own(self, path: str) -> bool:
        return path.startswith(self._folder)


class _File:
    __slots__ = ("failed", "lines", "making", "path")

    def __init__(self, path: str | None) -> None:
        self.path = path
        self.making = TranscriptLines(OUTPUT_KEPT)
        self.lines: list[bytes] = []
        self.failed = False


def rebuild_transcript(path: Path, events: Iterable[Event]) -> int:
    """Write the transcript of a run anew from its events, all or nothing. Return the number of
    lines."""
    lines = transcript_lines(events, OUTPUT_KEPT)
    draft = path.with_name(f"{path.name}.{os.getpid()}.new")
    try:
        append(str(draft), lines)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
    return len(lines)


def append(path: str, lines: list[bytes], *, follow: bool = True) -> None:
    """Add whole lines: if not all of them can be written, none is left behind. Unless `follow`, a
    link anywhere in the path is an OSError."""
    if not follow:
        descriptor = _open_without_links(Path(path))
    else:
        try:
            descriptor = os.open(path, _APPENDING, 0o600)
        except FileNotFoundError:
            private_folder(Path(path).parent)
            descriptor = os.open(path, _APPENDING, 0o600)
    data, written = b"".join(lines), 0
    try:
        while written < len(data):
            written += os.write(descriptor, data[written:] if written else data)
    except OSError:
        os.ftruncate(descriptor, os.lseek(descriptor, 0, os.SEEK_END) - written)
        raise
    finally:
        os.close(descriptor)


def _open_without_links(path: Path) -> int:
    """Open an absolute path for appending, folder by folder, so that none can be swapped for a link
    meanwhile; make the folders that are missing."""
    # Windows: nothing there holds a folder open.
    if os.open not in os.supports_dir_fd:
        private_folder(path.parent)
        return os.open(path, _APPENDING, 0o600)
    above = os.open(path.anchor, _FOLDER)
    try:
        for name in path.parts[1:-1]:
            try:
                inner = os.open(name, _FOLDER, dir_fd=above)
            except FileNotFoundError:
                os.mkdir(name, 0o700, dir_fd=above)
                inner = os.open(name, _FOLDER, dir_fd=above)
            os.close(above)
            above = inner
        return os.open(path.name, _APPENDING | os.O_NOFOLLOW, 0o600, dir_fd=above)
    finally:
        os.close(above)


def mend(path: Path) -> int:
    """Cut off a last line that has no end, which is what a kill in the middle of a write
    leaves. Return the number of whole lines."""
    lines = whole = read = 0
    try:
        with path.open("rb") as file:
            while data := file.read(_CHUNK):
                lines += data.count(b"\n")
                last = data.rfind(b"\n")
                if last >= 0:
                    whole = read + last + 1
                read += len(data)
    except FileNotFoundError:
        return 0
    if whole < read:
        os.truncate(path, whole)
    return lines


def _early_path(body: RunCreated) -> str | None:
    chosen = body.options.transcript
    return chosen if isinstance(chosen, str) and chosen else None
