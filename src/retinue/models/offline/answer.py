"""The report: the answer first, quotations of lines that were really seen, and no pretence."""

from __future__ import annotations

from retinue.core.lean import dataclass
from retinue.models.offline.evidence import Evidence
from retinue.models.offline.lines import classify
from retinue.models.offline.rank import Ranked
from retinue.models.offline.situation import Wish
from retinue.models.offline.words import Query, Term

QUOTES, PLACES, LONGEST = 4, 5, 160
CLOSE = 0.85
"""A second file this near to the first is named in the same breath."""

_WHAT = (
    "This comes from Retinue's offline search planner, not from a language model: it looks for words and ranks "
    "where they occur, and understands nothing."
)
_REMEDY = "`retinue models list` shows how to use a real model: set a provider's key, name a server, or a GGUF file."

_CANNOT: dict[Wish, str] = {
    "act": "I cannot do this: I am Retinue's offline search planner, not a language model. I only search and read; "
    "I write no code, change no files and run nothing.",
    "judge": "I cannot do this: I am Retinue's offline search planner, not a language model. I find places in files; "
    "I cannot explain, summarise or judge what is there.",
    "talk": "I am Retinue's offline search planner, not a language model, so I cannot hold a conversation. "
    'I can look for things in files: ask "where is … handled?".',
    "find": "",
}


@dataclass(frozen=True, slots=True)
class Findings:
    """What a run came to know. `cut` says that a limit ended the search early."""

    query: Query
    evidence: Evidence
    ranked: list[Ranked]
    wish: Wish = "find"
    cut: bool = False

    @property
    def searchable(self) -> bool:
        query = self.query
        return self.wish != "talk" and bool(query.terms or query.exact or query.places)


def report(findings: Findings) -> str:
    if not findings.searchable:
        return f"{_CANNOT['talk']} {_REMEDY}"
    cannot = _CANNOT[findings.wish]
    if not findings.ranked:
        return "\n\n".join(filter(None, [cannot, _nothing(findings), _how(findings, cannot)]))
    parts = [_related(findings) if cannot else _likely(findings), _further(findings), _how(findings, cannot)]
    return "\n\n".join(filter(None, [cannot, *parts]))


def best_line(one: Ranked, evidence: Evidence) -> int | None:
    seen = evidence.lines.get(one.path, {})
    return next((number for _, number in one.best if number in seen), None)


def quote(path: str, number: int, evidence: Evidence) -> str:
    text = " ".join(evidence.lines[path][number].split())
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


def _likely(findings: Findings) -> str:
    first, *others = findings.ranked
    lines = [f"Most likely: `{first.path}`{_reason(first, findings)}"]
    lines += _quotes(first, findings.evidence, QUOTES)
    if others and others[0].score >= CLOSE * first.score:
        lines.append(f"\nA close second: `{others[0].path}`")
        lines += _quotes(others[0], findings.evidence, 2)
    return "\n".join(lines)


def _related(findings: Findings) -> str:
    first = findings.ranked[0]
    return "\n".join([f"What the search found that may relate: `{first.path}`", *_quotes(first, findings.evidence, 2)])


def _reason(one: Ranked, findings: Findings) -> str:
    """Where the words were: what can be checked, not how sure anyone is."""
    names = []
    for number in sorted(number for _, number in one.best[:12]):
        line = classify(findings.evidence.lines.get(one.path, {}).get(number, ""))
        if line.role in ("type", "function") and line.name and line.name not in names:
            names.append(line.name)
    path = one.path.lower()
    in_path = [t.word for t in findings.query.terms if any(len(s) > 2 and s in path for s in t.stems)]
    said = []
    if in_path:
        said.append(f"its path has {_listed(in_path)}")
    if names:
        said.append(f"it defines {_listed([f'`{name}`' for name in names[:3]])}")
    return f" ({'; '.join(said)})" if said else ""


def _quotes(one: Ranked, evidence: Evidence, most: int) -> list[str]:
    """The best lines in file order. A line that says nothing by itself (a bracket) is skipped."""
    seen = evidence.lines.get(one.path, {})
    worthy = [number for _, number in one.best if number in seen and any(c.isalpha() for c in seen[number])]
    if not worthy and seen:
        worthy = [number for number in sorted(seen) if any(c.isalpha() for c in seen[number])][:1]
    return [f"- `{one.path}:{number}`: {_code(quote(one.path, number, evidence))}" for number in sorted(worthy[:most])]


def _code(text: str) -> str:
    return f"`` {text} ``" if "`" in text else f"`{text}`"


def _further(findings: Findings) -> str:
    first = findings.ranked[0]
    others = [one for one in findings.ranked[1 : PLACES + 1] if one.score >= 0.25 * first.score]
    lines = []
    for one in others:
        shown = _quotes(one, findings.evidence, 1)
        lines += shown or [f"- `{one.path}`"]
    return "\n".join(["Further places:", *lines]) if lines else ""


def _nothing(findings: Findings) -> str:
    looked = f" in {findings.evidence.total_files:,} files" if findings.evidence.total_files else ""
    text = f"Nothing was found{looked}. That says only that these words do not occur where I could look."
    if findings.evidence.errors:
        failed = "\n".join(f"- {problem}" for problem in dict.fromkeys(findings.evidence.errors[:3]))
        return f"Nothing was found, and searches failed:\n{failed}"
    return text


def _how(findings: Findings, cannot: str) -> str:
    words = "; ".join([*(_words(term) for term in findings.query.terms), *findings.query.exact])
    said = f"Searched for: {words}." if words else ""
    cut = " A limit ended the search early, so it is incomplete." if findings.cut else ""
    failed = ""
    if findings.evidence.errors and findings.ranked:
        failed = f" {len(findings.evidence.errors)} searches failed ({findings.evidence.errors[0][:120]})."
    return f"{said}{cut}{failed} {'' if cannot else _WHAT + ' '}{_REMEDY}".strip()


def _words(term: Term) -> str:
    others = [s for s in term.stems if s != term.root][:3]
    return f"{term.word} ({', '.join(f'{other}…' for other in others)})" if others else term.word


def _listed(items: list[str]) -> str:
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}"
