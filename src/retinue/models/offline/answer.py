"""The answer: a report with quotations of lines that were really seen, or a structured result.

Neither pretends. The report says what it comes from. A schema is filled only as far as a search
knows: a file, a line, a quotation, a list of places and the report itself; where it requires
anything else, nothing is submitted and the report says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from retinue.core.lean import dataclass
from retinue.models.offline.question import Query, Term, Wish
from retinue.models.offline.ranking import Ranked
from retinue.models.offline.search import Evidence
from retinue.models.offline.source import line_of

QUOTES, PLACES, LONGEST = 4, 5, 160
CLOSE = 0.85
"""A second file this near to the first is quoted beside it."""

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

_FILE = frozenset("file path filepath filename location source".split())
_LINE = frozenset("line linenumber startline row".split())
_QUOTE = frozenset("quote snippet code text excerpt content match".split())
_REPORT = frozenset(
    "answer result summary report explanation description output message reason findings response value".split()
)
_MANY = frozenset("files paths places locations matches results references occurrences findings sources value".split())
_FOUND = frozenset("found exists success".split())


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
    places = [_likely(findings), _further(findings)] if findings.ranked else [_nothing(findings)]
    return "\n\n".join(part for part in [cannot, *places, _how(findings, cannot)] if part)


def fill(schema: Mapping[str, Any], findings: Findings) -> dict[str, Any] | None:
    """Return arguments that match a simple schema, or None where they would have to be made up."""
    if not findings.ranked or findings.wish != "find":
        return None
    return _object(schema, findings, findings.ranked[0]) or None


def _likely(findings: Findings) -> str:
    first, *others = findings.ranked
    if findings.wish != "find":
        found = f"What the search found that may relate: `{first.path}`"
        return "\n".join([found, *_quotes(first, findings.evidence, 2)])
    lines = [f"Most likely: `{first.path}`{_reason(first, findings)}", *_quotes(first, findings.evidence, QUOTES)]
    if others and others[0].score >= CLOSE * first.score:
        lines += [f"\nA close second: `{others[0].path}`", *_quotes(others[0], findings.evidence, 2)]
    return "\n".join(lines)


def _reason(one: Ranked, findings: Findings) -> str:
    """Say where the words were: what can be checked, not how sure anyone is."""
    seen = findings.evidence.lines.get(one.path, {})
    defined = [line_of(seen[number]) for number in sorted(number for _, number in one.best[:12])]
    names = list(dict.fromkeys(f"`{line.name}`" for line in defined if line.kind in ("type", "function")))
    path = one.path.lower()
    words = [term.word for term in findings.query.terms if any(len(s) > 2 and s in path for s in term.stems)]
    said = []
    if words:
        said.append(f"its path has {_listed(words)}")
    if names:
        said.append(f"it defines {_listed(names[:3])}")
    return f" ({'; '.join(said)})" if said else ""


def _quotes(one: Ranked, evidence: Evidence, most: int) -> list[str]:
    """Quote the best lines in file order. A line without a letter (a bracket) says nothing."""
    seen = {number: text for number, text in evidence.lines.get(one.path, {}).items() if any(map(str.isalpha, text))}
    numbers = [number for _, number in one.best if number in seen] or sorted(seen)[:1]
    quotes = []
    for number in sorted(numbers[:most]):
        text = _quote(seen[number])
        code = f"`` {text} ``" if "`" in text else f"`{text}`"
        quotes.append(f"- `{one.path}:{number}`: {code}")
    return quotes


def _quote(line: str) -> str:
    text = " ".join(line.split())
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


def _further(findings: Findings) -> str:
    first, *others = findings.ranked
    lines = []
    for one in others[:PLACES]:
        if one.score >= 0.25 * first.score:
            lines += _quotes(one, findings.evidence, 1) or [f"- `{one.path}`"]
    return "\n".join(["Further places:", *lines]) if lines else ""


def _nothing(findings: Findings) -> str:
    evidence = findings.evidence
    if evidence.errors:
        failed = "\n".join(f"- {problem}" for problem in dict.fromkeys(evidence.errors[:3]))
        return f"Nothing was found, and searches failed:\n{failed}"
    looked = f" in {evidence.total_files:,} files" if evidence.total_files else ""
    return f"Nothing was found{looked}. That says only that these words do not occur where I could look."


def _how(findings: Findings, cannot: str) -> str:
    parts = []
    words = [*(_words(term) for term in findings.query.terms), *findings.query.exact]
    if words:
        parts.append(f"Searched for: {'; '.join(words)}.")
    if findings.cut:
        parts.append("A limit ended the search early, so it is incomplete.")
    errors = findings.evidence.errors
    if errors and findings.ranked:
        parts.append(f"{len(errors)} searches failed ({errors[0][:120]}).")
    if not cannot:
        parts.append(_WHAT)
    return " ".join([*parts, _REMEDY])


def _words(term: Term) -> str:
    others = [f"{stem}…" for stem in list(term.stems)[1:4]]
    return f"{term.word} ({', '.join(others)})" if others else term.word


def _listed(items: list[str]) -> str:
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}"


def _object(schema: Mapping[str, Any], findings: Findings, one: Ranked) -> dict[str, Any] | None:
    properties = schema.get("properties")
    if not isinstance(properties, Mapping):
        return None
    filled: dict[str, Any] = {}
    for name, part in properties.items():
        value = _value(str(name), part if isinstance(part, Mapping) else {}, findings, one)
        if value is not None:
            filled[str(name)] = value
    return filled if all(name in filled for name in schema.get("required") or ()) else None


def _value(name: str, schema: Mapping[str, Any], findings: Findings, one: Ranked) -> Any:
    kind = schema.get("type")
    kinds = set(kind) if isinstance(kind, list) else {kind}
    plain = name.lower().replace("_", "").replace("-", "")
    if schema.keys() & {"enum", "const", "pattern"}:
        return None
    if "object" in kinds:
        return _object(schema, findings, one)
    if "array" in kinds:
        return _array(schema, findings) if plain in _MANY else None
    if kinds & {"integer", "number"}:
        return one.best[0][1] if plain in _LINE and one.best else None
    if "boolean" in kinds:
        return True if plain in _FOUND else None
    if "string" not in kinds:
        return None
    if plain in _QUOTE and one.best:
        return _quote(findings.evidence.lines[one.path][one.best[0][1]])
    if plain in _REPORT:
        return report(findings)
    return one.path if plain in _FILE else None


def _array(schema: Mapping[str, Any], findings: Findings) -> list[Any] | None:
    items = schema.get("items")
    if not isinstance(items, Mapping):
        return None
    places = findings.ranked[: min(PLACES, int(schema.get("maxItems") or PLACES))]
    if items.get("type") == "string":
        return [one.path for one in places]
    return [filled for one in places if (filled := _object(items, findings, one))] or None
