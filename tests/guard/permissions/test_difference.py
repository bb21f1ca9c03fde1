"""Whatever bash starts, the judge has seen, or it has said that it cannot judge the text.

RETINUE_TEXTS=50000 tries more random texts.
"""

from __future__ import annotations

import os
import random

import pytest
from tests.guard.permissions.difference import holes, suite_texts, texts

from retinue.guard.permissions.shell_grammar import analyse
from retinue.guard.sandbox.kernel import can_confine

TEXTS = int(os.environ.get("RETINUE_TEXTS", "2500"))

pytestmark = pytest.mark.skipif(not can_confine(), reason="random shell texts only run inside the walls")


def test_bash_starts_nothing_that_the_judge_did_not_see_in_a_random_text() -> None:
    found, readable, calls = holes(texts(TEXTS, random.Random(14)))
    assert found == []
    assert readable > TEXTS / 10, "the generator must make texts that can be read"
    assert calls > TEXTS / 5, "and bash must have started something"


def test_bash_starts_nothing_unseen_in_the_texts_of_the_suite() -> None:
    found, readable, _ = holes(suite_texts())
    assert found == []
    assert readable > 100


S1 = [
    "echo $'\\\\' ; rm X #'",
    "echo =~ \nrm X",
    "echo == \nrm X",
    "ls\n\\\nrm X",
    "echo $\\\n\nrm X",
    "ls\na=$\nrm X",
]


@pytest.mark.parametrize("text", S1)
def test_what_parsers_and_bash_read_differently_is_seen_or_not_judged(text: str) -> None:
    script = analyse(text)
    assert script.doubts or any(step.words == ("rm", "X") for step in script.steps)
