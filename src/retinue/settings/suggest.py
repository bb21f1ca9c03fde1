"""Names in a settings file or the environment that are no settings: what was probably meant, and what
became of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from retinue.settings.table import fields, groups, spellings

_NO_WEB_CACHE = "a page is fetched again each time it is asked for"
RETIRED: Mapping[str, str] = {
    "rememberAgents": "finished agents can always be addressed again",
    "reportUsage": "a calling agent is always told what its agents used",
    "rollupChildUsage": "the terminal app shows the tokens of each agent in its own line",
    "herdrReportWorking": "Retinue has no herdr to report to",
    "web.cache": _NO_WEB_CACHE,
    "web.cache.enabled": _NO_WEB_CACHE,
    "web.cache.seconds": _NO_WEB_CACHE,
    "web.cache.maxEntries": _NO_WEB_CACHE,
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


OTHER_VARIABLES = frozenset(
    {
        *("RETINUE_HOME", "RETINUE_LOCAL_MODEL", "RETINUE_DISABLE_BUILTIN_AGENTS"),
        *("RETINUE_PLUGIN_ROOT", "RETINUE_PROJECT_DIR", "RETINUE_SKILL_DIR"),
    }
)
"""Variables that mean something and set no setting; the last three are set for programs we start."""
_MARKS = "RETINUE_RUN_"
"""What the processes of a run carry, so that what outlives it is found."""


def explain_variables(environment: Iterable[str]) -> dict[str, str]:
    """What to tell about each variable that begins as ours do and means nothing, by its name."""
    known = {variable for field in fields().values() for variable in field.variables} | OTHER_VARIABLES
    retired = {f"RETINUE_{_underscored(name)}": why for name, why in RETIRED.items()}
    told: dict[str, str] = {}
    for name in environment:
        if not name.startswith("RETINUE_") or name in known or name.startswith(_MARKS):
            continue
        meant = _nearest_variable(name, known)
        if name in retired:
            told[name] = f"is no variable any more, it has no effect: {retired[name]}"
        elif meant is None:
            told[name] = "is not a variable of Retinue, it has no effect. All settings: retinue settings list --all"
        else:
            told[name] = f"is not a variable of Retinue, it has no effect; did you mean {meant}?"
    return told


def _nearest_variable(name: str, known: Iterable[str]) -> str | None:
    from difflib import get_close_matches

    ours = {each.removeprefix("RETINUE_"): each for each in known if each.startswith("RETINUE_")}
    near = get_close_matches(name.removeprefix("RETINUE_").upper(), ours, n=1, cutoff=0.8)
    return ours[near[0]] if near else None


def _underscored(name: str) -> str:
    """`web.rememberAgents` as `WEB_REMEMBER_AGENTS`."""
    return "".join(f"_{letter}" if letter.isupper() else letter for letter in name).upper().replace(".", "_")


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
