"""The folder that a test works in: a temporary copy of its fixture, and the changes in it.

A fixture is a folder, a git bundle, or a commit of a repository; without one it is the project at the commit at which
the run was recorded, or as it is now where its repository has no commit. The project itself is never written to.

A test or replay whose process is killed leaves its temporary folder, and commands that still run. Each folder has a log
of its own, which knows the process that wrote it; the next test or replay of the same user ends and removes what dead
ones have left.
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
"""Files above this size are compared by size and time of change, and have no diff."""
_SKIPPED = frozenset({".git"})


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
    """Make `target` a copy of the fixture that a test file in the folder `base` names. `commit` is the recorded one,
    for a test without a fixture. Raise FixtureError."""
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
    """Copy the files of a repository that has no commit yet, without those that it ignores."""
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
        # A link stays a link: one that leads out of the fixture is not followed into the copy.
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
        # An agent under test must not reach the repository that it was copied from.
        here("remote", "remove", "origin")
    except GitError as error:
        reason = f"{source} cannot be copied at {ref}: {error.why}."
        raise FixtureError(reason, remedy="Name a commit that is there, or a folder.") from error


class FileState(Struct, frozen=True):
    """One file: a digest of its content, and the content itself where it is small text."""

    digest: str
    content: bytes | None = None


class WorkspaceSnapshot(Struct, frozen=True):
    """All files of a folder at one moment, by their paths in it."""

    files: Mapping[str, FileState]

    def changes_to(self, later: WorkspaceSnapshot) -> list[str]:
        """Return the paths that were made, changed or removed, in order."""
        changed = []
        for path in sorted(self.files.keys() | later.files.keys()):
            before, after = self.files.get(path), later.files.get(path)
            if before is None or after is None or before.digest != after.digest:
                changed.append(path)
        return changed

    def diff_to(self, later: WorkspaceSnapshot) -> str:
        """Return a unified diff of the changes, with the paths of git's diffs."""
        lines: list[str] = []
        for path in self.changes_to(later):
            old, new = _lines(self.files.get(path)), _lines(later.files.get(path))
            if old is None or new is None:
                lines.append(f"Binary files a/{path} and b/{path} differ\n")
                continue
            name_before = f"a/{path}" if path in self.files else "/dev/null"
            name_after = f"b/{path}" if path in later.files else "/dev/null"
            lines += unified_diff(old, new, name_before, name_after)
        return "".join(lines)


def take_snapshot(folder: Path, *, content: bool = False) -> WorkspaceSnapshot:
    """Return the files of a folder by their hashes, without git's own. With `content` small files are kept whole."""
    files: dict[str, FileState] = {}
    for base, folders, names in os.walk(folder):
        folders[:] = sorted(set(folders) - _SKIPPED)
        for name in names:
            path = os.path.join(base, name)  # noqa: PTH118 - a large tree
            files[os.path.relpath(path, folder)] = _state(path, content)
    return WorkspaceSnapshot(files)


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
    """Return the lines of a file, none for one that is not there, and None for one that has no text."""
    if state is None:
        return []
    if state.content is None or b"\0" in state.content:
        return None
    lines = state.content.decode("utf-8", "replace").splitlines(keepends=True)
    if lines and not lines[-1].endswith("\n"):
        lines[-1] += "\n\\ No newline at end of file\n"
    return lines


# What killed processes leave behind

PREFIXES = ("retinue-test-", "retinue-replay-")
_OLD_SECONDS = 3600.0


def clear_leftovers(folder: Path | None = None) -> list[str]:
    """End and remove the leftovers of dead processes of this user in the folder for temporary files. Return their
    folders. Never raises for one that cannot be removed."""
    base = folder or Path(tempfile.gettempdir())
    removed: list[str] = []
    for path in base.iterdir():
        if path.name.startswith(PREFIXES) and _is_ours(path) and _is_dead(path):
            shutil.rmtree(path, ignore_errors=True)
            removed.append(str(path))
    return removed


def _is_ours(path: Path) -> bool:
    try:
        status = path.lstat()
    except OSError:
        return False
    # Another user may have made a folder of this name, or a link, to have something of ours removed.
    mine = not hasattr(os, "getuid") or status.st_uid == os.getuid()
    return mine and path.is_dir() and not path.is_symlink()


def _is_dead(path: Path) -> bool:
    """Return whether no process works in a folder any more; its commands are ended then."""
    if not (path / "state" / "log.db").is_file():
        return time.time() - path.stat().st_mtime > _OLD_SECONDS
    try:
        with LogReader.open(path / "state") as reader:
            rows = reader.list_runs()
            if not rows or any(row.state in LIVE for row in rows):
                return False
            # All of a folder whose process works on end before it is removed by that process itself.
            if not any(row.state == "interrupted" for row in rows):
                return time.time() - path.stat().st_mtime > _OLD_SECONDS
            end_leftovers(reader)
    except (RetinueError, OSError):
        return False
    return True
