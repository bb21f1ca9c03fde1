"""Commands that go through whole folders: which, and what lies in them.

`grep -r KEY .` reads every file below, those too that a rule keeps from being read. Whether one
is there is looked up, so that searching elsewhere stays unasked.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import NamedTuple

from retinue.guard.permissions.marks import is_known
from retinue.guard.permissions.place import Place
from retinue.guard.permissions.shell.commands import operands
from retinue.guard.permissions.shell.step import Script, Step

MOST_ENTRIES = 5_000
"""Of one command that are looked at; a folder with more may hold anything."""

_GREPS = frozenset({"grep", "egrep", "fgrep", "zgrep"})
_SKIPPING = frozenset({"rg", "ag", "ack"})
"""They leave out what is hidden, unless they are told not to."""
_COPYING = frozenset({"tar", "bsdtar", "rsync", "7z", "7za"})
_RECURSIVE = {"cp": "raR", "scp": "r", "diff": "r", "zip": "r"}


class Through(NamedTuple):
    folder: str
    hidden: bool = True


def gone_through(script: Script) -> Iterator[Through]:
    """The folders of a command line, as written, of which it reads all files."""
    for step in script.all_steps():
        name = step.name
        if name in _GREPS and (_letters(step, "rR") or _long(step, "--rec", "--dereference-rec")):
            yield from map(Through, _searched(step))
        elif name in _SKIPPING:
            hidden = _letters(step, "u.") or _long(step, "--hidden", "--no-ignore", "--unrestricted", "--all")
            yield from (Through(folder, hidden) for folder in _searched(step))
        elif name == "git" and "grep" in step.words and _long(step, "--no-index", "--untracked"):
            yield Through(".")
        elif name in ("find", "gfind") and step.inner:
            yield from map(Through, _starts(step))
        elif name in _COPYING or (name in _RECURSIVE and _letters(step, _RECURSIVE[name])):
            yield from map(Through, operands(step))


def followed(step: Step) -> tuple[str, ...]:
    """The folders that a command goes through and follows links in."""
    if step.name in _GREPS and (_letters(step, "R") or _long(step, "--dereference-rec")):
        return _searched(step)
    if step.name in _SKIPPING and (_letters(step, "L") or _long(step, "--follow")):
        return _searched(step)
    return operands(step) if step.name == "diff" and (_letters(step, "r") or _long(step, "--rec")) else ()


def leads_out(folder: str, place: Place) -> bool:
    """Whether a link below the folder leads out of the working directories, or may."""
    for count, path in enumerate(entries(folder, hidden=True)):
        if count >= MOST_ENTRIES or (os.path.islink(path) and not place.holds(os.path.realpath(path))):  # noqa: PTH114
            return True
    return False


def entries(folder: str, *, hidden: bool) -> Iterator[str]:
    """Every path below a folder, links not followed."""
    waiting = [folder]
    while waiting:
        here = waiting.pop()
        try:
            with os.scandir(here) as found:
                for entry in found:
                    if entry.name.startswith(".") and not hidden:
                        continue
                    yield entry.path
                    if entry.is_dir(follow_symlinks=False) and not here.endswith("/.git"):
                        waiting.append(entry.path)
        except OSError:
            continue


def _searched(step: Step) -> tuple[str, ...]:
    given = operands(step)
    if not any(word.startswith(("-e", "-f", "--regexp", "--file")) for word in step.words[1:]):
        given = given[1:]
    return given or (".",)


def _starts(step: Step) -> tuple[str, ...]:
    words = step.words[1:]
    first = next((at for at, word in enumerate(words) if word.startswith(("-", "(", "!"))), len(words))
    return words[:first] or (".",)


def _letters(step: Step, wanted: str) -> bool:
    short = (word[1:] for word in step.words[1:] if word.startswith("-") and not word.startswith("--"))
    return any(set(wanted) & set(word) or not is_known(word) for word in short)


def _long(step: Step, *beginnings: str) -> bool:
    return any(word.startswith(beginnings) for word in step.words[1:])
