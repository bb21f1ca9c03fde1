"""The doctor's look at the machine: Python, terminal, programs."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from retinue.faces.cli.doctor_checks import Patient

Row = tuple[str, ...]
_GIT = (2, 31)


def python(patient: Patient) -> Iterator[Row]:
    where = f"{platform.system()} {platform.release()} ({platform.machine()})"
    yield "ok", "Python", f"{platform.python_version()} on {where}"


def terminal(patient: Patient) -> Iterator[Row]:
    out = sys.__stdout__ or sys.stdout  # the terminal app puts something else in its place
    if not out.isatty():
        yield "info", "terminal", "the output is not a terminal, so nothing can be said about it"
        return
    size = shutil.get_terminal_size()
    encoding = (out.encoding or "").lower()
    name = patient.environment.get("TERM", "")
    if name in ("", "dumb"):
        yield "warning", "terminal", f"TERM is {name or 'not set'}", "Set TERM, for example to xterm-256color."
    elif "utf" not in encoding:
        yield "warning", "terminal", f"its encoding is {encoding}", "Use a UTF-8 locale, for example LANG=C.UTF-8."
    elif size.columns < 60:
        yield "warning", "terminal", f"only {size.columns} columns wide", "Widen it to 80 columns or more."
    else:
        yield "ok", "terminal", f"{name}, {size.columns}×{size.lines}, {encoding}"


def git(patient: Patient) -> Iterator[Row]:
    program = shutil.which("git", path=patient.environment.get("PATH"))
    if program is None:
        yield "warning", "git", "not found: no worktrees and no undo", "Install git 2.31 or newer."
        return
    said = _version([program, "--version"]).split()
    words = said[2].split(".") if len(said) > 2 else []
    number = tuple(int(word) for word in words[:2] if word.isdigit())
    if number < _GIT:
        yield "warning", "git", f"{'.'.join(words) or 'of unknown version'} is old", "Install git 2.31 or newer."
    else:
        yield "ok", "git", f"{'.'.join(words)} at {program}"


def ripgrep(patient: Patient) -> Iterator[Row]:
    from retinue.tools.globs import find_ripgrep

    program = find_ripgrep()
    if program is None:
        yield "failure", "ripgrep", "not found, so agents cannot search", "Run: pip install ripgrep"
    elif not os.access(program, os.X_OK):
        yield "failure", "ripgrep", f"{program} cannot be run", "Run: pip install --force-reinstall ripgrep"
    else:
        yield "ok", "ripgrep", f"{(_version([str(program), '--version']).split() or ['', '?'])[1]} at {_short(program)}"


def _version(argv: list[str]) -> str:
    done = subprocess.run(argv, capture_output=True, text=True, timeout=20, check=False)  # noqa: S603 - found above
    return (done.stdout.splitlines() or [""])[0]


def _short(path: Path) -> str:
    home = str(Path.home())
    return str(path).replace(home, "~", 1) if str(path).startswith(home + "/") else str(path)
