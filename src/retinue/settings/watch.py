"""Noticing that settings files have changed, by looking at their times when they are used."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from retinue.settings.foreign import foreign_files
from retinue.settings.load import settings_files
from retinue.settings.places import retinue_home

Signature = tuple[tuple[str, tuple[int, ...] | None], ...]


def settings_signature(cwd: Path, environment: Mapping[str, str]) -> Signature:
    """Changes whenever one of the files does that count from `cwd`, comes or goes; and when
    consent to what they bring is given or taken. Take it before reading them."""
    files = [foreign.path for foreign in foreign_files(cwd, environment)]
    files += [str(path) for _, path in settings_files(cwd, environment)]
    return tuple((path, _state(path)) for path in (*files, str(retinue_home(environment) / "trust.json")))


def _state(path: str) -> tuple[int, ...] | None:
    try:
        status = os.stat(path)  # noqa: PTH116
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino
