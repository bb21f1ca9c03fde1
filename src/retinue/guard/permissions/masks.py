"""Rules about files, as paths that the walls hide or keep as they are.

A rule names files by patterns, and a mount needs paths: they are looked up before each command,
below the working directories. A path that does not exist yet cannot be walled off.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Iterator
from dataclasses import field

from retinue.core.lean import dataclass
from retinue.guard.permissions.place import Place, anchored, compile_pattern
from retinue.guard.permissions.policy import Policy
from retinue.guard.permissions.rule import Rule, is_about_files

MOST_ENTRIES = 400_000
_TICK_NS = 100_000_000
_WILD = re.compile(r"[*?\[\]\\]")


class TooManyFilesError(OSError):
    """The working directories hold more files than can be looked through before a command."""


@dataclass(frozen=True, slots=True)
class Masks:
    """`hidden` paths look empty inside the walls; `kept` ones cannot be changed."""

    hidden: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Wanted:
    """What one rule is about: paths below `base` that fit `pattern`."""

    base: str
    pattern: re.Pattern[str]
    hides: bool


@dataclass(slots=True)
class _Folder:
    """What was found in one folder when it had this time of change."""

    changed: int
    folders: tuple[str, ...]
    hidden: tuple[str, ...]
    kept: tuple[str, ...]
    count: int


@dataclass(slots=True)
class FileMasks:
    """The masks of one run. `asking` includes rules that ask: for commands nobody was asked about."""

    policy: Policy
    asking: bool
    _seen: dict[str, _Folder] = field(default_factory=dict)

    def now(self) -> Masks:
        """Return the paths that rules are about at this moment. Raise `TooManyFilesError`."""
        kinds = ("deny", "ask") if self.asking else ("deny",)
        rules = [rule for rule in self.policy.own_rules if rule.kind in kinds and is_about_files(rule)]
        if not rules:
            return Masks()
        place = self.policy.place.now()
        hidden: list[str] = []
        kept: list[str] = []
        wanted: list[_Wanted] = []
        for rule in rules:
            target = hidden if "read" in rule.tools else kept
            if rule.specifier is None:
                target += place.real_roots
                continue
            for base, pattern in _starts(rule, place):
                fixed = _fixed_path(base, pattern)
                if fixed is not None:
                    target.append(os.path.realpath(fixed))
                else:
                    wanted.append(_Wanted(base, compile_pattern(pattern), target is hidden))
        if wanted:
            for folder in self._search(place.real_roots, wanted):
                hidden += folder.hidden
                kept += folder.kept
        return Masks(tuple(dict.fromkeys(hidden)), tuple(dict.fromkeys(kept)))

    def _search(self, roots: Iterable[str], wanted: list[_Wanted]) -> Iterator[_Folder]:
        """Yield every folder below `roots`. One that did not change since is not read again."""
        waiting, count = list(roots), 0
        while waiting:
            path = waiting.pop()
            try:
                changed = os.stat(path).st_mtime_ns  # noqa: PTH116 - thousands of these
                found = self._seen.get(path)
                if found is None or found.changed != changed:
                    # A file made within the clock's next tick would not change the time again.
                    settled = time.time_ns() - changed > _TICK_NS
                    found = self._seen[path] = _look(path, changed if settled else -1, wanted)
            except OSError:
                continue
            count += found.count
            if count > MOST_ENTRIES:
                raise TooManyFilesError(
                    f"The workspace holds more than {MOST_ENTRIES:,} files, too many to look for those that rules deny."
                )
            yield found
            waiting += found.folders


def _starts(rule: Rule, place: Place) -> Iterator[tuple[str, str]]:
    """Yield the folder that a rule's pattern starts from, links followed, and the same folder of
    the worktree that is a copy of it."""
    base, pattern = anchored(rule, place)
    for form in dict.fromkeys((base, os.path.realpath(base))):
        yield form, pattern
        copied = place.copied
        if copied is not None and (form == copied[1] or form.startswith(f"{copied[1]}/")):
            yield copied[0] + form[len(copied[1]) :], pattern


def _fixed_path(base: str, pattern: str) -> str | None:
    """Return the one path that a pattern means; None where it can mean several."""
    text = pattern.removesuffix("/**").removesuffix("/")
    if text in ("", "."):
        return base
    if _WILD.search(text) or "/" not in text:
        return None
    return os.path.join(base, text.lstrip("/"))  # noqa: PTH118 - by text


def _look(path: str, changed: int, wanted: list[_Wanted]) -> _Folder:
    folders: list[str] = []
    found: dict[bool, list[str]] = {True: [], False: []}
    count = 0
    with os.scandir(path) as entries:
        for entry in entries:
            count += 1
            is_folder = entry.is_dir(follow_symlinks=False)
            match = _match(entry.path, is_folder, wanted)
            if match is not None:
                found[match].append(os.path.realpath(entry.path))
            elif is_folder:
                folders.append(entry.path)
    return _Folder(changed, tuple(folders), tuple(found[True]), tuple(found[False]), count)


def _match(path: str, is_folder: bool, wanted: list[_Wanted]) -> bool | None:
    """Return True for a path to hide, False for one to keep, None for any other."""
    answer: bool | None = None
    for each in wanted:
        start = each.base if each.base.endswith("/") else f"{each.base}/"
        if not path.startswith(start):
            continue
        rest = path[len(start) :]
        if each.pattern.match(rest) or (is_folder and each.pattern.match(f"{rest}/")):
            if each.hides:
                return True
            answer = False
    return answer
