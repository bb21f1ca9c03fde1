"""The settings with which git starts programs, and the search for them in a repository.

`git status` only reads, but a repository that came as an archive can name a monitor, a filter or a
converter that git runs on the way. Such settings are like hooks of a project: they need consent, bound
to their content. Without it, commands of git do not count as reading, and no worktree is made.
`guard/git.py`, which starts every git of Retinue, switches them off by the same table.

| kind | when git starts the program |
|---|---|
| `read` | while it only reads: `git status`, `git log -p` |
| `checkout` | while files are read into the repository, written from it, or merged |
| `transport` | while it talks to another repository; a promisor remote makes reading do that |
| `promisor` | none by itself: missing objects are fetched, by whatever `transport` says |
| `elsewhere` | none: it makes git read and write another folder, or other settings |

The search reads everything git would read: the settings of the repository and of its linked worktrees,
through `commondir` and includes, whatever their condition; those of submodules and of any other
repository that the index names. A setting that cannot be read, or a list that is too long, counts as a
program.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Literal

from msgspec import Struct

from retinue.core.files import read_file, read_head

Kind = Literal["read", "checkout", "transport", "promisor", "elsewhere"]

_HARMLESS_FILTER = re.compile(r"git-lfs (?:clean|smudge|filter-process)\b[\w %.-]*")
_SWITCHES = frozenset({"", "true", "false", "yes", "no", "on", "off", "1", "0"})
_FALSE = frozenset({"false", "no", "off", "0"})


class GitSetting(Struct, frozen=True):
    """Settings whose whole name, section and key in lower case, matches `name`. `off` is the value
    that starts nothing, used where the user's own settings have none."""

    name: str
    kind: Kind
    off: str
    why: str


SETTINGS = (
    GitSetting(r"core\.fsmonitor", "read", "false", "a monitor is started to ask what changed"),
    GitSetting(r"hook\..+\.command", "read", "true", "a hook by settings (git 2.54), also while git status runs"),
    GitSetting(r"core\.alternaterefscommand", "read", "true", "it lists the refs of borrowed repositories"),
    GitSetting(r"diff\.external", "read", "false", "it shows differences"),
    GitSetting(r"diff\..+\.command", "read", "false", "it shows differences of some files"),
    GitSetting(r"diff\..+\.textconv", "read", "", "it turns files into text before they are compared"),
    GitSetting(r"gpg(?:\..+)?\.program", "read", "false", "log.showSignature and merges check signatures with it"),
    GitSetting(r"gpg\.ssh\.defaultkeycommand", "read", "", "it is asked for a key to sign with"),
    GitSetting(r"filter\..+\.(?:clean|smudge|process)", "checkout", "", "files go through it in both directions"),
    GitSetting(r"lfs\.extension\..+\.(?:clean|smudge)", "checkout", "", "git-lfs starts it for every file"),
    GitSetting(r"lfs\.customtransfer\..+\.path", "checkout", "", "git-lfs fetches large files with it"),
    GitSetting(r"lfs\.standalonetransferagent", "checkout", "", "git-lfs fetches large files with it"),
    GitSetting(r"merge\..+\.driver", "checkout", "false", "it merges some files; `false` leaves a conflict"),
    GitSetting(r"core\.sshcommand", "transport", "ssh", "it connects to other hosts"),
    GitSetting(r"core\.gitproxy", "transport", "", "it connects to other hosts"),
    GitSetting(r"core\.askpass", "transport", "true", "it is asked for passwords"),
    GitSetting(r"credential(?:\..+)?\.helper", "transport", "", "it is asked for passwords, and told them"),
    GitSetting(r"remote\..+\.uploadpack", "transport", "git-upload-pack", "it is the other end of a fetch"),
    GitSetting(r"remote\..+\.receivepack", "transport", "git-receive-pack", "it is the other end of a push"),
    GitSetting(r"remote\..+\.vcs", "transport", "", "it names a helper program for the remote"),
    GitSetting(r"protocol(?:\..+)?\.allow", "transport", "never", "`ext::` addresses are commands"),
    GitSetting(r"http(?:\..+)?\.savecookies", "transport", "false", "a file that the repository names is written"),
    GitSetting(r"remote\..+\.(?:promisor|partialclonefilter)", "promisor", "false", "missing objects are fetched"),
    GitSetting(r"extensions\.partialclone", "promisor", "", "missing objects are fetched"),
    GitSetting(r"core\.worktree", "elsewhere", "", "git works on another folder than the one it is in"),
    GitSetting(r"includeif\..+\.path", "elsewhere", "", "other settings come and go with the branch"),
)
_FOUND = tuple((re.compile(setting.name, re.DOTALL), setting) for setting in SETTINGS)


def program_setting(name: str, value: str) -> GitSetting | None:
    """Return the row for a setting, its name as git lists it, if with this value it can start a program or
    lead git elsewhere."""
    section, _, tail = name.partition(".")
    below, dot, key = tail.rpartition(".")
    lowered = f"{section.lower()}.{below}{dot}{key.lower()}"
    for pattern, row in _FOUND:
        if pattern.fullmatch(lowered):
            return None if _is_harmless(lowered, value) else row
    return None


def _is_harmless(name: str, value: str) -> bool:
    if name == "core.fsmonitor":  # `true` is the monitor that git brings itself
        return value.lower() in _SWITCHES
    if name.startswith("filter."):  # git-lfs is a program of the user's, found by PATH
        return _HARMLESS_FILTER.fullmatch(value) is not None
    if name.startswith("protocol."):
        return value.lower() == "never"
    if name.endswith((".promisor", ".savecookies")):
        return value.lower() in _FALSE
    return name.startswith("remote.") and not value


MAX_SETTINGS_BYTES = 1024 * 1024
_MAX_INDEX_BYTES = 256 * 1024 * 1024
_MAX_SETTINGS_FILES = 400
_MAX_INCLUDE_DEPTH = 10
_MAX_REPOSITORY_DEPTH = 4
_SECTION = re.compile(r'\s*\[\s*([\w.-]+)(?:\s+"((?:[^"\\]|\\.)*)")?\s*\]')
_KEY = re.compile(r"\s*([A-Za-z][\w-]*)\s*(?:=\s*(.*))?$")
_INCLUDE = re.compile(r"include\.path|includeif\..+\.path", re.DOTALL)
_HOOK = "post-index-change"
"""The one hook that commands which only read can set off."""
_GITLINK = 0o160000
_GITLINK_BYTES = struct.pack(">I", _GITLINK)


class GitPrograms(Struct, frozen=True):
    """The settings of one repository that start programs, for people; `content` is what consent
    is bound to."""

    path: Path
    what: tuple[str, ...]
    content: bytes


def git_programs(
    folder: Path, *, checkout: bool = False, aliases: Callable[[str], bool] = lambda name: False
) -> GitPrograms | None:
    """Return what the repository that `folder` is in would start while git reads, or, with `checkout`, also
    while files are checked out and merged; None for nothing, or no repository. `aliases` says which of its aliases
    are called: each is a command of the repository's. The content is the same for all."""
    repository = find_repository(folder)
    if repository is None:
        return None
    look = _Look(aliases)
    look.repository(*repository)
    what = look.read
    if checkout:
        what = look.read + look.checkout
    if not what:
        return None
    return GitPrograms(_common(repository[1]) / "config", tuple(dict.fromkeys(what)), b"\0".join(look.contents))


def find_repository(folder: Path) -> tuple[Path, Path] | None:
    """Return the checkout that `folder` is in and its git folder, as git looks for them: a `.git` in it or
    above it, or a folder that itself looks like a repository."""
    for top in (folder, *folder.parents):
        marker = top / ".git"
        if marker.is_dir():
            return top, marker
        if marker.is_file():
            target = _content(marker).decode("utf-8", "surrogateescape").strip()
            return top, top / target.removeprefix("gitdir:").strip()
        # A bare repository has no `.git`: any folder of a clone may look like one.
        if (top / "HEAD").exists() and (top / "objects").is_dir() and (top / "refs").is_dir():
            return top, top
    return None


class _Look:
    """A search of one repository and of the repositories inside it."""

    def __init__(self, aliases: Callable[[str], bool]) -> None:
        self._aliases = aliases
        self.read: list[str] = []
        self.checkout: list[str] = []
        self.contents: list[bytes] = []
        self._seen: set[str] = set()

    def repository(self, top: Path, home: Path, depth: int = 0) -> None:
        if not self._is_new(home) or not self._can_go_on(depth, _MAX_REPOSITORY_DEPTH, home):
            return
        common = _common(home)
        files = [common / "config", home / "config", home / "config.worktree", common / "config.worktree"]
        files += sorted(common.glob("worktrees/*/config.worktree"))
        settings: list[tuple[str, str]] = []
        for file in files:
            settings += self._file(file)
        self._settings(settings, top, home)
        folders = [home / "hooks", common / "hooks"]
        for name, value in settings:
            if name == "core.hookspath" and value:
                folders.append(top / _path(value, top))
        for hooks in folders:
            if (hooks / _HOOK).is_file():
                self.read.append(f"git hook {hooks / _HOOK}")
                self.contents.append(_content(hooks / _HOOK))
        if (common / "modules").is_dir():
            for config in sorted((common / "modules").rglob("config")):
                self.repository(top, config.parent, depth + 1)
        self._inside(top, home, depth)

    def _settings(self, settings: list[tuple[str, str]], top: Path, home: Path) -> None:
        rows: list[tuple[str, str, str]] = []
        for name, value in settings:
            row = program_setting(name, value)
            alias = name.removeprefix("alias.").removesuffix(".command").lower()
            if name.startswith("alias.") and self._aliases(alias):
                self.read.append(f"git setting {name}: {value}")
            if row is not None:
                rows.append((name, value, row.kind))
        fetches = any(kind == "promisor" for _, _, kind in rows)
        for name, value, kind in rows:
            line = f"git setting {name}: {value}"
            filters = kind == "checkout" and name.startswith(("filter.", "lfs."))
            # Reading fetches what is missing.
            fetched_by = kind == "transport" and fetches
            if kind == "read" or filters or fetched_by:
                self.read.append(line)
            # A submodule names its own checkout this way, which is harmless.
            elif name != "core.worktree" or os.path.realpath(home / value) != os.path.realpath(top):
                self.checkout.append(line)

    def _file(self, file: Path, depth: int = 0) -> list[tuple[str, str]]:
        """Return the settings of a file and of the files that it includes."""
        if not self._is_new(file) or not file.exists():
            return []
        if not self._can_go_on(depth, _MAX_INCLUDE_DEPTH, file):
            return []
        content = _content(file)
        self.contents.append(content)
        if len(content) > MAX_SETTINGS_BYTES:
            self.read.append(f"git settings that are too large to be looked at: {file}")
            return []
        settings = list(_parse_settings(content))
        for name, value in tuple(settings):
            if not _INCLUDE.fullmatch(name):
                continue
            for meant in _included_files(value):
                settings += self._file(_path(meant, file.parent), depth + 1)
        return settings

    def _inside(self, top: Path, home: Path, depth: int) -> None:
        """Look at every repository that the index names: git enters it, with its own settings."""
        for index in (home / "index", *sorted(home.glob("sharedindex.*"))):
            try:
                links = _gitlinks(str(index), *_stamp(index))
            except (OSError, ValueError, struct.error, IndexError):
                self.read.append(f"git index that cannot be looked at: {index}")
                continue
            for name in links:
                inner = top / name
                if not (inner / ".git").exists():
                    continue
                repository = find_repository(inner)
                if repository is not None and repository[0] == inner:
                    self.repository(*repository, depth + 1)

    def _is_new(self, path: Path) -> bool:
        real = os.path.realpath(path)
        if real in self._seen:
            return False
        self._seen.add(real)
        return True

    def _can_go_on(self, depth: int, deepest: int, path: Path) -> bool:
        if depth <= deepest and len(self._seen) <= _MAX_SETTINGS_FILES:
            return True
        self.read.append(f"more settings of git than can be looked at, from {path} on")
        return False


def _common(home: Path) -> Path:
    """Return where the settings are: git follows `commondir` in any git folder, not only in a worktree's."""
    target = _content(home / "commondir").decode("utf-8", "surrogateescape").strip()
    if target:
        return home / target
    return home


def _included_files(value: str) -> tuple[str, ...]:
    """Return the files that an include may mean: the value with what looks like a comment, and without."""
    plain = re.split(r'["]?\s*[#;]', value)[0]
    return tuple(dict.fromkeys(reading.replace('"', "").replace("\\\\", "\\") for reading in (value, plain)))


def _path(value: str, base: Path) -> Path:
    try:
        return base / Path(value).expanduser()
    except RuntimeError:  # `~user` of a user that does not exist
        return base / value


def _content(path: Path) -> bytes:
    try:
        return read_head(path, MAX_SETTINGS_BYTES + 1)
    except OSError:
        return b""


def _stamp(path: Path) -> tuple[int, int, int]:
    try:
        status = path.stat()
    except FileNotFoundError:
        return 0, 0, 0
    return status.st_mtime_ns, status.st_size, status.st_ino


@lru_cache(maxsize=64)
def _gitlinks(path: str, _time: int, size: int, _inode: int) -> tuple[str, ...]:
    """Return the folders of an index that are repositories of their own. Raise when it cannot be read."""
    if size == 0:
        return ()
    # An index that is too large to look at counts as a program.
    if size > _MAX_INDEX_BYTES:
        raise ValueError(path)
    data = read_file(path, _MAX_INDEX_BYTES)
    # Almost every index needs no more.
    if _GITLINK_BYTES not in data:
        return ()
    return tuple(os.fsdecode(name) for mode, name in _entries(data) if mode == _GITLINK)


def _entries(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield mode and name of each entry; the format is in git's gitformat-index(5)."""
    signature, version, count = struct.unpack_from(">4sII", data)
    if signature != b"DIRC" or version not in (2, 3, 4):
        raise ValueError("no index")
    ids = 20 if _fits(data, 20, version) else 32
    at, name = 12, b""
    for _ in range(count):
        mode = struct.unpack_from(">I", data, at + 24)[0]
        flags = struct.unpack_from(">H", data, at + 40 + ids)[0]
        start = at + 40 + ids + (4 if flags & 0x4000 else 2)
        if version == 4:
            shared, start = _number(data, start)
            end = data.index(b"\0", start)
            name = name[: len(name) - shared] + data[start:end]
            at = end + 1
        else:
            end = data.index(b"\0", start)
            name = data[start:end]
            at += (end - at) // 8 * 8 + 8
        yield mode, name


def _fits(data: bytes, ids: int, version: int) -> bool:
    """Return whether names are where they would be with object ids of this length."""
    flags = struct.unpack_from(">H", data, 12 + 40 + ids)[0]
    start = 12 + 40 + ids + (4 if flags & 0x4000 else 2)
    if version == 4:
        return data[start] == 0
    end = data.index(b"\0", start)
    length: int = flags & 0xFFF
    return length in (end - start, 0xFFF)


def _number(data: bytes, at: int) -> tuple[int, int]:
    value = data[at] & 0x7F
    while data[at] & 0x80:
        at += 1
        value = ((value + 1) << 7) | (data[at] & 0x7F)
    return value, at + 1


@lru_cache(maxsize=64)
def _parse_settings(content: bytes) -> tuple[tuple[str, str], ...]:
    """Return settings by name, section and key in lower case. It recognises every setting
    that git would, and possibly more."""
    text = content.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "surrogateescape").replace("\r\n", "\n")
    section = ""
    settings: list[tuple[str, str]] = []
    for line in text.replace("\\\n", " ").split("\n"):
        head = _SECTION.match(line)
        # A line may hold a section and a key, or several sections.
        while head is not None:
            section = head[1].lower()
            if head[2] is not None:
                section += "." + re.sub(r"\\(.)", r"\1", head[2])
            line = line[head.end() :]
            head = _SECTION.match(line)
        key = _KEY.match(line)
        if key is not None:
            settings.append((f"{section}.{key[1].lower()}", (key[2] or "").strip().strip('"')))
    return tuple(settings)
