"""Undo: restores files that runs have changed, without losing the work of others.

For every path the rows of the ledger form a chain: before, after, before, after. If the chain is unbroken, only these
runs have changed the path; if the file still has the last state, it was not changed since. Only then the file is
restored, and never through a link. All other files are kept, with the reason and the run that changed them, unless the
caller forces it. Content that is overwritten is stored in the shadow repository first.

The same chains give people diffs of the changes of runs. The content before a change is in the shadow repository. The
content after it is there only if a later change stored it; otherwise it is read from the file, if that is unchanged.
"""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext, suppress
from difflib import unified_diff
from itertools import pairwise
from pathlib import Path
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from retinue.capabilities.audit.checkpoint import changes_so_far
from retinue.capabilities.audit.ledger import ChangeAuthor, LedgerStore, RecordedChange, RunLedger
from retinue.capabilities.audit.report import WriteStatus, write_status
from retinue.capabilities.audit.shadow import Blobs, CheckpointError, PathState, Shadow, blob_id
from retinue.core.events import Undone
from retinue.core.files import NO_LIMIT, read_file
from retinue.tools.content import content_hash

MAX_DIFF_BYTES = 1_000_000
"""Files above this size are named without a diff."""
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)


def current(path: str) -> PathState | None:
    """Return the present state of `path`; None if it does not exist."""
    try:
        mode = os.lstat(path).st_mode
        if stat.S_ISDIR(mode):
            return PathState("", mode)
        if stat.S_ISLNK(mode):
            target = os.readlink(path)  # noqa: PTH115  (Path would tidy the target)
            return PathState(blob_id(os.fsencode(target)), mode)
        return PathState(blob_id(read_file(path, NO_LIMIT)) if stat.S_ISREG(mode) else "?", mode)
    except (FileNotFoundError, NotADirectoryError):
        return None


def same_state(one: PathState | None, other: PathState | None) -> bool:
    """Return whether two entries have the same kind, content and permission bits. The bits of links and folders are
    ignored."""
    if one is None or other is None:
        return one is other
    if one.is_folder or other.is_folder:
        return one.is_folder and other.is_folder
    if one.is_link or other.is_link:
        return one.is_link and other.is_link and one.oid == other.oid
    return one.oid == other.oid and stat.S_IMODE(one.mode) == stat.S_IMODE(other.mode)


def put_back(path: str, target: PathState | None, blobs: Blobs) -> None:
    """Restore `path` to the state `target`. Raise OSError; then the path is unchanged."""
    try:
        mode = os.lstat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        mode = 0
    if target is None and not mode:
        return
    above = os.path.dirname(path)  # noqa: PTH120  (paths may contain bytes that are not text)
    # Through a link another file would be written.
    if os.path.realpath(above) != above:
        raise OSError(40, "its folder is reached through a link now", path)
    target_path = Path(path)
    target_path.parent.mkdir(parents=True, exist_ok=True)
    data = b"" if target is None or target.is_folder else blobs(target.oid)
    # Only an empty folder is removed.
    if stat.S_ISDIR(mode):
        if target is None or not target.is_folder:
            target_path.rmdir()
    elif mode and (target is None or target.is_folder):
        target_path.unlink()
    if target is None:
        return
    if target.is_folder:
        target_path.mkdir(exist_ok=True)
        return
    beside = f"{above}/.retinue-{secrets.token_hex(8)}.tmp"
    try:
        if target.is_link:
            os.symlink(os.fsdecode(data), beside)  # noqa: PTH211  (Path would tidy the target)
        else:
            with os.fdopen(os.open(beside, _NEW_FILE, 0o600), "wb") as file:
                file.write(data)
                if hasattr(os, "fchmod"):
                    os.fchmod(file.fileno(), stat.S_IMODE(target.mode))
        Path(beside).replace(path)
    except BaseException:
        with suppress(OSError):
            Path(beside).unlink()
        raise


class UndoneFile(Struct, frozen=True):
    """The result for one path. `restored`: it has its old content; `removed`: the run had created it; `unchanged`: it
    had its old content already; `kept`: it was not touched, for the reason in `detail`."""

    path: str
    fate: Literal["restored", "removed", "unchanged", "kept", "failed"]
    detail: str = ""
    moved: bool = False
    """The work is elsewhere now, so the file is not put back here by force either."""


class UndoScope(Struct, frozen=True):
    """The changes to undo: those of `main` from `turn` on (0: all), and those of the runs `below` from the time `since`
    on."""

    main: ChangeAuthor
    turn: int = 0
    below: tuple[str, ...] = ()
    since: float = 0.0

    @property
    def runs(self) -> tuple[str, ...]:
        return (self.main.run_id, *self.below)

    def covers(self, row: RecordedChange) -> bool:
        if row.author.run_id == self.main.run_id:
            return row.turn >= self.turn
        # Other runs have their own turns, so the time is compared.
        return row.at >= self.since


class Undo:
    """Restores changes of runs. Blocks: call it in a thread. `folder` is the state folder of the project."""

    def __init__(self, folder: Path) -> None:
        self._shadow = Shadow(folder / "checkpoints")
        self._store = LedgerStore(folder / "checkpoints")

    def close(self) -> None:
        self._store.close()

    def forgotten(self, run_ids: Sequence[str]) -> float | None:
        """Return when checkpoints of any of these runs were removed because they were old."""
        return self._store.forgotten(run_ids)

    def changed(self, run_ids: Sequence[str]) -> list[RecordedChange]:
        """Return the changes of these runs, in order, including those of commands whose process died."""
        return [*self._store.of_runs(run_ids), *self._unfinished(run_ids)[0]]

    def run(
        self,
        scope: UndoScope,
        *,
        force: bool = False,
        dry_run: bool = False,
        moved_to: Callable[[str], str] = lambda path: "",
    ) -> list[UndoneFile]:
        """Restore the files of the scope as far as possible. An error of one path becomes its result. For a path in a
        folder that was removed, `moved_to` returns where the work is; for any other path ""."""
        uncertain, late = self._unfinished(scope.runs)
        rows = (*self._store.of_runs(scope.runs), *uncertain, *late)
        chains = chains_of(row for row in rows if scope.covers(row))
        late_paths = {row.path for row in late}
        files: list[UndoneFile] = []
        with nullcontext() if dry_run or not chains else self._shadow.reading() as blobs:
            for path in sorted(chains, key=lambda path: _undo_order(path, chains[path][0].before)):
                chain = chains[path]
                only_folder = all(row.is_only_folder for row in chain)
                # A folder is removed only if it is empty.
                elsewhere = moved_to(path)
                if elsewhere:
                    file = UndoneFile(path, "kept", elsewhere, moved=True)
                else:
                    file = self._decide(path, chain, scope, late_paths, safe=force or only_folder)
                if blobs is not None and file.fate in ("restored", "removed"):
                    file = self._put_back(file, chain, scope, blobs)
                if not only_folder:
                    files.append(file)
        return sorted(files, key=lambda file: file.path)

    def diffs(self, run_ids: Sequence[str]) -> list[FileDiff]:
        """Return a diff for each file that these runs have changed, in the order of the paths."""
        chains = chains_of(row for row in self.changed(run_ids) if row.kind != "undo" and not row.has_folder)
        if not chains:
            return []
        with self._shadow.reading() as blobs:
            return [_diff(path, chain[0].before, chain[-1].after, blobs) for path, chain in sorted(chains.items())]

    def _unfinished(self, run_ids: Sequence[str]) -> tuple[list[RecordedChange], list[RecordedChange]]:
        sure: list[RecordedChange] = []
        late: list[RecordedChange] = []
        for window in self._store.open_windows(run_ids):
            extra_paths = [row.path for row in self._store.of_runs([window.author.run_id])]
            with suppress(CheckpointError):
                of_window = changes_so_far(self._shadow, self._store, window, extra_paths)
                sure += of_window[0]
                late += of_window[1]
        return sure, late

    def _decide(
        self, path: str, chain: list[RecordedChange], scope: UndoScope, late: set[str], *, safe: bool
    ) -> UndoneFile:
        """Return what to do with a file. `safe`: its present state does not matter."""
        target = chain[0].before
        try:
            now = current(path)
            if same_state(now, target):
                return UndoneFile(path, "unchanged")
            reason = "" if safe else self._objection(path, chain, scope, now)
            if not safe and not reason and path in late:
                reason = "it changed after the process of this run was last seen alive"
        except OSError as error:
            return UndoneFile(path, "failed", error.strerror or str(error))
        if reason:
            return UndoneFile(path, "kept", reason)
        return UndoneFile(path, "removed" if target is None else "restored")

    def _objection(self, path: str, chain: list[RecordedChange], scope: UndoScope, now: PathState | None) -> str:
        """Return why restoring `path` would destroy work of others; empty if it would not."""
        first, last = chain[0], chain[-1]
        others = [row for row in self._store.of_path(path) if row.author.run_id not in scope.runs]
        for row in others:
            if first.id and row.id > first.id and (row.id < last.id or not last.id):
                return f"it was also changed by {row.author} in between"
        if not all(same_state(earlier.after, later.before) for earlier, later in pairwise(chain)):
            return "someone else changed it between two changes of this run"
        if not same_state(now, last.after):
            author = next((str(row.author) for row in others if same_state(row.after, now)), "someone else")
            what = "deleted" if now is None else "changed"
            return f"it was {what} since by {author}"
        strangers = {run_id for row in chain for run_id in row.shared}.difference(scope.runs)
        if strangers:
            names = ", ".join(run_id[:8] for run_id in sorted(strangers))
            return f"a command of another run ({names}) may have changed it"
        return ""

    def _put_back(self, file: UndoneFile, chain: list[RecordedChange], scope: UndoScope, blobs: Blobs) -> UndoneFile:
        path, target = file.path, chain[0].before
        ledger = RunLedger(self._store, None, ChangeAuthor(scope.main.run_id, f"undo of {scope.main.agent}"))
        try:
            with ledger.lease(Path(path)):
                now = current(path)
                if now is not None and not now.is_folder and not now.is_link:
                    self._shadow.keep(read_file(path, NO_LIMIT))
                put_back(path, target, blobs)
                digest = None
                if target is not None and not target.is_folder and not target.is_link:
                    digest = content_hash(read_file(path, NO_LIMIT))
                row = replace(chain[-1], id=0, at=0.0, kind="undo", shared=())
                self._store.add([replace(row, before=now, after=target, after_hash=digest)])
        except (OSError, CheckpointError) as error:
            return UndoneFile(path, "failed", getattr(error, "strerror", None) or str(error))
        return file


def chains_of(rows: Iterable[RecordedChange]) -> dict[str, list[RecordedChange]]:
    """Return the changes by path, in order."""
    chains: dict[str, list[RecordedChange]] = {}
    for row in rows:
        chains.setdefault(row.path, []).append(row)
    return chains


def _undo_order(path: str, target: PathState | None) -> tuple[int, int, str]:
    """Return a sort key: removals first, from the deepest; then restored paths, folders before their content."""
    depth = path.count("/")
    if target is None:
        return (0, -depth, path)
    return (1 if target.is_folder else 2, depth, path)


def undone_event(
    files: Sequence[UndoneFile], *, by: Literal["person", "rollback"], turn: int | None = None, forced: bool = False
) -> Undone:
    """Return the event for the result of an undo."""
    restored = tuple(file.path for file in files if file.fate == "restored")
    removed = tuple(file.path for file in files if file.fate == "removed")
    not_restored = tuple(f"{file.path} ({file.detail})" for file in files if file.fate in ("kept", "failed"))
    return Undone(restored, removed, not_restored, turn=turn, by=by, forced=forced)


class FileDiff(Struct, frozen=True):
    """`diff` is a unified diff; empty if `note` gives the reason why there is none."""

    path: str
    status: WriteStatus
    diff: str = ""
    note: str = ""


def _diff(path: str, before: PathState | None, after: PathState | None, blobs: Blobs) -> FileDiff:
    status = write_status(before, after)
    if status == "unchanged":
        return FileDiff(path, status)
    try:
        old, new = _content(before, path, blobs), _content(after, path, blobs)
    except CheckpointError as error:
        return FileDiff(path, status, note=f"{error}.")
    if max(len(old), len(new)) > MAX_DIFF_BYTES:
        return FileDiff(path, status, note="The file is too large for a diff.")
    if b"\0" in old or b"\0" in new:
        return FileDiff(path, status, note="The file is not text.")
    name_before = "/dev/null" if before is None else path
    name_after = "/dev/null" if after is None else path
    return FileDiff(path, status, "".join(unified_diff(_lines(old), _lines(new), name_before, name_after)))


def _content(state: PathState | None, path: str, blobs: Blobs) -> bytes:
    """Return the content of a path in a state. Raise CheckpointError if it is no longer stored."""
    if state is None:
        return b""
    with suppress(CheckpointError):
        return blobs(state.oid)
    with suppress(OSError):
        data = read_file(path, NO_LIMIT)
        if blob_id(data) == state.oid:
            return data
    raise CheckpointError("It was changed since, and what the run had written is not kept")


def _lines(data: bytes) -> list[str]:
    lines = data.decode("utf-8", "replace").splitlines(keepends=True)
    if lines and not lines[-1].endswith("\n"):
        lines[-1] += "\n\\ No newline at end of file\n"
    return lines
