"""tests/compatibility.toml: each promise has a verdict and a test that exists."""

from __future__ import annotations

import ast
import tomllib
from collections import Counter
from functools import cache
from pathlib import Path

from retinue.agents.catalog import Catalog

TESTS = Path(__file__).parent.parent
PROMISES = TESTS / "compatibility.toml"
WORDS = ("as written", "beyond", "differs")


def documents() -> list[dict]:
    return tomllib.loads(PROMISES.read_text("utf-8"))["document"]


@cache
def functions(path: Path) -> frozenset[str]:
    if not path.is_file():
        return frozenset()
    nodes = ast.parse(path.read_text("utf-8")).body
    return frozenset(node.name for node in nodes if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)))


def elsewhere(name: str) -> str:
    """Where a test of that name is, for rows whose test was moved."""
    found = [path.relative_to(TESTS) for path in TESTS.rglob("test_*.py") if name and name in functions(path)]
    return f"; it is in {', '.join(map(str, found))}" if found else ""


def faults(rows: list[list[str]]) -> list[str]:
    """What is wrong with rows: no test, one that is not there or named twice, a verdict without a reason."""
    found = []
    for promise, verdict, *tests in rows:
        word, _, why = verdict.partition(": ")
        if word not in WORDS or (word != "as written" and not why.strip()):
            found.append(f"{promise}: the verdict says too little: {verdict!r}")
        if not tests or len(set(tests)) < len(tests):
            found.append(f"{promise}: it names no test, or one twice")
        for test in tests:
            file, _, name = test.partition("::")
            if not name.startswith("test_") or name not in functions(TESTS / file):
                found.append(f"{promise}: there is no test {test!r}{elsewhere(name)}")
    return found


def test_every_compatibility_promise_has_a_verdict_and_a_test_that_exists() -> None:
    assert [fault for document in documents() for fault in faults(document["rows"])] == []


def test_a_row_without_a_test_or_with_one_that_does_not_exist_would_be_noticed() -> None:
    here = f"docs/{Path(__file__).name}::test_a_row_without_a_test_or_with_one_that_does_not_exist_would_be_noticed"
    assert faults([["p", "as written", here]]) == []
    assert len(faults([["p", "as written"], ["p", "as written", here, "docs/test_compatibility.py::test_none"]])) == 2
    assert (
        len(faults([["p", "as written", here, here], ["p", "as written", "docs/test_compatibility.py::faults"]])) == 2
    )
    (moved,) = faults([["p", "as written", here.replace("docs/", "cli/")]])
    assert moved.endswith("it is in docs/test_compatibility.py")
    assert len(faults([["p", "differs", here], ["p", "somehow", here]])) == 2


def test_no_promise_stands_twice_and_the_five_documents_are_there() -> None:
    assert len(documents()) == 5
    for document in documents():
        twice = [promise for promise, count in Counter(row[0] for row in document["rows"]).items() if count > 1]
        assert twice == []


def test_the_built_in_agents_of_claude_code_are_there(tmp_path: Path) -> None:
    catalog = Catalog.load(tmp_path, environment={"HOME": str(tmp_path)})
    wanted = {"general-purpose", "Explore", "Plan", "verification", "retinue-guide", "statusline-setup"}
    assert wanted <= set(catalog.names)
    assert catalog.find("general-purpose").spec.tools.allow is None
    assert catalog.find("Plan").spec.readonly
    assert catalog.find("retinue-guide").spec.readonly
    assert catalog.find("statusline-setup").spec.tools.allow == ("read", "bash")
