"""Checkpoints of one run: the workspace before and after each call that may change anything.

The difference is the effect of the call, including all programs that it started. Changes that the ledger attributes to
another run are excluded. If commands of two runs ran at once and the author of a change is unknown, it is recorded for
both, as shared.

Tools that report their writes need no checkpoint, because the ledger stores what they replace. So a run that only reads
costs nothing, and a run that only edits starts no program.

All functions block: call them in a thread.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from msgspec.structs import replace

from retinue.capabilities.audit.ledger import CommandWindow, LedgerStore, RecordedChange, RunLedger
from retinue.capabilities.audit.shadow import CheckpointError, PathState, RootSnapshot, Shadow
from retinue.core.files import NO_LIMIT, read_file
from retinue.core.permission import TouchedPath
from retinue.guard.git import join_paths, literal_pattern, paths
from retinue.settings.places import private_folder, repository_root
from retinue.tools.content import content_hash

_PACKED_FROM_FILES = 100
"""From this number of new files, git writes one pack instead of a file for each. That makes the first checkpoint of a
project eight times faster."""
MAX_HASHED_FILES = 2_000
"""The effect of a call lists at most this many files; undo knows all."""
_MAX_HASHED_BYTES = 64 * 2**20
HEARTBEAT_SECONDS = 0.25


class ScannedRoot:
    """One root of a run, with a separate git index. The index starts as a copy of the newest one of this root, so that
    only changed files are read."""

    def __init__(self, shadow: Shadow, root: Path, run_id: str) -> None:
        self.root = repository_root(root) or root
        self._shadow = shadow
        name = hashlib.sha256(os.fsencode(self.root)).hexdigest()[:16]
        self._base = shadow.folder / "index" / f"base-{name}"
        self._index = shadow.folder / "index" / f"{run_id}-{name}"
        self._lock = threading.Lock()
        self._tree = ""

    def snapshot(self, extra_paths: Iterable[str] = ()) -> RootSnapshot:
        """Return the present state of the root. `extra_paths` are paths to include although git ignores them."""
        with self._lock:
            self._shadow.open()
            if not self._index.exists() and self._base.exists():
                with suppress(OSError):
                    shutil.copy2(self._base, self._index)
            return self._take(extra_paths)

    def close(self) -> None:
        """Keep the index for the next run, unless the root is a worktree, which is removed with the run."""
        with self._lock, suppress(OSError):
            if self._shadow.folder.parent / "worktrees" in self.root.parents:
                self._index.unlink()
            else:
                self._index.replace(self._base)

    def _take(self, extra_paths: Iterable[str]) -> RootSnapshot:
        # git's letters: H known, S known and skipped, C changed, R gone, ? new.
        by_letter: defaultdict[str, set[str]] = defaultdict(set)
        for line in paths(self._git(["ls-files", "-t", "-z", "-c", "-m", "-d", "-o", *self._exclusions()])):
            # A path with a slash is the root of another repository.
            if not line.endswith("/"):
                by_letter[line[0]].add(line[2:])
        tracked, gone = by_letter["H"] | by_letter["S"], by_letter["R"]
        new = (by_letter["C"] | by_letter["?"]) - gone
        above = str(self.root).rstrip("/") + "/"
        for path in extra_paths:
            below = path.removeprefix(above)
            if below != path and below not in tracked and os.path.lexists(path):
                new.add(below)
        small, large = self._sized(new)
        if len(tracked) + len(small) > self._shadow.max_files:
            raise CheckpointError(f"the workspace has more than {self._shadow.max_files:,} files")
        outgrown = large & tracked
        if outgrown:
            # --force-remove is for files that are still there but have grown too large.
            self._update(["--force-remove"], outgrown)
        if small or gone:
            # git writes files above the threshold straight into one pack.
            options = ["-c", "core.bigFileThreshold=1"] if len(small) > _PACKED_FROM_FILES else []
            self._update(["--add", "--remove", "--replace"], small | gone, options)
        if not self._tree:
            self._tree = self._git(["write-tree"]).decode().strip()
        present = (tracked | small) - gone - outgrown
        usual, modes = _permissions(self.root, present)
        folders = _parents(present) | self._empty_folders()
        return RootSnapshot(str(self.root), self._tree, usual, modes, folders, tuple(sorted(large)))

    def _update(self, how: list[str], names: set[str], options: Sequence[str] = ()) -> None:
        self._git([*options, "update-index", "-z", *how, "--stdin"], join_paths(sorted(names)))
        self._tree = ""

    def _exclusions(self) -> list[str]:
        options = ["--exclude-standard"]
        own = self.root / ".git" / "info" / "exclude"
        if own.is_file():
            options.append(f"--exclude-from={own}")
        for ours in (self._shadow.folder, self._shadow.folder.parent):
            with suppress(ValueError):
                options.append(f"--exclude=/{literal_pattern(ours.relative_to(self.root).as_posix())}/")
        return options

    def _empty_folders(self) -> set[str]:
        empty: set[str] = set()
        for line in paths(self._git(["ls-files", "-z", "-o", "--directory", *self._exclusions()])):
            inner: list[str] = []
            for folder, _, files in os.walk(self.root / line) if line.endswith("/") else ():
                if files:
                    break
                inner.append(os.path.relpath(folder, self.root))
            else:
                empty.update(inner, _parents(inner))
        return empty

    def _sized(self, names: set[str]) -> tuple[set[str], set[str]]:
        """Return the files to store and those that are too large. Devices and other special files are in neither."""
        small: set[str] = set()
        large: set[str] = set()
        for path in names:
            try:
                entry = os.lstat(self.root / path)
            except OSError:
                continue
            if stat.S_ISLNK(entry.st_mode):
                small.add(path)
            elif stat.S_ISREG(entry.st_mode) and entry.st_size > self._shadow.max_file_bytes:
                large.add(path)
            elif stat.S_ISREG(entry.st_mode) and os.access(self.root / path, os.R_OK):
                # A file that git cannot read would fail the whole checkpoint.
                small.add(path)
        return small, large

    def _git(self, arguments: list[str], stdin: bytes = b"") -> bytes:
        return self._shadow.git(arguments, root=self.root, index=self._index, stdin=stdin)


def _parents(names: Iterable[str]) -> frozenset[str]:
    folders: set[str] = set()
    for path in names:
        folder = path.rpartition("/")[0]
        while folder and folder not in folders:
            folders.add(folder)
            folder = folder.rpartition("/")[0]
    return frozenset(folders)


def _permissions(root: Path, names: Iterable[str]) -> tuple[tuple[int, int], dict[str, int]]:
    """Return the most common permission bits of plain files and of programs, and the exceptions."""
    bits: dict[str, int] = {}
    above = str(root).rstrip("/") + "/"
    for path in names:
        try:
            mode = os.lstat(above + path).st_mode
        except OSError:
            continue
        if stat.S_ISREG(mode):
            bits[path] = stat.S_IMODE(mode)
    common = [value for value, _ in Counter(bits.values()).most_common()]
    plain = next((value for value in common if not value & 0o100), 0o644)
    program = next((value for value in common if value & 0o100), 0o755)
    return (plain, program), {path: value for path, value in bits.items() if value not in (plain, program)}


class Checkpoints:
    """The checkpoints of one run. Calls may overlap: they share the checkpoint before the first one, and all changes
    are the effect of the last one to end."""

    def __init__(self, shadow: Shadow, store: LedgerStore, ledger: RunLedger, roots: Sequence[Path]) -> None:
        self._shadow = shadow
        self._store = store
        self._ledger = ledger
        self._roots = roots
        self._lock = threading.Lock()
        self._scanned_roots: list[ScannedRoot] | None = None
        self._window: CommandWindow | None = None
        self._calls_inside = 0
        self._heartbeat = HeartbeatFile(heartbeat_file(store, ledger.author.run_id))
        self.left_out: tuple[str, ...] = ()
        """Files that were too large for the last checkpoint."""

    def begin(self, call_id: str, command: str) -> None:
        """Take the checkpoint before a call. Raise CheckpointError."""
        with self._lock:
            self._calls_inside += 1
            if self._window is not None:
                return
            try:
                self._heartbeat.start()
                snapshots = self._snapshots()
                window = self._store.begin(self._ledger.author, self._ledger.turn, call_id, command, snapshots)
                self._window = window
                about = f"{window.author}: turn {window.turn}, before {call_id}\n\n{command}"
                for number, snapshot in enumerate(snapshots):
                    ref = f"refs/retinue/{window.author.run_id}/{window.id:08d}-{number}"
                    self._shadow.commit(ref, snapshot, about, window.began)
            except (CheckpointError, OSError) as error:
                self._calls_inside -= 1
                self._heartbeat.stop()
                if isinstance(error, CheckpointError):
                    raise
                raise CheckpointError(str(error)) from error

    def end(self) -> tuple[TouchedPath, ...]:
        """Take the checkpoint after the call and return what changed in between."""
        with self._lock:
            self._calls_inside -= 1
            window = self._window
            if self._calls_inside or window is None:
                return ()
            self._window = None
            try:
                rows = attribute(self._store, window, changes_of(self._shadow, window, self._snapshots()))
                self._store.end(window, rows)
            except OSError as error:
                raise CheckpointError(str(error)) from error
            finally:
                self._heartbeat.stop()
            return touched_paths(self._shadow, rows)

    def recover(self) -> None:
        """Record the changes of commands of this run whose process died."""
        for window in self._store.open_windows([self._ledger.author.run_id]):
            rows, _ = changes_so_far(self._shadow, self._store, window, self._ledger.touched)
            self._store.end(window, rows)

    def close(self) -> None:
        self._heartbeat.stop()
        for scanned in self._scanned_roots or ():
            scanned.close()

    def _snapshots(self) -> list[RootSnapshot]:
        if self._scanned_roots is None:
            # Without roots that are inside another one.
            outermost = [root for root in dict.fromkeys(self._roots) if not set(self._roots).intersection(root.parents)]
            self._scanned_roots = [ScannedRoot(self._shadow, root, self._ledger.author.run_id) for root in outermost]
        snapshots = [scanned.snapshot(self._ledger.touched) for scanned in self._scanned_roots]
        left_out = []
        for snapshot in snapshots:
            left_out += [f"{snapshot.root}/{path}" for path in snapshot.left_out]
        self.left_out = tuple(left_out)
        return snapshots


def heartbeat_file(store: LedgerStore, run_id: str) -> Path:
    return store.folder / "alive" / run_id


class HeartbeatFile:
    """A file that is touched while a command runs. If this process is killed, changes after the time of the file were
    not made by the command."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._over: threading.Event | None = None

    def start(self) -> None:
        private_folder(self._file.parent)
        self._file.touch()
        over = self._over = threading.Event()

        def beat() -> None:
            while not over.wait(HEARTBEAT_SECONDS):
                with suppress(OSError):
                    os.utime(self._file)

        threading.Thread(target=beat, name="retinue-pulse", daemon=True).start()

    def stop(self) -> None:
        if self._over is not None:
            self._over.set()
            self._over = None
            self._file.unlink(missing_ok=True)


def changes_of(shadow: Shadow, window: CommandWindow, now: Sequence[RootSnapshot]) -> list[RecordedChange]:
    """Return what differs between the checkpoint before a call and `now`."""
    rows: list[RecordedChange] = []
    for before, after in zip(window.snapshots, now, strict=True):
        for name, (old, new) in shadow.differences(before, after):
            path = f"{before.root.rstrip('/')}/{name}"
            digest = _hash(path, new) if len(rows) < MAX_HASHED_FILES else None
            row = RecordedChange(
                window.author, window.turn, window.call_id, "command", path, old, new, digest, at=time.time()
            )
            rows.append(row)
    return rows


def attribute(store: LedgerStore, window: CommandWindow, rows: list[RecordedChange]) -> list[RecordedChange]:
    """Return those of `rows` that the ledger does not attribute to another run."""
    # Of several changes of a path the last one decides.
    theirs = {row.path: row for row in store.since(window.after_change) if row.author.run_id != window.author.run_id}
    if not theirs or not rows:
        return rows
    commands = {(other.call_id, other.author.run_id): other.command for other in store.overlapping(window)}
    mine: list[RecordedChange] = []
    shared: list[tuple[int, str]] = []
    for row in rows:
        last = theirs.get(row.path)
        if last is None:
            mine.append(row)
        elif last.after != row.after:
            # This command changed the file again after the other run.
            mine.append(replace(row, before=last.after))
        elif last.kind == "command":
            # Two commands ran at once: the one whose text names the file is assumed to have changed it.
            name = Path(row.path).name
            if name in commands.get((last.call_id, last.author.run_id), "") and name not in window.command:
                continue
            mine.append(replace(row, shared=(last.author.run_id,)))
            shared.append((last.id, window.author.run_id))
    store.share(shared)
    return mine


def changes_so_far(
    shadow: Shadow, store: LedgerStore, window: CommandWindow, extra_paths: Iterable[str] = ()
) -> tuple[list[RecordedChange], list[RecordedChange]]:
    """Return the changes since the checkpoint before a command whose process died. The second list has those after the
    last heartbeat of that process."""
    now: list[RootSnapshot] = []
    for before in window.snapshots:
        scanned = ScannedRoot(shadow, Path(before.root), f"look-{os.getpid()}-{threading.get_ident()}")
        now.append(scanned.snapshot(extra_paths))
        scanned.close()
    try:
        last_sign = heartbeat_file(store, window.author.run_id).stat().st_mtime
    except OSError:
        last_sign = window.began
    sure: list[RecordedChange] = []
    late: list[RecordedChange] = []
    for row in attribute(store, window, changes_of(shadow, window, now)):
        rows = late if _changed_after(row, last_sign + 2 * HEARTBEAT_SECONDS) else sure
        rows.append(row)
    return sure, late


def _changed_after(row: RecordedChange, moment: float) -> bool:
    # A missing file has no time, and the time of a folder is not reliable.
    if row.after is None or row.after.is_folder:
        return False
    try:
        return os.lstat(row.path).st_mtime > moment
    except OSError:
        return False


def touched_paths(shadow: Shadow, rows: Iterable[RecordedChange]) -> tuple[TouchedPath, ...]:
    """Return the changed files for an effect, without folders."""
    files = [row for row in rows if not row.is_only_folder][:MAX_HASHED_FILES]
    if not files:
        return ()
    touched: list[TouchedPath] = []
    with shadow.reading() as blobs:
        for row in files:
            before = None
            if row.before is not None and not row.before.is_folder:
                before = content_hash(blobs(row.before.oid))
            after = row.after_hash
            if not after and row.after is not None:
                after = f"sha1:{row.after.oid}"
            touched.append(TouchedPath(row.path, before, after))
    return tuple(touched)


def _hash(path: str, entry: PathState | None) -> str | None:
    """Return the hash of the present content, as the tools that read files compute it."""
    if entry is None or entry.is_folder:
        return None
    try:
        if entry.is_link:
            return content_hash(os.fsencode(os.readlink(path)))  # noqa: PTH115  (Path would tidy the target)
        if os.lstat(path).st_size > _MAX_HASHED_BYTES:
            return None
        return content_hash(read_file(path, NO_LIMIT))
    except OSError:
        return None
