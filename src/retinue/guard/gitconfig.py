"""Programs that git starts on its own, because a repository's settings say so.

`git status` only reads, but a repository that came as an archive can name a monitor, a filter or
a converter that git runs on the way. Such settings are like hooks of a project: they need consent,
bound to their content. Without it commands of git are not taken for reading.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from retinue.domain.lean import dataclass

MOST_BYTES = 1024 * 1024
_MOST_MODULES = 100
_SHOWN = 200
_SECTION = re.compile(r'\s*\[\s*([\w.-]+)(?:\s+"((?:[^"\\]|\\.)*)")?\s*\]')
_KEY = re.compile(r"\s*([A-Za-z][\w-]*)\s*(?:=\s*(.*))?$")
_STARTING = re.compile(
    r"core\.(?:fsmonitor|alternaterefscommand)|diff\.external|diff\..+\.(?:command|textconv)"
    r"|filter\..+\.(?:clean|smudge|process)|gpg(?:\..+)?\.program|include\.path|includeif\..+\.path",
    re.DOTALL,
)
_SWITCHES = frozenset({"", "true", "false", "yes", "no", "on", "off", "1", "0"})
_HARMLESS = re.compile(r"git-lfs (?:clean|smudge|filter-process)\b[\w %.-]*")
_HOOK = "post-index-change"
"""The one hook that commands which only read can set off."""


@dataclass(frozen=True, slots=True)
class GitPrograms:
    """The settings of one repository that start programs, for people; `content` is what consent
    is bound to."""

    path: Path
    what: tuple[str, ...]
    content: bytes


def git_programs(folder: Path) -> GitPrograms | None:
    """What the repository that `folder` is in would start; None for nothing, or no repository."""
    home = _git_folder(folder)
    if home is None:
        return None
    files = [home / "config", home / "config.worktree"]
    if (home / "modules").is_dir():
        files += sorted((home / "modules").rglob("config"))[:_MOST_MODULES]
    what: list[str] = []
    contents: list[bytes] = []
    for file in files:
        content = _content(file)
        found = _settings(content)
        what += found
        contents += [content] if found else []
    for hooks in (home / "hooks", *_hook_folders(home)):
        if (hooks / _HOOK).is_file():
            what.append(f"git hook {hooks / _HOOK}")
            contents.append(_content(hooks / _HOOK))
    return GitPrograms(home / "config", tuple(what), b"\0".join(contents)) if what else None


def _hook_folders(home: Path) -> Iterator[Path]:
    for name, value in _named(_content(home / "config").decode("utf-8", "replace")):
        if name == "core.hookspath" and value:
            yield home.parent / Path(value).expanduser()


def _git_folder(folder: Path) -> Path | None:
    """The folder with the settings that git would use there."""
    for place in (folder, *folder.parents):
        marker = place / ".git"
        if marker.is_dir():
            return marker
        if marker.is_file():
            said = _content(marker).decode("utf-8", "replace").strip()
            home = place / said.removeprefix("gitdir:").strip()
            common = _content(home / "commondir").decode("utf-8", "replace").strip()
            return home / common if common else home
    return None


def _content(path: Path) -> bytes:
    try:
        if path.stat().st_size > MOST_BYTES:
            return b"[include]\npath = too large to be read\n"
        return path.read_bytes()
    except OSError:
        return b""


@lru_cache(maxsize=64)
def _settings(content: bytes) -> tuple[str, ...]:
    found = []
    for name, value in _named(content.decode("utf-8", "replace").replace("\\\n", " ")):
        if not _STARTING.fullmatch(name) or _HARMLESS.fullmatch(value):
            continue
        if name != "core.fsmonitor" or value.lower() not in _SWITCHES:
            found.append(f"git setting {name}: {value if len(value) <= _SHOWN else value[: _SHOWN - 1] + '…'}")
    return tuple(found)


def _named(text: str) -> Iterator[tuple[str, str]]:
    """Settings by name, section and key in lower case. Reads more for a setting than git would,
    never less."""
    section = ""
    for line in text.splitlines():
        head = _SECTION.match(line)
        if head is not None:
            section = head[1].lower() + (f".{head[2]}" if head[2] is not None else "")
            line = line[head.end() :]
        key = _KEY.match(line)
        if key is not None:
            yield f"{section}.{key[1].lower()}", (key[2] or "").strip().strip('"')
