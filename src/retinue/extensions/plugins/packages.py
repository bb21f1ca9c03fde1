"""Plugins that are installed as Python packages: entry points of the group `retinue.plugins`.

Read from the files beside the packages and not through `importlib.metadata`, which takes longer
to import than a run takes to start. No package is imported. What a folder of `sys.path` holds is
remembered until the folder changes.
"""

from __future__ import annotations

import importlib.util
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from retinue.extensions.plugins.manifest import read_folder
from retinue.extensions.plugins.plugin import Failed, Plugin

GROUP = "retinue.plugins"
_MARK = GROUP.encode()
_DISTRIBUTION = re.compile(r"(?P<name>[^-]+)-(?P<version>[^-]+)?.*\.(?:dist|egg)-info")
_VALUE = re.compile(r"[A-Za-z_][\w.]*(?::[A-Za-z_][\w.]*)?")


class EntryPoint(NamedTuple):
    name: str
    value: str
    distribution: str
    version: str


_known: dict[str, tuple[int, tuple[EntryPoint, ...]]] = {}


def entry_points() -> list[EntryPoint]:
    """Those of our group on `sys.path`; of two with one name the first on the path counts."""
    found: dict[str, EntryPoint] = {}
    for folder in dict.fromkeys(sys.path):
        for point in _in_folder(folder or os.curdir):
            found.setdefault(point.name, point)
    return list(found.values())


def packaged(point: EntryPoint) -> Plugin | Failed:
    """The plugin behind an entry point, as far as its files tell."""
    where = f"{point.distribution} ({point.name} = {point.value})"
    if not _VALUE.fullmatch(point.value):
        return Failed(where, f"'{point.value[:80]}' is no module and no object of one")
    module, _, _ = point.value.partition(":")
    folder = _folder_of(module)
    if folder is None:
        short = (point.distribution,) if point.distribution != point.name else ()
        return Plugin(
            point.name,
            "package",
            where,
            personal=True,
            entry=point.value,
            version=point.version,
            aliases=short,
            code=(point.value,),
        )
    made = read_folder(
        folder, "package", personal=True, name=point.name, aliases=(point.distribution,), entry=point.value
    )
    return made if isinstance(made, Failed) or made.version else _with_version(made, point.version)


def _with_version(plugin: Plugin, version: str) -> Plugin:
    from dataclasses import replace

    return replace(plugin, version=version)


def _folder_of(module: str) -> Path | None:
    """The folder of a package, found without importing it; None for a plain module or nothing."""
    first, *rest = module.split(".")
    try:
        spec = importlib.util.find_spec(first)
    except (ImportError, ValueError, AttributeError):
        return None
    if spec is None or not spec.submodule_search_locations:
        return None
    folder = Path(next(iter(spec.submodule_search_locations))).joinpath(*rest)
    return folder if folder.is_dir() else None


def _in_folder(folder: str) -> tuple[EntryPoint, ...]:
    try:
        changed = os.stat(folder).st_mtime_ns  # noqa: PTH116 (asked for every folder at every launch)
        known = _known.get(folder)
        if known is None or known[0] != changed:
            known = _known[folder] = (changed, tuple(_read(folder)))
    except OSError:  # a zip file, or nothing at all
        return ()
    return known[1]


def _read(folder: str) -> Iterator[EntryPoint]:
    with os.scandir(folder) as entries:
        names = [entry.name for entry in entries if entry.name.endswith((".dist-info", ".egg-info"))]
    for name in sorted(names):
        try:
            text = (Path(folder) / name / "entry_points.txt").read_bytes()
        except OSError:
            continue
        match = _DISTRIBUTION.fullmatch(name)
        if _MARK in text and match is not None:
            distribution = match["name"].replace("_", "-")
            yield from _parsed(text.decode(errors="replace"), distribution, match["version"] or "")


def _parsed(text: str, distribution: str, version: str) -> Iterator[EntryPoint]:
    ours = False
    for line in map(str.strip, text.splitlines()):
        if line.startswith("["):
            ours = line == f"[{GROUP}]"
        elif ours and "=" in line and not line.startswith(("#", ";")):
            name, _, value = line.partition("=")
            yield EntryPoint(name.strip(), value.partition("[")[0].strip(), distribution, version)
