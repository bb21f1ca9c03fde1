"""Which files of other programs may have hooks, found by looking and without reading them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from retinue.settings.places import home, repository_root

FILES: Mapping[str, tuple[str, ...]] = {
    ".claude": ("settings.json", "settings.local.json"),
    ".codingcode": ("hooks.yaml", "hooks.yml"),
}


class HookFile(NamedTuple):
    """`personal`: it is the user's own, and not a project's."""

    path: Path
    personal: bool
    folder: str


def hook_files(cwd: Path, environment: Mapping[str, str]) -> list[HookFile]:
    """The files there are, the user's own first. A project's are those of the nearest folder
    upward that has any, not above the repository's root."""
    found: list[HookFile] = []
    root = repository_root(cwd) or cwd
    for folder, names in FILES.items():
        own = home(environment) / folder
        found += [HookFile(own / name, True, folder) for name in names if (own / name).is_file()]
        for place in (cwd, *cwd.parents):
            here = [place / folder / name for name in names if (place / folder / name).is_file()]
            if here:
                if (place / folder).resolve() != own.resolve():
                    found += [HookFile(path, False, folder) for path in here]
                break
            if place == root:
                break
    return found
