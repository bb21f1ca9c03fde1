"""Actions that are always asked about, and the parts of a command line that need no question.

A critical deletion removes the root, a home, the complete workspace or a device. It is asked
about in every mode, whatever any rule allows, and so are changes of protected files (`modes.py`).
Names that xargs or find pass on are known too late, so deleting whole folders through them counts as
critical. In the mode that bypasses questions, a command that cannot be read is asked about if it
names a deleting program at all.

`Coverage` checks all other commands step by step and file by file.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from itertools import pairwise, takewhile

from retinue.guard.permissions.call import JudgedCall
from retinue.guard.permissions.locations import RunFolders, below, match_path
from retinue.guard.permissions.match import allows_step, starts_others
from retinue.guard.permissions.modes import protected_name
from retinue.guard.permissions.rule import GLOB, HOLE, READING, WRITING, YES, Rule, is_known, shown
from retinue.guard.permissions.shell_commands import edited_paths, needs_outside, operands, read_paths
from retinue.guard.permissions.shell_step import CARRIERS, Opened, Script, Step, has_option

_DELETING = frozenset({"rm", "rmdir", "unlink", "shred", "srm", "trash", "del", "rd"})
_DEVICE = re.compile(r"/dev/(?:sd|hd|vd|xvd|nvme|mmcblk|disk|mapper/|md|loop|mem|kmem|port)")
_EVERYTHING = re.compile(rf"[.{GLOB}]*{GLOB}[.{GLOB}]*")
"""A last part such as `*`, `.*` or `.[!.]*`."""


_NAMES_DELETION = re.compile(r"(?<![\w.-])(?:rm|rmdir|unlink|shred|srm|mkfs|wipefs|dd|-?-delete)(?![\w-])")


def mentions_deletion(text: str) -> bool:
    """Return whether a text that cannot be read names a program that deletes."""
    return _NAMES_DELETION.search(text) is not None


def critical(script: Script, folders: RunFolders, bases: tuple[str, ...]) -> str | None:
    """Return why this must not happen unasked; None if it may."""
    for outer in script.all_steps():
        for step in _with_started(outer):
            reason = _of_step(step, folders, bases)
            if reason is not None:
                return reason
    for file in script.opened:
        if file.writes and _DEVICE.match(file.path):
            return f"it writes over the device {shown(file.path)}"
    return None


def _with_started(step: Step) -> Iterator[Step]:
    """Yield a command and, for one that starts others, the commands that its words may start. xargs and find
    hand over names that are known only when they run."""
    yield step
    if step.name not in CARRIERS or step.inner:
        return
    for at, word in enumerate(step.words[1:], 1):
        if _deletes(word):
            started = [HOLE if argument == "{}" else argument for argument in step.words[at:]]
            if step.name in ("xargs", "parallel"):
                started.append(HOLE)
            yield Step(tuple(started))


def _of_step(step: Step, folders: RunFolders, bases: tuple[str, ...]) -> str | None:
    name = step.name
    if name in _DELETING:
        return _deletion(name, step.words[1:], operands(step), folders, bases)
    # Moving a folder away empties it as a deletion does; the last operand is the target.
    if name == "mv":
        return _deletion(name, (), operands(step)[:-1] or operands(step), folders, bases)
    if name in ("find", "gfind"):
        return _found_and_deleted(step, folders, bases)
    if name == "rsync" and has_option(step.words, "--del"):
        return _deletion(name, ("-r",), operands(step)[-1:], folders, bases)
    if name in ("chmod", "chown", "chgrp") and _recursive(step.words):
        return _deletion(name, ("-R",), operands(step)[1:], folders, bases, workspace=False)
    if name.startswith("mkfs") or name in ("wipefs", "fdisk", "parted", "mkswap"):
        return f"{name} destroys what is on a device"
    if name in ("dd", "tee", "cp", "truncate") and any(map(_DEVICE.match, operands(step))):
        return f"{name} writes over a device"
    return None


def _recursive(words: tuple[str, ...]) -> bool:
    if has_option(words, "--recursive"):
        return True
    return any(word.startswith("-") and not word.startswith("--") and set("rR") & set(word) for word in words)


def _found_and_deleted(step: Step, folders: RunFolders, bases: tuple[str, ...]) -> str | None:
    """Judge what find deletes: a test that chooses makes it an ordinary deletion, but not at the root."""
    words = step.words[1:]
    pairs = tuple(pairwise((*words, "")))
    if "-delete" not in words and not any(word in _EXEC_ACTIONS and _deletes(program) for word, program in pairs):
        return None
    starts = tuple(takewhile(lambda word: not word.startswith(("-", "(", "!")), words)) or (".",)
    chosen = any(word in _CHOOSING and value != "*" for word, value in pairs)
    negated = not {"!", "-not", "-o", "-or"}.isdisjoint(words)
    return _deletion("find", ("-r",), starts, folders, bases, workspace=not chosen or negated)


_EXEC_ACTIONS = ("-exec", "-execdir", "-ok", "-okdir")
_CHOOSING = tuple("-name -iname -path -ipath -regex -newer -mtime -mmin -size -empty".split())


def _deletes(program: str) -> bool:
    return program.rpartition("/")[2] in _DELETING


def _deletion(
    name: str,
    options: tuple[str, ...],
    targets: tuple[str, ...],
    folders: RunFolders,
    bases: tuple[str, ...],
    *,
    workspace: bool = True,
) -> str | None:
    recursive = (
        name in ("find", "rsync", "mv")
        or _recursive(options)
        or any(HOLE in word and word[0] == "-" for word in options)
    )
    for target in targets:
        if HOLE in target and name != "mv" and (recursive or name == "rmdir"):
            return f"{name} deletes whole folders, and which is known only when it runs ({shown(target)})"
        for base in bases:
            place_name = _vital(target, base, folders, workspace)
            if place_name is not None:
                return f"{name} {shown(target)} concerns {place_name}"
    return None


def _vital(target: str, base: str, folders: RunFolders, workspace: bool) -> str | None:
    # Unknown targets of recursive deletions were asked about before.
    if HOLE in target or HOLE in base:
        return None
    folder, everything = target, False
    if not is_known(target):
        head, _, last = target.rpartition("/")
        if not _EVERYTHING.fullmatch(last) or GLOB in head:
            return _vital_glob(head, base, folders)
        folder, everything = head or ("/" if target.startswith("/") else "."), True
    forms = {folders.absolute(folder, base), *folders.forms(folder, base)}
    for form in forms:
        if form == "/" or (form.count("/") == 1 and not everything) or (form.count("/") == 1 and form != "/tmp"):  # noqa: S108
            return "the root of the file system or a folder in it"
        if below(folders.home, form) is not None or (form.startswith(("/home/", "/Users/")) and form.count("/") == 2):
            return "a home folder"
        if workspace and any(below(root, form) is not None for root in (*folders.roots, *folders.real_roots)):
            return "a whole working directory"
    return None


def _vital_glob(head: str, base: str, folders: RunFolders) -> str | None:
    """Judge `/*/x` and `~/.*/y`: a glob for a folder right below the root or a home."""
    fixed = head[: head.index(GLOB)] if GLOB in head else ""
    if not fixed:
        return None
    folder = os.path.dirname(folders.absolute(fixed + "x", base))  # noqa: PTH120
    if folder == "/" or folder == folders.home:
        return "folders of the root or a home"
    return None


_DEVICES = frozenset({"/dev/null", "/dev/stdout", "/dev/stderr", "/dev/stdin", "/dev/tty", "/dev/zero", "/dev/urandom"})


class Coverage:
    """The commands and files of a command line that somebody must be asked about, and what allowed the rest: rules, or
    the mode. `edits` lets the mode change files in working directories, `reads` lets it look around."""

    def __init__(
        self, call: JudgedCall, allow: Sequence[Rule], *, wary: bool, reads: bool = True, edits: bool = False
    ) -> None:
        self._call, self._allow, self._wary = call, allow, wary
        self._reads, self._edits = reads, edits
        self._used: dict[Rule, None] = {}
        self._edited = False
        self.open_steps = [step for step in call.script.steps if not self._step(step)]
        self.open_files = [file for file in call.script.opened if not self._file(file)]
        self.rules = tuple(self._used)
        self.complete = not self.open_steps and not self.open_files
        self.only_reads = not self._used and not self._edited

    def _step(self, step: Step) -> bool:
        if self._by_mode(step):
            return True
        for rule in self._allow:
            if not allows_step(rule, step, wary=self._wary):
                continue
            if not starts_others(step) or rule.specifier is None:
                self._used[rule] = None
                return True
            break
        return step.transparent and bool(step.inner) and all(map(self._step, step.inner))

    def _by_mode(self, step: Step) -> bool:
        paths = read_paths(step) if self._reads else None
        if paths is not None and (step.name != "git" or self._harmless_repository()):
            return all(map(self._readable, paths))
        changed = edited_paths(step) if self._edits else None
        if not changed or not all(map(self._writable, changed)):
            return False
        self._edited = True
        return True

    def _harmless_repository(self) -> bool:
        """Return whether git starts no program here. After `cd` nobody knows which repository it finds."""
        return not self._call.script.moves and self._call.git_programs is None

    def _readable(self, path: str) -> bool:
        return path == "-" or path in _DEVICES or self._inside(path) or self._is_allowed_by_rule(path, READING)

    def _writable(self, path: str) -> bool:
        folders = self._call.folders
        return self._inside(path) and not any(protected_name(path, folders, base) for base in self._call.bases)

    def _inside(self, path: str) -> bool:
        return all(self._call.folders.inside(path, base) for base in self._call.bases)

    def _file(self, file: Opened) -> bool:
        if file.path in _DEVICES or (file.path.startswith("/dev/fd/") and file.path[8:].isdigit()):
            return True
        if not file.writes:
            return (self._reads and self._inside(file.path)) or self._is_allowed_by_rule(file.path, READING)
        if self._edits and self._writable(file.path):
            self._edited = True
            return True
        return self._is_allowed_by_rule(file.path, WRITING)

    def _is_allowed_by_rule(self, path: str, tools: frozenset[str]) -> bool:
        folders, bases = self._call.folders, self._call.bases
        for rule in self._allow:
            if not tools & rule.tools or rule.glob is not None:
                continue
            if rule.specifier is None or all(match_path(rule, folders, path, base) == YES for base in bases):
                self._used[rule] = None
                return True
        return False


def stopped_by_walls(call: JudgedCall, coverage: Coverage) -> bool:
    """Return whether the sandbox would certainly stop a command line, so that it is asked about now."""
    if call.script.doubts:
        return False
    if any(file.writes for file in coverage.open_files):
        return True
    for outer in coverage.open_steps:
        for step in (outer, *outer.inner):
            if needs_outside(step) or (not step.inner and _looks_outside(call, step)):
                return True
    return False


def _looks_outside(call: JudgedCall, step: Step) -> bool:
    """Return whether it is handed a path that exists outside of what the sandbox shows."""
    return any(all(call.folders.leaves(path, base) for base in call.bases) for path in operands(step))


def protected_write(call: JudgedCall) -> str | None:
    """Return a protected file that the command line would change, for people."""
    for path, writes in call.touched:
        if not writes or path in _DEVICES or path.startswith("-"):
            continue
        for base in call.bases:
            name = protected_name(path, call.folders, base)
            if name is not None:
                return f"{shown(path)} ({name})"
    return None
