"""Names in a settings file that are no settings: what was probably meant, and what became of them."""

from __future__ import annotations

from collections.abc import Mapping

from retinue.settings.table import fields, groups, spellings

RETIRED: Mapping[str, str] = {
    "rememberAgents": "finished agents can always be addressed again",
    "reportUsage": "a calling agent is always told what its agents used",
    "rollupChildUsage": "the terminal app shows the tokens of each agent in its own line",
    "herdrReportWorking": "Retinue has no herdr to report to",
}
"""Settings of earlier versions or of pi that have no effect, and why."""

_IGNORED = frozenset({"$schema"})
"""Names that say nothing about Retinue, and are welcome."""


def explain_unknown(name: str) -> str | None:
    """What to tell about a name that is no setting; None for one that may stand in any file."""
    if name in _IGNORED:
        return None
    if name in RETIRED:
        return f"is no setting any more, it has no effect: {RETIRED[name]}"
    if name in groups():
        return f"is ignored; it must be an object with {', '.join(_members(name))}"
    meant = nearest_name(name)
    if meant is None:
        return "is not a setting, it has no effect. All that there are: retinue settings list --all"
    lost = " The rules in it protect nothing until it is corrected." if meant.startswith("permissions") else ""
    return f"is not a setting; did you mean {meant}?{lost}"


def nearest_name(name: str) -> str | None:
    """The setting or group of settings that `name` was probably meant to be."""
    from difflib import get_close_matches

    known = {_fold(each): each for each in (*groups(), *spellings())}
    folded = _fold(name)
    near = [folded] if folded in known else get_close_matches(folded, known, n=1, cutoff=0.8)
    return known[near[0]] if near else None


def _members(group: str) -> list[str]:
    return [each.removeprefix(f"{group}.") for each in fields() if each.startswith(f"{group}.")]


def _fold(name: str) -> str:
    return name.replace("_", "").replace("-", "").lower()
