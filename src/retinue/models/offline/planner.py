"""The model that is always there: no weights, no network, no key.

It plans searches with the agent's own tools and reports the best places, with quotations of lines that
were really seen. It answers through the same protocol as a language model and never claims to be one. It
keeps no state: each request is decided from its messages alone, so resuming, forking and replaying work.

A schema is filled only as far as a search knows: a file, a line, a quotation, a list of places and the
report itself. Where it requires anything else, nothing is submitted and the report says so.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from itertools import chain
from typing import Any

from msgspec import Struct

from retinue.core.events import TextDelta
from retinue.core.messages import AssistantMessage, StopReason, Text, ToolCall
from retinue.core.outcome import Failure
from retinue.models.offline.question import VOCABULARY, Query, Situation, Term, Wish, read
from retinue.models.offline.rank import Ranked, Ranking
from retinue.models.offline.search import SearchEvidence, Toolbox, Wanted, gather, inspect, survey, widen
from retinue.models.offline.source import line_of
from retinue.models.protocol import Finished, ModelInfo, ModelRequest, Part, Prices, ToolCallStarted

QUOTES, PLACES, LONGEST = 4, 5, 160
CLOSE = 0.85
"""A second file this near to the first is quoted beside it."""

_WHAT = (
    "This comes from Retinue's offline search planner, not from a language model: it looks for words and ranks "
    "where they occur, and understands nothing."
)
_REMEDY = (
    "`retinue models add` sets up a real model: a provider's key, a server or a GGUF file; `retinue models list` shows "
    "every way."
)
_NOT_DONE = "The task was not done: only the offline search planner was asked, which is not a language model."
_NO_MODEL = "No language model is set up: no model is named, no key is set and no server answers."
_SEARCHERS = "Without one, only Explore and explorer run: they search files."
_CANNOT: dict[Wish, str] = {
    "act": "I cannot do this: I am Retinue's offline search planner, not a language model. I only search and read; "
    "I write no code, change no files and run nothing.",
    "judge": "I cannot do this: I am Retinue's offline search planner, not a language model. I find places in files; "
    "I cannot explain, summarise or judge what is there.",
    "talk": "I am Retinue's offline search planner, not a language model, so I cannot hold a conversation. "
    'I can look for things in files: ask "where is … handled?".',
    "find": "",
}

_PROPERTIES = {kind: frozenset(names.split()) for kind, names in VOCABULARY["properties"].items()}


class Findings(Struct, frozen=True):
    """What a run came to know. `cut` says that a limit ended the search early."""

    query: Query
    evidence: SearchEvidence
    ranked: list[Ranked]
    wish: Wish = "find"
    cut: bool = False

    @property
    def searchable(self) -> bool:
        query = self.query
        return self.wish != "talk" and bool(query.terms or query.exact or query.places)


class PlannerReport(Struct, frozen=True):
    """The last words of a run. `answers` is False where the task was not a search, so that it is not done."""

    text: str
    answers: bool


class MissingModel:
    """What stands in for a model where none is set up and the agent does more than search: it refuses every task."""

    @property
    def info(self) -> ModelInfo:
        return INFO

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Part, None]:
        failure = Failure("no-model", _NO_MODEL, f"{_REMEDY} {_SEARCHERS}")
        yield Finished(AssistantMessage((), "refusal", model=INFO.full_name, failure=failure))

    async def close(self) -> None:
        """Nothing is open."""


def report(findings: Findings) -> str:
    if not findings.searchable:
        return f"{_CANNOT['talk']} {_REMEDY}"
    cannot = _CANNOT[findings.wish]
    parts = []
    if cannot:
        parts.append(cannot)
    if findings.ranked:
        parts += _likely(findings), *_further(findings)
    else:
        parts.append(_nothing(findings))
    return "\n\n".join([*parts, _how(findings, cannot)])


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
    names: dict[str, None] = {}
    for number in sorted(number for _, number in one.best[:12]):
        line = line_of(seen[number])
        if line.kind in ("type", "function"):
            names[f"`{line.name}`"] = None
    path = one.path.lower()
    words = []
    for term in findings.query.terms:
        if any(len(stem) > 2 and stem in path for stem in term.stems):
            words.append(term.word)
    said = []
    if words:
        said.append(f"its path has {_join_words(words)}")
    if names:
        said.append(f"it defines {_join_words(list(names)[:3])}")
    return f" ({'; '.join(said)})" if said else ""


def _quotes(one: Ranked, evidence: SearchEvidence, most: int) -> list[str]:
    """Quote the best lines in file order. A line without a letter (a bracket) says nothing."""
    seen = {}
    for number, text in evidence.lines.get(one.path, {}).items():
        if any(map(str.isalpha, text)):
            seen[number] = text
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


def _further(findings: Findings) -> list[str]:
    """Return the block about other files that are not far behind, if there are any."""
    first, *others = findings.ranked
    lines = ["Further places:"]
    for one in others[:PLACES]:
        if one.score >= 0.25 * first.score:
            lines += _quotes(one, findings.evidence, 1) or [f"- `{one.path}`"]
    return ["\n".join(lines)] if len(lines) > 1 else []


def _nothing(findings: Findings) -> str:
    evidence = findings.evidence
    if evidence.errors:
        failed = "\n".join(f"- {problem}" for problem in dict.fromkeys(evidence.errors[:3]))
        return f"Nothing was found, and searches failed:\n{failed}"
    looked = f" in {evidence.total_files:,} files" if evidence.total_files else ""
    return f"Nothing was found{looked}. That says only that these words do not occur where I could look."


def _how(findings: Findings, cannot: str) -> str:
    parts = []
    words = [_words(term) for term in findings.query.terms]
    words += findings.query.exact
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


def _join_words(items: list[str]) -> str:
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
    return filled if filled.keys() >= set(schema.get("required") or ()) else None


def _value(name: str, schema: Mapping[str, Any], findings: Findings, one: Ranked) -> Any:
    kind = schema.get("type")
    kinds = set(kind) if isinstance(kind, list) else {kind}
    plain = name.lower().replace("_", "").replace("-", "")
    if schema.keys() & {"enum", "const", "pattern"}:
        return None
    if "object" in kinds:
        return _object(schema, findings, one)
    if "array" in kinds:
        return _array(schema, findings) if plain in _PROPERTIES["many"] else None
    if kinds & {"integer", "number"}:
        return one.best[0][1] if plain in _PROPERTIES["line"] and one.best else None
    if "boolean" in kinds:
        return True if plain in _PROPERTIES["found"] else None
    if "string" not in kinds:
        return None
    if plain in _PROPERTIES["quote"] and one.best:
        return _quote(findings.evidence.lines[one.path][one.best[0][1]])
    if plain in _PROPERTIES["report"]:
        return report(findings)
    return one.path if plain in _PROPERTIES["file"] else None


def _array(schema: Mapping[str, Any], findings: Findings) -> list[Any] | None:
    items = schema.get("items")
    if not isinstance(items, Mapping):
        return None
    places = findings.ranked[: min(PLACES, int(schema.get("maxItems") or PLACES))]
    if items.get("type") == "string":
        return [one.path for one in places]
    found = []
    for one in places:
        filled = _object(items, findings, one)
        if filled:
            found.append(filled)
    return found or None


INFO = ModelInfo(
    provider="offline",
    id="planner",
    name="Search planner, no language model",
    window=1_000_000,
    max_output=8_192,
    images=False,
    prices=Prices(0.0, 0.0, 0.0, 0.0),
)


class OfflineModel:
    """Deterministic: the same request has the same answer, and no tokens are counted because
    none are used."""

    @property
    def info(self) -> ModelInfo:
        return INFO

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Part, None]:
        try:
            decided = await asyncio.to_thread(decide, request)
        except Exception as error:  # noqa: BLE001 - the protocol allows nothing but cancellation to be raised
            failure = Failure("internal", f"The offline planner failed: {type(error).__name__}: {error}")
            yield Finished(AssistantMessage((), "error", model=INFO.full_name, failure=failure))
            return
        if isinstance(decided, PlannerReport):
            for line in decided.text.splitlines(keepends=True):
                yield TextDelta(line)
            refusal = None if decided.answers else Failure("no-model", _NOT_DONE, _REMEDY)
            stop: StopReason = "end" if decided.answers else "refusal"
            yield Finished(AssistantMessage((Text(decided.text),), stop, model=INFO.full_name, failure=refusal))
            return
        for call in decided:
            yield ToolCallStarted(call.name)
        yield Finished(AssistantMessage(tuple(decided), "tool_use", model=INFO.full_name))

    async def close(self) -> None:
        """Nothing is open."""


def decide(request: ModelRequest) -> PlannerReport | list[ToolCall]:
    """Return the next tool calls, or the final report."""
    situation = read(request.messages)
    toolbox = Toolbox.of(() if request.tool_choice == "none" else request.tools)
    query = Query.of(situation.task)
    evidence = gather(chain.from_iterable(situation.turns), toolbox, query)
    ranked = Ranking(query, evidence).rank()
    findings = Findings(query, evidence, ranked, situation.wish, situation.last_call)
    if findings.searchable and not situation.last_call:
        wanted = _next(len(situation.turns), findings, toolbox)
        if wanted:
            turn = sum(isinstance(message, AssistantMessage) for message in request.messages) + 1
            found = []
            for number, (tool, values) in enumerate(wanted, 1):
                found.append(ToolCall(f"offline_{turn}_{number}", tool.spec.name, tool.arguments(**values)))
            return found
    return _final(request, situation, findings, toolbox)


def _next(turns: int, findings: Findings, toolbox: Toolbox) -> list[Wanted]:
    """Return the calls of the next turn: survey, widen if that found nothing, inspect; then none."""
    if turns == 0:
        return survey(findings.query, toolbox)
    if not findings.ranked:
        return widen(findings.query, toolbox, findings.evidence) if turns == 1 else []
    if findings.evidence.inspected:
        return []
    return inspect(findings.query, toolbox, [one.path for one in findings.ranked])


def _final(
    request: ModelRequest, situation: Situation, findings: Findings, toolbox: Toolbox
) -> PlannerReport | list[ToolCall]:
    if not toolbox.tools and situation.wish == "find" and not situation.turns:
        return PlannerReport(_NO_TOOLS, answers=False)
    offered = next((spec for spec in request.tools if spec.ends_run or spec.name == "submit_result"), None)
    if offered is None or request.tool_choice == "none":
        return PlannerReport(report(findings), answers=findings.searchable and findings.wish == "find")
    refused = any(call.name == offered.name for call, _ in chain.from_iterable(situation.turns))
    filled = None if refused else fill(offered.parameters, findings)
    if filled is None:
        return PlannerReport(f"{_NO_SCHEMA}\n\n{report(findings)}", answers=False)
    return [ToolCall("submit_1", offered.name, filled)]


_NO_TOOLS = (
    "I am Retinue's offline search planner, not a language model. I work only through tools that search and read "
    "files, and this run has none of them. `retinue models add` sets up a real model."
)
_NO_SCHEMA = (
    "A structured result is asked for that a search cannot fill honestly, so nothing is submitted. "
    "A language model could: `retinue models add` sets one up."
)
