"""A program that uses agents, tested without a model: the script says what the model answers.

pytest examples/test_with_a_script.py
"""

from __future__ import annotations

from dataclasses import dataclass

import retinue
from retinue.testing import Call, Expect, ScriptedModel, Turn


@dataclass
class Verdict:
    good: bool


def is_good(text: str, model: object = None) -> bool:
    """The program under test."""
    outcome = retinue.run("general-purpose", f"Is this good? {text}", model=model, schema=Verdict)
    return outcome.value is not None and outcome.value.good


def test_the_verdict_of_the_model_counts() -> None:
    with ScriptedModel(Turn(Expect("Is this good? cake"), Call("submit_result", {"good": True}))) as model:
        assert is_good("cake", model)


def test_a_run_that_fails_is_no_yes() -> None:
    assert not is_good("cake", ScriptedModel())
