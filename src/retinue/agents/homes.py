"""Where the files of each dialect lie, and which dialect a file is written in.

The folder decides; the last one in the path that belongs to a dialect counts. pi and devkit-pi share
their folders, and there the keys decide, as they do in a place that belongs to no dialect. Without any
sign a file is taken for Claude Code's, by far the most common.

This module is read at every start and imports no table of a dialect.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from retinue.core.spec import DialectName

_MARKDOWN = (".md",)
_EITHER = (".md", ".markdown")


class Home(NamedTuple):
    """A folder of agent files, below a project or below the user's own folder."""

    below: str
    dialect: DialectName
    recursive: bool = False
    suffixes: tuple[str, ...] = _MARKDOWN


PROJECT: tuple[Home, ...] = (
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

RETINUE_HOME = Home("agents", "retinue", recursive=True)
PI_HOME = Home("agents", "pi", suffixes=_EITHER)
"""Below folders that a variable can move."""

USER: tuple[Home, ...] = (
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

_OTHER_PLACES: dict[tuple[str, str], DialectName] = {
    (".claude-plugin", "agents"): "claude",
    (".pi", "agent"): "pi",
    **{(f".{tool}", "agents"): "generic" for tool in ("agy", "ai", "kiro", "kilo", "qwen", "junie", "continue")},
}


def _folders() -> dict[tuple[str, str], DialectName]:
    """Return the last two folders of every home, and of the places that are read but not searched."""
    found = dict(_OTHER_PLACES)
    for home in (*PROJECT, *USER):
        parts = home.below.split("/")
        if len(parts) > 1:
            found[parts[-2], parts[-1]] = home.dialect
    return found


def _written() -> dict[DialectName, str]:
    found: dict[DialectName, str] = {}
    for home in PROJECT:
        found.setdefault(home.dialect, home.below)
    # devkit-pi also reads `.agents`, but its agents are usually beside pi's.
    found["devkit"] = ".pi/agents"
    return found


_FOLDERS = _folders()
WRITTEN = _written()
"""Where a project's agents of each dialect are written."""
WRITABLE = tuple(WRITTEN)


def guess_dialect(path: str, keys: Collection[str] | None = None) -> DialectName:
    """Return the dialect of a file. `keys` are those of the frontmatter, where it has been read."""
    return refine(by_place(path), keys or ())


def refine(home: DialectName | None, keys: Collection[str]) -> DialectName:
    """Return the dialect of a file with these keys in a place that belongs to `home`, or to no dialect."""
    if home is None:
        return _by_keys(keys)
    if home == "pi" and _devkit_shaped(keys):
        return "devkit"
    return home


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
        home = _FOLDERS.get((parts[index - 1], parts[index]))
        if home is not None:
            return home
    if parts[-2:-1] == [".agents"]:
        return "devkit"
    return None


def _by_keys(keys: Collection[str]) -> DialectName:
    for dialect, signs in _SIGNS:
        if not signs.isdisjoint(keys):
            return dialect
    if _devkit_shaped(keys):
        return "devkit"
    return "claude"


def _devkit_shaped(keys: Collection[str]) -> bool:
    """Return whether there are a name, a readonly key, and nothing beyond devkit-pi's five keys."""
    return "readonly" in keys and "name" in keys and _DEVKIT.issuperset(keys)
