"""Changing a file: check, lock, write beside, rename. All or nothing, and never over a change the run has not seen.

Between reading what is there and renaming the new content over it, the folder is locked
against other Retinue runs (threads by a lock, processes by flock), so of two runs that read
the same version only one can write; the other is told that its version is stale. What changed is
shown as a short diff.
"""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import partial

from msgspec import Struct

from retinue.core.permission import ToolEffect, TouchedPath
from retinue.core.process import lock_file
from retinue.core.tool import ToolContext
from retinue.tools.base import ToolError
from retinue.tools.capture import head_and_tail
from retinue.tools.content import content_hash
from retinue.tools.paths import Confined, FolderEntry, open_regular, refuse_irregular, spot
from retinue.tools.safe_dir import replace_entry

LARGEST = 64 * 1024 * 1024
"""Files beyond this size are neither hashed nor rewritten by tools."""

_LOCKS = tuple(threading.Lock() for _ in range(64))
_FLOCK_SECONDS = 2.0


class Change(Struct, frozen=True):
    """What a rewrite did. `old` is None when there was no file."""

    old: bytes | None
    new: bytes
    effect: ToolEffect


def rewrite(
    confined: Confined, context: ToolContext, change: Callable[[bytes | None], bytes], *, executable: bool = False
) -> Change:
    """Replace the content of `confined` by what `change` makes of it. `change` gets None for a
    file that does not exist, and raises ToolError to leave everything as it is. A file that
    exists keeps its mode; a new one can be made `executable`."""
    made = 0o777 if executable else 0o666
    mode = made
    # Looked at before the folder is locked: making the folders above must wait until the change is accepted.
    fresh = _existing(confined) is None
    # Before any folder is made: a refusal leaves no trace.
    new = change(None) if fresh else b""
    ledger = context.ledger
    with _lease(confined, context), spot(confined, create=fresh) as where, _lock(where, confined):
        found = where.stat()
        old = None
        if found is not None:
            old = read_whole(where, confined)
            mode = found.st_mode
        if old is not None or not fresh:
            new = change(old)
        _refuse_readonly(found, confined)
        after = content_hash(new)
        touched = _touched_path(confined, old, after)
        if new != old:
            if ledger:
                ledger.writing(confined.path, old, new, mode)
            if found is None or not hasattr(os, "fchmod"):
                replace_entry(where.folder, where.name, new, made)
            else:
                keep = partial(_keep_owner_and_mode, old=found)
                replace_entry(where.folder, where.name, new, made, keep)
            if ledger:
                ledger.wrote(confined.path, touched.before, after)
    context.seen[confined.real] = after
    return Change(old, new, ToolEffect(writes=(touched,)))


def remove(confined: Confined, context: ToolContext) -> ToolEffect:
    """Delete a file. What was in it is kept for undo first. Raise ToolError where a rewrite would."""
    ledger = context.ledger
    with _lease(confined, context), spot(confined) as where, _lock(where, confined):
        found = where.stat()
        if found is None:
            raise ToolError(f"{confined.shown} does not exist.")
        old = read_whole(where, confined)
        check_fresh(confined, context, old)
        _refuse_readonly(found, confined)
        before = content_hash(old)
        if ledger:
            ledger.writing(confined.path, old, None, found.st_mode)
        os.unlink(where.name, dir_fd=where.folder)
        if ledger:
            ledger.wrote(confined.path, before, None)
    context.seen.pop(confined.real, None)
    return ToolEffect(writes=(TouchedPath(confined.real, before, None),))


def _refuse_readonly(found: os.stat_result | None, confined: Confined) -> None:
    if found is not None and not found.st_mode & 0o222:
        raise ToolError(f"{confined.shown} is marked read-only. Change its mode first if it must be changed.")


def check_fresh(confined: Confined, context: ToolContext, current: bytes) -> None:
    """Refuse when this run's knowledge of the file is older than the file."""
    known, now = context.seen.get(confined.real), content_hash(current)
    if known is not None and known != now:
        who = changed_by(confined, context, now)
        changed = "changed since it was last read here"
        if who:
            changed = f"was changed by {who} since you read it"
        raise ToolError(f"{confined.shown} {changed}. Read it again, then redo the change.")


def changed_by(confined: Confined, context: ToolContext, now: str) -> str | None:
    """Return which other run wrote the content with the hash `now`, where that is known."""
    return None if context.ledger is None else context.ledger.changed_by(confined.path, now)


def _lease(confined: Confined, context: ToolContext) -> AbstractContextManager[object]:
    return nullcontext() if context.ledger is None else context.ledger.lease(confined.path)


def _touched_path(confined: Confined, old: bytes | None, after: str) -> TouchedPath:
    if old is None:
        return TouchedPath(confined.real, None, after)
    return TouchedPath(confined.real, content_hash(old), after)


def read_whole(where: FolderEntry, confined: Confined) -> bytes:
    descriptor = open_regular(where, confined)
    with os.fdopen(descriptor, "rb") as file:
        data = file.read(LARGEST + 1)
    if len(data) > LARGEST:
        raise ToolError(
            f"{confined.shown} is larger than {LARGEST // 2**20} MB: too large to rewrite. Use bash instead."
        )
    return data


def _existing(confined: Confined) -> os.stat_result | None:
    try:
        with spot(confined) as where:
            found = where.stat()
    except FileNotFoundError:
        return None
    if found is not None:
        refuse_irregular(found, confined)
    return found


def _keep_owner_and_mode(descriptor: int, old: os.stat_result) -> None:
    made = os.fstat(descriptor)
    if (made.st_uid, made.st_gid) != (old.st_uid, old.st_gid):
        with suppress(OSError):
            os.fchown(descriptor, old.st_uid, old.st_gid)
    # After the owner, because changing the owner clears the set-uid bits.
    os.fchmod(descriptor, stat.S_IMODE(old.st_mode))


@contextmanager
def _lock(where: FolderEntry, confined: Confined) -> Iterator[None]:
    # The flock is best effort; within this process the order is certain.
    with _LOCKS[hash(confined.real) % len(_LOCKS)], _lock_folder(where):
        yield


@contextmanager
def _lock_folder(where: FolderEntry) -> Iterator[None]:
    """Lock the folder if that is possible. A file system without locks, or a lock held for seconds,
    does not stop the write; the hash check still catches what changed before it."""
    descriptor = None
    with suppress(OSError):
        descriptor = os.open(".", os.O_RDONLY | os.O_CLOEXEC, dir_fd=where.folder)
    try:
        if descriptor is not None:
            with suppress(OSError):
                lock_file(descriptor, _FLOCK_SECONDS)
        yield
    finally:
        if descriptor is not None:
            os.close(descriptor)


_CONTEXT = 2
_COMPARED = 1000
"""Lines of difference beyond which both sides are summarised instead of aligned."""
_CHARACTERS = 3000
_FOR_PEOPLE = 20_000


def short_diff(old: str, new: str, most: int = _CHARACTERS) -> str:
    if old.endswith("\n") and new.endswith("\n"):
        # What follows the last line end is no line.
        old, new = old[:-1], new[:-1]
    before, after = old.split("\n"), new.split("\n")
    start = _common(before, after)
    rest_before, rest_after = before[start:], after[start:]
    end = _common(rest_before[::-1], rest_after[::-1])
    middle_before = rest_before[: len(rest_before) - end]
    middle_after = rest_after[: len(rest_after) - end]
    if len(middle_before) + len(middle_after) > _COMPARED:
        return f"@@ line {start + 1} @@ {len(middle_before)} lines became {len(middle_after)}"
    lead = before[max(0, start - _CONTEXT) : start]
    trail = rest_before[len(rest_before) - end :][:_CONTEXT]
    hunks = _hunks(lead + middle_before + trail, lead + middle_after + trail, max(0, start - _CONTEXT))
    return head_and_tail("\n".join(hunks), most, "")


def unified_diff(name: str, old: str, new: str, *, fresh: bool = False) -> str:
    """Return the diff for people who decide: longer, under a head that names the file. A `fresh` file
    was not there before, and is shown from its first line on."""
    if not fresh:
        return f"--- {name}\n+++ {name}\n{short_diff(old, new, _FOR_PEOPLE)}"
    lines = new.removesuffix("\n").split("\n")
    added = "\n".join(_prefix_lines("+", lines))
    return f"--- /dev/null\n+++ {name}\n@@ -0,0 +1,{len(lines)} @@\n{head_and_tail(added, _FOR_PEOPLE, '')}"


def _common(first: list[str], second: list[str]) -> int:
    for index, (one, other) in enumerate(zip(first, second, strict=False)):
        if one != other:
            return index
    return min(len(first), len(second))


def _hunks(before: list[str], after: list[str], skipped: int) -> list[str]:
    from difflib import SequenceMatcher

    lines: list[str] = []
    for group in SequenceMatcher(None, before, after, autojunk=False).get_grouped_opcodes(_CONTEXT):
        _, first, last, begin, finish = group[0][0], group[0][1], group[-1][2], group[0][3], group[-1][4]
        lines.append(f"@@ -{skipped + first + 1},{last - first} +{skipped + begin + 1},{finish - begin} @@")
        for tag, a, b, c, d in group:
            if tag == "equal":
                lines += _prefix_lines(" ", before[a:b])
            else:
                lines += _prefix_lines("-", before[a:b]) + _prefix_lines("+", after[c:d])
    return lines


def _prefix_lines(sign: str, lines: list[str]) -> list[str]:
    return [sign + line for line in lines]
