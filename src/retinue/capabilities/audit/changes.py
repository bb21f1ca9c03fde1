"""The files that runs have changed, as they were before and after: for people who look at a diff.

Content from before is in the shadow repository. Content from after is there only where a later change kept it; else
it is what lies on the disk now, if nobody has changed it since.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from difflib import unified_diff
from pathlib import Path
from typing import Literal

from msgspec import Struct

from retinue.capabilities.audit.ledger_store import Changed
from retinue.capabilities.audit.shadow import Blobs, CheckpointError, PathState, Shadow, blob_id
from retinue.capabilities.audit.undo import Undo
from retinue.core.foreign import NO_LIMIT, read_file

MOST_BYTES = 1_000_000
"""Files above this size are named without a diff."""


class FileDiff(Struct, frozen=True):
    """`diff` is a unified diff; empty where `note` says why there is none."""

    path: str
    status: Literal["created", "changed", "deleted", "unchanged"]
    diff: str = ""
    note: str = ""


def diff_of_runs(folder: Path, run_ids: Sequence[str]) -> list[FileDiff]:
    """Return what these runs have changed, file by file in the order of their paths. `folder` is the state folder of
    the project. Blocks: call it in a thread."""
    if not (folder / "checkpoints" / "ledger.db").is_file():
        return []
    undo = Undo(folder)
    try:
        rows = undo.changed(run_ids)
    finally:
        undo.close()
    chains: dict[str, list[Changed]] = {}
    for row in rows:
        if row.kind != "undo" and not row.has_folder:
            chains.setdefault(row.path, []).append(row)
    if not chains:
        return []
    with Shadow(folder / "checkpoints").reading() as blobs:
        return [_diff(path, chains[path], blobs) for path in sorted(chains)]


def _diff(path: str, chain: Sequence[Changed], blobs: Blobs) -> FileDiff:
    before, after = chain[0].before, chain[-1].after
    status: Literal["created", "changed", "deleted", "unchanged"] = "changed"
    if before is None and after is None:
        status = "unchanged"
    elif before is None:
        status = "created"
    elif after is None:
        status = "deleted"
    elif before == after:
        status = "unchanged"
    if status == "unchanged":
        return FileDiff(path, status)
    try:
        old, new = _content(before, path, blobs), _content(after, path, blobs)
    except CheckpointError as error:
        return FileDiff(path, status, note=f"{error}.")
    if len(old) > MOST_BYTES or len(new) > MOST_BYTES:
        return FileDiff(path, status, note="The file is too large for a diff.")
    if b"\0" in old or b"\0" in new:
        return FileDiff(path, status, note="The file is not text.")
    name_before = path if before is not None else "/dev/null"
    name_after = path if after is not None else "/dev/null"
    lines = unified_diff(_lines(old), _lines(new), name_before, name_after)
    return FileDiff(path, status, "".join(lines))


def _content(state: PathState | None, path: str, blobs: Blobs) -> bytes:
    """Return what a path had in a state. Raise CheckpointError when that is not known any more."""
    if state is None:
        return b""
    with suppress(CheckpointError):
        return blobs.get(state.oid)
    with suppress(OSError):
        found = read_file(path, NO_LIMIT)
        if blob_id(found) == state.oid:
            return found
    raise CheckpointError("It was changed since, and what the run had written is not kept")


def _lines(data: bytes) -> list[str]:
    lines = data.decode("utf-8", "replace").splitlines(keepends=True)
    if lines and not lines[-1].endswith("\n"):
        lines[-1] += "\n\\ No newline at end of file\n"
    return lines
