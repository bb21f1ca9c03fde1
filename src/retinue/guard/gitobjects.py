"""The copies of hidden files that a repository keeps: what a rule hides must not come back from git's objects.

A copy can be in a commit, in the index, in what the reflog still reaches (an undone commit, an older stash), or be
reached by nothing since `git add` was taken back. A repository has all its objects in one folder and borrows others
(`objects/info/alternates`), so either all of them are hidden or none.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from retinue.core.files import read_text
from retinue.guard.git import Git, GitError
from retinue.settings.places import repository_root

_SEARCH_SECONDS = 10.0
_DEEPEST_LOAN = 5
_MOST_HASHED = 500


def tracked_objects(folder: Path, paths: Sequence[str], environment: Mapping[str, str]) -> tuple[Path, ...]:
    """Return the folders of a repository's objects, its own and borrowed ones, if it keeps a copy of one of these
    files, or where that cannot be told; nothing if it keeps none."""
    top = repository_root(folder)
    if top is None:
        return ()
    inside = [os.path.relpath(path, top) for path in paths if path.startswith(f"{top}{os.sep}")]
    if not inside:
        return ()
    git = Git(top, environment)
    objects = Path(top, ".git", "objects")
    try:
        objects = Path(git.text("rev-parse", "--path-format=absolute", "--git-path", "objects"))
        kept = _is_reached(git, inside) or _is_stored(git, top, inside)
    except GitError:
        kept = True
    if kept:
        return tuple(_with_borrowed(objects))
    return ()


def _is_reached(git: Git, paths: Sequence[str]) -> bool:
    """Return whether the index, a commit or the reflog has one of these paths. Raise GitError."""
    if git("--literal-pathspecs", "ls-files", "-z", "--", *paths):
        return True
    every = ("rev-list", "--all", "--reflog", "--ignore-missing", "-n", "1", "--")
    return bool(git("--literal-pathspecs", *every, *paths, seconds=_SEARCH_SECONDS))


def _is_stored(git: Git, top: Path, paths: Sequence[str]) -> bool:
    """Return whether an object has the content that one of these files has now. Raise GitError."""
    files = list(_files(top, paths))
    # Too many to look at count as stored.
    if len(files) > _MOST_HASHED:
        return True
    # A line break in a name cannot be told from the end of it.
    named = [file for file in files if "\n" not in file]
    if not named:
        return False
    listed = os.fsencode("\n".join(named))
    ids = git("hash-object", "--no-filters", "--stdin-paths", given=listed, seconds=_SEARCH_SECONDS)
    found = git("cat-file", "--batch-check=%(objecttype)", given=ids, seconds=_SEARCH_SECONDS)
    return any(line == b"blob" for line in found.splitlines())


def _files(top: Path, paths: Sequence[str]) -> Iterator[str]:
    """Yield the files that exist, those in folders too, at most one more than are looked at."""
    count = 0
    for path in paths:
        place = Path(top, path)
        inner = (Path(folder, name) for folder, _, names in os.walk(place) for name in names)
        for file in inner if place.is_dir() else (place,):
            if file.is_file() and not file.is_symlink():
                yield str(file)
                count += 1
            if count > _MOST_HASHED:
                return


def _with_borrowed(objects: Path) -> list[Path]:
    """Return a folder of objects and those that it borrows from, as git follows them."""
    found = [Path(os.path.realpath(objects))]
    level = found
    for _ in range(_DEEPEST_LOAN):
        level = [lender for folder in level for lender in _lenders(folder) if lender not in found]
        found = [*found, *level]
    return found


def _lenders(objects: Path) -> Iterator[Path]:
    try:
        lines = read_text(objects / "info/alternates", errors="surrogateescape").splitlines()
    except (OSError, ValueError):
        return
    for line in lines:
        if line and not line.startswith("#"):
            yield Path(os.path.realpath(objects / line.strip('"')))
