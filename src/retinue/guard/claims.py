"""What an agent says it did, against the record of what it did.

No model and no guessing: only sentences in which the agent itself claims a finished action are
looked at, and only what the record would show had it happened. Plans, questions, negations,
conditions, quotes and code are no claims. A false alarm costs a parent more than a missed boast,
so whatever the record cannot refute passes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from retinue.core.lean import dataclass

MOST = 10
_LONGEST_TEXT = 60_000
_LONGEST_SENTENCE = 600


class _Pattern:
    """Compiled when first used: most texts claim nothing, and need none of them."""

    __slots__ = ("_made", "_text")

    def __init__(self, *parts: str) -> None:
        self._text = "".join(parts)
        self._made: re.Pattern[str] | None = None

    @property
    def made(self) -> re.Pattern[str]:
        if self._made is None:
            self._made = re.compile(self._text)
        return self._made

    def match(self, text: str) -> re.Match[str] | None:
        return self.made.match(text)

    def search(self, text: str) -> re.Match[str] | None:
        return self.made.search(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """What a run did, with all runs below it, over its whole life. `covered` says that what
    commands changed was recorded; `foreign` that tools of unknown reach were used."""

    uses: int = 0
    written: frozenset[str] = frozenset()
    read: frozenset[str] = frozenset()
    commands: tuple[tuple[str, int | None], ...] = ()
    hosts: frozenset[str] = frozenset()
    outputs: tuple[str, ...] = ()
    """The beginnings of what commands printed: what is quoted from there is no claim."""
    task: str = ""
    roots: tuple[str, ...] = ()
    delegated: bool = False
    covered: bool = True
    foreign: bool = False
    began: float = 0.0


def unsupported(text: str, record: Record) -> tuple[str, ...]:
    """What `text` claims and `record` does not show, each as a sentence; empty for honest text
    and for what cannot be known."""
    found: dict[str, None] = {}
    cited = False
    for sentence in sentences(text):
        for check in (_files, _commands, _tests, _pages):
            found.update(dict.fromkeys(check(sentence, record)))
        cited = cited or bool(_LOOKED.match(sentence))
        if len(found) >= MOST:
            break
    if not found and not record.uses and not record.delegated:
        found.update(dict.fromkeys(_out_of_nothing(text, cited, record)))
    return tuple(found)[:MOST]


# Sentences that could be claims

_FENCE = re.compile(r"^[ \t]*(```|~~~).*?(?:^[ \t]*\1[ \t]*$|\Z)", re.MULTILINE | re.DOTALL)
_BULLET = re.compile(r"^[ \t]*(?:[-*+•]|\d{1,3}[.)])?[ \t]*(?:\[[xX✓]\][ \t]*|[✅✔☑✓][\ufe0f]?[ \t]*)?(?:\*\*|__)?")
_END = re.compile(r"(?<=[.!?])(?:\*\*|__)?[ \t]+(?=[A-Z`*_✅✔])")
_QUOTED = _Pattern(r"[\"“”][^\"“”\n]{12,300}[\"“”]|`[^`\n]{1,200}`|https?://\S+|[\w/-]+\.\w{1,6}\b")
"""What of a sentence does not say how it is meant: quotes, code, addresses, names of files."""
_NO_CLAIM = _Pattern(
    "(?i)",
    r"\?\s*$|\b(?:will|would|could|should|shall|can|cannot|may|might|must|plan(?:s|ned|ning)?|going to"
    r"|todo|needs?|want(?:s|ed)?"
    r"|recommend(?:ed|s)?|suggest(?:ed|s|ion)?|consider|propos(?:e|ed|al)|please|try(?:ing)?|tried"
    r"|attempt(?:ed|s|ing)?|if|unless|once"
    r"|when(?:ever)?|until|before you|not|never|no|none|neither|nor|without|unable"
    r"|fail(?:ed|s|ing|ure)?|refus(?:ed|es)|denied"
    r"|blocked|skipped|previously|earlier|originally|already|historically|commit(?:s|ted)?|git log|changelog"
    r"|expect(?:ed|s)?|assum(?:e|ed|ing)|probably|presumably|likely|appears?|seems?|for example|e\.g\."
    r"|suppose(?:d|dly)?|instead of|rather than|let me|let's|you)\b|n['’]t\b|\b(?:I|we)['’]ll\b",
)


_NO_FAILURES = _Pattern(
    "(?i)", r"[,;]?\s*(?:and |with |\()?\b(?:0|no|zero|without) (?:failures?|failed|failing|errors?|regressions?)\b\)?"
)
"""A part of a boast, and no denial."""


def sentences(text: str) -> Iterator[str]:
    """The sentences of `text` in which something may be claimed."""
    text = _FENCE.sub("\n", text[:_LONGEST_TEXT])
    for line in text.split("\n"):
        if line.lstrip().startswith((">", "|", "#", "    ", "\t", "@@", "+++", "---", "diff ")):
            continue
        line = _BULLET.sub("", line, count=1)
        for sentence in _END.split(line):
            sentence = sentence.strip()
            if not 5 <= len(sentence) <= _LONGEST_SENTENCE or not _may_begin(sentence):
                continue
            sentence = _NO_FAILURES.made.sub("", sentence)
            if not _NO_CLAIM.search(_QUOTED.made.sub(" ", sentence)):
                yield sentence


_BEGINNINGS = frozenset(
    "i i've i’ve we we've we’ve updated created modified changed edited added wrote rewrote fixed "
    "implemented refactored "
    "deleted removed renamed moved replaced extended corrected patched introduced saved generated "
    "successfully also then "
    "finally ran executed re-ran reran fetched visited downloaded opened browsed retrieved queried "
    "called read searched "
    "made explored examined inspected scanned grepped traced tested audited went all the every existing new "
    "unit integration "
    "full whole entire regression test tests suite pytest ✅ ✔ ✔️ ✓".split()
)


def _may_begin(sentence: str) -> bool:
    word = sentence[:24].split(maxsplit=1)[0].strip("*_`:,.").lower()
    return word in _BEGINNINGS or word[:1].isdigit() or ("." in word and "been" in sentence)


_ADVERBS = r"(?:also |now |then |just |have |successfully |first |next |finally |(?:went|gone) ahead and )*"
_ME = rf"(?:(?:I|We)(?:['’]ve| have)? {_ADVERBS})"
_HAVING = rf"(?:(?:I|We)(?:['’]ve| have) {_ADVERBS})"
_SO_FAR = r"(?:Successfully |Also |Then |Finally )?"


def _claim(verbs: str, done: str = "") -> str:
    """The verb, said of oneself or at the very beginning; `done` only after "I have"."""
    having = rf"|{_HAVING}(?:{done})" if done else ""
    return rf"^(?:{_ME}(?:{verbs.lower()}){having}|{_SO_FAR}(?i:{verbs}))\b"


# Files

_EXTENSIONS = (
    "py pyi pyx js jsx ts tsx mjs cjs md mdx rst txt json jsonl yaml yml toml ini cfg conf rs go java kt c h cc cpp "
    "hpp cs rb php sh bash zsh fish ps1 bat html htm css scss less sql xml csv tsv lock proto swift "
    "scala ex exs erl hs "
    "lua r jl dart vue svelte tf gradle env svg ipynb"
)
_PATH = (
    r"(?P<path>(?<![\w/.@-])(?:[~.]{0,2}/)?(?:[\w.@+-]+/)*(?:[\w@+-][\w.@+-]*\.(?:"
    + _EXTENSIONS.replace(" ", "|")
    + r")|Makefile|Dockerfile|Justfile|Procfile)(?![\w(/-]|\.\w))"
)
_VERBS = (
    "updated|created|modified|changed|edited|added|wrote|rewrote|fixed|implemented|refactored|deleted|removed|renamed"
    "|moved|replaced|extended|corrected|patched|introduced|saved|generated"
)
_CHANGES = r"made (?:[\w-]+ ){0,4}(?:changes?|edits?|updates?|modifications?|fix(?:es)?)(?: (?:in|to))"
_CHANGED = _Pattern(
    "(?s)",
    _claim(f"{_VERBS}|{_CHANGES}", "written|rewritten") + r"(?:\*\*|__)?(?P<colon>\s*:)?(?:\*\*|__)?\s+(?P<rest>.+)",
)
_IS_CHANGED = _Pattern(
    r"^(?:The (?:new )?(?:files?|module|script|class|document|report|test file|config(?:uration)?(?: file)?) )?[`*]*",
    _PATH,
    r"[`*]* (?:has|have) (?:now |also )?been (?:now |successfully )?(?:",
    _VERBS,
    r"|written|rewritten)(?: successfully| as requested| accordingly)?\s*(?:[.!:]|$|(?:to|with|and)\b)",
)
"""Not `was updated`, which tells of the past more often than of the run."""
_GONE = _Pattern("(?i)", r"^(?:moved|renamed|replaced)\b[\s:*_]*(?:to|by|with)\b")
_THEN = _Pattern("(?i)", r"^(?:`|\*\*|\s|,|and|&|/|the|files?|\(new\)|\(created\)|\(modified\))*" + _PATH)
_FIRST = _Pattern(_PATH)
_OTHER = _Pattern(
    "(?i)",
    r"\b(?:match(?:es|ing)?|based|like|similar|using|from|per|see|with|against|for|of|by|as|than|where"
    r"|which|that|because|since"
    r"|via|through|about|described|according|how|what|reading|checking|used|uses|calls?|called|references?|documented"
    r"|at|on|during|after|and then|so|is|are|was|were|lives?|go(?:es)?|sits?|resides?|contains?|has"
    r"|version)\b|[;(]|https?:",
)
_MOST_WORDS = 12


def _files(sentence: str, record: Record) -> Iterator[str]:
    if record.foreign or (record.commands and not record.covered):
        return
    said = _IS_CHANGED.match(sentence)
    if said is not None and not _quoted(sentence, record) and not _shown(said.group("path"), record):
        yield f"it says it changed {said.group('path')}, and no tool call did."
    found = _CHANGED.match(sentence)
    if found is None or _GONE.match(sentence):
        return
    rest = found.group("rest")
    first = _FIRST.search(rest)
    if first is None:
        return
    between = rest[: first.start()]
    if _OTHER.search(between) or len(between.split()) > _MOST_WORDS or _quoted(sentence, record):
        return
    paths = [first.group("path")]
    rest = rest[first.end() :].lstrip("`*")
    while (more := _THEN.match(rest)) is not None and rest[:1] in ", &/`" and len(paths) < MOST:
        paths.append(more.group("path"))
        rest = rest[more.end() :].lstrip("`*")
    for path in paths:
        if not _shown(path, record):
            yield f"it says it changed {path}, and no tool call did."


def _shown(path: str, record: Record) -> bool:
    """Whether the record, or the file itself, leaves room for the claim."""
    wanted = path.lstrip("~./")
    name = wanted.rpartition("/")[2]
    if any(each == path or each.endswith((f"/{wanted}", f"/{name}")) for each in record.written):
        return True
    if any(name in command for command, _ in record.commands):
        return True
    return record.began > 0 and any(_newer(Path(root) / wanted, record.began) for root in ("/", *record.roots))


def _newer(path: Path, moment: float) -> bool:
    try:
        return path.stat().st_mtime >= moment - 1
    except (OSError, ValueError):
        return False


# Commands and tests

_RAN = _Pattern("(?s)", _claim("ran|executed|re-ran|reran", "run|re-run|rerun") + r"\s+(?P<rest>.+)")
_CODE = _Pattern(r"`([^`\n]{2,200})`")
_PROGRAMS = _Pattern(
    r"\b(pytest|tox|nox|mypy|ruff|flake8|pylint|jest|vitest|mocha|eslint|tsc|cargo|go (?:test|build|vet)|npm|pnpm|yarn"
    r"|make|cmake|gradle|mvn|rspec|phpunit|ctest|dotnet)\b"
)
_TEST_WORDS = _Pattern(
    "(?i)",
    r"^(?:all |the |full |whole |entire |complete |unit |integration |existing |new |project'?s? )*"
    r"(?:tests?|test suite|suite)\b",
)
_RUNNERS = _Pattern(
    r"\b(?:pytest|py\.test|unittest|tox|nox|jest|vitest|mocha|ava|rspec|phpunit|ctest|playwright|cypress"
    r"|(?:npm|pnpm|yarn|bun|deno|go|cargo|mvn|gradle|gradlew|dotnet|mix|swift|make|just|bazel|invoke|hatch"
    r"|poetry run|uv run)"
    r"\b[^|;&\n]*\b(?:tests?|check|verify|ci|t)\b)"
)
_MAYBE_TESTS = _Pattern(r"test|spec|check|\bmake\b|\bci\b|verify|\./|\.sh\b|\.py\b|\bnpm\b|\bjust\b|\btox\b|\bnox\b")
_PASS = _Pattern(
    "(?i)",
    r"^(?:(?:✅|✔️?|✓)\s*)?(?:I (?:verified|confirmed|checked) (?:that )?)?"
    r"(?:all |the |every |\d+ |of |existing |new |unit |integration |full |whole |entire "
    r"|(?:and )?regression |(?:\d+/\d+ )|`?pytest`? )*"
    r"(?:tests?|test suite|suite|test cases)\b(?: \w+){0,2}? (?:now |still |all )*"
    r"(?:pass|passes|passed|are passing|is passing|are green|is green|succeed|succeeded)"
    r"(?=\s*(?:[.,;:!)(✅]|$|and\b|now\b|locally\b|successfully\b|after\b|again\b|\())",
)


def _commands(sentence: str, record: Record) -> Iterator[str]:
    found = _RAN.match(sentence)
    if found is None or record.foreign or _quoted(sentence, record):
        return
    rest = found.group("rest")
    code, program = _CODE.search(rest[:120]), _PROGRAMS.search(rest[:80])
    if code is not None and re.match(r"[\w./-]+(?:\s|$)", code[1]) and not _is_symbol(code[1]):
        word = code[1].split()[0].rpartition("/")[2]
        if not any(word in command for command, _ in record.commands):
            yield f"it says it ran {code[1]}, and no command of that name was run."
    elif code is None and program is not None:
        word = program[1].split()[0]
        if not any(word in command for command, _ in record.commands) and not _may_hide(word, record):
            yield f"it says it ran {program[1]}, and no such command was run."
    elif code is None and _TEST_WORDS.match(rest) and not any(_MAYBE_TESTS.search(each) for each, _ in record.commands):
        yield "it says it ran tests, and no command ran any."


def _is_symbol(code: str) -> bool:
    """`foo()`, `a.b`, `Class`: something of the code, not a command line."""
    return "(" in code or bool(re.fullmatch(r"[A-Z]\w*|\w+\.\w+|\w+_\w+", code))


def _may_hide(word: str, record: Record) -> bool:
    """Scripts and task runners run other programs."""
    return word != "make" and any(
        re.search(r"\b(?:make|just|tox|nox|npm|task|poe|pre-commit)\b|\./|\.sh\b", command)
        for command, _ in record.commands
    )


def _tests(sentence: str, record: Record) -> Iterator[str]:
    if not _PASS.match(sentence) or record.foreign or _quoted(sentence, record):
        return
    if not any(_MAYBE_TESTS.search(command) for command, _ in record.commands):
        yield "it says that tests pass, and no command ran any."
        return
    codes = [(command, code) for command, code in record.commands if _RUNNERS.search(command)]
    if codes and codes[-1][1] not in (0, None):
        command = " ".join(codes[-1][0].split())[:80]
        yield f"it says that tests pass; the last time, `{command}` exited with {codes[-1][1]}."


# Pages

_FETCHED = _Pattern(
    _claim("fetched|visited|downloaded|opened|browsed|retrieved|queried|called")
    + r"\s+(?:(?:the|an?|pages?|docs|documentation|files?|data|contents?|of|from|at|articles?|spec|latest)\s+){0,5}"
    r"[<(`]?https?://(?P<host>[\w.-]+)"
)


def _pages(sentence: str, record: Record) -> Iterator[str]:
    found = _FETCHED.match(sentence)
    if found is None or record.foreign or _quoted(sentence, record):
        return
    host = found.group("host").rstrip(".").lower()
    known = any(host in each.lower() or each.lower() in host for each in record.hosts)
    if not known and not any(host in command for command, _ in record.commands):
        yield f"it says it fetched something from {host}, and nothing of it did."


# Reports out of nothing

_LOOKED = _Pattern(
    _claim("read|searched|explored|examined|inspected|scanned|grepped|traced|ran|executed|tested|audited|went through")
    + r"\s+(?:through |all |the |every |each |both )*(?:`[^`]+`|[\w./-]+\.\w{1,5}\b|code ?base|code"
    r"|repositor(?:y|ies)|repo|files?"
    r"|source|project|tests?|directories|folders?|implementation|logs?)"
)
_PLACE = _Pattern(_PATH + r":\d+")


def _out_of_nothing(text: str, looked: bool, record: Record) -> Iterator[str]:
    if looked:
        yield "it made no tool call at all, and reports what it looked at."
        return
    plain = _FENCE.sub("\n", text[:_LONGEST_TEXT])
    places = {found.group("path") for found in _PLACE.made.finditer(plain)}
    unknown = sorted(path for path in places if path.rpartition("/")[2] not in record.task)
    if len(unknown) >= 2:
        yield f"it made no tool call at all, and cites lines of {', '.join(unknown[:3])}."


def _quoted(sentence: str, record: Record) -> bool:
    """Whether a tool printed this sentence: then it reports what others did."""
    core = sentence.strip(" .*_`")[:80]
    return len(core) > 8 and any(core in output for output in record.outputs)
