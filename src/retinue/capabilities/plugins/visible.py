"""The plugins of a project, as its settings and folders say now. Nothing of them is run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from retinue.capabilities.plugins.discover import find_plugins
from retinue.capabilities.plugins.plugin import Plugins
from retinue.settings.load import Loaded, Read
from retinue.settings.places import retinue_home


def visible_plugins(cwd: Path, environment: Mapping[str, str], loaded: Loaded) -> Plugins:
    """`loaded` are the settings as seen from `cwd`. Lists of several files add up: what a project
    lists does not replace what the user has listed."""
    listed: list[tuple[Path, bool]] = []
    disabled: list[tuple[str, bool]] = []
    for layer in loaded.layers:
        own = layer.origin.personal
        base = _base(layer, cwd, environment)
        listed += [(base / Path(path).expanduser(), own) for path in layer.values.get("plugins", ())]
        disabled += [(name, own) for name in layer.values.get("disabled_plugins", ())]
    packages = loaded.settings.plugin_entry_points
    return find_plugins(cwd, environment, listed=listed, packages=packages, disabled=disabled)


def agent_folders(plugins: Plugins) -> tuple[tuple[str, Path], ...]:
    """The folders with agents, each under the name of its plugin."""
    return tuple((plugin.name, folder) for plugin in plugins.found for folder in plugin.agents)


def skill_folders(plugins: Plugins) -> tuple[tuple[str, Path], ...]:
    """The folders with skills, each under the name of its plugin."""
    return tuple((plugin.name, folder) for plugin in plugins.found for folder in plugin.skills)


def _base(layer: Read, cwd: Path, environment: Mapping[str, str]) -> Path:
    """What relative paths of a layer are relative to: the folder whose settings they are."""
    match layer.origin.layer:
        case "user":
            return retinue_home(environment)
        case "project" | "local":
            return Path(layer.origin.where).parent.parent
        case _:
            return cwd
