"""The doctor's look at plugins. Nothing of them is run."""

from __future__ import annotations

from collections.abc import Iterator

from retinue.faces.cli.agents._show import clean
from retinue.faces.cli.doctor_checks import Patient

Row = tuple[str, ...]


def plugins(patient: Patient) -> Iterator[Row]:
    from retinue.runs.world import World

    extensions = World(patient.cwd, environment=patient.environment).extensions
    found = extensions.plugins
    for problem in found.problems:
        yield "warning", "plugins", clean(problem), "Correct it, or name it in disabledPlugins."
    for plugin in found.found:
        why = extensions.why_not(plugin)
        if why is not None:
            yield "info", plugin.name, clean(f"without effect: {why}")
    if not found.problems:
        yield "ok", "plugins", f"{len(found.found)} found" if found.found else "none"
