"""`NAME.test.yaml`: the tests of an agent, beside the agent's file. Every error names the line.

cases:
  - name: finds the unchecked error
    task: Review src/io.py
    model: {scenario: reviewer-1.cassette.jsonl}
    expect:
      ended: completed
      files: {written: []}
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Literal, get_args

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from retinue.agents.yaml_reader import YamlError, load_mapping
from retinue.core.files import read_text
from retinue.core.outcome import Ended
from retinue.core.spec import PermissionMode
from retinue.core.spelling import nearest
from retinue.errors import ConfigurationError
from retinue.recordings.workspace import RepositoryFixture
from retinue.runs.record import slug

SUFFIX = ".test.yaml"
Policy = Literal["always", "usually", "tracked"]
_MAX_CASE_FILE_BYTES = 2_000_000
_SKIPPED_FOLDERS = frozenset({".git", "node_modules", ".venv"})


class CaseFileError(ConfigurationError):
    """A test file that cannot be used."""

    code = "BAD_TEST_FILE"


class _Rules(Struct, frozen=True, forbid_unknown_fields=True):
    """A mapping of a test file."""


class Bounds(_Rules, frozen=True):
    """The lowest and the highest allowed value of a number, both included."""

    min: float | None = None
    max: float | None = None

    def includes(self, value: float) -> bool:
        return (self.min is None or value >= self.min) and (self.max is None or value <= self.max)

    def __str__(self) -> str:
        if self.min is not None and self.max is not None:
            return f"{self.min:g} to {self.max:g}"
        if self.max is not None:
            return f"at most {self.max:g}"
        return f"at least {self.min or 0:g}"


class TextRules(_Rules, frozen=True):
    contains: list[str] = field(default_factory=list)
    not_contains: list[str] = field(default_factory=list)
    matches: str | None = None


class FileRules(_Rules, frozen=True):
    """Patterns of paths. `written` names all files that must change, and no others may; None allows all changes."""

    written: list[str] | None = None
    read: list[str] = field(default_factory=list)
    unchanged: list[str] = field(default_factory=list)


class CommandRules(_Rules, frozen=True):
    allow: list[str] | None = None
    none_of: list[str] = field(default_factory=list)
    called: list[str] = field(default_factory=list)
    count: Bounds | None = None


class ToolUseRules(_Rules, frozen=True):
    called: list[str] = field(default_factory=list)
    never: list[str] = field(default_factory=list)
    order: list[str] = field(default_factory=list)


class ChildRules(_Rules, frozen=True):
    min: int | None = None
    max: int | None = None
    agents: list[str] | None = None


class CostRules(_Rules, frozen=True):
    usd: Bounds


class JudgeRules(_Rules, frozen=True, rename={"at_least": "pass"}):
    """A rubric by which a live model judges the answer. `at_least` (`pass` in the file) is the lowest score that
    passes, from 0 to 1."""

    rubric: str
    model: str | None = None
    at_least: float = 0.8


class Expectations(_Rules, frozen=True):
    """The assertions about the record of a run. A missing key asserts nothing."""

    ended: Ended | list[Ended] | None = None
    text: TextRules | None = None
    schema: str | None = None
    files: FileRules | None = None
    commands: CommandRules | None = None
    tools: ToolUseRules | None = None
    hosts: list[str] | None = None
    children: ChildRules | None = None
    denials: list[str] | None = None
    cost: CostRules | None = None
    turns: Bounds | None = None
    diff: str | None = None
    check: str | None = None
    judge: JudgeRules | None = None

    @property
    def names(self) -> list[str]:
        """The keys that the file sets."""
        return [name for name in self.__struct_fields__ if getattr(self, name) is not None]


class InboxAnswers(_Rules, frozen=True):
    """The answers to approvals and questions of a run: one for all, or a list that is used in order."""

    approval: str | list[str] | None = None
    question: str | list[str] | None = None


class ModelRules(_Rules, frozen=True):
    """`scenario` is the cassette for offline runs, `live` the model for runs with `--live`."""

    scenario: str | None = None
    live: str | None = None


class CaseLimits(_Rules, frozen=True):
    usd: float | None = None
    turns: int | None = None
    seconds: float | None = None


class CaseDefaults(_Rules, frozen=True, kw_only=True):
    """Keys of a case that may also stand beside `cases`, as defaults of all cases."""

    fixture: str | RepositoryFixture | None = None
    answers: InboxAnswers | None = None
    permission_mode: PermissionMode | None = None
    limits: CaseLimits | None = None


class Case(CaseDefaults, frozen=True, kw_only=True):
    """One test. With `routing` in place of `task`, the main agent gets this prompt and must start the file's agent."""

    name: str
    task: str | None = None
    routing: str | None = None
    model: ModelRules = field(default_factory=ModelRules)
    repeat: int = 1
    expect: Expectations = field(default_factory=Expectations)
    policy: Policy = "always"


class CaseFile(CaseDefaults, frozen=True, kw_only=True):
    """The whole file."""

    cases: list[Case]
    agent: str | None = None


class AgentTests(Struct, frozen=True):
    """A valid test file. `lines` has the line number of each value, by its path in the file."""

    path: Path
    agent: str
    file: CaseFile
    lines: dict[str, int]

    def line_of(self, number: int, key: str = "") -> int:
        """Return the line of a case, or of one of its keys such as `expect.files`. If the case lacks the key, return
        the line of the file's default."""
        case = f"$.cases[{number}]"
        paths = (f"{case}.{key}", f"$.{key}", case)
        return next((self.lines[path] for path in paths if path in self.lines), 1)


def scenario_path(tests: AgentTests, case: Case) -> Path:
    """Return the path of the cassette of a case, which may not exist yet."""
    if case.model.scenario is not None:
        return tests.path.parent / case.model.scenario
    stem = tests.path.name.removesuffix(SUFFIX)
    return tests.path.parent / "cassettes" / f"{stem}-{slug(case.name)}.cassette.jsonl"


def find_test_files(paths: list[Path]) -> list[Path]:
    """Return the test files among these paths and below the folders among them. Raise CaseFileError for a path that
    does not exist or is not a test file."""
    files: dict[Path, None] = {}
    for path in paths:
        if path.is_dir():
            below = sorted(path.rglob(f"*{SUFFIX}"))
            files |= dict.fromkeys(file for file in below if _SKIPPED_FOLDERS.isdisjoint(file.relative_to(path).parts))
        elif path.is_file() and path.name.endswith(SUFFIX):
            files[path] = None
        elif path.is_file():
            raise CaseFileError(f"{path} is no test file.", remedy=f"Their names end in {SUFFIX}.")
        else:
            raise CaseFileError(f"{path} does not exist.", remedy=f"Name a folder, or a file NAME{SUFFIX}.")
    return list(files)


def read_test_file(path: Path) -> AgentTests:
    """Return the tests of a file. Raise CaseFileError with file, line, reason and remedy."""
    try:
        text = read_text(path, _MAX_CASE_FILE_BYTES)
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise CaseFileError(f"{path}: The file cannot be read: {reason}.") from error
    lines: dict[str, int] = {}
    try:
        file = msgspec.convert({item.key: item.value for item in load_mapping(text, lines)}, CaseFile)
    except YamlError as error:
        reason = f"{error.reason[:1].upper()}{error.reason[1:]}."
        raise CaseFileError(f"{path}:{error.line}: {reason}", remedy="Correct the YAML.") from error
    except msgspec.ValidationError as error:
        raise _explain(path, str(error), lines) from error
    file = replace(file, cases=[_complete(case, file) for case in file.cases])
    agent = file.agent or path.name.removesuffix(SUFFIX)
    tests = AgentTests(path, agent, file, lines)
    _check(tests)
    return tests


def _complete(case: Case, file: CaseFile) -> Case:
    names = CaseDefaults.__struct_fields__
    return replace(case, **{name: getattr(case, name) or getattr(file, name) for name in names})


def _check(tests: AgentTests) -> None:
    if not tests.file.cases:
        raise CaseFileError(f"{tests.path}:{tests.lines.get('$.cases', 1)}: There are no cases.")
    names: set[str] = set()
    for number, case in enumerate(tests.file.cases):
        for key, reason, remedy in _faults(case, names, tests.path.parent):
            raise CaseFileError(f"{tests.path}:{tests.line_of(number, key)}: {reason}", remedy=remedy)
        names.add(case.name)


def _faults(case: Case, names: Collection[str], folder: Path) -> Iterator[tuple[str, str, str]]:
    """Yield key, reason and remedy of each mistake in a case. `names` are the names of the cases before it."""
    expect = case.expect
    if (case.task is None) == (case.routing is None):
        yield "", "A case has either a `task` or a `routing`.", ""
    if case.name in names:
        yield "", f"Two cases are called {case.name!r}.", "Give each its own name."
    if case.repeat < 1:
        yield "", "`repeat` must be 1 or more.", ""
    if expect.names == ["judge"]:
        remedy = "Add an assertion about the record, such as `ended` or `files`."
        yield "expect.judge", "`judge` is the only assertion of this case.", remedy
    if case.routing is None and not expect.names:
        yield "", "This case expects nothing, so it could not fail.", "Add `expect:`."
    if expect.schema is not None and not (folder / expect.schema).is_file():
        yield "expect.schema", f"The schema {expect.schema} does not exist.", "Name a JSON file by its path from here."
    if expect.text is not None and expect.text.matches is not None:
        try:
            re.compile(expect.text.matches)
        except re.error as error:
            yield "expect.text.matches", f"`matches` is no regular expression: {error}.", ""


_CHOICES_BY_KEY = {"ended": Ended, "policy": Policy, "permission_mode": PermissionMode}
_WHERE = re.compile(r" - at `([^`]*)`$")
_UNKNOWN = re.compile(r"unknown field `([^`]*)`")
_MISSING = re.compile(r"missing required field `([^`]*)`")


def _explain(path: Path, message: str, lines: dict[str, int]) -> CaseFileError:
    match = _WHERE.search(message)
    where = match[1] if match else "$"
    line = lines.get(where, 1)
    unknown, missing = _UNKNOWN.search(message), _MISSING.search(message)
    if missing is not None:
        return CaseFileError(f"{path}:{line}: The key `{missing[1]}` is missing here.")
    if unknown is not None:
        key = unknown[1]
        meant = nearest(key, _known_keys())
        # A key that is valid elsewhere is not misspelled.
        if meant == key:
            meant = None
        remedy = f"Did you mean `{meant}`?" if meant is not None else "docs/testing-agents.md lists the keys."
        line = lines.get(f"{where}.{key}", line)
        return CaseFileError(f"{path}:{line}: There is no key `{key}` here.", remedy=remedy)
    name = where.rpartition(".")[2]
    reason = _WHERE.sub("", message).replace("Object", "The mapping")
    remedy = "docs/testing-agents.md lists its values."
    if "Invalid enum" in message and name in _CHOICES_BY_KEY:
        remedy = f"One of: {', '.join(get_args(_CHOICES_BY_KEY[name]))}."
    return CaseFileError(f"{path}:{line}: `{name}`: {reason[:1].lower()}{reason[1:]}.", remedy=remedy)


def _known_keys() -> list[str]:
    structs: list[type[_Rules]] = [CaseFile, Case, *_Rules.__subclasses__()]
    return [key for struct in structs for key in struct.__struct_encode_fields__]
