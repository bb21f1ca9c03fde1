"""All skills that can be seen from a folder, and their texts with arguments filled in.

Each root is searched breadth first, entries in the order of their bytes: a file NAME.md of the
root itself, then folders NAME with a SKILL.md or skill.md, the shallower first. Nothing is looked for inside
a skill's folder, and links are not followed. Results are cached, and checked again by the times,
sizes and inodes of the folders and files they came from.

    $ARGUMENTS          all arguments
    $ARGUMENTS[N], $N   the word number N, from 0, with the quoting of a shell
    $name               the word that the skill's `arguments` calls so

A number without a word stays as it is, a name without one becomes empty, and a backslash before
any of these keeps it as it is written. Arguments that a text does not use are added at its end.
"""

from __future__ import annotations

import os
import re
import stat
import time
import unicodedata
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import NamedTuple

from retinue.agents.parse import Signature, just_written, signature_of
from retinue.capabilities.skills.parse import Root, Skill, body_of, parse_skill_file, words
from retinue.tools.safe_dir import SafeDir, files, read

_PLACEHOLDER = re.compile(r"(\\?)\$(?:ARGUMENTS\[(\d{1,4})\]|(ARGUMENTS)\b|(\d{1,4})\b|([A-Za-z_]\w*))")
_FOLDERS = ("${CLAUDE_SKILL_DIR}", "${RETINUE_SKILL_DIR}")


def substitute(text: str, skill: Skill, arguments: str) -> str:
    given = words(arguments)
    taken = False

    def put(found: re.Match[str]) -> str:
        nonlocal taken
        escape, index, everything, number, name = found.groups()
        if name is not None and name not in skill.arguments:
            return found[0]
        if escape:
            return found[0][1:]
        if everything:
            taken = True
            return arguments
        if name is not None:
            at = skill.arguments.index(name)
            taken = True
            return given[at] if at < len(given) else ""
        at = int(index or number)
        if at >= len(given):
            return found[0]
        taken = True
        return given[at]

    made = _PLACEHOLDER.sub(put, text)
    if skill.folder is not None:
        for name in _FOLDERS:
            made = made.replace(name, str(skill.folder))
    if arguments.strip() and not taken:
        made += f"\n\nARGUMENTS: {arguments}"
    return made


FILES = ("SKILL.md", "skill.md")
"""Names of a skill's file; of two the first counts."""
_NAME = re.compile(r"[^\W_][\w.-]{0,127}")
DEEPEST = 6
MOST = 20_000
LARGEST = 2 * 2**20
MOST_BUNDLED = 200
_LINK = "It is a symbolic link, and those are not followed."
_UNSAFE = "Its name is not safe: use letters, digits, '-', '_' and '.', beginning with a letter or digit."


class _Known(NamedTuple):
    """`signatures` prove, while they hold, that nothing changed; None while nothing can."""

    signatures: list[tuple[str, Signature]] | None
    skills: tuple[Skill, ...]
    titles: dict[str, str]
    """Names in frontmatter, mapped to the names of their folders."""
    refused: tuple[tuple[str, str], ...] = ()


class Library:
    """The skills a run can see. Files are looked at again whenever they may have changed."""

    def __init__(self, roots: Iterable[Root]) -> None:
        self.roots = tuple(roots)

    def all(self) -> tuple[Skill, ...]:
        """Return every skill, strongest first; of one name only the first."""
        found: dict[str, Skill] = {}
        for root in self.roots:
            for skill in _root(root).skills:
                found.setdefault(skill.name, skill)
        return tuple(found.values())

    def shadowed(self) -> tuple[Skill, ...]:
        """Return the skills that a stronger one of the same name replaces."""
        winners = {skill.path for skill in self.all()}
        found = []
        for root in self.roots:
            for skill in _root(root).skills:
                if skill.path not in winners:
                    found.append(skill)
        return tuple(found)

    def refused(self) -> tuple[tuple[str, str], ...]:
        """Return what lies where skills lie and is not used, each path with the reason."""
        found: list[tuple[str, str]] = []
        for root in self.roots:
            found += _root(root).refused
        return tuple(found)

    def invocable(self) -> tuple[Skill, ...]:
        """Return the skills that a model may load."""
        found = []
        for skill in self.all():
            if skill.model_invocable and not skill.problem:
                found.append(skill)
        return tuple(found)

    def find(self, name: str) -> Skill | None:
        """Return a skill by the name of its folder or file, by the name in its frontmatter, or by the name
        of its folder or file in any case. A plugin's may be called without the plugin's name."""
        if not is_name(name):
            return None
        everything = self.all()
        by_name = {skill.name: skill for skill in everything}
        if name in by_name:
            return by_name[name]
        for root in self.roots:
            title = _root(root).titles.get(name)
            if title is not None:
                return by_name.get(title)
        lowered = name.lower()
        for skill in everything:
            if lowered in (skill.name.lower(), skill.name.lower().rpartition(":")[2]):
                return skill
        return None

    def text(self, skill: Skill, arguments: str = "") -> str:
        """Return the instructions with `arguments` filled in. Raise OSError when the file went away or became
        something else."""
        return substitute(body_of(_data(self._root_of(skill), skill)), skill, arguments)

    def content(self, skill: Skill) -> bytes:
        """Return the bytes of a skill's file, to which consent is bound."""
        return _data(self._root_of(skill), skill)

    def files(self, skill: Skill) -> tuple[str, ...]:
        """Return what is bundled with a skill, as paths below its folder; links are left out."""
        if skill.folder is None:
            return ()
        found: list[str] = []
        for names in files(_safe_dir(self._root_of(skill), skill.folder)):
            if len(found) == MOST_BUNDLED:
                break
            if names != (skill.path.name,):
                found.append("/".join(names))
        return tuple(found)

    def owner(self, path: str) -> tuple[Skill, Path] | None:
        """Return the skill into whose folder a resolved path leads, and that folder resolved."""
        for root in self.roots:
            top = os.path.realpath(root.path)
            if not path.startswith(top + os.sep):
                continue
            parts = Path(path[len(top) + 1 :]).parts
            folders = {str(skill.folder): skill for skill in _root(root).skills}
            for count in range(1, len(parts)):
                skill = folders.get(str(root.path.joinpath(*parts[:count])))
                if skill is not None:
                    return skill, Path(top, *parts[:count])
        return None

    def _root_of(self, skill: Skill) -> Root:
        for root in self.roots:
            if root.path in skill.path.parents:
                return root
        raise FileNotFoundError(2, "It is in no folder of skills", str(skill.path))


def is_name(name: str) -> bool:
    plugin, colon, own = name.partition(":")
    return _is_safe(plugin) and (not colon or _is_safe(own))


def _is_safe(name: str) -> bool:
    """Return whether `name` is one folder and nothing else, in any script."""
    return _NAME.fullmatch(unicodedata.normalize("NFC", name)) is not None


@cache
def _cache() -> dict[Root, _Known]:
    return {}


def _root(root: Root) -> _Known:
    known = _cache().get(root)
    if known is None or known.signatures is None or not _unchanged(known.signatures):
        known = _cache()[root] = _search(root, known)
    return known


def _unchanged(signatures: list[tuple[str, Signature]]) -> bool:
    # A local name, because every launch asks for every file of every skill.
    lstat = os.lstat
    try:
        for path, (modified, changed, size, inode) in signatures:
            found = lstat(path)
            if (
                found.st_ctime_ns != changed
                or found.st_mtime_ns != modified
                or found.st_size != size
                or found.st_ino != inode
            ):
                return False
    except OSError:
        return False
    return True


class _Search:
    def __init__(self, root: Root, known: _Known | None) -> None:
        self.root = root
        self.now = time.time_ns()
        self.sure = True
        self.signatures: list[tuple[str, Signature]] = []
        self.skills: dict[str, Skill] = {}
        self.titles: dict[str, str] = {}
        self.refused: list[tuple[str, str]] = []
        known = known or _Known(None, (), {})
        self._old = dict(known.signatures or ())
        self._skills = {str(skill.path): skill for skill in known.skills}
        self._titles = {own: title for title, own in known.titles.items()}

    def sign(self, path: str, found: os.stat_result) -> bool:
        """Note the signature of a path. Return whether it is as it was the last time."""
        signature = signature_of(found)
        self.signatures.append((path, signature))
        # Another write within the same tick of the clock would leave the same signature.
        if just_written(signature, self.now):
            self.sure = False
            return False
        return self._old.get(path) == signature

    def add(self, name: str, path: str, folder: str | None, found: os.stat_result) -> None:
        if not _is_safe(name):
            self.refused.append((path, _UNSAFE))
            return
        full = name
        if self.root.plugin:
            full = f"{self.root.plugin}:{name}"
        same = self.sign(path, found)
        if full in self.skills or len(self.skills) >= MOST:
            return
        before = self._skills.get(path) if same else None
        if before is not None:
            self.skills[full] = before
            title = self._titles.get(full, "")
        else:
            own = Path(folder) if folder else None
            self.skills[full], title = _read(self.root, full, Path(path), own)
        if title and title != name:
            self.titles.setdefault(title, full)


def _search(root: Root, known: _Known | None) -> _Known:
    search = _Search(root, known)
    try:
        found = os.lstat(root.path)
    except OSError:
        return _Known(None, (), {})
    if stat.S_ISLNK(found.st_mode):
        return _Known(None, (), {}, ((str(root.path), _LINK),))
    if not stat.S_ISDIR(found.st_mode):
        return _Known(None, (), {})
    level = [str(root.path)]
    for depth in range(DEEPEST):
        below: list[str] = []
        for folder in level:
            below += _look(search, folder, flat=depth == 0)
        level = below
        if not level:
            break
    signatures = search.signatures if search.sure else None
    return _Known(signatures, tuple(search.skills.values()), search.titles, tuple(search.refused))


def _look(search: _Search, folder: str, *, flat: bool) -> list[str]:
    """Take the skills of one folder, and return the folders to look into next."""
    try:
        search.sign(folder, os.lstat(folder))
        with os.scandir(folder) as entries:
            listed = sorted(entries, key=lambda entry: os.fsencode(entry.name))
    except OSError:
        search.sure = False
        return []
    folders = []
    for entry in listed:
        name = entry.name
        if name[0] == ".":
            continue
        if entry.is_symlink():
            if entry.is_dir() or (flat and name.lower().endswith(".md")):
                search.refused.append((entry.path, _LINK))
        elif flat and name.lower().endswith(".md") and name != FILES[0]:
            if entry.is_file(follow_symlinks=False):
                search.add(name[:-3], entry.path, None, entry.stat(follow_symlinks=False))
        elif name != "node_modules" and entry.is_dir(follow_symlinks=False):
            folders.append(entry)
    below = []
    for entry in folders:
        place = _skill_file(search, entry.path)
        if place is None:
            below.append(entry.path)
            continue
        path, found = place
        if stat.S_ISREG(found.st_mode):
            search.add(entry.name, path, entry.path, found)
        else:
            # It may become a file without changing the folder's times.
            search.sure = False
            why = _LINK if stat.S_ISLNK(found.st_mode) else "It is not a regular file."
            search.refused.append((path, why))
    return below


def _skill_file(search: _Search, folder: str) -> tuple[str, os.stat_result] | None:
    """Return the path and the state of a skill's file; None for a folder that is no skill."""
    for name in FILES:
        path = f"{folder}/{name}"
        try:
            found = os.lstat(path)
            if name != FILES[0]:
                # The first may come to lie beside it.
                search.sign(folder, os.lstat(folder))
        except OSError:
            continue
        return path, found
    return None


def _read(root: Root, name: str, path: Path, folder: Path | None) -> tuple[Skill, str]:
    skill = Skill(name=name, path=path, source=root.source, folder=folder)
    try:
        data = _data(root, skill)
    except OSError as error:
        problem = f"The file cannot be read: {error.strerror or error}."
        return Skill(name=name, path=path, source=root.source, folder=folder, problem=problem), ""
    return parse_skill_file(data, name, path, folder, root)


def _data(root: Root, skill: Skill) -> bytes:
    data = read(_safe_dir(root, skill.path.parent), skill.path.name, most=LARGEST + 1)
    if len(data) > LARGEST:
        raise OSError(27, f"it has more than {LARGEST // 2**20} MB", str(skill.path))
    return data


def _safe_dir(root: Root, folder: Path) -> SafeDir:
    """Return a folder of a root, to be opened with no link from the root on."""
    top = str(root.path)
    return SafeDir(root.path.parent, (root.path.name, *Path(str(folder)[len(top) + 1 :]).parts))
