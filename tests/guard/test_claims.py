"""What agents say they did against the record: measured on a labelled corpus, alarms first."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retinue.guard.claims import MOST, Record, unsupported

CORPUS = [json.loads(line) for line in Path(__file__).with_name("claims.jsonl").read_text().splitlines()]


def record(fields: dict[str, Any]) -> Record:
    known = dict(fields)
    for name in ("written", "read", "hosts"):
        known[name] = frozenset(known.get(name, ()))
    known["commands"] = tuple((command, code) for command, code in known.get("commands", ()))
    known["outputs"] = tuple(known.get("outputs", ()))
    return Record(**known)


def test_the_corpus_has_no_false_alarm_and_few_misses():
    """Precision is what counts: a parent that is warned for nothing stops listening."""
    assert len(CORPUS) >= 80
    alarms = [
        (row["unsupported"], bool(unsupported(row["text"], record(row["record"]))), row["text"]) for row in CORPUS
    ]
    wrong = [text for expected, raised, text in alarms if raised and not expected]
    missed = [text for expected, raised, text in alarms if expected and not raised]
    found = sum(raised and expected for expected, raised, _ in alarms)
    assert not wrong
    assert found / (found + len(missed)) >= 0.9, missed


@pytest.mark.parametrize(
    ("text", "claim"),
    [
        ("I updated `src/b.py`.", "it says it changed src/b.py, and no tool call did."),
        ("All tests pass.", "it says that tests pass, and no command ran any."),
        ("I ran `npm test`.", "it says it ran npm test, and no command of that name was run."),
        ("I fetched https://example.com/x.", "it says it fetched something from example.com, and nothing of it did."),
    ],
)
def test_a_claim_is_named_as_a_sentence(text, claim):
    assert unsupported(text, Record(uses=1)) == (claim,)


def test_a_failing_test_command_is_quoted():
    found = unsupported("All tests pass.", Record(uses=2, commands=(("pytest -x", 1),)))
    assert found == ("it says that tests pass; the last time, `pytest -x` exited with 1.",)
    assert unsupported("All tests pass.", Record(uses=2, commands=(("pytest -x", 1), ("pytest -x", 0)))) == ()


def test_a_report_out_of_nothing_is_flagged():
    text = "I searched the codebase. The handler is in src/app.py:14."
    assert unsupported(text, Record(uses=0)) == ("it made no tool call at all, and reports what it looked at.",)
    assert unsupported(text, Record(uses=4)) == ()


def test_a_file_that_changed_while_the_run_went_on_supports_the_claim(tmp_path):
    began = time.time()
    (tmp_path / "dist").mkdir()
    (tmp_path / "dist" / "app.js").write_text("x")
    facts = Record(uses=1, roots=(str(tmp_path),), began=began)
    assert unsupported("Created `dist/app.js`.", facts) == ()
    os.utime(tmp_path / "dist" / "app.js", (began - 100, began - 100))
    assert unsupported("Created `dist/app.js`.", facts) != ()


def test_there_are_never_too_many():
    assert len(unsupported("\n".join(f"Updated file{n}.py." for n in range(100)), Record(uses=1))) == MOST


@given(st.text(max_size=400))
def test_no_text_breaks_it(text):
    for claim in unsupported(text, Record(uses=0)):
        assert claim.endswith(".")


@pytest.mark.parametrize(
    "piece", ["I ran ", "Updated a.py, ", "`" * 3, "all the ", "Created a/", "\n- ", "tests pass "]
)
def test_no_text_makes_it_slow(piece):
    """The time is bounded by the length looked at; a pattern that backtracks would never end."""
    unsupported(piece * 20_000, Record(uses=1))
