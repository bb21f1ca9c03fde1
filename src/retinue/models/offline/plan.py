"""Which calls come next: survey the tree, inspect the candidates, read the best places.

Each function is pure: from a query and the evidence so far to calls of the tools on offer.
Results are kept small (a few hundred lines a call), whatever the tree's size.
"""

from __future__ import annotations

import re
from typing import Any

from retinue.models.offline import patterns
from retinue.models.offline.evidence import Evidence
from retinue.models.offline.files import asked_kinds
from retinue.models.offline.rank import Ranked
from retinue.models.offline.toolbox import SearchTool, Toolbox
from retinue.models.offline.words import Query

CANDIDATES = 10
WINDOW = 26
"""Lines read around a place."""

_LISTED, _COUNTED, _DEFINED, _QUOTED, _SHOWN, _FOLDERS = 1500, 400, 300, 60, 150, 24
_ASIDE = (
    "!**/{test,tests,testing,__tests__,testdata,snapshots,__snapshots__,fixtures,node_modules}/**,"
    "!**/{vendor,_vendor,third_party}/**,"
    "!{*.lock,*.min.js,*.map,*.svg,*.snap,*.po,go.sum,package-lock.json,CHANGELOG*,CHANGES*}"
)
"""Left out of a first search that does not ask for such files."""

Wanted = tuple[SearchTool, dict[str, Any]]


def survey(query: Query, toolbox: Toolbox) -> list[Wanted]:
    """Turn one: the words of the question in file names, in all text and in definitions."""
    strong = tuple(term for term in query.terms if not term.weak) or query.terms
    wanted: list[Wanted] = []
    if toolbox.find:
        wanted.append((toolbox.find, {"pattern": "**/*", "limit": _LISTED}))
        stems = list(dict.fromkeys(s for term in strong for s in term.stems if len(s) > 2 and s.isalnum()))[:20]
        if stems:
            name = "{" + ",".join(stems) + "}" if len(stems) > 1 else stems[0]
            wanted.append((toolbox.find, {"pattern": f"*{name}*", "limit": _DEFINED}))
    elif toolbox.grep is None and toolbox.ls:
        wanted.append((toolbox.ls, {"path": "."}))
    if toolbox.grep:
        grep = toolbox.grep
        only = _ASIDE if grep.excludes and not asked_kinds(query.text) else None
        for term in query.terms:
            options = {"mode": "count" if grep.can("count") else "content", "limit": _COUNTED, "glob": only}
            wanted.append((grep, {"pattern": patterns.anywhere(term), **options}))
        if strong:
            options = {"mode": "content", "limit": _DEFINED, "glob": only}
            wanted.append((grep, {"pattern": patterns.definitions(strong), **options}))
        for text in query.exact:
            wanted.append((grep, {"pattern": re.escape(text), "mode": "content", "limit": _QUOTED}))
    return wanted


def widen(query: Query, toolbox: Toolbox, evidence: Evidence) -> list[Wanted]:
    """Once, when the survey brought nothing: nothing left out, nothing but the plainest words."""
    wanted: list[Wanted] = []
    if toolbox.grep:
        plain = dict.fromkeys(form for term in query.terms for form in (term.word, term.root))
        wanted += [(toolbox.grep, {"pattern": re.escape(form)}) for form in list(plain)[:8]]
    if toolbox.ls and evidence.folders:
        wanted += [(toolbox.ls, {"path": folder}) for folder in evidence.folders[:_FOLDERS]]
    return wanted


def inspect(query: Query, toolbox: Toolbox, ranked: list[Ranked]) -> list[Wanted]:
    """Turn two: every matching line of the most promising files, and how each begins."""
    chosen = ranked[:CANDIDATES]
    wanted: list[Wanted] = []
    if toolbox.grep and query.terms:
        pattern = patterns.any_of(query.terms)
        options = {"pattern": pattern, "mode": "content", "limit": _SHOWN}
        wanted += [(toolbox.grep, {**options, "path": one.path}) for one in chosen]
    if toolbox.read:
        wanted += [(toolbox.read, {"path": one.path, "limit": WINDOW}) for one in chosen]
    return wanted


def reading(toolbox: Toolbox, ranked: list[Ranked], evidence: Evidence) -> list[Wanted]:
    """Turn three: the best places of the best file, and the best one of the next three."""
    wanted: list[Wanted] = []
    if toolbox.read is None:
        return wanted
    for place, one in enumerate(ranked[:4]):
        for number in _apart([number for _, number in one.best], 3 if place == 0 else 1):
            if not {number, number + 3} <= evidence.read.get(one.path, set()):
                options = {"path": one.path, "offset": max(1, number - 3), "limit": WINDOW}
                wanted.append((toolbox.read, options))
    return wanted


def _apart(numbers: list[int], most: int) -> list[int]:
    """The first of `numbers` that do not fall into each other's windows."""
    chosen: list[int] = []
    for number in numbers:
        if all(abs(number - other) > WINDOW for other in chosen):
            chosen.append(number)
        if len(chosen) == most:
            break
    return chosen
