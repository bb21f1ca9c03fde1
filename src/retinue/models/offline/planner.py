"""The model that is always there: no weights, no network, no key.

It plans searches with the agent's own tools and reports the best places, with quotations of lines that were really
seen. It answers through the same protocol as a language model and never claims to be one. It keeps no state: each
request is decided from its messages alone, so resuming, forking and replaying work.

A schema is filled only as far as a search knows: a file, a line, a quotation, a list of places and the report itself.
Where it requires anything else, nothing is submitted and the report says so.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from typing import Any

from msgspec import Struct

from retinue.core.events import TextDelta
from retinue.core.messages import AssistantMessage, Text, ToolCall
from retinue.core.outcome import Failure
from retinue.core.tool import ToolSpec
from retinue.models.offline.question import VOCABULARY, Query, Situation, Wish, read
from retinue.models.offline.ranking import RankedFile, Ranking
from retinue.models.offline.search import (
    PlannedCall,
    SearchEvidence,
    Toolbox,
    find_tools,
    gather,
    inspect,
    survey,
    widen,
)
from retinue.models.protocol import Finished, ModelRequest, Part, ToolCallStarted
from retinue.models.resolve import OFFLINE

MAX_QUOTES, MAX_PLACES, MAX_QUOTE_CHARACTERS = 4, 5, 160

_PLANNER_NOTE = (
    "This comes from Retinue's offline search planner, not from a language model: it looks for words and ranks "
    "where they occur, and understands nothing."
)
_MODEL_REMEDY = (
    "`retinue models add` sets up a real model: a provider's key or a server; `retinue models list` shows every way."
)
_NOT_DONE = "The task was not done: only the offline search planner was asked, which is not a language model."
_NO_MODEL = "No language model is set up: no model is named, no key is set and no server answers."
_SEARCHING_AGENTS = "Without one, only Explore and explorer run: they search files."
_NO_TOOLS = (
    "I am Retinue's offline search planner, not a language model. I work only through tools that search and read "
    "files, and this run has none of them. `retinue models add` sets up a real model."
)
_NO_SCHEMA = (
    "A structured result is asked for that a search cannot fill honestly, so nothing is submitted. "
    "A language model could: `retinue models add` sets one up."
)
_REFUSALS: dict[Wish, str] = {
    "act": "I cannot do this: I am Retinue's offline search planner, not a language model. I only search and read; "
    "I write no code, change no files and run nothing.",
    "judge": "I cannot do this: I am Retinue's offline search planner, not a language model. I find places in files; "
    "I cannot explain, summarise or judge what is there.",
    "talk": "I am Retinue's offline search planner, not a language model, so I cannot hold a conversation. "
    'I can look for things in files: ask "where is … handled?".',
}
_PROPERTIES = {meaning: frozenset(names.split()) for meaning, names in VOCABULARY["properties"].items()}


class OfflineModel:
    """Deterministic: the same request has the same answer, and no tokens are counted because none are used."""

    info = OFFLINE

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Part, None]:
        try:
            message = await asyncio.to_thread(decide, request)
        except Exception as error:  # noqa: BLE001 - the protocol allows nothing but cancellation to be raised
            failure = Failure("internal", f"The offline planner failed: {type(error).__name__}: {error}")
            message = AssistantMessage((), "error", model=OFFLINE.full_name, failure=failure)
        for line in message.text.splitlines(keepends=True):
            yield TextDelta(line)
        for call in message.tool_calls:
            yield ToolCallStarted(call.name)
        yield Finished(message)

    async def close(self) -> None:
        """Nothing is open."""


class MissingModel(OfflineModel):
    """Refuses every task: no model is set up, and the agent does more than search."""

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Part, None]:
        failure = Failure("no-model", _NO_MODEL, f"{_MODEL_REMEDY} {_SEARCHING_AGENTS}")
        yield Finished(AssistantMessage((), "refusal", model=OFFLINE.full_name, failure=failure))


class Findings(Struct, frozen=True):
    """The result of the searches so far."""

    query: Query
    situation: Situation
    evidence: SearchEvidence
    files: list[RankedFile]

    @property
    def searchable(self) -> bool:
        query = self.query
        return self.situation.wish != "talk" and bool(query.terms or query.exact or query.places)


def decide(request: ModelRequest) -> AssistantMessage:
    """Return a message with the next tool calls, or with the final report."""
    situation = read(request.messages)
    tools = find_tools(() if request.tool_choice == "none" else request.tools)
    query = Query.of(situation.task)
    evidence = gather(situation.results, tools, query)
    findings = Findings(query, situation, evidence, Ranking(query, evidence).rank())
    calls = _next_calls(findings, tools) or _submit(request, findings)
    if calls:
        turn = sum(isinstance(message, AssistantMessage) for message in request.messages) + 1
        numbered = [ToolCall(f"offline_{turn}_{i}", name, arguments) for i, (name, arguments) in enumerate(calls, 1)]
        return AssistantMessage(tuple(numbered), "tool_use", model=OFFLINE.full_name)
    answers = findings.searchable and situation.wish == "find"
    text = report(findings)
    if answers and not tools and not situation.turns:
        answers, text = False, _NO_TOOLS
    elif _result_tool(request) is not None:
        answers, text = False, f"{_NO_SCHEMA}\n\n{text}"
    content = (Text(text),)
    if answers:
        return AssistantMessage(content, "end", model=OFFLINE.full_name)
    failure = Failure("no-model", _NOT_DONE, _MODEL_REMEDY)
    return AssistantMessage(content, "refusal", model=OFFLINE.full_name, failure=failure)


def _next_calls(findings: Findings, tools: Toolbox) -> list[PlannedCall]:
    """Return the calls of the next turn: survey, widen if that found nothing, inspect; then none."""
    turns = findings.situation.turns
    if not findings.searchable or findings.situation.last_call:
        return []
    if turns == 0:
        return survey(findings.query, tools)
    if not findings.files:
        return widen(findings.query, tools, findings.evidence) if turns == 1 else []
    if findings.evidence.inspected:
        return []
    return inspect(findings.query, tools, [file.path for file in findings.files])


def _result_tool(request: ModelRequest) -> ToolSpec | None:
    """Return the tool that takes the result of the run, if it wants one."""
    if request.tool_choice == "none":
        return None
    return next((spec for spec in request.tools if spec.ends_run or spec.name == "submit_result"), None)


def _submit(request: ModelRequest, findings: Findings) -> list[PlannedCall]:
    """Return the call with the structured result, once; none where values would have to be made up."""
    tool = _result_tool(request)
    if tool is None or not findings.files or findings.situation.wish != "find":
        return []
    filled = _fill_object(tool.parameters, findings, findings.files[0])
    if not filled or any(call.name == tool.name for call, _ in findings.situation.results):
        return []
    return [(tool.name, filled)]


def _fill_object(schema: Mapping[str, Any], findings: Findings, file: RankedFile) -> dict[str, Any] | None:
    properties = schema.get("properties")
    if not isinstance(properties, Mapping):
        return None
    filled: dict[str, Any] = {}
    for name, child in properties.items():
        value = _fill_value(str(name), child if isinstance(child, Mapping) else {}, findings, file)
        if value is not None:
            filled[str(name)] = value
    return filled if filled.keys() >= set(schema.get("required") or ()) else None


def _fill_value(name: str, schema: Mapping[str, Any], findings: Findings, file: RankedFile) -> Any:
    types = schema.get("type")
    types = types if isinstance(types, list) else [types]
    name = name.lower().replace("_", "").replace("-", "")
    if schema.keys() & {"enum", "const", "pattern"}:
        return None
    if "object" in types:
        return _fill_object(schema, findings, file)
    if "array" in types:
        return _fill_array(schema, findings) if name in _PROPERTIES["many"] else None
    number = file.best_lines[0] if file.best_lines else None
    for meaning, kind, value in (
        ("line", "integer", number),
        ("line", "number", number),
        ("found", "boolean", True),
        ("quote", "string", number and _shorten(findings.evidence.lines[file.path][number])),
        ("report", "string", report(findings)),
        ("file", "string", file.path),
    ):
        if kind in types and name in _PROPERTIES[meaning] and value is not None:
            return value
    return None


def _fill_array(schema: Mapping[str, Any], findings: Findings) -> list[Any] | None:
    items = schema.get("items")
    if not isinstance(items, Mapping):
        return None
    files = findings.files[: min(MAX_PLACES, int(schema.get("maxItems") or MAX_PLACES))]
    if items.get("type") == "string":
        return [file.path for file in files]
    filled = [_fill_object(items, findings, file) for file in files]
    return [item for item in filled if item] or None


def report(findings: Findings) -> str:
    refusal = _REFUSALS.get(findings.situation.wish)
    if not findings.searchable:
        return f"{_REFUSALS['talk']} {_MODEL_REMEDY}"
    lines = [f"{refusal}\n"] if refusal else []
    if findings.files:
        first, *others = findings.files
        lines.append(f"{'May relate' if refusal else 'Most likely'}: `{first.path}`")
        lines += _quote(first, findings, 2 if refusal else MAX_QUOTES)
        others = [file for file in others[:MAX_PLACES] if file.score >= 0.25 * first.score]
        if others:
            lines.append("\nFurther places:")
        for file in others:
            lines += _quote(file, findings, 1) or [f"- `{file.path}`"]
    else:
        lines.append(_report_nothing(findings.evidence))
    return "\n".join([*lines, "", _report_search(findings)])


def _quote(file: RankedFile, findings: Findings, most: int) -> list[str]:
    """Quote the best lines in file order. A line without a letter (a bracket) says nothing."""
    lines = {}
    for number, text in findings.evidence.lines.get(file.path, {}).items():
        if any(map(str.isalpha, text)):
            lines[number] = _shorten(text)
    numbers = [number for number in file.best_lines if number in lines] or sorted(lines)[:1]
    quotes = []
    for number in sorted(numbers[:most]):
        code = f"`` {lines[number]} ``" if "`" in lines[number] else f"`{lines[number]}`"
        quotes.append(f"- `{file.path}:{number}`: {code}")
    return quotes


def _shorten(line: str) -> str:
    text = " ".join(line.split())
    return text if len(text) <= MAX_QUOTE_CHARACTERS else text[: MAX_QUOTE_CHARACTERS - 1] + "…"


def _report_nothing(evidence: SearchEvidence) -> str:
    if evidence.errors:
        problems = "\n".join(f"- {problem}" for problem in dict.fromkeys(evidence.errors[:3]))
        return f"Nothing was found, and searches failed:\n{problems}"
    files = f" in {evidence.total_files:,} files" if evidence.total_files else ""
    return f"Nothing was found{files}. That says only that these words do not occur where I could look."


def _report_search(findings: Findings) -> str:
    sentences = []
    words = []
    for term in findings.query.terms:
        others = [f"{stem}…" for stem in list(term.stems)[1:4]]
        words.append(f"{term.word} ({', '.join(others)})" if others else term.word)
    words += findings.query.exact
    if words:
        sentences.append(f"Searched for: {'; '.join(words)}.")
    if findings.situation.last_call:
        sentences.append("A limit ended the search early, so it is incomplete.")
    errors = findings.evidence.errors
    if errors and findings.files:
        sentences.append(f"{len(errors)} searches failed ({errors[0][:120]}).")
    if findings.situation.wish == "find":
        sentences.append(_PLANNER_NOTE)
    return " ".join([*sentences, _MODEL_REMEDY])
