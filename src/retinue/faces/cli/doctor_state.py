"""The doctor's look at files: settings, agents, the log."""

from __future__ import annotations

import os
import stat
from collections import Counter
from collections.abc import Iterator

from retinue.errors import RetinueError
from retinue.faces.cli.doctor_checks import Patient

Row = tuple[str, ...]


def settings(patient: Patient) -> Iterator[Row]:
    from retinue.capabilities.permissions.attach import rule_notes
    from retinue.runs.world import World

    rules = rule_notes(World(patient.cwd, environment=patient.environment))
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
    from retinue.log.query import Reader
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
        with Reader.open(folder) as reader:
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
