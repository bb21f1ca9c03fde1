"""Deleting agent files: only those of the person or the project, and only the one that was meant."""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct

from retinue.agents.catalog import Catalog, LoadedAgent
from retinue.agents.precedence import shadows
from retinue.errors import ConfigurationError, UnknownAgentError, UsageError

OWN = ("project", "user")
"""Sources whose files are the person's to change."""


class Removed(Struct, frozen=True):
    """`instead` is the agent of that name that counts now, if any is left."""

    name: str
    paths: tuple[Path, ...]
    instead: LoadedAgent | None = None


def own_files(catalog: Catalog, entry: LoadedAgent) -> tuple[Path, ...]:
    """Return the files that stand before a built-in agent of the name, strongest first: what a reset
    deletes. Empty where there is no built-in one below, or something else stands between."""
    chain = (entry, *shadows(catalog.entries, entry))
    above: list[Path] = []
    for each in chain:
        if each.source == "builtin":
            return tuple(above)
        if each.source not in OWN:
            return ()
        above.append(Path(each.path))
    return ()


def remove(name: str, cwd: Path, path: Path) -> Removed:
    """Delete `path`, from which the agent `name` is loaded. UsageError for an agent that has no
    file of the person's; ConfigurationError when it is loaded from elsewhere by now, or the file
    cannot be deleted."""
    entry = Catalog.load(cwd).find(name)
    if entry.source not in OWN:
        raise UsageError(
            f"'{entry.name}' is not yours to delete: it comes from {_origin(entry)}.",
            remedy="Disable it instead, or eject it to have a file of your own.",
        )
    if Path(entry.path) != path:
        raise ConfigurationError(
            f"'{entry.name}' is loaded from {entry.path} by now, not from {path}.", remedy="Look again."
        )
    _delete(path)
    return Removed(entry.name, (path,), _winner(cwd, entry.name))


def reset(name: str, cwd: Path, paths: tuple[Path, ...]) -> Removed:
    """Delete `paths`, which `own_files` gave: the built-in agent counts again. Raise as
    `remove`; nothing is deleted when other files stand there by now."""
    catalog = Catalog.load(cwd)
    entry = catalog.find(name)
    if not paths or own_files(catalog, entry) != paths:
        raise ConfigurationError(f"The files of '{entry.name}' have changed.", remedy="Look again.")
    for path in paths:
        _delete(path)
    return Removed(entry.name, paths, _winner(cwd, entry.name))


def _winner(cwd: Path, name: str) -> LoadedAgent | None:
    try:
        return Catalog.load(cwd).find(name)
    except UnknownAgentError:
        return None


def _origin(entry: LoadedAgent) -> str:
    if entry.source == "builtin":
        return "the package"
    return f"{entry.source} ({entry.path})"


def _delete(path: Path) -> None:
    try:
        path.unlink()
    except OSError as error:
        raise ConfigurationError(
            f"{path} cannot be deleted: {error.strerror or error}.", remedy="Check the folder."
        ) from error
