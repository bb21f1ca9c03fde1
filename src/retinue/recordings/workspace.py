"""The folder that a test works in: a temporary copy of its fixture, and the changes in it.

A fixture is a folder, a git bundle, or a commit of a repository. The default is the project at the commit at which the
run was recorded, or its present files if its repository has no commit. The project itself is never written to.

A test or replay whose process is killed leaves its temporary folder, and commands that still run. The log in each
folder names the process that wrote it. The next test or replay of the same user ends those commands and removes the
folders of dead processes.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Mapping
from difflib import unified_diff
from pathlib import Path

from msgspec import Struct

from retinue.core.delegation import LIVE
from retinue.core.files import read_file
from retinue.errors import ConfigurationError, RetinueError
from retinue.guard.git import Git, GitError
from retinue.log.query import LogReader
from retinue.runs.cleanup import end_leftovers
from retinue.settings.places import repository_root

_MAX_COMPARED_BYTES = 4_000_000
"""Larger files are compared by size and modification time, and have no diff."""


class FixtureError(ConfigurationError):
    """A fixture that is missing or cannot be copied."""

    code = "BAD_FIXTURE"


class RepositoryFixture(Struct, frozen=True, forbid_unknown_fields=True):
    """A commit of a repository. `repo` is a path, relative to the test file."""

    repo: str = "."
    ref: str = "HEAD"


def copy_fixture(
    fixture: str | RepositoryFixture | None,
    base: Path,
    target: Path,
    environment: Mapping[str, str],
    commit: str | None,
) -> None:
    """Make `target` a copy of the fixture that a test file in the folder `base` names. Without a fixture it is the
    project at `commit`, which is the recorded one. Raise FixtureError."""
    if isinstance(fixture, str):
        _copy_path((base / fixture).resolve(), target, environment)
        return
    if isinstance(fixture, RepositoryFixture):
        source, ref = (base / fixture.repo).resolve(), fixture.ref
    else:
        source, ref = base.resolve(), commit or "HEAD"
    root = repository_root(source) if source.is_dir() else None
    if root is None:
        raise FixtureError(
            f"{source} is not in a git repository, so there is no commit to begin at.",
            remedy="Name a folder: `fixture: path/to/folder`.",
        )
    if fixture is None and commit is None and Git(root, environment).ask("rev-parse", "--verify", "HEAD") is None:
        _copy_uncommitted(root, target, environment)
    else:
        _clone(root, ref, target, environment)


def _copy_uncommitted(root: Path, target: Path, environment: Mapping[str, str]) -> None:
    """Copy the files of a repository that has no commit yet, except those it ignores."""
    try:
        listed = Git(root, environment)("ls-files", "-z", "--cached", "--others", "--exclude-standard")
        target.mkdir(parents=True)
        Git(target, environment)("init", "--quiet")
    except GitError as error:
        raise FixtureError(f"{root} cannot be copied: {error.why}.", remedy="Name a folder.") from error
    for name in filter(None, listed.split(b"\0")):
        source, copy = root / os.fsdecode(name), target / os.fsdecode(name)
        if source.is_symlink() or source.is_file():
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, copy, follow_symlinks=False)


def _copy_path(source: Path, target: Path, environment: Mapping[str, str]) -> None:
    if source.is_dir():
        # Links are copied as links, so that nothing outside of the fixture gets into the copy.
        shutil.copytree(source, target, symlinks=True, ignore=shutil.ignore_patterns(".git"))
        return
    if not source.is_file():
        raise FixtureError(f"The fixture {source} does not exist.", remedy="Name a folder or a git bundle.")
    if source.suffix != ".bundle":
        raise FixtureError(f"The fixture {source} is neither a folder nor a git bundle (*.bundle).")
    _clone(source, "HEAD", target, environment)


def _clone(source: Path, ref: str, target: Path, environment: Mapping[str, str]) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    git = Git(target.parent, environment).having(GIT_ALLOW_PROTOCOL="file")
    try:
        git("clone", "--quiet", "--no-checkout", "--no-tags", str(source), str(target))
        here = Git(target, environment)
        here("checkout", "--quiet", "--detach", ref)
        # An agent under test must not reach the original repository.
        here("remote", "remove", "origin")
    except GitError as error:
        reason = f"{source} cannot be copied at {ref}: {error.why}."
        raise FixtureError(reason, remedy="Name a commit that is there, or a folder.") from error


class FileState(Struct, frozen=True):
    """One file: a digest of its content, and the content itself if it was asked for and the file is small."""

    digest: str
    content: bytes | None = None


Snapshot = Mapping[str, FileState]
"""All files of a folder at one moment, by their paths below it."""


def take_snapshot(folder: Path, *, content: bool = False) -> Snapshot:
    """Return the files of a folder by their hashes, without those of git. With `content`, small files are kept in
    full."""
    files: dict[str, FileState] = {}
    for base, folders, names in os.walk(folder):
        folders[:] = sorted(set(folders) - {".git"})
        for name in names:
            path = os.path.join(base, name)  # noqa: PTH118 - a large tree
            files[os.path.relpath(path, folder)] = _state(path, content)
    return files


def changed_paths(before: Snapshot, after: Snapshot) -> list[str]:
    """Return the paths that were created, changed or removed, in order."""
    changed = []
    for path in sorted(before.keys() | after.keys()):
        old, new = before.get(path), after.get(path)
        if old is None or new is None or old.digest != new.digest:
            changed.append(path)
    return changed


def diff_snapshots(before: Snapshot, after: Snapshot) -> str:
    """Return a unified diff of the changes, with the paths of git's diffs."""
    lines: list[str] = []
    for path in changed_paths(before, after):
        old, new = _lines(before.get(path)), _lines(after.get(path))
        if old is None or new is None:
            lines.append(f"Binary files a/{path} and b/{path} differ\n")
            continue
        name_before = f"a/{path}" if path in before else "/dev/null"
        name_after = f"b/{path}" if path in after else "/dev/null"
        lines += unified_diff(old, new, name_before, name_after)
    return "".join(lines)


def _state(path: str, content: bool) -> FileState:
    try:
        status = os.lstat(path)
        if stat.S_ISLNK(status.st_mode):
            return FileState(f"link {Path(path).readlink()}")
        if not stat.S_ISREG(status.st_mode) or status.st_size > _MAX_COMPARED_BYTES:
            return FileState(f"{status.st_mode} {status.st_size} {status.st_mtime_ns}")
        data = read_file(path, _MAX_COMPARED_BYTES)
    except OSError as error:
        return FileState(f"unreadable {error.errno}")
    mode = stat.S_IMODE(status.st_mode) & 0o111
    return FileState(f"{hashlib.sha256(data).hexdigest()} {mode}", data if content else None)


def _lines(state: FileState | None) -> list[str] | None:
    """Return the lines of a file, no lines for a missing one, and None for a binary one."""
    if state is None:
        return []
    if state.content is None or b"\0" in state.content:
        return None
    lines = state.content.decode("utf-8", "replace").splitlines(keepends=True)
    if lines and not lines[-1].endswith("\n"):
        lines[-1] += "\n\\ No newline at end of file\n"
    return lines


# Folders of killed processes

WORKSPACE_PREFIXES = ("retinue-test-", "retinue-replay-")
_MAX_UNOWNED_SECONDS = 3600.0
"""The age at which a folder without a readable owner is removed."""


def clear_leftovers(folder: Path | None = None) -> list[str]:
    """Remove the temporary folders of dead processes of this user, and end the commands that still run in them. Return
    the folders. Never raises for a folder that cannot be removed."""
    base = folder or Path(tempfile.gettempdir())
    removed: list[str] = []
    for path in base.iterdir():
        if path.name.startswith(WORKSPACE_PREFIXES) and _is_ours(path) and _is_dead(path):
            shutil.rmtree(path, ignore_errors=True)
            removed.append(str(path))
    return removed


def _is_ours(path: Path) -> bool:
    try:
        status = path.lstat()
    except OSError:
        return False
    # Another user may have made a folder or link of this name so that we remove something of our own.
    mine = not hasattr(os, "getuid") or status.st_uid == os.getuid()
    return mine and path.is_dir() and not path.is_symlink()


def _is_dead(path: Path) -> bool:
    """Return whether no process works in a folder any more. If so, its commands are ended."""
    if not (path / "state" / "log.db").is_file():
        return time.time() - path.stat().st_mtime > _MAX_UNOWNED_SECONDS
    try:
        with LogReader.open(path / "state") as reader:
            rows = reader.list_runs()
            if not rows or any(row.state in LIVE for row in rows):
                return False
            # A living process removes its own folder after its runs have ended.
            if not any(row.state == "interrupted" for row in rows):
                return time.time() - path.stat().st_mtime > _MAX_UNOWNED_SECONDS
            end_leftovers(reader)
    except (RetinueError, OSError):
        return False
    return True
