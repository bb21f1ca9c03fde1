"""What a user does with agents by name: switch off, switch on, take a copy to edit."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from retinue.agents.catalog import Catalog, LoadedAgent
from retinue.agents.convert import Loss, convert, differences
from retinue.agents.create import agents_folder, file_name, write_new
from retinue.agents.dialects import DIALECTS
from retinue.agents.discover import PluginFolder, find_folders
from retinue.agents.edit import write_atomically
from retinue.agents.parse import parse, read_bytes
from retinue.agents.toggle import is_stub, stub, switch_off, switch_on
from retinue.core.lean import dataclass, replace
from retinue.core.spec import DialectName, Problem
from retinue.errors import ConfigurationError, UsageError

Action = Literal["edited", "stub-written", "stub-deleted", "unchanged"]


@dataclass(frozen=True, slots=True)
class Toggled:
    name: str
    path: Path
    action: Action

    @property
    def changed(self) -> bool:
        return self.action != "unchanged"


@dataclass(frozen=True, slots=True)
class Ejected:
    """`losses` is empty whenever the copy says all that the original said."""

    name: str
    origin: str
    path: Path
    dialect: DialectName
    losses: tuple[Loss, ...] = ()
    replaced: bool = False


def disable(name: str, cwd: Path, *, user: bool = False, plugins: Iterable[PluginFolder] = ()) -> Toggled:
    """Switch an agent off. A file of the user's is edited; a built-in agent, or a plugin's, is
    hidden by a stub in the project (or the user's folder). Raise UnknownAgentError, UsageError,
    ConfigurationError; then nothing has changed."""
    entry = Catalog.load(cwd, plugin_folders=plugins).find(name)
    _not_policy(entry)
    if not entry.enabled:
        return Toggled(entry.name, Path(entry.path), "unchanged")
    if entry.source in ("builtin", "plugin"):
        path = agents_folder("retinue", cwd, user=user) / file_name(entry.name, "retinue")
        write_new(path, stub(entry.name).decode(), force=False)
        return Toggled(entry.name, path, "stub-written")
    path = locate(entry, cwd)
    data = _content(path)
    switched = switch_off(data, parse(data, path=str(path), dialect=_dialect(entry, path), source=entry.source))
    return _apply(entry, path, switched.data, switched.changed, switched.refused)


def enable(name: str, cwd: Path, *, plugins: Iterable[PluginFolder] = ()) -> Toggled:
    """Switch an agent on again; a stub that did nothing but hide another agent is deleted."""
    entry = Catalog.load(cwd, plugin_folders=plugins).find(name)
    _not_policy(entry)
    if entry.enabled:
        return Toggled(entry.name, Path(entry.path), "unchanged")
    path = locate(entry, cwd)
    data = _content(path)
    parsed = parse(data, path=str(path), dialect=_dialect(entry, path), source=entry.source)
    if is_stub(data, parsed):
        _delete(path)
        return Toggled(entry.name, path, "stub-deleted")
    switched = switch_on(data, parsed)
    return _apply(entry, path, switched.data, switched.changed, switched.refused)


def eject(
    name: str,
    cwd: Path,
    *,
    dialect: DialectName = "retinue",
    user: bool = False,
    force: bool = False,
    plugins: Iterable[PluginFolder] = (),
) -> Ejected:
    """Copy an agent into a file of the project or the user: verbatim where the dialect is the
    same and the copy means the same, else converted."""
    entry = Catalog.load(cwd, plugin_folders=plugins).find(name)
    path = agents_folder(dialect, cwd, user=user) / file_name(entry.name, dialect)
    if path.exists() and Path(entry.path).exists() and path.samefile(entry.path):
        raise UsageError(f"'{entry.name}' is already {path}.", remedy="Edit that file.")
    text, losses = _copy(entry, path, dialect)
    made = write_new(path, text, force=force)
    return Ejected(entry.name, entry.path, path, dialect, losses, made.replaced)


def locate(entry: LoadedAgent, cwd: Path) -> Path:
    """The file an agent came from; if that has gone since, the file of its name in the strongest
    folder. ConfigurationError when there is none."""
    recorded = Path(entry.path)
    if recorded.is_file():
        return recorded
    for folder in find_folders(cwd):
        for suffix in folder.suffixes:
            guess = Path(folder.path) / f"{entry.name}{suffix}"
            if folder.source in ("project", "user") and guess.is_file():
                return guess
    raise ConfigurationError(f"The file of '{entry.name}' is gone: {entry.path}.", remedy="Look again.")


def _copy(entry: LoadedAgent, path: Path, dialect: DialectName) -> tuple[str, tuple[Loss, ...]]:
    data = read_bytes(entry.path) if Path(entry.path).is_file() else None
    if isinstance(data, bytes) and entry.parsed.dialect == dialect:
        again = parse(data, path=str(path), dialect=dialect)
        if again.spec is not None and not differences(entry.spec, again.spec) and _is_text(data):
            return data.decode(), ()
    parsed = entry.parsed
    if entry.source == "builtin" and parsed.spec is not None:
        # A copy of ours in another dialect has no other time limit than before: it is written out.
        seconds = DIALECTS[parsed.dialect].limits.get("seconds")
        parsed = replace(parsed, spec=replace(parsed.spec, timeout_seconds=parsed.spec.timeout_seconds or seconds))
    made = convert(parsed, dialect)
    return made.text, made.losses


def _is_text(data: bytes) -> bool:
    try:
        return bool(data.decode())
    except UnicodeDecodeError:
        return False


def _apply(entry: LoadedAgent, path: Path, data: bytes, changed: bool, refused: str) -> Toggled:
    if refused:
        raise ConfigurationError(f"{path} was not changed: {refused}.", remedy=f"Try: retinue agents lint --fix {path}")
    if not changed:
        return Toggled(entry.name, path, "unchanged")
    try:
        write_atomically(path, data)
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be written: {error.strerror or error}.") from error
    return Toggled(entry.name, path, "edited")


def _dialect(entry: LoadedAgent, path: Path) -> DialectName | None:
    """The dialect the catalog read it in; a guess for a file that was found instead of it."""
    return entry.parsed.dialect if str(path) == entry.path else None


def _content(path: Path) -> bytes:
    data = read_bytes(str(path))
    if isinstance(data, Problem):
        raise ConfigurationError(f"{path}: {data.message}", remedy=data.remedy)
    return data


def _delete(path: Path) -> None:
    try:
        path.unlink()
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be deleted: {error.strerror or error}.") from error


def _not_policy(entry: LoadedAgent) -> None:
    if entry.source == "policy":
        raise UsageError(
            f"'{entry.name}' is set by policy ({entry.path}).", remedy="Only its administrator can switch it."
        )
