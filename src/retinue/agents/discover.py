"""The folders of agent files visible from a folder, the strongest first.

    policy    folders an administrator set up
    flag      `--agents` (not a folder; see catalog)
    project   from the working folder up to the repository root, the nearest first; within one
              folder in the order of homes.PROJECT
    user      the same homes under the user's own folder, in the order of homes.USER
    plugin    `agents/` of each plugin, in the order given
    builtin   the package's own, unless a setting switches them off

Without a repository the walk continues to the root of the file system, but skips every folder that
other users can write to: otherwise anyone could plant an agent in /tmp.

pi looks only in the working folder; devkit-pi takes the nearest `.pi/agents` or `.agents` upward,
and only that one. Both rules are applied.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from msgspec import Struct

import retinue.builtin
from retinue.agents.homes import PI_HOME, PROJECT, RETINUE_HOME, USER, by_place
from retinue.core.spec import AgentSpec, DialectName, Source
from retinue.settings.load import load_settings
from retinue.settings.places import home, pi_home, repository_root, retinue_home
from retinue.settings.table import Settings

MAX_DEPTH = 16
_MARKDOWN = (".md",)


class Folder(Struct, frozen=True):
    """One place with agent files. `home` pi may hold devkit-pi's files as well."""

    path: str
    source: Source
    home: DialectName
    recursive: bool = False
    suffixes: tuple[str, ...] = _MARKDOWN
    plugin: str | None = None
    left_out: str = ""
    """Why its agents are not read; they are reported instead."""


PluginFolder = Path | str | tuple[str, Path]
"""A plugin's own folder, or the name of a plugin and a folder of agents."""


_PI = frozenset({".pi/agents", ".agents/agents", ".agents"})

_SHARED = frozenset({".github", ".config"})
"""Folders that belong to no dialect as a whole."""


def dialect_folders() -> frozenset[str]:
    """Return the folders, from a project or the user's own, that hold what each dialect obeys: agents, and
    beside them its skills, hooks, servers and settings."""
    found = set()
    for place in (*PROJECT, *USER):
        first, second = place.below.split("/")[0], "/".join(place.below.split("/")[:2])
        found.add(second if first in _SHARED else first)
    return frozenset(found)


_MANAGED = {
    "darwin": "/Library/Application Support/ClaudeCode/.claude/agents",
    "win32": "C:/Program Files/ClaudeCode/.claude/agents",
}


def find_folders(
    cwd: Path,
    *,
    environment: Mapping[str, str] | None = None,
    policy_folders: Iterable[Path | str] = (),
    plugin_folders: Iterable[PluginFolder] = (),
) -> list[Folder]:
    """Return every folder that exists, strongest first, without that of built-in agents."""
    policy = [folder for folder in _policy(policy_folders) if _exists(folder.path)]
    user = list(_user(environment))
    taken = {os.path.realpath(folder.path) for folder in user}
    plugins = [folder for folder in _plugins(plugin_folders) if _exists(folder.path)]
    return [*policy, *_project(levels(cwd), taken), *user, *plugins]


def levels(cwd: Path) -> list[Path]:
    """Return the working folder and the folders above it that belong to the project."""
    here = cwd.absolute()
    try:
        root = repository_root(here)
    except OSError:  # a folder above may not be looked into
        root = None
    above = tuple(here.parents)
    if root is not None:
        return [here, *above[: len(above) - len(root.parents)]]
    return [here, *(folder for folder in above if _private(folder))]


def _exists(path: str) -> bool:
    return os.path.isdir(path)  # noqa: PTH112 (asked sixty times per load; never raises)


def _private(folder: Path) -> bool:
    # A folder that cannot be looked at is not trusted.
    try:
        return not folder.stat().st_mode & stat.S_IWOTH
    except OSError:
        return False


def _policy(folders: Iterable[Path | str]) -> Iterator[Folder]:
    for folder in folders:
        yield Folder(str(folder), "policy", by_place(f"{folder}/agent.md") or "retinue", recursive=True)
    yield Folder("/etc/retinue/agents", "policy", "retinue", recursive=True)
    managed = _MANAGED.get(sys.platform, "/etc/claude-code/.claude/agents")
    yield Folder(managed, "policy", "claude", recursive=True)


def _project(steps: list[Path], taken: set[str]) -> Iterator[Folder]:
    nearest = _nearest_devkit(steps)
    for depth, level in enumerate(steps):
        base = str(level).rstrip("/")
        for place in PROJECT:
            path = f"{base}/{place.below}"
            if place.below in _PI and path != nearest and (depth or place.below == ".agents"):
                if not depth and _exists(path):
                    why = f"Of .pi/agents and .agents, devkit-pi reads the nearest: here {nearest}."
                    yield Folder(path, "project", place.dialect, suffixes=place.suffixes, left_out=why)
                continue
            if _exists(path) and os.path.realpath(path) not in taken:
                yield Folder(path, "project", place.dialect, place.recursive, place.suffixes)


def _nearest_devkit(steps: list[Path]) -> str | None:
    for level in steps:
        for below in (".pi/agents", ".agents"):
            path = f"{str(level).rstrip('/')}/{below}"
            if _exists(path):
                return path
    return None


def _user(environment: Mapping[str, str] | None) -> Iterator[Folder]:
    base = str(home(environment)).rstrip("/")
    places = [
        (f"{retinue_home(environment)}/agents", RETINUE_HOME),
        (f"{pi_home(environment)}/agents", PI_HOME),
        *((f"{base}/{place.below}", place) for place in USER),
    ]
    for path, place in places:
        if _exists(path):
            yield Folder(path, "user", place.dialect, place.recursive, place.suffixes)


def _plugins(folders: Iterable[PluginFolder]) -> Iterator[Folder]:
    for folder in folders:
        if isinstance(folder, tuple):
            name, path = folder
            yield Folder(str(path.absolute()), "plugin", "claude", recursive=True, plugin=name)
        else:
            path = Path(folder).absolute()
            yield Folder(str(path / "agents"), "plugin", "claude", recursive=True, plugin=path.name)


_AGENTS = Path(retinue.builtin.__file__).parent / "agents"
BUILTIN_FOLDERS = (
    Folder(str(_AGENTS), "builtin", "retinue"),
    Folder(str(_AGENTS / "devkit"), "builtin", "devkit"),
    Folder(str(_AGENTS / "codingcode"), "builtin", "codingcode"),
)
"""Those of devkit-pi and CodingCode are files of their dialects, so they have those limits too."""

FALLBACK = AgentSpec(
    name="general-purpose",
    description="Does any task with the same instructions and tools as the agent that starts it.",
    prompt_mode="append",
    source="builtin",
)
"""What remains when every built-in agent is switched off: a twin of its parent."""

SWITCHES = (
    "RETINUE_DISABLE_BUILTIN_AGENTS",
    "RETINUE_DISABLE_DEFAULT_AGENTS",
    "CLAUDE_AGENT_SDK_DISABLE_BUILTIN_AGENTS",
)
_OFF = frozenset({"", "0", "false", "no", "off"})


def builtins_disabled(cwd: Path, environment: Mapping[str, str] | None, settings: Settings | None) -> bool:
    """Return whether an environment switch or the setting leaves the built-in agents out. `settings` are
    those seen from `cwd`, if they are known already."""
    env = os.environ if environment is None else environment
    if any(env.get(switch, "").strip().lower() not in _OFF for switch in SWITCHES):
        return True
    if settings is not None:
        return settings.disable_default_agents
    said = []
    for layer in load_settings(cwd, environment=env).layers:
        said.append(layer.values.get("disable_default_agents"))
    return next((value for value in reversed(said) if value is not None), False)
