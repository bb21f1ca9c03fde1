"""All skills that are visible from a folder, and their texts with arguments filled in.

Each root is searched breadth first, with entries in byte order: first files NAME.md in the root itself, then folders
NAME with a SKILL.md or skill.md. A skill's folder is not searched for other skills, and links are not followed. Results
are cached, and validated by the times, sizes and inodes of their folders and files.

    $ARGUMENTS          all arguments
    $ARGUMENTS[N], $N   the word number N, from 0, with the quoting of a shell
    $name               the word that has this name in the skill's `arguments`

A number without a word stays unchanged, a name without a word becomes empty, and a backslash before any of these keeps
it literally. Arguments that a text does not use are added at its end.
"""

from __future__ import annotations

import os
import re
import stat
import time
import unicodedata
from collections.abc import Iterable
from itertools import chain, islice
from pathlib import Path

from msgspec.structs import replace

from retinue.agents.frontmatter import split
from retinue.agents.parse import Signature, just_written, signature_of, unchanged
from retinue.agents.prompt_files import split_arguments
from retinue.capabilities.skills.parse import Root, Skill, parse_skill_file
from retinue.tools.safe_dir import SafeDir, files, read

_ARGUMENT_PLACEHOLDER = re.compile(r"(\\?)\$(?:ARGUMENTS\[(\d{1,4})\]|(ARGUMENTS)\b|(\d{1,4})\b|([A-Za-z_]\w*))")
_FOLDER_VARIABLES = ("${CLAUDE_SKILL_DIR}", "${RETINUE_SKILL_DIR}")


def substitute(text: str, skill: Skill, arguments: str) -> str:
    words = split_arguments(arguments)
    is_used = False

    def argument(match: re.Match[str]) -> str:
        nonlocal is_used
        escape, index, everything, number, name = match.groups()
        if name is not None and name not in skill.arguments:
            return match[0]
        if escape:
            return match[0][1:]
        at = 0
        if not everything:
            at = int(index or number) if name is None else skill.arguments.index(name)
            if at >= len(words) and name is None:
                return match[0]
        is_used = True
        return arguments if everything else "".join(words[at : at + 1])

    filled = _ARGUMENT_PLACEHOLDER.sub(argument, text)
    if skill.folder is not None:
        for name in _FOLDER_VARIABLES:
            filled = filled.replace(name, str(skill.folder))
    if arguments.strip() and not is_used:
        filled += f"\n\nARGUMENTS: {arguments}"
    return filled


SKILL_FILES = ("SKILL.md", "skill.md")
"""Names of a skill's file; if both exist, the first is read."""
_SAFE_NAME = re.compile(r"[^\W_][\w.-]{0,127}")
MAX_SKILL_DEPTH = 6
MAX_SKILLS = 20_000
MAX_SKILL_BYTES = 2 * 2**20
MAX_BUNDLED_FILES = 200
_LINK_REASON = "It is a symbolic link, and those are not followed."
_UNSAFE_NAME_REASON = "Its name is not safe: use letters, digits, '-', '_' and '.', beginning with a letter or digit."


class Library:
    """The skills that a run can see. Files are read again when they may have changed."""

    def __init__(self, roots: Iterable[Root]) -> None:
        self.roots = tuple(roots)

    def all(self) -> tuple[Skill, ...]:
        """Return every skill in order of precedence; of one name only the first."""
        skills: dict[str, Skill] = {}
        for contents in map(_contents, self.roots):
            for name, skill in contents.skills.items():
                skills.setdefault(name, skill)
        return tuple(skills.values())

    def shadowed(self) -> tuple[Skill, ...]:
        """Return the skills that are replaced by one of the same name."""
        winners = {skill.path for skill in self.all()}
        skills = chain.from_iterable(_contents(root).skills.values() for root in self.roots)
        return tuple(skill for skill in skills if skill.path not in winners)

    def refused(self) -> tuple[tuple[str, str], ...]:
        """Return the paths in folders of skills that are not used, each with the reason."""
        return tuple(chain.from_iterable(_contents(root).refused for root in self.roots))

    def invocable(self) -> tuple[Skill, ...]:
        """Return the skills that a model may load."""
        return tuple(skill for skill in self.all() if skill.model_invocable and not skill.problem)

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
            own_name = _contents(root).titles.get(name)
            if own_name is not None:
                return by_name.get(own_name)
        lowered = name.lower()
        for skill in everything:
            if lowered in (skill.name.lower(), skill.name.lower().rpartition(":")[2]):
                return skill
        return None

    def text(self, skill: Skill, arguments: str = "") -> str:
        """Return the instructions with `arguments` filled in. Raise OSError if the file is gone or is no longer a
        file."""
        return substitute(split(self.content(skill)).body.strip(), skill, arguments)

    def content(self, skill: Skill) -> bytes:
        """Return the bytes of a skill's file, to which consent is bound."""
        return _data(self._root_of(skill), skill)

    def files(self, skill: Skill) -> tuple[str, ...]:
        """Return the bundled files of a skill, as paths below its folder; links are left out."""
        if skill.folder is None:
            return ()
        listed = files(_safe_dir(self._root_of(skill), skill.folder))
        bundled = ("/".join(names) for names in listed if names != (skill.path.name,))
        return tuple(islice(bundled, MAX_BUNDLED_FILES))

    def owner(self, path: str) -> tuple[Skill, Path] | None:
        """Return the skill into whose folder a resolved path leads, and that folder resolved."""
        for root in self.roots:
            top = os.path.realpath(root.path)
            if not path.startswith(top + os.sep):
                continue
            parts = Path(path[len(top) + 1 :]).parts
            folders = {str(skill.folder): skill for skill in _contents(root).skills.values()}
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
    return _SAFE_NAME.fullmatch(unicodedata.normalize("NFC", name)) is not None


class _RootContents:
    """The skills of one root. While `signatures` match, nothing has changed, unless `verifiable` is False. Files that
    have not changed since `before` are not read again."""

    def __init__(self, root: Root, before: _RootContents | None) -> None:
        self.root = root
        self.verifiable = True
        self.signatures: list[tuple[str, Signature]] = []
        self.skills: dict[str, Skill] = {}
        self.titles: dict[str, str] = {}
        """Names in frontmatter, with the names of the folders."""
        self.refused: list[tuple[str, str]] = []
        self.files: dict[str, tuple[Signature, Skill, str]] = {}
        self._before = {} if before is None else before.files
        self._now = time.time_ns()

    def search(self) -> None:
        path = str(self.root.path)
        try:
            status = os.lstat(path)
        except OSError:
            self.verifiable = False
            return
        if not stat.S_ISDIR(status.st_mode):
            self.verifiable = False
            if stat.S_ISLNK(status.st_mode):
                self.refused.append((path, _LINK_REASON))
            return
        level = [path]
        for depth in range(MAX_SKILL_DEPTH):
            level = [below for folder in level for below in self._look(folder, flat=depth == 0)]
        self._before = {}

    def _sign(self, path: str, status: os.stat_result) -> Signature:
        signature = signature_of(status)
        self.signatures.append((path, signature))
        # Another write within the same tick of the clock would leave the same signature.
        self.verifiable = self.verifiable and not just_written(signature, self._now)
        return signature

    def _add(self, name: str, path: str, folder: str | None, status: os.stat_result) -> None:
        if not _is_safe(name):
            self.refused.append((path, _UNSAFE_NAME_REASON))
            return
        full = f"{self.root.plugin}:{name}" if self.root.plugin else name
        signature = self._sign(path, status)
        if full in self.skills or len(self.skills) >= MAX_SKILLS:
            return
        before = self._before.get(path)
        if before is None or before[0] != signature or just_written(signature, self._now):
            before = (signature, *_read(self.root, full, Path(path), Path(folder) if folder else None))
        self.files[path] = before
        self.skills[full], title = before[1:]
        if title and title != name:
            self.titles.setdefault(title, full)

    def _look(self, folder: str, *, flat: bool) -> list[str]:
        """Add the skills of one folder, and return the folders to search next."""
        try:
            self._sign(folder, os.lstat(folder))
            with os.scandir(folder) as entries:
                listed = sorted(entries, key=lambda entry: os.fsencode(entry.name))
        except OSError:
            self.verifiable = False
            return []
        folders = []
        for entry in listed:
            name = entry.name
            is_loose = flat and name.lower().endswith(".md") and name[0] != "."
            if entry.is_symlink():
                if is_loose or (name[0] != "." and entry.is_dir()):
                    self.refused.append((entry.path, _LINK_REASON))
            elif is_loose and name != SKILL_FILES[0]:
                if entry.is_file(follow_symlinks=False):
                    self._add(name[:-3], entry.path, None, entry.stat(follow_symlinks=False))
            elif name[0] != "." and name != "node_modules" and entry.is_dir(follow_symlinks=False):
                folders.append(entry)
        return [entry.path for entry in folders if not self._take_folder(entry)]

    def _take_folder(self, entry: os.DirEntry[str]) -> bool:
        """Add the skill of a folder. Return whether it has one."""
        for name in SKILL_FILES:
            path = f"{entry.path}/{name}"
            try:
                status = os.lstat(path)
                if name != SKILL_FILES[0]:
                    # A file of the first name may be added later.
                    self._sign(entry.path, os.lstat(entry.path))
            except OSError:
                continue
            if stat.S_ISREG(status.st_mode):
                self._add(entry.name, path, entry.path, status)
            else:
                # It may become a file without changing the times of the folder.
                self.verifiable = False
                why = _LINK_REASON if stat.S_ISLNK(status.st_mode) else "It is not a regular file."
                self.refused.append((path, why))
            return True
        return False


_CACHED_CONTENTS: dict[Root, _RootContents] = {}


def _contents(root: Root) -> _RootContents:
    contents = _CACHED_CONTENTS.get(root)
    if contents is None or not contents.verifiable or not unchanged(contents.signatures, os.lstat):
        contents = _CACHED_CONTENTS[root] = _RootContents(root, contents)
        contents.search()
    return contents


def _read(root: Root, name: str, path: Path, folder: Path | None) -> tuple[Skill, str]:
    skill = Skill(name=name, path=path, source=root.source, folder=folder)
    try:
        data = _data(root, skill)
    except OSError as error:
        return replace(skill, problem=f"The file cannot be read: {error.strerror or error}."), ""
    return parse_skill_file(data, name, path, folder, root)


def _data(root: Root, skill: Skill) -> bytes:
    data = read(_safe_dir(root, skill.path.parent), skill.path.name, most=MAX_SKILL_BYTES + 1)
    if len(data) > MAX_SKILL_BYTES:
        raise OSError(27, f"it has more than {MAX_SKILL_BYTES // 2**20} MB", str(skill.path))
    return data


def _safe_dir(root: Root, folder: Path) -> SafeDir:
    """Return a folder of a root, to be opened without following links below the root."""
    return SafeDir(root.path.parent, folder.parts[len(root.path.parts) - 1 :])
