"""Undo: files that runs have changed go back to how they were, and nobody else's work is lost.

A path is put back all or nothing, and never through a link.

For every path the rows of the ledger are a chain: before, after, before, after. If the chain is
unbroken, only these runs have touched the path; if what is there now is what they left, nobody
has touched it since. Only then is it put back. Everything else is kept, with the reason and the
name of the run that came between, unless the caller insists; and what an insisting caller overwrites
is also kept in the shadow repository.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import stat
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from itertools import pairwise
from pathlib import Path
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from retinue.capabilities.audit.checkpoint import changes_so_far
from retinue.capabilities.audit.ledger import RunLedger
from retinue.capabilities.audit.ledger_store import Changed, LedgerStore, Who
from retinue.capabilities.audit.shadow import Blobs, CheckpointError, PathState, Shadow, blob_id
from retinue.core.events import Undone
from retinue.core.foreign import NO_LIMIT, read_file


def current(path: str) -> PathState | None:
    """Return what is at `path` now; None when nothing is, or when something above it is no folder."""
    try:
        found = os.lstat(path)
        if stat.S_ISDIR(found.st_mode):
            return PathState("", found.st_mode)
        if stat.S_ISLNK(found.st_mode):
            target = os.readlink(path)  # noqa: PTH115  (Path would tidy the target)
            return PathState(blob_id(os.fsencode(target)), found.st_mode)
        if not stat.S_ISREG(found.st_mode):
            return PathState("?", found.st_mode)
        return PathState(blob_id(read_file(path, NO_LIMIT)), found.st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return None


def same(one: PathState | None, other: PathState | None) -> bool:
    """Return whether two entries are the same thing with the same content and permission bits. A
    link has no bits of its own, and a folder's do not count."""
    if one is None or other is None:
        return one is None and other is None
    if one.is_folder or other.is_folder:
        return one.is_folder and other.is_folder
    if one.is_link or other.is_link:
        return one.is_link and other.is_link and one.oid == other.oid
    return one.oid == other.oid and stat.S_IMODE(one.mode) == stat.S_IMODE(other.mode)


def put_back(path: str, wanted: PathState | None, blobs: Blobs) -> None:
    """Make `path` what `wanted` says. Raise OSError with the reason, and leave the path as it was."""
    if wanted is None:
        _remove(path)
    elif wanted.is_folder:
        _check_above(path)
        if os.path.lexists(path) and (os.path.islink(path) or not os.path.isdir(path)):  # noqa: PTH112, PTH114
            Path(path).unlink()
        Path(path).mkdir(parents=True, exist_ok=True)
    else:
        _check_above(path)
        _write(path, wanted, blobs.get(wanted.oid))


def _remove(path: str) -> None:
    try:
        found = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return
    _check_above(path)
    if stat.S_ISDIR(found.st_mode):
        Path(path).rmdir()
    else:
        Path(path).unlink()


def _check_above(path: str) -> None:
    """Raise OSError if a folder above is a link: it would lead somewhere else. Make missing folders."""
    above = os.path.dirname(path)  # noqa: PTH120  (paths may hold bytes that are no text)
    if os.path.realpath(above) != above:
        raise OSError(40, "its folder is reached through a link now", path)
    Path(above).mkdir(parents=True, exist_ok=True)


def _write(path: str, wanted: PathState, data: bytes) -> None:
    if os.path.isdir(path) and not os.path.islink(path):  # noqa: PTH112, PTH114
        # Only an empty folder gives way.
        Path(path).rmdir()
    beside = f"{os.path.dirname(path)}/.retinue-{secrets.token_hex(8)}.tmp"  # noqa: PTH120
    try:
        if wanted.is_link:
            os.symlink(os.fsdecode(data), beside)  # noqa: PTH211  (Path would tidy the target)
        else:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
            with os.fdopen(os.open(beside, flags, 0o600), "wb") as file:
                file.write(data)
                if hasattr(os, "fchmod"):
                    os.fchmod(file.fileno(), stat.S_IMODE(wanted.mode))
        Path(beside).replace(path)
    except BaseException:
        with suppress(OSError):
            Path(beside).unlink()
        raise


Fate = Literal["restored", "removed", "unchanged", "kept", "failed"]


class UndoneFile(Struct, frozen=True):
    """One path. `restored`: has its old content again; `removed`: the run had made it;
    `unchanged`: was already as before; `kept`: left alone, `detail` says why."""

    path: str
    fate: Fate
    detail: str = ""


class UndoScope(Struct, frozen=True):
    """Which changes: those of `main` from `turn` on (0: all), and those of `below`, from the
    moment `since` on."""

    main: Who
    turn: int = 0
    below: tuple[str, ...] = ()
    since: float = 0.0

    @property
    def runs(self) -> tuple[str, ...]:
        return (self.main.run_id, *self.below)

    def covers(self, row: Changed) -> bool:
        if row.who.run_id == self.main.run_id:
            return row.turn >= self.turn
        # Other runs count their own turns, so only the time compares.
        return row.at >= self.since


class Undo:
    """Blocks: call it in a thread. `folder` is the state folder of the project."""

    def __init__(self, folder: Path) -> None:
        self._shadow = Shadow(folder / "checkpoints")
        self._store = LedgerStore(folder / "checkpoints")

    def close(self) -> None:
        self._store.close()

    def forgotten(self, run_ids: Sequence[str]) -> float | None:
        """Return when checkpoints of any of these runs were removed because they were old."""
        return self._store.forgotten(run_ids)

    def changed(self, run_ids: Sequence[str]) -> list[Changed]:
        """Return what these runs have changed, in order; with what commands changed that were cut off
        together with their process."""
        return [*self._store.of_runs(run_ids), *self._unfinished(run_ids)[0]]

    def run(self, scope: UndoScope, *, force: bool = False, dry_run: bool = False) -> list[UndoneFile]:
        """Put back what can be. Never raises for one path: its fate says what was wrong."""
        uncertain, late = self._unfinished(scope.runs)
        late_paths = {row.path for row in late}
        chains: dict[str, list[Changed]] = {}
        for row in (*self._store.of_runs(scope.runs), *uncertain, *late):
            if scope.covers(row):
                chains.setdefault(row.path, []).append(row)
        done: list[UndoneFile] = []
        with nullcontext() if dry_run or not chains else self._shadow.reading() as blobs:
            for path in _order(chains):
                chain = chains[path]
                fate = self._fate(path, chain, scope, force, late_paths)
                if blobs is not None and fate.fate in ("restored", "removed"):
                    fate = self._put_back(fate, chain, scope, blobs)
                if not _is_folder(chain):
                    done.append(fate)
        return sorted(done, key=lambda each: each.path)

    def _unfinished(self, run_ids: Sequence[str]) -> tuple[list[Changed], list[Changed]]:
        found: tuple[list[Changed], list[Changed]] = ([], [])
        for window in self._store.open_windows(run_ids):
            also = [row.path for row in self._store.of_runs([window.who.run_id])]
            try:
                sure, late = changes_so_far(self._shadow, self._store, window, also)
            except CheckpointError:
                continue
            found[0].extend(sure)
            found[1].extend(late)
        return found

    def _fate(self, path: str, chain: list[Changed], scope: UndoScope, force: bool, late: set[str]) -> UndoneFile:
        target = chain[0].before
        try:
            now = current(path)
            if same(now, target):
                return UndoneFile(path, "unchanged")
            # A folder goes only when it is empty.
            if not force and not _is_folder(chain):
                reason = self._objection(path, chain, scope, now)
                if not reason and path in late:
                    reason = "it changed after the process of this run was last seen alive"
                if reason:
                    return UndoneFile(path, "kept", reason)
        except OSError as error:
            return UndoneFile(path, "failed", error.strerror or str(error))
        return UndoneFile(path, "removed" if target is None else "restored")

    def _objection(self, path: str, chain: list[Changed], scope: UndoScope, now: PathState | None) -> str:
        """Return why putting `path` back would destroy another's work; empty if it would not."""
        first, last = chain[0], chain[-1]
        others = [row for row in self._store.of_path(path) if row.who.run_id not in scope.runs]
        for row in others:
            if first.id and row.id > first.id and (row.id < last.id or not last.id):
                return f"it was also changed by {row.who} in between"
        for earlier, later in pairwise(chain):
            if not same(earlier.after, later.before):
                return "someone else changed it between two changes of this run"
        if not same(now, last.after):
            who = next((str(row.who) for row in others if same(row.after, now)), "someone else")
            what = "deleted" if now is None else "changed"
            return f"it was {what} since by {who}"
        strangers: set[str] = set()
        for row in chain:
            strangers |= set(row.shared).difference(scope.runs)
        if strangers:
            names = ", ".join(run[:8] for run in sorted(strangers))
            return f"a command of another run ({names}) may have changed it"
        return ""

    def _put_back(self, fate: UndoneFile, chain: list[Changed], scope: UndoScope, blobs: Blobs) -> UndoneFile:
        path, target = fate.path, chain[0].before
        ledger = RunLedger(self._store, None, Who(scope.main.run_id, f"undo of {scope.main.agent}"))
        try:
            with ledger.lease(Path(path)):
                now = current(path)
                if now is not None and not now.is_folder and not now.is_link:
                    self._shadow.keep(read_file(path, NO_LIMIT))
                put_back(path, target, blobs)
                self._store.add([_undo_row(path, now, target, chain[-1])])
        except (OSError, CheckpointError) as error:
            return UndoneFile(path, "failed", getattr(error, "strerror", None) or str(error))
        return fate


def _order(chains: dict[str, list[Changed]]) -> list[str]:
    """Return first what is removed, the deepest first; then what comes back, folders before what is in them."""

    def key(path: str) -> tuple[int, int, str]:
        target = chains[path][0].before
        depth = path.count("/")
        if target is None:
            return (0, -depth, path)
        return (1, depth, path) if target.is_folder else (2, depth, path)

    return sorted(chains, key=key)


def _is_folder(chain: list[Changed]) -> bool:
    return all(row.is_only_folder for row in chain)


def _undo_row(path: str, now: PathState | None, target: PathState | None, last: Changed) -> Changed:
    digest = None
    if target is not None and not target.is_folder and not target.is_link:
        digest = hashlib.sha256(read_file(path, NO_LIMIT)).hexdigest()
    return replace(last, id=0, at=0.0, kind="undo", before=now, after=target, after_hash=digest, shared=())


def undone_event(
    done: Sequence[UndoneFile], *, by: Literal["person", "rollback"], turn: int | None = None, forced: bool = False
) -> Undone:
    """Return what an undo did, as an event."""
    restored, removed, kept = [], [], []
    for each in done:
        if each.fate == "restored":
            restored.append(each.path)
        elif each.fate == "removed":
            removed.append(each.path)
        elif each.fate in ("kept", "failed"):
            kept.append(f"{each.path} ({each.detail})")
    return Undone(tuple(restored), tuple(removed), tuple(kept), turn=turn, by=by, forced=forced)
