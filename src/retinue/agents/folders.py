"""The folders of agent files: where each dialect keeps them, and those visible from a folder.

The folder decides the dialect of a file: the last one in its path that belongs to a dialect. pi and devkit-pi share
their folders, and there the keys decide, as they do in a place that belongs to no dialect. A file without any sign is
taken for one of Claude Code, by far the most common dialect.

Visible are, the strongest first:

    policy    folders an administrator set up
    flag      `--agents` (not a folder; see catalog)
    project   from the working folder up to the repository root, the nearest first; within one
              folder in the order of PROJECT_HOMES
    user      the same homes under the user's own folder, in the order of USER_HOMES
    plugin    `agents/` of each plugin, in the order given
    builtin   the package's own, unless a setting switches them off

Without a repository the walk continues to the root of the file system, but skips every folder that
other users can write to: otherwise anyone could plant an agent in /tmp.

pi looks only in the working folder; devkit-pi takes the nearest `.pi/agents` or `.agents` upward,
and only that one, also above the repository while that is within the user's home. Both rules are applied. This
module is read at every start and imports no table of a dialect.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct

import retinue.builtin
from retinue.core.spec import AgentSpec, DialectName, Source
from retinue.settings.load import load_settings
from retinue.settings.places import home, pi_home, repository_root, retinue_home
from retinue.settings.table import Settings

_MARKDOWN = (".md",)
_EITHER = (".md", ".markdown")


class Home(NamedTuple):
    """A folder of agent files, below a project or below the user's own folder."""

    below: str
    dialect: DialectName
    recursive: bool = False
    suffixes: tuple[str, ...] = _MARKDOWN


PROJECT_HOMES: tuple[Home, ...] = (
    Home(".retinue/agents", "retinue", recursive=True),
    Home(".claude/agents", "claude", recursive=True),
    Home(".pi/agents", "pi", suffixes=_EITHER),
    Home(".agents/agents", "pi"),
    Home(".agents", "devkit", suffixes=_EITHER),
    Home(".codingcode/agents", "codingcode"),
    Home(".opencode/agent", "opencode", recursive=True),
    Home(".opencode/agents", "opencode", recursive=True),
    Home(".gemini/agents", "gemini"),
    Home(".github/agents", "copilot", recursive=True, suffixes=(".agent.md",)),
    Home(".cursor/agents", "cursor", recursive=True),
)
"""Homes within a project, the strongest first."""

USER_HOMES: tuple[Home, ...] = (
    Home(".claude/agents", "claude", recursive=True),
    Home(".codingcode/agents", "codingcode"),
    Home(".config/opencode/agent", "opencode", recursive=True),
    Home(".config/opencode/agents", "opencode", recursive=True),
    Home(".gemini/agents", "gemini"),
    Home(".cursor/agents", "cursor", recursive=True),
)
"""Homes under the user's folder; Retinue's and pi's own, which can be moved, come first."""

_SIGNS: tuple[tuple[DialectName, frozenset[str]], ...] = (
    ("codingcode", frozenset({"maxSteps"})),
    ("opencode", frozenset({"permission", "permissions"})),
    ("gemini", frozenset({"timeout_mins", "mcp_servers"})),
    ("copilot", frozenset({"mcp-servers", "handoffs"})),
    ("cursor", frozenset({"is_background"})),
    (
        "pi",
        frozenset(
            "prompt_mode systemPromptMode inherit_context inheritProjectContext inheritSkills run_in_background "
            "display_name exclude_extensions allowed_subagents".split()
        ),
    ),
    ("claude", frozenset({"disallowedTools", "permissionMode", "maxTurns", "effort", "mcpServers", "color"})),
)
"""Keys that only one dialect has, for files in a place that belongs to none."""

_DEVKIT = frozenset({"name", "description", "readonly", "tools", "model"})

_WORKSPACE = "/.agents/agents/"
"""The one folder of pi that devkit-pi does not read."""

_OTHER_PLACES: dict[tuple[str, str], DialectName] = {
    (".claude-plugin", "agents"): "claude",
    (".pi", "agent"): "pi",
    **{(f".{tool}", "agents"): "generic" for tool in ("agy", "ai", "kiro", "kilo", "qwen", "junie", "continue")},
}


_DIALECT_BY_FOLDERS: dict[tuple[str, str], DialectName] = dict(_OTHER_PLACES)
"""The last two folders of every home, and of the places that are read but not searched."""
WRITTEN_FOLDERS: dict[DialectName, str] = {}
"""Where a project's agents of each dialect are written."""
for _home in (*PROJECT_HOMES, *USER_HOMES):
    _parts = _home.below.split("/")
    if len(_parts) > 1:
        _DIALECT_BY_FOLDERS[_parts[-2], _parts[-1]] = _home.dialect
for _home in PROJECT_HOMES:
    WRITTEN_FOLDERS.setdefault(_home.dialect, _home.below)
# devkit-pi also reads `.agents`, but its agents are usually beside pi's.
WRITTEN_FOLDERS["devkit"] = ".pi/agents"
WRITABLE = tuple(WRITTEN_FOLDERS)


def refine(home: DialectName | None, keys: Collection[str]) -> DialectName:
    """Return the dialect of a file with these keys in a place that belongs to `home`, or to no dialect."""
    if home is None:
        for dialect, signs in _SIGNS:
            if not signs.isdisjoint(keys):
                return dialect
    # devkit-pi's files have a name, a readonly key, and nothing beyond its five keys.
    if home in (None, "pi") and "readonly" in keys and "name" in keys and _DEVKIT.issuperset(keys):
        return "devkit"
    return home or "claude"


def may_be_devkits(spec: AgentSpec) -> bool:
    """Return whether the file was written for devkit-pi, as far as anyone can tell: also one that is read as pi's
    and has a name and nothing beyond devkit-pi's keys, in a folder that both share."""
    if spec.dialect != "pi" or spec.path is None:
        return spec.dialect == "devkit"
    return "name" in spec.fates and _DEVKIT.issuperset(spec.fates) and _WORKSPACE not in spec.path.replace("\\", "/")


def by_place(path: str) -> DialectName | None:
    """Return the dialect that the path alone tells; None where it tells none."""
    parts = path.replace("\\", "/").split("/")
    name = parts[-1].lower()
    if name.endswith((".yaml", ".yml")):
        return "kimi"
    if name.endswith(".agent.md"):
        return "copilot"
    if name.endswith(".markdown"):
        return "devkit"
    for index in range(len(parts) - 2, 0, -1):
        home = _DIALECT_BY_FOLDERS.get((parts[index - 1], parts[index]))
        if home is not None:
            return home
    if parts[-2:-1] == [".agents"]:
        return "devkit"
    return None


MAX_FOLDER_DEPTH = 16


class Folder(Struct, frozen=True):
    """One place with agent files. A folder whose `home` is pi may have files of devkit-pi as well."""

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

_SHARED_FOLDERS = frozenset({".github", ".config"})
"""Folders that belong to no dialect as a whole."""


def dialect_folders() -> frozenset[str]:
    """Return the folders, relative to a project or the user's home, with the files that a dialect obeys: agents, and
    beside them skills, hooks, servers and settings."""
    folders = set()
    for agent_home in (*PROJECT_HOMES, *USER_HOMES):
        first, *below = agent_home.below.split("/")
        folders.add(f"{first}/{below[0]}" if first in _SHARED_FOLDERS else first)
    return frozenset(folders)


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
    user = [folder for folder in _user(environment) if _exists(folder.path)]
    taken = {os.path.realpath(folder.path) for folder in user}
    policy = [folder for folder in _policy(policy_folders) if _exists(folder.path)]
    plugins = [folder for folder in _plugins(plugin_folders) if _exists(folder.path)]
    return [*policy, *_project(levels(cwd), home(environment), taken), *user, *plugins]


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


def _project(inside: list[Path], own: Path, taken: set[str]) -> Iterator[Folder]:
    # Above the project, only folders within the home `own` that nobody else can write to.
    homes = (own, own.resolve())
    steps = list(inside)
    for level in inside[-1].parents:
        if any(level.is_relative_to(path) for path in homes) and _private(level):
            steps.append(level)
    nearest = _nearest_devkit(steps)
    for depth, level in enumerate(steps):
        base = str(level).rstrip("/")
        for agent_home in PROJECT_HOMES:
            path = f"{base}/{agent_home.below}"
            if depth >= len(inside) and path != nearest:
                continue
            if agent_home.below in _PI and path != nearest and (depth or agent_home.below == ".agents"):
                if not depth and _exists(path):
                    why = f"Of .pi/agents and .agents, devkit-pi reads the nearest: here {nearest}."
                    yield Folder(path, "project", agent_home.dialect, suffixes=agent_home.suffixes, left_out=why)
                continue
            if _exists(path) and os.path.realpath(path) not in taken:
                yield Folder(path, "project", agent_home.dialect, agent_home.recursive, agent_home.suffixes)


def _nearest_devkit(steps: list[Path]) -> str | None:
    for level in steps:
        for below in (".pi/agents", ".agents"):
            path = f"{str(level).rstrip('/')}/{below}"
            if _exists(path):
                return path
    return None


def _user(environment: Mapping[str, str] | None) -> Iterator[Folder]:
    yield Folder(f"{retinue_home(environment)}/agents", "user", "retinue", recursive=True)
    yield Folder(f"{pi_home(environment)}/agents", "user", "pi", suffixes=_EITHER)
    base = str(home(environment)).rstrip("/")
    for agent_home in USER_HOMES:
        yield Folder(
            f"{base}/{agent_home.below}", "user", agent_home.dialect, agent_home.recursive, agent_home.suffixes
        )


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

FALLBACK_AGENT = AgentSpec(
    name="general-purpose",
    description="Does any task with the same instructions and tools as the agent that starts it.",
    prompt_mode="append",
    source="builtin",
)
"""The only agent when every built-in one is switched off: a twin of its parent."""

SWITCH_VARIABLES = (
    "RETINUE_DISABLE_BUILTIN_AGENTS",
    "RETINUE_DISABLE_DEFAULT_AGENTS",
    "CLAUDE_AGENT_SDK_DISABLE_BUILTIN_AGENTS",
)
_OFF = frozenset({"", "0", "false", "no", "off"})


def builtins_disabled(cwd: Path, environment: Mapping[str, str] | None, settings: Settings | None) -> bool:
    """Return whether an environment switch or the setting leaves the built-in agents out. `settings` are
    those seen from `cwd`, if they are known already."""
    env = os.environ if environment is None else environment
    if any(env.get(switch, "").strip().lower() not in _OFF for switch in SWITCH_VARIABLES):
        return True
    return (settings or load_settings(cwd, environment=env).settings).disable_default_agents
