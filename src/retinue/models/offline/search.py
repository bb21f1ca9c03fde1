"""The searches of the planner: the tools they use, which calls come next, what their results say.

The searching tools of a request are used whatever they are called and however their parameters are
spelled; tools that do more than look are ignored. `survey` looks for the words of the question in the
whole tree, `widen` once more in the plainest way when that found nothing, and `inspect` looks into the
best candidates. Results are kept small, whatever the size of the tree. `gather` reads them out of the
conversation: the same messages always yield the same evidence, so the planner needs no memory.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Literal

from msgspec import Struct, field

from retinue.core.messages import ToolCall, ToolResult
from retinue.core.tool import ToolSpec
from retinue.models.offline.question import VOCABULARY, Query, Term
from retinue.models.offline.source import KEYWORDS, asked_kinds

Kind = Literal["grep", "find", "read", "ls"]

_NAMES: dict[str, Kind] = {}
for _kind, _names in VOCABULARY["tools"].items():
    _NAMES |= dict.fromkeys(_names.split(), _kind)
_MODES = {"content": ("content", "lines"), "count": ("count",)}


class SearchTool(Struct, frozen=True):
    kind: Kind
    spec: ToolSpec

    def arguments(self, **wanted: Any) -> dict[str, Any]:
        """Return our words in the tool's own: what its schema has no parameter for is left out."""
        found: dict[str, Any] = {}
        for name, value in wanted.items():
            own, schema = self._parameter(name)
            if name == "mode":
                modes = [mode for mode in schema.get("enum") or [value] if mode in _MODES[value]]
                value = modes[0] if modes else None
            if own and value is not None:
                found[own] = value
        return found

    def value(self, arguments: Mapping[str, Any], name: str) -> Any:
        """Return what a call of this tool said for one of our words."""
        return arguments.get(self._parameter(name)[0])

    @property
    def counts(self) -> bool:
        return "count" in (self._parameter("mode")[1].get("enum") or ())

    @property
    def excludes(self) -> bool:
        """The tool says that several patterns, some negated by `!`, may be given at once."""
        return "!" in str(self._parameter("glob")[1].get("description", ""))

    def _parameter(self, name: str) -> tuple[str, Mapping[str, Any]]:
        """Return the tool's own name and schema for one of our words; both empty if it has none."""
        properties = self.spec.parameters.get("properties") or {}
        for own in VOCABULARY["parameters"][name].split():
            if own in properties and not (own == "glob" and name == "pattern" and self.kind == "grep"):
                return own, properties[own]
        return "", {}


class Toolbox(Struct, frozen=True):
    grep: SearchTool | None = None
    find: SearchTool | None = None
    read: SearchTool | None = None
    ls: SearchTool | None = None

    @classmethod
    def of(cls, offered: Iterable[ToolSpec]) -> Toolbox:
        found: dict[str, SearchTool] = {}
        for spec in offered:
            kind = _NAMES.get(spec.name.lower().replace("_", "").replace("-", ""))
            if kind is not None and kind not in found and not spec.effects & {"write", "execute", "spawn", "network"}:
                found[kind] = SearchTool(kind, spec)
        return cls(**found)

    @property
    def tools(self) -> tuple[SearchTool, ...]:
        return tuple(filter(None, (self.grep, self.find, self.read, self.ls)))


CANDIDATES = 10
HEAD = 26
"""Lines read of the beginning of a candidate: what a file is about stands there."""

_ASIDE = VOCABULARY["aside"].replace("\n", "")
"""Left out of a first search that does not ask for such files."""
_MATCH = re.compile(r"^(?P<path>[^\n]+?):(?P<line>\d+):(?P<text>.*)$")
_COUNT = re.compile(r"^(?P<path>.+):(?P<count>\d+)$")
_NUMBERED = re.compile(r"^\s*(?P<line>\d+)(?:\t|→|: ?|\| ?)(?P<text>.*)$")
_TOTAL = re.compile(r"^\[[\d,]+ of (?P<total>[\d,]+) (?:found|files)")
_MORE = re.compile(r"^\[(?P<more>[\d,]+) more lines")

Wanted = tuple[SearchTool, dict[str, Any]]


class SearchEvidence(Struct):
    """`counts[i]` are the matching lines of term i by file; `lines` what was seen of a file."""

    counts: dict[int, dict[str, int]] = field(default_factory=dict)
    having: dict[int, int] = field(default_factory=dict)
    """How many files have a term, also beyond those that were listed."""
    paths: dict[str, None] = field(default_factory=dict)
    lines: dict[str, dict[int, str]] = field(default_factory=dict)
    length: dict[str, int] = field(default_factory=dict)
    total_files: int = 0
    folders: list[str] = field(default_factory=list)
    """Folders that a listing named and that could be listed next."""
    errors: list[str] = field(default_factory=list)
    inspected: bool = False
    """Single files were looked at."""


def survey(query: Query, toolbox: Toolbox) -> list[Wanted]:
    """Return the first calls: all file names, and the words of the question in all text and in
    definitions."""
    wanted: list[Wanted] = []
    if toolbox.find:
        wanted.append((toolbox.find, {"pattern": "**/*", "limit": 1500}))
    elif toolbox.grep is None and toolbox.ls:
        wanted.append((toolbox.ls, {"path": "."}))
    if grep := toolbox.grep:
        glob = None
        if grep.excludes and not asked_kinds(query.text):
            glob = _ASIDE
        mode = "count" if grep.counts else "content"
        for term in query.terms:
            wanted.append((grep, {"pattern": pattern_of([term]), "mode": mode, "limit": 400, "glob": glob}))
        if query.terms:
            options = {"mode": "content", "limit": 300, "glob": glob}
            wanted.append((grep, {"pattern": definition_pattern(query.terms), **options}))
        for text in query.exact:
            wanted.append((grep, {"pattern": re.escape(text), "mode": "content", "limit": 60}))
    return wanted


def widen(query: Query, toolbox: Toolbox, evidence: SearchEvidence) -> list[Wanted]:
    """Return the calls after a survey that found nothing: nothing but the plainest words."""
    wanted: list[Wanted] = []
    if toolbox.grep:
        plain: dict[str, None] = {}
        for term in query.terms:
            plain |= dict.fromkeys((term.word, next(iter(term.stems))))
        wanted += [(toolbox.grep, {"pattern": re.escape(form)}) for form in list(plain)[:8]]
    if toolbox.ls:
        wanted += [(toolbox.ls, {"path": folder}) for folder in evidence.folders[:24]]
    return wanted


def inspect(query: Query, toolbox: Toolbox, paths: list[str]) -> list[Wanted]:
    """Return the last calls: every matching line of the candidates, and how each begins."""
    wanted: list[Wanted] = []
    if toolbox.grep and query.terms:
        pattern = pattern_of(query.terms)
        options = {"pattern": pattern, "mode": "content", "limit": 150}
        wanted += [(toolbox.grep, {**options, "path": path}) for path in paths[:CANDIDATES]]
    if toolbox.read:
        wanted += [(toolbox.read, {"path": path, "limit": HEAD}) for path in paths[:CANDIDATES]]
    return wanted


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


def gather(pairs: Iterable[tuple[ToolCall, ToolResult]], toolbox: Toolbox, query: Query) -> SearchEvidence:
    evidence = SearchEvidence()
    by_pattern = {pattern_of([term]): index for index, term in enumerate(query.terms)}
    tools = {tool.spec.name: tool for tool in toolbox.tools}
    for call, result in pairs:
        tool = tools.get(call.name)
        if tool is None:
            continue
        path = str(tool.value(call.arguments, "path") or "")
        if tool.kind in ("grep", "read") and path:
            evidence.inspected = True
        if result.is_error:
            evidence.errors.append(f"{call.name}: {result.text.strip()[:300]}")
        elif tool.kind == "read":
            _read_file(_tidy(path), result.text, evidence)
        elif tool.kind == "grep":
            term = by_pattern.get(str(tool.value(call.arguments, "pattern")))
            counting = tool.value(call.arguments, "mode") == "count"
            _read_matches(result.text, term, counting, evidence)
        else:
            _read_listing(result.text, path if tool.kind == "ls" else "", evidence)
    evidence.total_files = max(evidence.total_files, len(evidence.paths))
    return evidence


def _read_listing(text: str, folder: str, evidence: SearchEvidence) -> None:
    """Paths, one a line. What ends with a slash is a folder; notes are in brackets or sentences."""
    above = "" if folder in ("", ".", "./") else folder.rstrip("/") + "/"
    for line in text.splitlines():
        if total := _TOTAL.match(line):
            evidence.total_files = max(evidence.total_files, _number(total["total"]))
        elif line.endswith("/"):
            evidence.folders.append(_tidy(above + line.strip()))
        elif line.strip() and not line.startswith(("[", "Nothing matches")):
            evidence.paths.setdefault(_tidy(above + line.strip()))


def _read_matches(text: str, term: int | None, counting: bool, evidence: SearchEvidence) -> None:
    counts: dict[str, int] = {}
    total = None
    for line in text.splitlines():
        if noted := _TOTAL.match(line):
            total = _number(noted["total"])
        elif not counting and (found := _MATCH.match(line)):
            path = _tidy(found["path"])
            counts[path] = counts.get(path, 0) + 1
            evidence.lines.setdefault(path, {}).setdefault(_number(found["line"]), found["text"])
        elif term is not None and (counted := _COUNT.match(line)):
            counts[_tidy(counted["path"])] = _number(counted["count"])
    evidence.paths |= dict.fromkeys(counts)
    if term is not None:
        evidence.counts.setdefault(term, counts)
        evidence.having.setdefault(term, total or len(counts))


def _read_file(path: str, text: str, evidence: SearchEvidence) -> None:
    last = 0
    for line in text.splitlines():
        if more := _MORE.match(line):
            last += _number(more["more"])
            break
        if found := _NUMBERED.match(line):
            last = _number(found["line"])
            evidence.lines.setdefault(path, {}).setdefault(last, found["text"])
    evidence.length.setdefault(path, last)


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


def _number(text: str) -> int:
    return int(text.replace(",", ""))


def _tidy(path: str) -> str:
    return path.removeprefix("./").replace("\\", "/")
