"""What `retinue doctor` checks: settings, agents, log, machine, models, plugins. Plugins are not run.

A new check is one row in `CHECKS`: a category and a function. It takes a `Patient` and yields
findings. It is imported when the doctor runs, may take its time, and changes nothing. One that raises
is reported as a finding, so that it hides no other.
"""

from __future__ import annotations

import asyncio
import os
import platform
import shutil
import stat
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from retinue.core.lean import dataclass
from retinue.errors import RetinueError
from retinue.faces.cli.agents_show import clean
from retinue.models.providers import Providers
from retinue.models.select import ModelSelection, select_model

if TYPE_CHECKING:
    from retinue.settings.load import Loaded


Grade = Literal["ok", "info", "warning", "failure"]


@dataclass(frozen=True, slots=True)
class DoctorFinding:
    """`remedy` is there for every warning and failure."""

    category: str
    name: str
    grade: Grade
    detail: str
    remedy: str = ""


class Patient:
    """The installation as seen from one folder."""

    def __init__(self, cwd: Path, environment: Mapping[str, str]) -> None:
        self.cwd = cwd
        self.environment = environment

    @cached_property
    def loaded(self) -> Loaded:
        from retinue.capabilities.trust.attach import settings_in_effect

        return settings_in_effect(self.cwd, self.environment)


_HERE = "retinue.faces.cli"
CHECKS: list[tuple[str, str]] = [
    ("system", f"{_HERE}.doctor_checks:python"),
    ("system", f"{_HERE}.doctor_checks:terminal"),
    ("programs", f"{_HERE}.doctor_checks:git"),
    ("programs", f"{_HERE}.doctor_checks:ripgrep"),
    ("sandbox", f"{_HERE}.doctor_sandbox:layers"),
    ("sandbox", f"{_HERE}.doctor_sandbox:walls"),
    ("settings", f"{_HERE}.doctor_checks:settings"),
    ("agents", f"{_HERE}.doctor_checks:agents"),
    ("plugins", f"{_HERE}.doctor_checks:plugins"),
    ("log", f"{_HERE}.doctor_checks:log"),
    ("models", f"{_HERE}.doctor_checks:models"),
    ("web", f"{_HERE}.doctor_tools:search"),
    ("web", f"{_HERE}.doctor_tools:pages"),
    ("convert", f"{_HERE}.doctor_tools:converter"),
    ("lsp", f"{_HERE}.doctor_tools:language_servers"),
    ("permissions", f"{_HERE}.doctor_tools:results_folder"),
]


def examine(patient: Patient, categories: Iterable[str] = ()) -> Iterator[DoctorFinding]:
    """Everything found, check by check; only `categories`, if any are named."""
    wanted = set(categories)
    for category, place in CHECKS:
        if wanted and category not in wanted:
            continue
        module, _, function = place.partition(":")
        try:
            for grade, name, detail, *remedy in getattr(import_module(module), function)(patient):
                yield DoctorFinding(category, name, grade, detail, *remedy)
        except Exception as error:  # noqa: BLE001 - a broken part must not hide the others
            said = f"could not be checked: {type(error).__name__}: {error}"
            yield DoctorFinding(category, function, "failure", said, "Please report this, with the output of --json.")


Row = tuple[str, ...]


def settings(patient: Patient) -> Iterator[Row]:
    from retinue.capabilities.permissions.attach import rule_notes
    from retinue.runs.project import Project

    rules = rule_notes(Project(patient.cwd, environment=patient.environment))
    others = [warning for warning in patient.loaded.warnings if not any(rule.startswith(warning) for rule in rules)]
    warnings = [*rules, *others]
    for warning in warnings:
        yield "warning", "settings", warning, "Correct the file; the rest of it counts."
    if not warnings:
        yield "ok", "settings", "every file was understood"
    for unused in patient.loaded.unused:
        yield "info", "settings", str(unused)


def agents(patient: Patient) -> Iterator[Row]:
    from retinue.agents.catalog import Catalog

    catalog = Catalog.load(patient.cwd, environment=patient.environment)
    counts = Counter(entry.spec.source for entry in catalog.agents)
    by_source = ", ".join(f"{number} {source}" for source, number in sorted(counts.items()))
    usable = f"{len(catalog.agents)} usable ({by_source})" if counts else "none usable"
    if catalog.failed:
        skipped = f"{len(catalog.failed)} agent file{'s' if len(catalog.failed) > 1 else ''} skipped (cannot be loaded)"
        yield "warning", "agents", f"{usable}, {skipped}", "See: retinue agents lint"
    else:
        yield "ok", "agents", usable


def log(patient: Patient) -> Iterator[Row]:
    from retinue.log.query import LogReader
    from retinue.settings.places import retinue_home, state_folder

    home = retinue_home(patient.environment)
    if home.is_dir():
        loose = stat.S_IMODE(home.stat().st_mode) & 0o022
        if loose and os.name == "posix":
            yield "warning", "state folder", f"others may write to {home}", f"Run: chmod go-w {home}"
        elif not os.access(home, os.W_OK):
            yield "failure", "state folder", f"{home} cannot be written", "Correct its owner, or set RETINUE_HOME."
        else:
            yield "ok", "state folder", str(home)
    folder = state_folder(patient.cwd, patient.environment)
    if not (folder / "log.db").exists():
        yield "info", "log", "nothing has run in this project yet"
        return
    try:
        with LogReader.open(folder) as reader:
            verdict = str(reader.select("PRAGMA quick_check(1)")[0][0])
            runs = int(reader.select("SELECT count(*) FROM runs")[0][0])
    except RetinueError as error:
        yield "failure", "log", error.message, error.remedy or "Move the file away to begin a new log."
        return
    if verdict != "ok":
        yield "failure", "log", f"damaged: {verdict}", f"Keep a copy of {folder}, then move log.db away."
    else:
        size = (folder / "log.db").stat().st_size / 1e6
        yield "ok", "log", f"{runs} runs, {size:.1f} MB, sound"


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
    from retinue.tools.ripgrep import find_ripgrep

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


def models(patient: Patient) -> Iterator[Row]:
    settings = patient.loaded.settings
    configured = list(Providers(settings, patient.environment).configured())
    for provider in configured:
        if provider.problem is not None:
            yield "warning", provider.id, provider.problem, "See: retinue models list"
        elif provider.api_key or provider.helper is not None:
            yield "ok", provider.id, f"key from {provider.key_source or provider.key_variable or 'settings'}"
        else:
            yield "ok", provider.id, "no key needed"
    try:
        chosen = asyncio.run(select_model(settings=settings, environment=patient.environment))
    except RetinueError as error:
        yield "failure", "default", error.message, error.remedy or "See: retinue models list"
        return
    if chosen.info.provider == "offline":
        remedy = "Set a key, such as ANTHROPIC_API_KEY, or describe a server under `providers` in the settings."
        yield "warning", "default", f"{chosen.info.full_name}, which is not a language model", remedy
        return
    problem = _cannot_build(chosen)
    if problem is not None:
        yield "failure", "default", f"{chosen.info.full_name}: {problem.message}", problem.remedy or ""
    else:
        yield "ok", "default", f"{chosen.info.full_name}: {chosen.why}"


def _cannot_build(chosen: ModelSelection) -> RetinueError | None:
    """Why the model cannot be used, such as a library of an extra that is not installed."""
    from retinue.http.transport import Transport
    from retinue.models.build import build_model

    try:
        build_model(chosen, Transport())
    except RetinueError as error:
        return error
    return None


def plugins(patient: Patient) -> Iterator[Row]:
    from retinue.runs.project import Project

    extensions = Project(patient.cwd, environment=patient.environment).extensions
    found = extensions.plugins
    for problem in found.problems:
        yield "warning", "plugins", clean(problem), "Correct it, or name it in disabledPlugins."
    for plugin in found.found:
        why = extensions.why_not(plugin)
        if why is not None:
            yield "info", plugin.name, clean(f"without effect: {why}")
    if not found.problems:
        yield "ok", "plugins", f"{len(found.found)} found" if found.found else "none"
