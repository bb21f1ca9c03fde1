"""Create and delete agent files.

A new file has a safe name and the right place, and overwrites nothing by accident. Only files of the
person or the project are deleted, and only the one that was meant.
"""

from __future__ import annotations

import re
import unicodedata
from pathlib import Path

from msgspec import Struct

from retinue.agents.catalog import Catalog, LoadedAgent
from retinue.agents.dialects.tables import DIALECTS
from retinue.agents.edit import write_atomically
from retinue.agents.folders import USER, WRITABLE, WRITTEN, levels
from retinue.agents.precedence import shadows
from retinue.core.spec import DialectName
from retinue.errors import ConfigurationError, UnknownAgentError, UsageError
from retinue.settings.places import home, pi_home, repository_root, retinue_home

MAX_NAME = 128
_RESERVED = re.compile(r"(?i)(con|prn|aux|nul|com\d|lpt\d)(\..*)?\Z")
_UNSAFE = re.compile(r'[^\w.+ @-]|[<>"|?*]')


def check_name(name: str) -> str:
    """Return the name without outer spaces. Raise UsageError for one that does not work in every dialect
    and as a file on every system."""
    clean = name.strip()
    if not clean:
        raise UsageError("An agent needs a name.", remedy="Give one such as code-reviewer.")
    if len(clean) > MAX_NAME or len(clean.encode()) > 200:
        raise UsageError(f"The name is longer than {MAX_NAME} characters.", remedy="Choose a shorter one.")
    if any(mark in clean for mark in "/\\:") or clean.startswith((".", "-")):
        raise UsageError(
            f"'{clean}' cannot be an agent's name.",
            remedy="A name has no '/', '\\' or ':' and does not begin with '.' or '-'. Example: code-reviewer",
        )
    if any(unicodedata.category(char).startswith("C") for char in clean) or _RESERVED.match(clean):
        raise UsageError(
            f"{clean!r} cannot be an agent's name.",
            remedy="A name has no control characters and is no device name of any system. Example: code-reviewer",
        )
    return clean


def file_name(name: str, dialect: DialectName) -> str:
    """Return what the file of an agent of that name is called in that dialect."""
    if dialect == "codingcode":
        stem = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    else:
        stem = _UNSAFE.sub("-", name).strip(". -")
    return (stem or "agent") + DIALECTS[dialect].suffixes[0]


def agents_folder(dialect: DialectName, cwd: Path, *, user: bool) -> Path:
    """Return where that dialect keeps agents: of the user, or of the project `cwd` belongs to. The
    nearest folder upward that exists wins; without one it is made at the repository's root, or
    in `cwd` outside a repository."""
    if dialect not in WRITABLE:
        raise UsageError(f"There is no folder for {dialect} agents.", remedy=f"Choose one of: {', '.join(WRITABLE)}.")
    own = _user_folder(dialect)
    if user:
        if own is None:
            raise UsageError(
                f"{DIALECTS[dialect].title} has no user folder for agents.",
                remedy="Leave out --user, or choose another --dialect.",
            )
        return own
    place = WRITTEN[dialect]
    root = repository_root(cwd)
    for folder in levels(cwd) if root else (cwd,):
        if (folder / place).is_dir() and folder / place != own:
            return folder / place
    return (root or cwd) / place


def _user_folder(dialect: DialectName) -> Path | None:
    # Retinue's and pi's folders can be moved by a variable, so the table does not know them.
    if dialect == "retinue":
        return retinue_home() / "agents"
    if dialect in ("pi", "devkit"):
        return pi_home() / "agents"
    for place in USER:
        if place.dialect == dialect:
            return home() / place.below
    return None


class Created(Struct, frozen=True):
    path: Path
    text: str
    replaced: bool


def write_new(path: Path, text: str, *, force: bool) -> Created:
    """Write the file. UsageError when it exists and `force` is not set; a symbolic link is
    followed only when forced."""
    existed = path.exists() or path.is_symlink()
    if existed and not force:
        raise UsageError(f"{path} exists.", remedy="Use --force to replace it, or choose another name.")
    try:
        write_atomically(path, text.encode("utf-8", "replace"), exclusive=not force)
    except FileExistsError:
        raise UsageError(f"{path} exists.", remedy="Use --force to replace it, or choose another name.") from None
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror or error}.", remedy="Check the folder.") from error
    return Created(path, text, existed)


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
    delete_file(path)
    return Removed(entry.name, (path,), _winner(cwd, entry.name))


def reset(name: str, cwd: Path, paths: tuple[Path, ...]) -> Removed:
    """Delete `paths`, which `own_files` gave: the built-in agent counts again. Raise as
    `remove`; nothing is deleted when other files stand there by now."""
    catalog = Catalog.load(cwd)
    entry = catalog.find(name)
    if not paths or own_files(catalog, entry) != paths:
        raise ConfigurationError(f"The files of '{entry.name}' have changed.", remedy="Look again.")
    for path in paths:
        delete_file(path)
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


def delete_file(path: Path) -> None:
    """Delete a file. Raise ConfigurationError where that is not possible."""
    try:
        path.unlink()
    except OSError as error:
        raise ConfigurationError(
            f"{path} cannot be deleted: {error.strerror or error}.", remedy="Check the folder."
        ) from error
