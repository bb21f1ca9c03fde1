"""Test files, the choice of cases, and when a verdict is certain."""

from __future__ import annotations

from pathlib import Path

import pytest

from retinue.recordings.case_file import CaseFileError, find_test_files, read_test_file
from retinue.recordings.case_run import Trial
from retinue.recordings.record import match_path, match_text
from retinue.recordings.suite import choose_cases, decided, verdict_of

WHOLE = """
agent: reviewer
fixture: {repo: ., ref: abc123}
answers: {approval: deny}
limits: {usd: 0.05, turns: 8, seconds: 60}
cases:
  - name: finds the unchecked error
    task: Review src/io.py
    model: {scenario: one.cassette.jsonl}
    repeat: 5
    policy: usually
    expect:
      ended: [completed, steered]
      text: {contains: [error], matches: "line \\\\d+", not_contains: [LGTM]}
      schema: review.schema.json
      files: {written: [], read: [src/io.py], unchanged: ["**"]}
      commands: {allow: ["git diff*"], none_of: ["rm *"], count: {max: 5}}
      tools: {called: [read], never: [write], order: [grep, read]}
      hosts: []
      children: {max: 0}
      denials: []
      cost: {usd: {max: 0.05}}
      turns: {max: 8}
      diff: golden/one.patch
      check: pytest -q
      judge: {rubric: names the cause, pass: 0.7}
  - name: is chosen for reviews
    routing: Please review my change
"""


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "reviewer.test.yaml"
    path.write_text(text)
    (tmp_path / "review.schema.json").write_text("{}")
    return path


def test_every_key_of_a_test_file_is_read(tmp_path: Path) -> None:
    tests = read_test_file(write(tmp_path, WHOLE))
    first, second = tests.file.cases
    assert tests.agent == "reviewer" and first.policy == "usually" and first.repeat == 5
    assert first.expect.judge is not None and first.expect.judge.at_least == 0.7
    assert first.expect.cost is not None and first.expect.cost.usd.max == 0.05
    assert second.routing == "Please review my change"
    assert tests.line_of(0) == 7 and tests.line_of(0, "expect.files.written") == 16


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", ":1: The key `cases` is missing here."),
        ("- a\n", ":1: The top level is not a mapping of keys to values."),
        ("agent: x\n", ":1: The key `cases` is missing here."),
        ("cases: []\n", ":1: There are no cases."),
        ("cases:\n- name: a\n  task: b\n  task: c\n", ":4: The key `task` stands here twice."),
        ("cases:\n- name: a\n  task: b\n", ":2: This case expects nothing"),
        ("cases:\n- name: a\n  task: b\n  expect: {judge: {rubric: good}}\n", ":4: `judge` is the only assertion"),
        ("cases:\n- name: a\n  task: b\n  expect: {text: {matches: '('}}\n", ":4: `matches` is no regular expression"),
        ("cases:\n- name: 3\n  task: b\n  expect: {ended: error}\n", ":2: `name`: expected `str`, got `int`."),
        ("cases:\n- name: a\n  task: b\n  expect:\n    tool: {}\n", ":5: There is no key `tool` here."),
        (
            "cases:\n- name: a\n  task: b\n  model: {answers: [c]}\n",
            "`answers` here. docs/testing-agents.md lists",
        ),
        ("cases:\n- name: a\n  routing: b\n- name: a\n  routing: c\n", ":4: Two cases are called 'a'."),
        ("cases:\n- name: a\n  routing: b\n  repeat: 0\n", ":2: `repeat` must be 1 or more."),
        ("cases: &a\n- *a\n", ":2: `cases[0]`: expected `object`, got `array`."),
        ("a: \t{", "Correct the YAML."),
        ("cases: " + "[" * 30_000 + "]" * 30_000, "Nested deeper than"),
        ("a: &a [" + "x, " * 150 + "x]\nb: [" + "*a, " * 150 + "*a]\n", "aliases may expand too far"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(CaseFileError) as caught:
        read_test_file(write(tmp_path, text))
    assert str(caught.value).startswith(str(tmp_path / "reviewer.test.yaml")) and said in str(caught.value)


def test_files_are_found_below_folders_and_others_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path, WHOLE)
    (tmp_path / "node_modules").mkdir()
    (tmp_path / "node_modules" / "x.test.yaml").write_text(WHOLE)
    assert find_test_files([tmp_path]) == [path]
    with pytest.raises(CaseFileError, match="does not exist"):
        find_test_files([tmp_path / "gone"])


@pytest.mark.parametrize(
    ("expression", "found"),
    [("", 2), ("unchecked", 1), ("reviewer and not unchecked", 1), ("unchecked or chosen", 2), ("Nothing", 0)],
)
def test_cases_are_chosen_by_words(tmp_path: Path, expression: str, found: int) -> None:
    tests = read_test_file(write(tmp_path, WHOLE))
    assert len(choose_cases([tests], expression)) == found


def trials(text: str) -> list[Trial]:
    words = {"p": "passed", "f": "failed", "s": "skipped"}
    return [Trial(case="x", status=words[letter]) for letter in text]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("policy", "seen", "over", "verdict"),
    [
        ("always", "pp", False, None),
        ("always", "f", True, "failed"),
        ("always", "ppppp", True, "passed"),
        ("usually", "pfp", False, None),
        ("usually", "ff", True, "failed"),
        ("usually", "pppp", True, "passed"),
        ("usually", "fpppp", True, "passed"),
        ("tracked", "ffff", False, None),
        ("tracked", "fffff", True, "tracked"),
        ("always", "ps", True, "skipped"),
        ("always", "s", True, "skipped"),
    ],
)
def test_repetitions_end_when_the_verdict_is_certain(policy, seen: str, over: bool, verdict: str | None) -> None:
    assert decided(policy, trials(seen), 5) is over
    if verdict is not None:
        assert verdict_of(policy, trials(seen), 5) == verdict


@pytest.mark.parametrize(
    ("path", "pattern", "meant"),
    [
        ("src/io.py", "src/*.py", True),
        ("src/deep/io.py", "src/*.py", False),
        ("src/deep/io.py", "src/**/*.py", True),
        ("src/io.py", "src/**/*.py", True),
        ("io.py", "**", True),
        ("a+b.txt", "a+b.txt", True),
        ("ioxpy", "io.py", False),
    ],
)
def test_patterns_of_paths(path: str, pattern: str, meant: bool) -> None:
    assert match_path(path, pattern) is meant


def test_patterns_of_commands_take_brackets_as_they_are() -> None:
    assert match_text("git diff --stat", "git diff*") and not match_text("git push", "git diff*")
    assert match_text("[ -f a ]", "[ -f * ]")
