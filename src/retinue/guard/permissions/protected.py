"""Protected files: they decide what other programs do, so nobody changes them unasked.

Settings of repositories, editors, agents and package managers, startup files of shells, and folders where programs
are looked for. Rules and modes that allow a change do not mean these, unless a rule names one.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path

from retinue.agents.folders import dialect_folders
from retinue.guard.permissions.locations import RunFolders
from retinue.guard.permissions.rule import GLOB, HOLE, is_known, match

_FOLDERS = dialect_folders() | frozenset(
    {".git", ".vscode", ".idea", ".husky", ".cargo", ".devcontainer", ".yarn", ".mvn", ".kimi", ".devkit", ".codex"}
    | {".ssh", ".gnupg", ".aws", ".kube", ".docker", ".github/workflows", ".config/git"}
    | {".qwen", ".factory", ".windsurf", ".roo", ".kiro", ".continue", ".trae", ".junie", ".augment", ".amazonq"}
    | {".goose", ".crush", ".zed", ".clinerules"}
)
"""Of every dialect whose agents are found, and of other programs: editors, other agents, package managers."""
_FILES = frozenset(
    ".bashrc .bash_profile .bash_login .bash_logout .bash_aliases .profile .zshrc .zprofile .zshenv .zlogin .zlogout"
    " .kshrc .cshrc .tcshrc .inputrc .envrc .gitconfig .gitmodules .gitattributes .npmrc .yarnrc .yarnrc.yml .pnpmrc"
    " .bunfig.toml .pypirc .netrc .curlrc .wgetrc .pre-commit-config.yaml .pre-commit-config.yml lefthook.yml"
    " lefthook.yaml .lefthook.yml .lefthook.yaml lefthook.toml lefthook.json .bazelrc .bazelversion bazelisk.rc"
    " gradle-wrapper.properties maven-wrapper.properties .mcp.json .claude.json .lldbinit .gdbinit .vimrc"
    " sitecustomize.py usercustomize.py authorized_keys config.fish".split()
)
_NAME = rf"[^/{HOLE}{GLOB}]+"
_SPARED = re.compile(
    rf"/(?:\.claude/worktrees/{_NAME}|\.retinue/(?:agent-memory(?:-local)?|worktrees/{_NAME}"
    rf"|projects/{_NAME}/brought/{_NAME}/agent-memory(?:-local)?"
    rf"|projects/{_NAME}/worktrees/(?!{_NAME}\.(?:git|json|lock)(?:/|\Z)){_NAME}))(?=/|\Z)"
)
"""Places in protected folders that agents are meant to write to. What is in them is looked at as
if they were anywhere else: a copy of a project also has settings."""


_PARTS = {
    ".git": ("hooks", "config", "config.worktree", "info/attributes", "commondir"),
    ".cargo": ("config", "config.toml"),
    ".yarn": ("releases", "plugins"),
    ".claude": ("settings.json", "settings.local.json", "agents", "skills", "commands", "hooks"),
    ".retinue": ("settings.json", "settings.local.json", "agents", "skills"),
}
"""What of a folder the walls keep, where programs must write to the rest of it."""
_IN_HOME = frozenset(
    {".ssh", ".gnupg", ".config/git", ".config/opencode", ".claude", ".retinue", ".pi", ".cursor", ".gemini", *_FILES}
)


def protected_paths(roots: Iterable[Path], home: Path, named: Sequence[str]) -> tuple[Path, ...]:
    """Return the protected files and folders that exist, for the walls to keep as they are. What an
    allow rule names (`named` are their patterns) is not kept."""
    found = _existing(home, _IN_HOME, named)
    for root in roots:
        found += _existing(root, (*_FOLDERS, *_FILES), named)
    return tuple(map(Path, dict.fromkeys(found)))


def _existing(folder: Path, names: Iterable[str], named: Sequence[str]) -> list[str]:
    found: list[str] = []
    for name in names:
        if any(name in pattern for pattern in named):
            continue
        # By text: there are hundreds of them, and most do not exist.
        for part in _PARTS.get(name, ("",)):
            path = f"{folder}/{name}/{part}".rstrip("/")
            if os.path.lexists(path):
                found.append(path)
    return found


def protected_name(path: str, folders: RunFolders, base: str | None = None) -> str | None:
    """Return the protected name in `path`, or None. What is not known of the path may be one."""
    # A link with a harmless name may lead to a protected file.
    for form in folders.forms(path, base):
        found = _in_form(form)
        if found is not None:
            return found
        programs = _program_folders(folders.programs, folders.cwd)
        if form in programs or form.rpartition("/")[0] in programs:
            return "folder of programs"
    return None


@lru_cache(maxsize=32)
def _program_folders(programs: str, cwd: str) -> frozenset[str]:
    """Return where programs are looked for: a file put there can become the next `ls`. The working
    directory itself is left out, or no file in it could be written."""
    found: set[str] = set()
    for entry in programs.split(":"):
        folder = os.path.normpath(os.path.join(cwd, entry))  # noqa: PTH118 - links stay
        if folder != cwd:
            found |= {folder, os.path.realpath(folder)}
    return frozenset(found)


def _in_form(path: str) -> str | None:
    parts = list(filter(None, _SPARED.sub("", path.lower()).split("/")))
    for at, part in enumerate(parts):
        for name in {part, "/".join(parts[at : at + 2])} & _FOLDERS:
            return name
        if not is_known(part):
            return _may_be(part, last=at == len(parts) - 1)
    if parts and parts[-1] in _FILES:
        return parts[-1]
    return None


def _may_be(part: str, *, last: bool) -> str | None:
    """Return the name that a part with marks may be: `.g*` may be `.git`. A plain `*` matches no name
    with a dot."""
    if not part.strip(HOLE):
        return "a path that is known only when it runs"
    # The shell does not match hidden files with a pattern that begins with `*`.
    if part.startswith(GLOB) and HOLE not in part:
        return None
    names = (*_FOLDERS, *_FILES) if last else _FOLDERS
    for name in names:
        if match(name, part):
            return name
    return None
