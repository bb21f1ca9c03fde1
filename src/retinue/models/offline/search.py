"""The searches of the planner: their tools, their calls, and the reading of their results.

The searching tools of a request are used whatever they are called and however their parameters are spelled; tools that
do more than look are ignored. `survey` looks for the words of the question in the whole tree, `widen` once more in the
plainest way when that found nothing, and `inspect` looks into the best candidates. Results are kept small, whatever
the size of the tree. `gather` reads them out of the conversation: the same messages always yield the same evidence, so
the planner needs no memory.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Literal

from msgspec import Struct, field

from retinue.core.messages import ToolCall, ToolResult
from retinue.core.tool import ToolSpec
from retinue.models.offline.question import VOCABULARY, Query, Term

ToolKind = Literal["grep", "find", "read", "ls"]
PlannedCall = tuple[str, dict[str, Any]]
"""The name of a tool, and its arguments."""

KEYWORDS = (
    "class|struct|enum|trait|interface|type|impl|module|mod|namespace|protocol|object|record|union|typedef|defmodule"
    "|def|func|fn|function|macro_rules!|sub|defp|proc|const|let|var"
)
MAX_CANDIDATES = 10
HEAD_LINES = 26
"""Lines read of the beginning of a candidate: they say what a file is about."""

_TOOL_KINDS: dict[str, ToolKind] = {}
for _kind, _names in VOCABULARY["tools"].items():
    _TOOL_KINDS |= dict.fromkeys(_names.split(), _kind)
_OUTPUT_MODES = {"content": ("content", "lines"), "count": ("count", "content", "lines")}
_MATCH = re.compile(r"^(?P<path>[^\n]+?):(?P<line>\d+):(?P<text>.*)$")
_COUNT = re.compile(r"^(?P<path>.+):(?P<count>\d+)$")
_NUMBERED = re.compile(r"^\s*(?P<line>\d+)(?:\t|→|: ?|\| ?)(?P<text>.*)$")
_TOTAL = re.compile(r"^\[[\d,]+ of (?P<total>[\d,]+) (?:found|files)")


class SearchTool(Struct, frozen=True):
    """A searching tool of the request, with parameters under names of our own."""

    kind: ToolKind
    spec: ToolSpec

    def call(self, **values: Any) -> PlannedCall:
        """Return a call with the tool's own parameters. A value without a parameter in its schema is left out."""
        arguments: dict[str, Any] = {}
        for name, value in values.items():
            parameter = self._parameter(name)
            if name == "mode" and parameter:
                modes = self.spec.parameters["properties"][parameter].get("enum") or (value,)
                value = next((mode for mode in _OUTPUT_MODES[value] if mode in modes), None)
            if parameter and value is not None:
                arguments[parameter] = value
        return self.spec.name, arguments

    def value(self, call: ToolCall, name: str) -> str:
        """Return the value of a call for one of our names."""
        return str(call.arguments.get(self._parameter(name)) or "")

    def _parameter(self, name: str) -> str:
        """Return the tool's own parameter for one of our names; empty if it has none."""
        properties = self.spec.parameters.get("properties") or {}
        for parameter in VOCABULARY["parameters"][name].split():
            if parameter in properties and not (parameter == "glob" and self.kind == "grep"):
                return str(parameter)
        return ""


Toolbox = Mapping[ToolKind, SearchTool]


def find_tools(specs: Iterable[ToolSpec]) -> Toolbox:
    tools: dict[ToolKind, SearchTool] = {}
    for spec in specs:
        kind = _TOOL_KINDS.get(spec.name.lower().replace("_", "").replace("-", ""))
        if kind is not None and not spec.effects & {"write", "execute", "spawn", "network"}:
            tools.setdefault(kind, SearchTool(kind, spec))
    return tools


class SearchEvidence(Struct):
    """`counts[i]` are the matching lines of term i by file; `lines` are the lines seen of a file."""

    counts: dict[int, dict[str, int]] = field(default_factory=dict)
    file_counts: dict[int, int] = field(default_factory=dict)
    """How many files have a term, also beyond those that were listed."""
    paths: dict[str, None] = field(default_factory=dict)
    lines: dict[str, dict[int, str]] = field(default_factory=dict)
    total_files: int = 0
    folders: list[str] = field(default_factory=list)
    """Folders that a listing named and that could be listed next."""
    errors: list[str] = field(default_factory=list)
    inspected: bool = False
    """Single files were looked at."""


def survey(query: Query, tools: Toolbox) -> list[PlannedCall]:
    """Return the first calls: all file names, and the words of the question in all text and in definitions."""
    calls: list[PlannedCall] = []
    if "find" in tools:
        calls.append(tools["find"].call(pattern="**/*", limit=1500))
    elif "ls" in tools:
        calls.append(tools["ls"].call(path="."))
    if "grep" in tools:
        grep = tools["grep"]
        calls += [grep.call(pattern=pattern_of([term]), mode="count", limit=400) for term in query.terms]
        if query.terms:
            calls.append(grep.call(pattern=definition_pattern(query.terms), mode="content", limit=300))
        calls += [grep.call(pattern=re.escape(text), mode="content", limit=60) for text in query.exact]
    return calls


def widen(query: Query, tools: Toolbox, evidence: SearchEvidence) -> list[PlannedCall]:
    """Return the calls after a survey that found nothing: nothing but the plainest words."""
    calls: list[PlannedCall] = []
    if "grep" in tools:
        words: dict[str, None] = {}
        for term in query.terms:
            words |= dict.fromkeys((term.word, next(iter(term.stems))))
        calls += [tools["grep"].call(pattern=re.escape(word)) for word in list(words)[:8]]
    if "ls" in tools:
        calls += [tools["ls"].call(path=folder) for folder in evidence.folders[:24]]
    return calls


def inspect(query: Query, tools: Toolbox, paths: list[str]) -> list[PlannedCall]:
    """Return the last calls: every matching line of the candidates, and how each begins."""
    calls: list[PlannedCall] = []
    for path in paths[:MAX_CANDIDATES]:
        if "grep" in tools and query.terms:
            calls.append(tools["grep"].call(pattern=pattern_of(query.terms), mode="content", limit=150, path=path))
        if "read" in tools:
            calls.append(tools["read"].call(path=path, limit=HEAD_LINES))
    return calls


def pattern_of(terms: Iterable[Term]) -> str:
    """Return a pattern, in the syntax that ripgrep and Python share, for any form of the terms."""
    return "|".join(_form_pattern(form) for form in _forms(terms))


def _form_pattern(form: str) -> str:
    """Short stems count only where a word of a name begins, the shortest only as whole words."""
    if len(form) > 4 or not form.isascii():
        return f"(?i:{_letters(form)})"
    end = "(?:s?(?:[^a-z]|$)|[a-z]?(?:ed|ers?|ing))" if len(form) < 4 else ""
    return f"(?:^|[^A-Za-z])(?i:{_letters(form)}){end}|[a-z0-9]{_letters(form.capitalize())}{end}"


def definition_pattern(terms: Iterable[Term]) -> str:
    """Return a pattern for lines that give a name with one of the terms in it to something."""
    forms = "|".join(_letters(form) for form in _forms(terms) if len(form) > 2)
    name = f"(?i:{forms})[A-Za-z0-9_]*"
    return (
        rf"(?:^|[^A-Za-z])(?:{KEYWORDS}) +(?:\([^)]{{0,40}}\) *)?[A-Za-z0-9_.:]*{name}"
        rf"|{name} *[:=] *(?:async )?(?:function|\([^)]{{0,80}}\) *=>)"
        rf"|^[A-Za-z][A-Za-z0-9_ *]*{name} *\([^;]*$"
        rf"|^ +(?:public|private|protected|static|export|async) [^=;()]*{name}\([^;]*$"
    )


def _forms(terms: Iterable[Term]) -> list[str]:
    """Return the stems, and each word that its stem is no beginning of."""
    forms: dict[str, None] = {}
    for term in terms:
        forms |= dict.fromkeys(term.stems)
        root = next(iter(term.stems))
        if len(root) < 4 or not re.match(_letters(root), term.word):
            forms.setdefault(term.word)
    return list(forms)


def _letters(form: str) -> str:
    """A stem's final i is written y in some forms."""
    return re.sub("(?<=..)i$", "[iy]", re.escape(form))


def gather(results: Iterable[tuple[ToolCall, ToolResult]], tools: Toolbox, query: Query) -> SearchEvidence:
    evidence = SearchEvidence()
    terms = {pattern_of([term]): index for index, term in enumerate(query.terms)}
    by_name = {tool.spec.name: tool for tool in tools.values()}
    for call, result in results:
        tool = by_name.get(call.name)
        if tool is None:
            continue
        path = _tidy(tool.value(call, "path"))
        if tool.kind in ("grep", "read") and path:
            evidence.inspected = True
        if result.is_error:
            evidence.errors.append(f"{call.name}: {result.text.strip()[:300]}")
        elif tool.kind == "read":
            _read_file(path, result.text, evidence)
        elif tool.kind == "grep":
            _read_matches(result.text, terms.get(tool.value(call, "pattern")), evidence)
        else:
            _read_listing(result.text, path if tool.kind == "ls" else "", evidence)
    evidence.total_files = max(evidence.total_files, len(evidence.paths))
    return evidence


def _read_listing(text: str, folder: str, evidence: SearchEvidence) -> None:
    """Read a listing with one path on each line. Folders end with a slash, notes are in brackets or sentences."""
    above = "" if folder in ("", ".") else folder.rstrip("/") + "/"
    for line in text.splitlines():
        path = above + _tidy(line.strip())
        if total := _TOTAL.match(line):
            evidence.total_files = max(evidence.total_files, _number(total["total"]))
        elif line.endswith("/"):
            evidence.folders.append(path)
        elif line.strip() and not line.startswith(("[", "Nothing matches")):
            evidence.paths.setdefault(path)


def _read_matches(text: str, term: int | None, evidence: SearchEvidence) -> None:
    counts: dict[str, int] = {}
    total = 0
    for line in text.splitlines():
        if match := _TOTAL.match(line):
            total = _number(match["total"])
        elif match := _MATCH.match(line):
            path = _tidy(match["path"])
            counts[path] = counts.get(path, 0) + 1
            evidence.lines.setdefault(path, {}).setdefault(int(match["line"]), match["text"])
        elif term is not None and (match := _COUNT.match(line)):
            counts[_tidy(match["path"])] = int(match["count"])
    evidence.paths |= dict.fromkeys(counts)
    if term is not None:
        evidence.counts.setdefault(term, counts)
        evidence.file_counts.setdefault(term, total or len(counts))


def _read_file(path: str, text: str, evidence: SearchEvidence) -> None:
    for line in text.splitlines():
        if match := _NUMBERED.match(line):
            evidence.lines.setdefault(path, {}).setdefault(int(match["line"]), match["text"])


def _number(text: str) -> int:
    return int(text.replace(",", ""))


def _tidy(path: str) -> str:
    return path.removeprefix("./").replace("\\", "/")
