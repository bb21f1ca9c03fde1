"""`retinue.core.tool.Ledger` for one run: leases on paths, and the word on who changed what.

A lease is a lock on a file of the state folder, one of 256 chosen by the path: it holds across
threads and processes, and the kernel lets go of it when its holder dies. Its content names the
holder, so that one who waited in vain can say for whom.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from retinue.capabilities.audit.ledger_store import Changed, LedgerStore, Who
from retinue.capabilities.audit.shadow import CheckpointError, PathState, Shadow, blob_id
from retinue.core.foreign import NO_LIMIT, read_file
from retinue.core.programs import lock_file
from retinue.settings.places import private_folder

LEASE_SECONDS = 15.0
_FOLDER = stat.S_IFDIR | 0o755


class LeaseError(OSError):
    """Another run held the file for too long."""


class RunLedger:
    """The ledger of one run. The audit of the run keeps `turn` and `call_id` up to date."""

    def __init__(self, store: LedgerStore, shadow: Shadow | None, who: Who) -> None:
        self.who = who
        self.turn = 0
        self.call_id = ""
        self.touched: dict[str, None] = {}
        """Every path this run's own tools have written, ignored by git or not."""
        self._store = store
        self._shadow = shadow
        self._leases = private_folder(store.folder / "leases")
        self._announced: dict[str, list[int]] = {}
        self._missing: dict[str, list[str]] = {}

    @contextmanager
    def lease(self, path: Path) -> Iterator[None]:
        """Hold the lease while `path` is rewritten. Raise LeaseError after a long wait."""
        key = str(path)
        with _locked(self._leases / f"{hashlib.sha256(os.fsencode(key)).digest()[0]:02x}", str(self.who), path):
            self._missing[key] = _missing_parents(path)
            try:
                yield
            finally:
                self._missing.pop(key, None)
                announced = self._announced.pop(key, None)
                # What was announced has not been written.
                if announced:
                    self._store.drop(announced)

    def writing(self, path: Path, old: bytes | None, new: bytes | None, mode: int | None) -> None:
        """Announce, under the lease, that the file is about to be replaced or removed: from here on undo knows the
        way back, whatever happens to this process."""
        key = str(path)
        before, after, digest = None, None, None
        if old is not None:
            before = PathState(self._keep(old), mode or stat.S_IFREG | 0o644)
        if new is not None:
            new_mode = stat.S_IFREG | ((mode or 0o666) & ~_umask())
            # A file that is replaced keeps its permissions.
            if old is not None:
                new_mode = mode or new_mode
            after = PathState(blob_id(new), new_mode)
            digest = hashlib.sha256(new).hexdigest()
        rows = [self._row(folder, None, PathState("", _FOLDER)) for folder in self._missing.get(key, ())]
        rows.append(self._row(key, before, after, digest))
        self._announced[key] = self._store.add(rows)
        self.touched[key] = None

    def wrote(self, path: Path, before: str | None, after: str | None) -> None:
        """Record that the announced write has happened."""
        self._announced.pop(str(path), None)

    def changed_by(self, path: Path, current: str) -> str | None:
        """Return who changed `path` last, if it was another run. `current` is the hash of what is there now; empty when
        nothing is."""
        for row in self._store.of_path(str(path), limit=20):
            if not self._is(row, path, current):
                continue
            if row.who.run_id == self.who.run_id and row.kind != "undo":
                return None
            return f"undo of {row.who}" if row.kind == "undo" else str(row.who)
        for window in reversed(self._store.open_windows()):
            inside = any(path.is_relative_to(each.root) for each in window.snapshots)
            if inside and window.who.run_id != self.who.run_id and _lives(window.pid):
                return f"a running command of {window.who}, it seems,"
        return None

    def _is(self, row: Changed, path: Path, current: str) -> bool:
        if row.after is None or not current:
            return row.after is None and not current
        if row.after_hash is not None:
            return row.after_hash == current
        try:
            return blob_id(read_file(path, NO_LIMIT)) == row.after.oid
        except OSError:
            return False

    def _row(self, path: str, before: PathState | None, after: PathState | None, digest: str | None = None) -> Changed:
        return Changed(
            who=self.who,
            turn=self.turn,
            call_id=self.call_id,
            kind="edit",
            path=path,
            before=before,
            after=after,
            after_hash=digest,
        )

    def _keep(self, data: bytes) -> str:
        """Store content for undo. Where it cannot be stored the edit goes on; only undo will have to say so."""
        if self._shadow is not None:
            with suppress(CheckpointError, OSError):
                return self._shadow.keep(data)
        return blob_id(data)


def _missing_parents(path: Path) -> list[str]:
    """Return the folders above `path` that do not exist yet, the topmost first."""
    found: list[str] = []
    for folder in path.parents:
        if os.path.lexists(folder):
            break
        found.append(str(folder))
    return found[::-1]


def _umask() -> int:
    """Return the mask for new files, without changing it even for a moment: other threads write files meanwhile."""
    try:
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("Umask:"):
                return int(line.split()[1], 8)
    except (OSError, ValueError):
        pass
    return 0o022


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        # It is there, but belongs to somebody else.
        return True
    return True


@contextmanager
def _locked(file: Path, holder: str, path: Path) -> Iterator[None]:
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        if not lock_file(descriptor, LEASE_SECONDS):
            other = os.pread(descriptor, 400, 0).decode("utf-8", "replace") or "another run"
            raise LeaseError(11, f"it is being written by {other}; try again in a moment", str(path))
        name = holder.encode("utf-8", "replace")[:400]
        os.pwrite(descriptor, name, 0)
        os.ftruncate(descriptor, len(name))
        yield
    finally:
        os.close(descriptor)
