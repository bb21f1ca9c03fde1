"""Regular expressions for the searches, in the syntax that ripgrep and Python share.

Letters are spelled out in the three cases that code uses (`stem`, `Stem`, `STEM`): a search
engine finds plain alternatives ten times faster than a pattern that ignores case.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from retinue.models.offline.stems import stem
from retinue.models.offline.words import Term

KEYWORDS = (
    "def|class|func|fn|function|struct|enum|trait|interface|type|impl|module|mod|namespace|protocol|object|record"
    "|union|typedef|const|let|var|macro_rules!|sub|defmodule|defp|proc"
)


def anywhere(term: Term) -> str:
    """Any form of the term. Short stems only where a word of a name begins."""
    return "|".join([_any(_forms(term)), *_spelled(term)])


def any_of(terms: Iterable[Term]) -> str:
    terms = list(terms)
    plain = _any(dict.fromkeys(form for term in terms for form in _forms(term)))
    return "|".join(dict.fromkeys([plain, *(spelling for term in terms for spelling in _spelled(term))]))


def definitions(terms: Iterable[Term]) -> str:
    """Lines that give a name to something, where the name has one of the terms in it."""
    stems = dict.fromkeys(form for term in terms for form in _forms(term) if len(form) > 3 or form == term.root)
    name = f"(?:{'|'.join(case for form in stems for case in _cases(form))})[A-Za-z0-9_]*"
    return (
        rf"(?:^|[^A-Za-z])(?:{KEYWORDS}) +(?:\([^)]{{0,40}}\) *)?[A-Za-z0-9_.:]*{name}"
        rf"|{name} *[:=] *(?:async )?(?:function|\([^)]{{0,80}}\) *=>)"
        rf"|^[A-Za-z][A-Za-z0-9_ *]*{name} *\([^;]*$"
        rf"|^ +(?:public|private|protected|static|export|async) [^=;()]*{name}\([^;]*$"
    )


def _forms(term: Term) -> list[str]:
    forms = list(term.stems)
    if len(term.root) < 4 or not re.match(_letters(term.root), term.word):  # a form that its stem would miss
        forms.append(term.word)
    return list(dict.fromkeys(forms))


def _spelled(term: Term) -> list[str]:
    """Names of several words that are one idea: `OpenAPI`; `file_name`, `fileName` for filename."""
    found = [re.escape(term.spelled)] if term.spelled else []
    for first, second in term.joined:
        start, end = stem(first), stem(second)
        if len(start) > 2 and len(end) > 2:
            found.append(
                f"[{start[0]}{start[0].upper()}]{re.escape(start[1:])}[a-z]?[_-]?[{end[0]}{end[0].upper()}]{re.escape(end[1:])}"
            )
    return found


def _any(forms: Iterable[str]) -> str:
    wide: list[str] = []
    starts: list[str] = []
    whole: list[str] = []
    for form in forms:
        group = wide if len(form) >= 5 or not form.isascii() else starts if len(form) == 4 else whole
        group.append(form)
    options = [case for form in wide for case in _cases(form)]
    if starts:
        options.append(f"(?:^|[^A-Za-z])(?:{'|'.join(c for form in starts for c in _cases(form))})")
        options.append(f"[a-z0-9](?:{'|'.join(_letters(form.capitalize()) for form in starts)})")
    if whole:
        short = "|".join(_inflected(case) for form in whole for case in _cases(form))
        inner = "|".join(_inflected(_letters(form.capitalize())) for form in whole)
        options.append(f"(?:^|[^A-Za-z])(?:{short})(?:[^a-z]|$)")
        options.append(f"[a-z0-9](?:{inner})(?:[^a-z]|$)")
    return "|".join(options)


def _inflected(form: str) -> str:
    """A word of three letters with its endings; a shorter one at most with an s."""
    last = form[-1].lower()
    return f"{form}(?:{last}?(?:s|ed|ers?|ing))?" if len(form) == 3 and last.isalpha() else f"{form}s?"


def _cases(form: str) -> list[str]:
    return list(dict.fromkeys((_letters(form), _letters(form.capitalize()), _letters(form.upper()))))


def _letters(form: str) -> str:
    """A stem's last letter may be written in two ways."""
    if form.isascii() and len(form) > 3:
        if form[-1] in "iI":
            return re.escape(form[:-1]) + ("[iy]" if form[-1] == "i" else "[IY]")
        if form.endswith("iz"):
            return re.escape(form[:-1]) + "[sz]"
    return re.escape(form)
