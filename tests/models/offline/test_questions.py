"""The quality gate, on packages that are there anyway. `bench/offline.py` has the full sets."""

from __future__ import annotations

import fnmatch
import importlib.util
import json
from pathlib import Path

import pytest

from tests.models.offline.questioner import ask

QUESTIONS = [json.loads(line) for line in Path(__file__).with_name("questions.jsonl").read_text("utf-8").splitlines()]


@pytest.mark.slow
@pytest.mark.parametrize(("module", "package"), [("aiohttp", "aiohttp"), ("_pytest", "pytest")])
async def test_the_right_file_is_named_first_for_most_questions(module: str, package: str) -> None:
    found = importlib.util.find_spec(module)
    if found is None or found.origin is None:
        pytest.skip(f"{module} is not installed")
    tree = Path(found.origin).parent
    asked = [q for q in QUESTIONS if q.get("sdist", "").startswith(f"{package}==")]
    first = three = 0
    for question in asked:
        named = (await ask(question["question"], tree)).named
        right = [file.partition(f"{module}/")[2] for file in question["right_files"]]
        ranks = [i for i, path in enumerate(named) if any(fnmatch.fnmatch(path, pattern) for pattern in right)]
        first += bool(ranks) and ranks[0] == 0
        three += bool(ranks) and ranks[0] < 3
    assert first >= 0.6 * len(asked)
    assert three >= 0.75 * len(asked)


def test_no_package_of_the_held_out_questions_was_tuned_on() -> None:
    halves: dict[bool, set[str]] = {True: set(), False: set()}
    for question in QUESTIONS:
        package = next(question[kind] for kind in ("sdist", "npm", "debian") if kind in question)
        halves[question["split"] == "dev"].add(package)
    assert halves[True] and halves[False]
    assert not halves[True] & halves[False]
