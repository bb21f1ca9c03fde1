"""Looking at a workspace: which files are there, what is new, and the snapshot that results.

All of it blocks: call it in a thread.

Checkpoints of one run: the workspace before and after each call that may change anything.

What differs is what the call did: it becomes its effect, whatever program did it. Changes that
the ledger knows to be another run's are not counted. Where commands of two runs were at work at
once and nothing tells whose a change is, it is recorded for both, as shared.

Tools that say themselves what they wrote need no checkpoint: the ledger keeps what they
replace. So a run that only reads costs nothing, and one that only edits starts no program.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import threading
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from msgspec.structs import replace

from retinue.capabilities.audit.ledger import RunLedger
from retinue.capabilities.audit.ledger_store import Changed, CommandWindow, LedgerStore
from retinue.capabilities.audit.shadow import CheckpointError, Difference, PathState, RootSnapshot, Shadow
from retinue.core.foreign import NO_LIMIT, read_file
from retinue.core.permission import TouchedPath
from retinue.settings.places import private_folder, repository_root

_MANY = 100
"""From this many new files on, one pack takes them all, instead of a file for each: the first
checkpoint of a project is eight times faster."""


class ScannedRoot:
    """One root as one run sees it: with an index of its own, begun from the last one anybody
    had of this root, so that only what is new has to be read."""

    def __init__(self, shadow: Shadow, root: Path, run_id: str) -> None:
        self.root = repository_root(root) or root
        self._shadow = shadow
        name = hashlib.sha256(os.fsencode(self.root)).hexdigest()[:16]
        self._base = shadow.folder / "index" / f"base-{name}"
        self._index = shadow.folder / "index" / f"{run_id}-{name}"
        self._lock = threading.Lock()
        self._known = ""

    def snapshot(self, also: Iterable[str] = ()) -> RootSnapshot:
        """Return the root as it is now. `also` are paths to keep although git ignores them."""
        with self._lock:
            self._shadow.open()
            if not self._index.exists() and self._base.exists():
                with suppress(OSError):
                    shutil.copy2(self._base, self._index)
            return self._take(also)

    def close(self) -> None:
        """Leave the index of a run that is over to the next one, unless the run's worktree is removed as well."""
        with self._lock, suppress(OSError):
            if self._shadow.folder.parent / "worktrees" in self.root.parents:
                self._index.unlink()
            else:
                self._index.replace(self._base)

    def _take(self, also: Iterable[str]) -> RootSnapshot:
        by_letter = self._scan()
        tracked = by_letter.get("H", set()) | by_letter.get("S", set())
        gone = by_letter.get("R", set())
        news = (by_letter.get("C", set()) | by_letter.get("?", set())) - gone
        above = str(self.root).rstrip("/") + "/"
        for path in also:
            below = path.removeprefix(above)
            if below != path and below not in tracked and os.path.lexists(path):
                news.add(below)
        small, large = self._sized(news)
        if len(tracked) + len(small) > self._shadow.limits.files:
            raise CheckpointError(f"the workspace has more than {self._shadow.limits.files:,} files")
        drop = gone | (large & tracked)
        if small or drop:
            # --force-remove is for files that are still there but have grown too large.
            if large & tracked:
                self._git(["update-index", "-z", "--force-remove", "--stdin"], _join(large & tracked))
            command = ["update-index", "-z", "--add", "--remove", "--replace", "--stdin"]
            if len(small) > _MANY:
                # git writes files above the threshold straight into one pack.
                command[:0] = ["-c", "core.bigFileThreshold=1"]
            self._git(command, _join(small | gone))
            self._known = ""
        if not self._known:
            self._known = self._git(["write-tree"]).decode().strip()
        paths_now = (tracked | small) - drop
        usual, modes = _permissions(self.root, paths_now)
        folders = _parents(paths_now) | self._empty_folders()
        return RootSnapshot(str(self.root), self._known, usual, modes, folders, tuple(sorted(large)))

    def _scan(self) -> dict[str, set[str]]:
        """Return every path by git's letter for it: H known, C changed, R gone, ? new."""
        listed = self._git(["ls-files", "-t", "-z", "-c", "-m", "-d", "-o", *self._exclusions()])
        found: dict[str, set[str]] = {}
        for line in listed.split(b"\0"):
            # Git lists a folder where another repository begins.
            if line and not line.endswith(b"/"):
                found.setdefault(chr(line[0]), set()).add(os.fsdecode(line[2:]))
        return found

    def _exclusions(self) -> list[str]:
        said = ["--exclude-standard"]
        own = self.root / ".git" / "info" / "exclude"
        if own.is_file():
            said.append(f"--exclude-from={own}")
        for ours in (self._shadow.folder, self._shadow.folder.parent):
            with suppress(ValueError):
                said.append(f"--exclude=/{_quote(ours.relative_to(self.root).as_posix())}/")
        return said

    def _empty_folders(self) -> set[str]:
        listed = self._git(["ls-files", "-z", "-o", "--directory", *self._exclusions()])
        found: set[str] = set()
        for line in listed.split(b"\0"):
            if not line.endswith(b"/"):
                continue
            top = os.fsdecode(line).rstrip("/")
            inner = []
            empty = True
            for folder, _, names in os.walk(self.root / top):
                inner.append(os.path.relpath(folder, self.root))
                empty = empty and not names
            if empty:
                found.update(inner)
                found.update(_parents(inner))
        return found

    def _sized(self, paths: set[str]) -> tuple[set[str], set[str]]:
        """Return the files that are kept and those that are too large. What is no file is neither."""
        small: set[str] = set()
        large: set[str] = set()
        for path in paths:
            try:
                found = os.lstat(self.root / path)
            except OSError:
                continue
            if stat.S_ISLNK(found.st_mode):
                small.add(path)
            elif not stat.S_ISREG(found.st_mode):
                continue
            elif found.st_size > self._shadow.limits.file_bytes:
                large.add(path)
            elif os.access(self.root / path, os.R_OK):
                # A file that git cannot read would fail the whole checkpoint.
                small.add(path)
        return small, large

    def _git(self, arguments: list[str], given: bytes = b"") -> bytes:
        return self._shadow.git(arguments, root=self.root, index=self._index, given=given)


def _join(paths: set[str]) -> bytes:
    return b"".join(os.fsencode(path) + b"\0" for path in sorted(paths))


def _quote(path: str) -> str:
    return "".join(f"\\{char}" if char in "*?[\\!#" else char for char in path)


def _parents(paths: Iterable[str]) -> frozenset[str]:
    found: set[str] = set()
    for path in paths:
        folder = path.rpartition("/")[0]
        while folder and folder not in found:
            found.add(folder)
            folder = folder.rpartition("/")[0]
    return frozenset(found)


def _permissions(root: Path, paths: Iterable[str]) -> tuple[tuple[int, int], dict[str, int]]:
    """Return the permission bits that most plain files and most programs have, and the exceptions."""
    plain: Counter[int] = Counter()
    programs: Counter[int] = Counter()
    every: list[tuple[str, int]] = []
    before = str(root).rstrip("/") + "/"
    for path in paths:
        try:
            mode = os.lstat(before + path).st_mode
        except OSError:
            continue
        if stat.S_ISREG(mode):
            bits = stat.S_IMODE(mode)
            every.append((path, bits))
            counter = programs if bits & 0o100 else plain
            counter[bits] += 1
    usual = (_most_common(plain, 0o644), _most_common(programs, 0o755))
    exceptions = {}
    for path, bits in every:
        if bits != usual[bool(bits & 0o100)]:
            exceptions[path] = bits
    return usual, exceptions


def _most_common(bits: Counter[int], default: int) -> int:
    return bits.most_common(1)[0][0] if bits else default


MOST_HASHED = 2_000
"""Of more files than this, one call's effect lists the first ones; undo knows them all."""
_LARGEST_HASHED = 64 * 2**20


class Checkpoints:
    """All of it blocks: call it in a thread. Calls of one run may overlap: they share the
    checkpoint before the first, and what changed is the effect of the last to end."""

    def __init__(self, shadow: Shadow, store: LedgerStore, ledger: RunLedger, roots: Sequence[Path]) -> None:
        self._shadow = shadow
        self._store = store
        self._ledger = ledger
        self._roots = roots
        self._lock = threading.Lock()
        self._spaces: list[ScannedRoot] | None = None
        self._window: CommandWindow | None = None
        self._inside = 0
        self._pulse = HeartbeatFile(pulse_file(store, ledger.who.run_id))
        self.left_out: tuple[str, ...] = ()
        """Files too large to be kept, as of the last checkpoint."""

    def begin(self, call_id: str, command: str) -> None:
        """Take the checkpoint before a call. Raise CheckpointError when there can be none."""
        with self._lock:
            self._inside += 1
            if self._window is not None:
                return
            try:
                self._pulse.start()
                snapshots = self._snapshots()
                self._window = self._store.begin(self._ledger.who, self._ledger.turn, call_id, command, snapshots)
                self._keep(self._window)
            except (CheckpointError, OSError) as error:
                self._inside -= 1
                self._pulse.stop()
                if isinstance(error, CheckpointError):
                    raise
                raise CheckpointError(str(error)) from error

    def end(self) -> tuple[TouchedPath, ...]:
        """Take the checkpoint after the call and return what changed in between."""
        with self._lock:
            self._inside -= 1
            window = self._window
            if self._inside or window is None:
                return ()
            self._window = None
            try:
                rows = attribute(self._store, window, changes_of(self._shadow, window, self._snapshots()))
                self._store.end(window, rows)
            except OSError as error:
                raise CheckpointError(str(error)) from error
            finally:
                self._pulse.stop()
            return touched_paths(self._shadow, rows)

    def recover(self) -> None:
        """Record what commands of this run did that were cut off with an earlier process."""
        for window in self._store.open_windows([self._ledger.who.run_id]):
            rows, _ = changes_so_far(self._shadow, self._store, window, self._ledger.touched)
            self._store.end(window, rows)

    def close(self) -> None:
        self._pulse.stop()
        for space in self._spaces or ():
            space.close()

    def _snapshots(self) -> list[RootSnapshot]:
        if self._spaces is None:
            self._spaces = [ScannedRoot(self._shadow, root, self._ledger.who.run_id) for root in outermost(self._roots)]
        found = [space.snapshot(self._ledger.touched) for space in self._spaces]
        left_out = []
        for each in found:
            for path in each.left_out:
                left_out.append(f"{each.root}/{path}")
        self.left_out = tuple(left_out)
        return found

    def _keep(self, window: CommandWindow) -> None:
        about = f"{window.who}: turn {window.turn}, before {window.call_id}\n\n{window.command}"
        for number, snapshot in enumerate(window.snapshots):
            ref = f"refs/retinue/{window.who.run_id}/{window.id:08d}-{number}"
            self._shadow.commit(ref, snapshot, about, window.began)


PULSE_SECONDS = 0.25


def pulse_file(store: LedgerStore, run_id: str) -> Path:
    return store.folder / "alive" / run_id


class HeartbeatFile:
    """A file that is touched while a command runs. If this process is killed, its time says
    until when the command can have been ours, and what came later is someone else's."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._over: threading.Event | None = None

    def start(self) -> None:
        private_folder(self._file.parent)
        self._file.touch()
        over = self._over = threading.Event()

        def beat() -> None:
            while not over.wait(PULSE_SECONDS):
                with suppress(OSError):
                    os.utime(self._file)

        threading.Thread(target=beat, name="retinue-pulse", daemon=True).start()

    def stop(self) -> None:
        if self._over is not None:
            self._over.set()
            self._over = None
            self._file.unlink(missing_ok=True)


def outermost(roots: Sequence[Path]) -> list[Path]:
    """Return each folder once, and none that lies in another."""
    unique = list(dict.fromkeys(roots))
    return [one for one in unique if not set(unique).intersection(one.parents)]


def changes_of(shadow: Shadow, window: CommandWindow, now: Sequence[RootSnapshot]) -> list[Changed]:
    """Return what differs between the checkpoint before a call and `now`."""
    rows: list[Changed] = []
    for before, after in zip(window.snapshots, now, strict=True):
        for difference in shadow.differences(before, after):
            path = f"{before.root.rstrip('/')}/{difference.path}"
            digest = None
            if len(rows) < MOST_HASHED:
                digest = _hash(path, difference.after)
            rows.append(_row(window, path, difference, digest))
    return rows


def attribute(store: LedgerStore, window: CommandWindow, rows: list[Changed]) -> list[Changed]:
    """Return those of `rows` that the ledger does not know to be another run's."""
    # The last change of a path counts.
    theirs: dict[str, Changed] = {}
    for row in store.since(window.after_change):
        if row.who.run_id != window.who.run_id:
            theirs[row.path] = row
    if not theirs or not rows:
        return rows
    commands: dict[str, str] = {}
    for each in store.overlapping(window):
        commands[each.call_id + each.who.run_id] = each.command
    mine: list[Changed] = []
    shared: list[tuple[int, str]] = []
    for row in rows:
        last = theirs.get(row.path)
        if last is None:
            mine.append(row)
        elif last.after != row.after:
            # This command changed the file again after the other run.
            mine.append(replace(row, id=0, before=last.after, shared=()))
        elif last.kind == "command":
            # Two commands were at work: one that names the file is taken for the one that changed it.
            name = Path(row.path).name
            of_them = name in commands.get(last.call_id + last.who.run_id, "")
            if of_them and name not in window.command:
                continue
            mine.append(replace(row, id=0, shared=(last.who.run_id,)))
            shared.append((last.id, window.who.run_id))
    store.share(shared)
    return mine


def changes_so_far(
    shadow: Shadow, store: LedgerStore, window: CommandWindow, also: Iterable[str] = ()
) -> tuple[list[Changed], list[Changed]]:
    """Return what a command may have changed that was cut off with its process: all that differs from
    the checkpoint before it. The second part changed only after the process was last alive."""
    now: list[RootSnapshot] = []
    for before in window.snapshots:
        space = ScannedRoot(shadow, Path(before.root), f"look-{os.getpid()}-{threading.get_ident()}")
        now.append(space.snapshot(also))
        space.close()
    try:
        until = pulse_file(store, window.who.run_id).stat().st_mtime + 2 * PULSE_SECONDS
    except OSError:
        until = window.began + 2 * PULSE_SECONDS
    rows = attribute(store, window, changes_of(shadow, window, now))
    sure: list[Changed] = []
    late: list[Changed] = []
    for row in rows:
        if _changed_after(row, until):
            late.append(row)
        else:
            sure.append(row)
    return sure, late


def _changed_after(row: Changed, moment: float) -> bool:
    # What is gone has no time, and a folder's says nothing.
    if row.after is None or row.after.is_folder:
        return False
    try:
        return os.lstat(row.path).st_mtime > moment
    except OSError:
        return False


def touched_paths(shadow: Shadow, rows: Iterable[Changed]) -> tuple[TouchedPath, ...]:
    """Return rows as they stand in an effect. Folders are left to the ledger."""
    found: list[TouchedPath] = []
    files: list[Changed] = []
    for row in rows:
        if not row.is_only_folder and len(files) < MOST_HASHED:
            files.append(row)
    if not files:
        return ()
    with shadow.reading() as blobs:
        for row in files:
            before = None
            if row.before is not None and not row.before.is_folder:
                before = hashlib.sha256(blobs.get(row.before.oid)).hexdigest()
            after = row.after_hash
            if not after and row.after is not None:
                after = f"sha1:{row.after.oid}"
            found.append(TouchedPath(row.path, before, after))
    return tuple(found)


def _row(window: CommandWindow, path: str, difference: Difference, digest: str | None) -> Changed:
    return Changed(
        at=time.time(),
        who=window.who,
        turn=window.turn,
        call_id=window.call_id,
        kind="command",
        path=path,
        before=difference.before,
        after=difference.after,
        after_hash=digest,
    )


def _hash(path: str, entry: PathState | None) -> str | None:
    """Return the content hash of what is there now, as readers of the file know it."""
    if entry is None or entry.is_folder:
        return None
    try:
        if stat.S_ISLNK(os.lstat(path).st_mode):
            return hashlib.sha256(os.fsencode(os.readlink(path))).hexdigest()  # noqa: PTH115  (Path would tidy the target)
        if os.lstat(path).st_size > _LARGEST_HASHED:
            return None
        return hashlib.sha256(read_file(path, NO_LIMIT)).hexdigest()
    except OSError:
        return None
