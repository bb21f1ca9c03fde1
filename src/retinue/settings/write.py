"""Changes of a settings file that lose nothing in it.

The file is read again under a lock, only the named settings change, and the new text replaces the old one atomically: a
reader never sees a mixture, not even after a crash. Names that this version does not know stay at their places.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

from retinue.core.programs import lock_file
from retinue.errors import UsageError
from retinue.settings.field import Field
from retinue.settings.foreign import EMPTY, read_object
from retinue.settings.load import LOCAL_SETTINGS_FILE, SETTINGS_FILE, project_folder
from retinue.settings.places import private_folder, retinue_home
from retinue.settings.table import find, spellings

Target = Literal["project", "local", "user"]


class Saved(NamedTuple):
    """The result of a change. If `persisted` is False, the file could not be written, for the reason in `problem`, and
    the values only apply in this session."""

    path: Path
    persisted: bool
    problem: str | None = None


class Append(NamedTuple):
    """A value for `save_settings` that adds an entry to a list, unless the list has it."""

    entry: str


class Remove(NamedTuple):
    """A value for `save_settings` that removes an entry from a list."""

    entry: str


def save_settings(
    changes: Mapping[str, Any],
    *,
    cwd: Path | str,
    target: Target = "project",
    environment: Mapping[str, str] | None = None,
) -> Saved:
    """Write `changes` to one file: raw values by setting name. None removes a setting, `Append` and `Remove` change its
    list in this file. Raise UsageError for an unknown name or a wrong value; then nothing is written."""
    checked = {name: _check_value(name, raw, target) for name, raw in changes.items()}

    def edit(data: dict[str, Any]) -> None:
        for name, field in checked.items():
            raw = changes[name]
            if isinstance(raw, Append):
                entries = _present(data, field)
                raw = entries if raw.entry in entries else [*entries, raw.entry]
            elif isinstance(raw, Remove):
                raw = [entry for entry in _present(data, field) if entry != raw.entry] or None
            _change(data, field, raw)

    return _edit_file(edit, Path(cwd), target, environment)


def remove_unknown(
    name: str, *, cwd: Path | str, target: Target = "project", environment: Mapping[str, str] | None = None
) -> Saved:
    """Remove a name that is no setting from one file."""

    def edit(data: dict[str, Any]) -> None:
        data.pop(name, None)
        _remove(data, name.split("."))

    return _edit_file(edit, Path(cwd), target, environment)


def _edit_file(
    edit: Callable[[dict[str, Any]], None], cwd: Path, target: Target, environment: Mapping[str, str] | None
) -> Saved:
    if environment is None:
        environment = os.environ
    path = target_file(cwd, target, environment)
    try:
        if target == "user":
            private_folder(path.parent)
        path.parent.mkdir(parents=True, exist_ok=True)
        real = path.resolve()  # a link stays a link; what it points to is replaced
        if target != "user" and not real.is_relative_to(path.parent.parent.resolve()):
            return Saved(path, False, f"{path} is a link that leads out of the project, to {real}; nothing was written")
        with locked_folder(real.parent):
            file = read_object(real, exact=True)
            if file.problem not in (None, EMPTY):
                return Saved(path, False, f"{path} {file.problem}; repair it first, so that nothing in it is lost")
            if file.repeated:
                names = ", ".join(file.repeated)
                return Saved(path, False, f"{path} has twice: {names}; keep one of each first, so that nothing is lost")
            edit(file.data)
            # A file of the project may be shared with others; the umask has the last word.
            mode = 0o600 if target == "user" else 0o666
            replace_file(real, _text(file.data), new_mode=mode)
    except (OSError, RuntimeError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        return Saved(path, False, f"{path} cannot be written: {reason}")
    return Saved(path, True)


def target_file(cwd: Path, target: Target, environment: Mapping[str, str]) -> Path:
    if target == "user":
        return retinue_home(environment) / SETTINGS_FILE
    return project_folder(cwd, environment) / (SETTINGS_FILE if target == "project" else LOCAL_SETTINGS_FILE)


def replace_file(path: Path, text: bytes, *, new_mode: int = 0o666) -> None:
    """Replace a file atomically: write a file beside it, sync it to disk, and rename it. The mode is kept; a new file
    gets `new_mode` less the umask."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{os.urandom(4).hex()}")
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0), new_mode)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        with contextlib.suppress(FileNotFoundError):
            temporary.chmod(path.stat().st_mode & 0o7777)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    with contextlib.suppress(OSError):  # some file systems cannot sync a folder
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def counts_in(target: Target, field: Field, value: Any) -> bool:
    """Return whether this value of a setting has an effect in that file."""
    return target == "user" or value is None or field.personal_when is None or not field.personal_when(value)


def _check_value(name: str, raw: Any, target: Target) -> Field:
    field = find(name)
    if field is None:
        raise UsageError(f"There is no setting '{name}'.", remedy="See all of them with: retinue settings list")
    complaints: list[str] = []
    value = None
    if raw is not None and not isinstance(raw, Remove):
        raw = [raw.entry] if isinstance(raw, Append) else raw
        value = field.kind.read(raw, field.name, lambda at, accepts: complaints.append(f"{at} must be {accepts}."))
    if complaints:
        raise UsageError(complaints[0], remedy=f"{field.name}: {field.doc}")
    if not counts_in(target, field, value):
        raise UsageError(
            f"This value of {field.name} counts only in your own settings, not in a file of the project.",
            remedy=f"Write it there: retinue settings set {field.name} … --user",
        )
    return field


def _present(data: dict[str, Any], field: Field) -> list[Any]:
    value: Any = data.get(field.name)
    if value is None:
        value = data
        for name in field.name.split("."):
            value = value.get(name) if isinstance(value, dict) else None
    return value if isinstance(value, list) else []


def _change(data: dict[str, Any], field: Field, raw: Any) -> None:
    """Set or remove one setting. Its aliases are removed, because they would take effect otherwise."""
    for alias in field.aliases:
        _remove(data, alias.name.split("."))
    path = field.name.split(".")
    old = data.get(field.name)
    if isinstance(old, dict) and (raw is None or isinstance(raw, dict)):
        # Settings whose group has the name of this one (`hooks.failOpen`) stay in it.
        others = {key: value for key, value in old.items() if f"{field.name}.{key}" in spellings()}
        raw = {**others, **(raw or {})} or None
    if raw is None:
        _remove(data, path)
        data.pop(field.name, None)
        return
    if field.name in data:
        data[field.name] = raw
        return
    *groups, last = path
    level = data
    for group in groups:
        inner = level.get(group)
        if not isinstance(inner, dict):
            inner = level[group] = {}
        level = inner
    level[last] = raw


def _remove(data: dict[str, Any], path: list[str]) -> None:
    first, *below = path
    inner = data.get(first)
    if not below:
        data.pop(first, None)
    elif isinstance(inner, dict):
        _remove(inner, below)
        if not inner:
            del data[first]


def _text(data: Mapping[str, Any]) -> bytes:
    import json

    # Not orjson: the file may hold numbers and texts that it refuses, and they must be kept.
    try:
        return (json.dumps(data, ensure_ascii=False, indent=2) + "\n").encode("utf-8")
    except UnicodeEncodeError:
        return (json.dumps(data, indent=2) + "\n").encode("ascii")


@contextlib.contextmanager
def locked_folder(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder against other processes. The folder itself is locked, so no lock file is left."""
    if sys.platform == "win32":  # a folder cannot be opened there; the rename is still atomic, the last writer wins
        yield
        return
    handle = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        lock_file(handle)
        yield
    finally:
        os.close(handle)
