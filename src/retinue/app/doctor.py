"""Checks of this installation: what it can enforce, which parts are missing, and how to add them.

The sandbox is tested, not queried: a confined program tries to write, to reach the network and to disturb other
processes, and the check reports whether it could.
"""

from __future__ import annotations

import asyncio
import os
import platform
import shutil
import stat
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from msgspec import Struct, field

from retinue.agents.catalog import Catalog
from retinue.app.doctor_checks import (
    Grade,
    Row,
    converter,
    language_servers,
    layers,
    pages,
    results_folder,
    search,
    walls,
)
from retinue.app.doctor_checks import Installation as Installation
from retinue.app.text import clean, plural
from retinue.capabilities.permissions import project_rules
from retinue.capabilities.plugins import PluginExtensions
from retinue.cluster import open_project
from retinue.core.programs import prepare, run
from retinue.errors import RetinueError, UsageError
from retinue.http.transport import Transport
from retinue.log.database import backend_of, log_file
from retinue.log.query import LogReader
from retinue.models.build import build_model
from retinue.models.keys import environment as process_environment
from retinue.models.providers import Providers
from retinue.models.select import select_model
from retinue.settings.places import retinue_home, state_folder
from retinue.tools.grep import find_ripgrep

_MIN_GIT_VERSION = (2, 31)


class DoctorFinding(Struct, frozen=True):
    """The result of one check. Warnings and failures have a `remedy`."""

    category: str
    name: str
    grade: Grade = field(name="status")
    detail: str
    remedy: str | None = None


class DoctorReport(Struct, frozen=True):
    """The results of all checks."""

    ok: bool
    findings: list[DoctorFinding]


def diagnose(cwd: Path, categories: Iterable[str] = ()) -> DoctorReport:
    """Run all checks, or those of the named categories. Raise UsageError for an unknown category."""
    for category in categories:
        if category not in CATEGORIES:
            raise UsageError(
                f"The doctor knows nothing of '{category}'.", remedy=f"Choose from: {', '.join(CATEGORIES)}"
            )
    findings = list(examine(Installation(cwd, process_environment()), categories))
    return DoctorReport(all(finding.grade != "failure" for finding in findings), findings)


def examine(installation: Installation, categories: Iterable[str] = ()) -> Iterator[DoctorFinding]:
    """Yield the findings, check by check."""
    chosen = set(categories)
    for category, check in DOCTOR_CHECKS:
        if chosen and category not in chosen:
            continue
        try:
            for grade, name, detail, *remedy in check(installation):
                yield DoctorFinding(category, name, grade, detail, remedy[0] if remedy else None)
        except Exception as error:  # noqa: BLE001 - a broken part must not hide the others
            detail = f"could not be checked: {type(error).__name__}: {error}"
            yield DoctorFinding(
                category, check.__name__, "failure", detail, "Please report this, with the output of --json."
            )


# Checks


def settings(installation: Installation) -> Iterator[Row]:
    sources = project_rules(open_project(installation.cwd, environment=installation.environment))
    rules = (*sources.refused, *sources.notes)
    warnings = list(rules)
    for warning in installation.loaded.warnings:
        # A note about a rule begins with the warning of its file, and has more details.
        if not any(rule.startswith(warning) for rule in rules):
            warnings.append(warning)
    for warning in warnings:
        yield "warning", "settings", warning, "Correct the file. Its other values take effect."
    if not warnings:
        yield "ok", "settings", "every file was understood"
    for unused in installation.loaded.unused:
        yield "info", "settings", str(unused)


def agents(installation: Installation) -> Iterator[Row]:
    catalog = Catalog.load(installation.cwd, environment=installation.environment)
    counts = Counter(entry.spec.source for entry in catalog.agents)
    by_source = ", ".join(f"{number} {source}" for source, number in sorted(counts.items()))
    usable = "none usable"
    if counts:
        usable = f"{len(catalog.agents)} usable ({by_source})"
    if catalog.failed:
        skipped = f"{plural(len(catalog.failed), 'agent file')} skipped (cannot be loaded)"
        yield "warning", "agents", f"{usable}, {skipped}", "See: retinue agents lint"
    else:
        yield "ok", "agents", usable


def log(installation: Installation) -> Iterator[Row]:
    home = retinue_home(installation.environment)
    if home.is_dir():
        loose = stat.S_IMODE(home.stat().st_mode) & 0o022
        if loose and os.name == "posix":
            yield "warning", "state folder", f"others may write to {home}", f"Run: chmod go-w {home}"
        elif not os.access(home, os.W_OK):
            yield "failure", "state folder", f"{home} cannot be written", "Correct its owner, or set RETINUE_HOME."
        else:
            yield "ok", "state folder", str(home)
    folder = state_folder(installation.cwd, installation.environment)
    try:
        backend = backend_of(folder)
        if not backend.exists():
            yield "info", "log", "nothing has run in this project yet"
            return
        verdict = " ".join(backend.check())
        with LogReader.open(folder) as reader:
            runs = int(reader.select("SELECT count(*) FROM runs")[0][0])
    except RetinueError as error:
        yield "failure", "log", error.message, error.remedy or "Move the file away to begin a new log."
        return
    if verdict:
        yield "failure", "log", f"damaged: {verdict}", f"Keep a copy of {folder}, then move log.db away."
    else:
        file = log_file(folder)
        size = f"{file.stat().st_size / 1e6:.1f} MB" if file.is_file() else backend.label
        yield "ok", "log", f"{runs} runs, {size}, sound"


def python(installation: Installation) -> Iterator[Row]:
    where = f"{platform.system()} {platform.release()} ({platform.machine()})"
    yield "ok", "Python", f"{platform.python_version()} on {where}"


def terminal(installation: Installation) -> Iterator[Row]:
    # The terminal app replaces sys.stdout.
    out = sys.__stdout__ or sys.stdout
    if not out.isatty():
        yield "info", "terminal", "the output is not a terminal"
        return
    size = shutil.get_terminal_size()
    encoding = (out.encoding or "").lower()
    name = installation.environment.get("TERM", "")
    if name in ("", "dumb"):
        yield "warning", "terminal", f"TERM is {name or 'not set'}", "Set TERM, for example to xterm-256color."
    elif "utf" not in encoding:
        yield "warning", "terminal", f"its encoding is {encoding}", "Use a UTF-8 locale, for example LANG=C.UTF-8."
    elif size.columns < 60:
        yield "warning", "terminal", f"only {size.columns} columns wide", "Widen it to 80 columns or more."
    else:
        yield "ok", "terminal", f"{name}, {size.columns}×{size.lines}, {encoding}"


def git(installation: Installation) -> Iterator[Row]:
    program = shutil.which("git", path=installation.environment.get("PATH"))
    if program is None:
        yield "warning", "git", "not found: no worktrees and no undo", "Install git 2.31 or newer."
        return
    words = _version([program, "--version"]).split()
    version = words[2] if len(words) > 2 else ""
    number = tuple(int(word) for word in version.split(".")[:2] if word.isdigit())
    if number < _MIN_GIT_VERSION:
        yield "warning", "git", f"{version or 'of unknown version'} is old", "Install git 2.31 or newer."
    else:
        yield "ok", "git", f"{version} at {program}"


def ripgrep(installation: Installation) -> Iterator[Row]:
    program = find_ripgrep()
    if program is None:
        yield "failure", "ripgrep", "not found, so agents cannot search", "Run: pip install ripgrep"
    elif not os.access(program, os.X_OK):
        yield "failure", "ripgrep", f"{program} cannot be run", "Run: pip install --force-reinstall ripgrep"
    else:
        words = _version([str(program), "--version"]).split() or ["", "?"]
        yield "ok", "ripgrep", f"{words[1]} at {_short(program)}"


def _version(argv: list[str]) -> str:
    done = run(prepare(argv, clearance="own", environment=os.environ), seconds=20)
    return (done.stdout.decode("utf-8", "replace").splitlines() or [""])[0]


def _short(path: Path) -> str:
    if path.is_relative_to(Path.home()):
        return f"~/{path.relative_to(Path.home())}"
    return str(path)


def models(installation: Installation) -> Iterator[Row]:
    settings = installation.loaded.settings
    configured = list(Providers(settings, installation.environment).configured())
    for provider in configured:
        if provider.problem is not None:
            yield "warning", provider.id, provider.problem, "See: retinue models list"
        elif provider.api_key or provider.helper is not None:
            yield "ok", provider.id, f"key from {provider.key_source or provider.key_variable or 'settings'}"
        else:
            yield "ok", provider.id, "no key needed"
    try:
        chosen = asyncio.run(select_model(settings=settings, environment=installation.environment))
    except RetinueError as error:
        yield "failure", "default", error.message, error.remedy or "See: retinue models list"
        return
    # A person who did not choose the planner should be told that it is not a language model.
    if chosen.info.provider == "offline":
        remedy = "Set one up: retinue models add. Or set a key, such as ANTHROPIC_API_KEY."
        yield "warning", "default", f"{chosen.info.full_name}, which is not a language model", remedy
        return
    try:
        build_model(chosen, Transport())
    except RetinueError as problem:
        # For example, a library of an extra is not installed.
        yield "failure", "default", f"{chosen.info.full_name}: {problem.message}", problem.remedy or ""
    else:
        yield "ok", "default", f"{chosen.info.full_name}: {chosen.why}"


def plugins(installation: Installation) -> Iterator[Row]:
    extensions = open_project(installation.cwd, environment=installation.environment).part(PluginExtensions)
    discovered = extensions.plugins
    for problem in discovered.problems:
        yield "warning", "plugins", clean(problem), "Correct it, or name it in disabledPlugins."
    for plugin in discovered.usable:
        why = extensions.why_not(plugin)
        if why is not None:
            yield "info", plugin.name, clean(f"without effect: {why}")
    if not discovered.problems:
        number = f"{len(discovered.usable)} found" if discovered.usable else "none"
        yield "ok", "plugins", number


# A new check is one row here. Its function yields rows, may be slow, and must not change anything.
DOCTOR_CHECKS: list[tuple[str, Callable[[Installation], Iterator[Row]]]] = [
    ("system", python),
    ("system", terminal),
    ("programs", git),
    ("programs", ripgrep),
    ("sandbox", layers),
    ("sandbox", walls),
    ("settings", settings),
    ("agents", agents),
    ("plugins", plugins),
    ("log", log),
    ("models", models),
    ("web", search),
    ("web", pages),
    ("convert", converter),
    ("lsp", language_servers),
    ("permissions", results_folder),
]
CATEGORIES = tuple(dict(DOCTOR_CHECKS))
