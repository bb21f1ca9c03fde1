"""Fast shell completion of agents, models, runs, settings and skills.

Finding agents and models is too slow for a Tab. The result is cached in the state folder, with the modification times
of all files that it depends on, and computed again when one of them changes.
"""

from __future__ import annotations

import contextlib
import json
import os

from retinue.core.version import __version__
from retinue.settings.own_folder import cache_path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from typing import Any

    Found = tuple[list[list[str]], list[str]]
    """Pairs of a value and its description, and the files and folders they depend on."""

_MAX_DESCRIPTION_CHARACTERS = 70


def values_of(kind: str) -> Iterator[tuple[str, str]]:
    """Yield the values of one kind with their descriptions. Errors are ignored: a Tab must not print one."""
    with contextlib.suppress(Exception):
        if kind == "run":
            yield from _runs()
        elif kind in _FINDERS:
            yield from cached(f"completion-{kind}-{_state_folder().name}", _FINDERS[kind])


def _runs() -> Iterator[tuple[str, str]]:
    """Yield the newest runs of this project."""
    import sqlite3

    log = _state_folder() / "log.db"
    if not log.is_file():
        return
    connection = sqlite3.connect(f"{log.as_uri()}?mode=ro", uri=True, timeout=0.2)
    try:
        rows = connection.execute("SELECT id, agent, state, task FROM runs ORDER BY created_at DESC LIMIT 40")
        for id, agent, state, task in rows:
            yield id[:8], _short(f"{agent}, {state}: {task}")
    finally:
        connection.close()


def _here() -> Path:
    from pathlib import Path

    return Path.cwd()


def _state_folder() -> Path:
    from retinue.settings.places import state_folder

    return state_folder(_here())


def cached(name: str, find: Callable[[], tuple[Any, list[str]]]) -> Any:
    """Return a JSON value from the cache. `find` computes it if a file that it depends on has changed."""
    file = f"{cache_path(os.environ)}/{name}.json"
    # Models depend on which keys exist, not on their values.
    names = sorted(name for name in os.environ if "KEY" in name or "TOKEN" in name or name.startswith("RETINUE_"))
    with contextlib.suppress(OSError, ValueError, KeyError):
        with open(file, encoding="utf-8") as stored:  # noqa: PTH123 - pathlib takes 5 ms to import
            entry = json.load(stored)
        if entry["version"] == __version__ and entry["names"] == names and _times(entry["files"]) == entry["times"]:
            return entry["values"]
    values, files = find()
    content = {"version": __version__, "names": names, "files": files, "times": _times(files), "values": values}
    with contextlib.suppress(OSError):
        _write(file, json.dumps(content))
    return values


def _write(file: str, content: str) -> None:
    from pathlib import Path

    from retinue.settings.places import private_folder

    path = Path(file)
    private_folder(path.parent)
    beside = path.with_suffix(f".{os.getpid()}")
    beside.write_text(content, "utf-8")
    beside.replace(path)


def _times(paths: list[str]) -> list[int]:
    times = []
    for path in paths:
        try:
            times.append(os.stat(path).st_mtime_ns)  # noqa: PTH116 - dozens of these
        except OSError:
            times.append(0)
    return times


def _short(text: str) -> str:
    line = " ".join(text.split())
    if len(line) > _MAX_DESCRIPTION_CHARACTERS:
        line = line[: _MAX_DESCRIPTION_CHARACTERS - 1] + "…"
    return line


def _find_agents() -> Found:
    from retinue.agents.catalog import Catalog
    from retinue.agents.folders import find_folders

    catalog = Catalog.load(_here())
    values = [[entry.name, _short(entry.spec.description)] for entry in catalog.agents]
    files = [folder.path for folder in find_folders(_here())]
    for entry in catalog.entries:
        if entry.path:
            files.append(str(entry.path))
    return values, [*files, *_settings_files()]


def _find_models() -> Found:
    from retinue.models.keys import environment
    from retinue.models.providers import Providers
    from retinue.settings.load import load_settings

    providers = Providers(load_settings(_here()).settings, environment())
    return [[info.full_name, _short(info.name)] for info in providers.models], _settings_files()


def _find_settings() -> Found:
    from retinue.settings.table import fields

    return [[field.name, _short(field.doc)] for field in fields().values()], []


def _settings_files() -> list[str]:
    from retinue.settings.load import settings_signature

    return [path for path, _ in settings_signature(_here(), os.environ)]


_FINDERS: dict[str, Callable[[], Found]] = {
    "agent": _find_agents,
    "model": _find_models,
    "setting": _find_settings,
}
