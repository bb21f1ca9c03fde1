"""A schema is filled where a search can do it honestly, and otherwise not at all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.models.offline.questioner import ask, plant

TREE = {"src/limiter.py": "x = 1\n\n\nclass RateLimiter:\n    pass\n", "src/other.py": "y = 2\n"}


def schema(required: list[str] | None = None, **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": required or list(properties)}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return plant(tmp_path / "tree", TREE)


async def test_file_and_line_are_filled(tree: Path) -> None:
    wanted = schema(file={"type": "string"}, line={"type": "integer"}, found={"type": "boolean"})
    asked = await ask("where is the rate limiter?", tree, schema=wanted)
    assert asked.outcome.value == {"file": "src/limiter.py", "line": 4, "found": True}


async def test_an_answer_is_the_report(tree: Path) -> None:
    asked = await ask("where is the rate limiter?", tree, schema=schema(answer={"type": "string"}))
    assert asked.outcome.value["answer"].startswith("Most likely: `src/limiter.py`")


async def test_lists_of_places_are_filled(tree: Path) -> None:
    place = schema(path={"type": "string"}, line_number={"type": "integer"}, snippet={"type": "string"})
    wanted = schema(matches={"type": "array", "items": place}, files={"type": "array", "items": {"type": "string"}})
    value = (await ask("where is the rate limiter?", tree, schema=wanted)).outcome.value
    assert value["matches"][0] == {"path": "src/limiter.py", "line_number": 4, "snippet": "class RateLimiter:"}
    assert value["files"][0] == "src/limiter.py"


@pytest.mark.parametrize(
    "properties",
    [
        {"severity": {"type": "string", "enum": ["low", "high"]}},
        {"file": {"type": "string"}, "confidence": {"type": "number"}},
        {"verdict": {"type": "string"}},
        {"file": {"type": "string", "pattern": "^/"}},
    ],
)
async def test_what_a_search_does_not_know_is_not_made_up(properties: dict[str, Any], tree: Path) -> None:
    asked = await ask("where is the rate limiter?", tree, schema=schema(**properties))
    assert (asked.outcome.ended, asked.outcome.ok) == ("refused", False)
    assert asked.outcome.value is None
    assert not any(call.name == "submit_result" for call in asked.calls)
    assert "cannot fill honestly" in asked.answers[-1].text


async def test_optional_parts_it_does_not_know_are_left_out(tree: Path) -> None:
    wanted = schema(["file"], file={"type": "string"}, severity={"type": "string"})
    assert (await ask("where is the rate limiter?", tree, schema=wanted)).outcome.value == {"file": "src/limiter.py"}


async def test_nothing_found_submits_nothing(tree: Path) -> None:
    asked = await ask("where is the zeppelin moored?", tree, schema=schema(file={"type": "string"}))
    assert asked.outcome.value is None


async def test_work_it_cannot_do_is_not_submitted(tree: Path) -> None:
    asked = await ask("rewrite the rate limiter", tree, schema=schema(file={"type": "string"}))
    assert asked.outcome.value is None
