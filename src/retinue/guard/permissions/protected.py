"""Files that decide what other programs do: changing them is asked about, whatever is allowed."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path

from retinue.agents.discover import dialect_folders
from retinue.guard.permissions.marks import GLOB, HOLE, MARKS, match
from retinue.guard.permissions.place import Place

_FOLDERS = dialect_folders() | frozenset(
    {".git", ".vscode", ".idea", ".husky", ".cargo", ".devcontainer", ".yarn", ".mvn", ".kimi", ".devkit", ".codex"}
    | {".ssh", ".gnupg", ".aws", ".kube", ".docker", ".github/workflows", ".config/git"}
)
"""Of every dialect whose agents are found, and of other programs."""
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
    rf"|projects/{_NAME}/worktrees/(?!{_NAME}\.(?:git|json|lock)(?:/|\Z)){_NAME}))(?=/|\Z)"
)
"""Places in protected folders that agents are meant to write to. What is in them is looked at as
if they were anywhere else: a copy of a project has settings, too."""


_PARTS = {
    ".git": ("hooks", "config", "config.worktree", "info/attributes", "commondir"),
    ".cargo": ("config", "config.toml"),
    ".yarn": ("releases", "plugins"),
    ".claude": ("settings.json", "settings.local.json", "agents", "skills", "commands", "hooks"),
    ".retinue": ("settings.json", "settings.local.json", "agents", "skills"),
}
"""What of a folder the walls keep, where programs must write to the rest of it."""
_IN_HOME = frozenset({".ssh", ".gnupg", ".config/git", ".claude", ".pi", ".cursor", ".gemini", *_FILES})


def protected_paths(roots: Iterable[Path], home: Path, named: Sequence[str]) -> tuple[Path, ...]:
    """Return the protected files and folders that exist, for the walls to keep as they are. What an
    allow rule names (`named` are their patterns) is not kept."""
    found: dict[str, None] = {}
    for folder, names in ((home, _IN_HOME), *((root, (*_FOLDERS, *_FILES)) for root in roots)):
        for name in names:
            if any(name in pattern for pattern in named):
                continue
            parts = [f"{name}/{part}" for part in _PARTS[name]] if name in _PARTS else [name]
            paths = (os.path.join(folder, part) for part in parts)  # noqa: PTH118 - hundreds of these
            found |= dict.fromkeys(path for path in paths if os.path.lexists(path))
    return tuple(map(Path, found))


def protected(path: str, place: Place, base: str | None = None) -> str | None:
    """The protected name in `path`, or None. What is not known of the path may be one."""
    for form in place.forms(path, base):
        found = _in_form(form)
        if found is not None:
            return found
        folders = _program_folders(place.programs, place.cwd)
        if form in folders or form.rpartition("/")[0] in folders:
            return "folder of programs"
    return None


@lru_cache(maxsize=32)
def _program_folders(programs: str, cwd: str) -> frozenset[str]:
    """Where programs are looked for: who may put an `ls` there decides what `ls` does. The
    working directory itself is left out, or no file in it could be written."""
    listed = [os.path.normpath(f"{cwd}/{folder}" if folder[:1] != "/" else folder) for folder in programs.split(":")]
    return frozenset(folder for each in listed if each != cwd for folder in (each, os.path.realpath(each)))


def _in_form(path: str) -> str | None:
    parts = [part for part in _SPARED.sub("", path.lower()).split("/") if part]
    for at, part in enumerate(parts):
        names = {part, f"{part}/{parts[at + 1]}"} if at + 1 < len(parts) else {part}
        for name in names & _FOLDERS:
            return name
        if any(mark in part for mark in MARKS):
            return _may_be(part, last=at == len(parts) - 1)
    return parts[-1] if parts and parts[-1] in _FILES else None


def _may_be(part: str, *, last: bool) -> str | None:
    """A part with marks: `.g*` may be `.git`. A plain `*` does not match names with a dot."""
    if not part.strip(HOLE):
        return "a path that is known only when it runs"
    if part.startswith(GLOB) and HOLE not in part:
        return None
    names = (*_FOLDERS, *_FILES) if last else _FOLDERS
    return next((name for name in names if match(name, part)), None)
