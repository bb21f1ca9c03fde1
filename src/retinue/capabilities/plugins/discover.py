"""Which plugins there are: the user's folder, settings, installed packages, the project."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from retinue.capabilities.plugins.plugin import Failed, Origin, Plugin, Plugins
from retinue.settings.places import repository_root, retinue_home

FOLDER = "plugins"


def plugin_places(cwd: Path, environment: Mapping[str, str]) -> list[tuple[Path, bool]]:
    """The folders that hold plugins, with whether only the user can have put them there."""
    own = retinue_home(environment) / FOLDER
    places = [(own, True)] if own.is_dir() else []
    top = repository_root(cwd) or cwd
    for folder in (cwd, *cwd.parents):
        place = folder / ".retinue" / FOLDER
        if place.is_dir() and not (own.is_dir() and place.samefile(own)):
            places.append((place, False))
        if folder == top:
            break
    return places


def find_plugins(
    cwd: Path,
    environment: Mapping[str, str],
    *,
    listed: Iterable[tuple[Path, bool]] = (),
    packages: bool = True,
    disabled: Iterable[tuple[str, bool]] = (),
) -> Plugins:
    """`listed` are paths of the settings, `disabled` names of plugins to leave out; each with
    whether the user said so. What a project says switches off only what a project brings: it
    must not take away what guards the user."""
    found: list[Plugin] = []
    failed: list[Failed] = []
    off = [(name.lower(), own) for name, own in disabled]
    for made in _all(cwd, environment, listed, packages):
        if isinstance(made, Failed):
            failed.append(made)
        elif any(name in made.names and (own or not made.personal) for name, own in off):
            continue
        elif (twin := next((each for each in found if each.name.lower() == made.name.lower()), None)) is not None:
            if twin.where != made.where:
                failed.append(Failed(made.where, f"another plugin is called '{made.name}', too: {twin.where}"))
        else:
            found.append(made)
    return Plugins(tuple(found), tuple(failed))


def read_path(path: Path, origin: Origin, *, personal: bool) -> Plugin | Failed:
    """A plugin by its path: a folder, or a Python file."""
    from retinue.capabilities.plugins.manifest import read_file, read_folder

    if path.is_dir():
        return read_folder(path, origin, personal=personal)
    if path.is_file():
        return read_file(path, origin, personal=personal)
    return Failed(str(path), "there is nothing at this path")


def _all(
    cwd: Path, environment: Mapping[str, str], listed: Iterable[tuple[Path, bool]], packages: bool
) -> Iterator[Plugin | Failed]:
    """The user's own first."""
    places = plugin_places(cwd, environment)
    paths = list(listed)
    for place in [folder for folder, personal in places if personal]:
        yield from _inside(place, "user", personal=True)
    for path in [path for path, personal in paths if personal]:
        yield read_path(path, "setting", personal=True)
    if packages:
        yield from _packages(cwd, environment)
    for path in [path for path, personal in paths if not personal]:
        yield read_path(path, "setting", personal=False)
    for place in [folder for folder, personal in places if not personal]:
        yield from _inside(place, "project", personal=False)


def _inside(place: Path, origin: Origin, *, personal: bool) -> Iterator[Plugin | Failed]:
    try:
        entries = sorted(os.scandir(place), key=lambda entry: entry.name)
    except OSError as error:
        yield Failed(str(place), f"it cannot be listed: {error.strerror or error}")
        return
    for entry in entries:
        if entry.name.startswith((".", "_")):
            continue
        path = place / entry.name
        if path.is_dir() or entry.name.endswith(".py"):
            yield read_path(path, origin, personal=personal)


def _packages(cwd: Path, environment: Mapping[str, str]) -> Iterator[Plugin | Failed]:
    from retinue.capabilities.plugins.packages import entry_points, packaged

    return map(packaged, entry_points(retinue_home(environment), cwd))
