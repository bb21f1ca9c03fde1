"""Every file of the corpus of real agents and skills is understood as its survey says.

The corpus is not part of the repository; without it the hand-written fixtures of the other
files here have to do.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from retinue.agents.catalog import Catalog, FileCache
from retinue.agents.frontmatter import Parsed
from retinue.agents.parse import parse, parse_skill

CORPUS = Path(__file__).parents[3] / "shared" / "corpus"

pytestmark = pytest.mark.skipif(not (CORPUS / "expected.jsonl").exists(), reason="the corpus is not here")


def rows() -> list[dict[str, Any]]:
    with (CORPUS / "expected.jsonl").open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def read(row: dict[str, Any], *, guess: bool) -> Parsed:
    data = (CORPUS / row["file"]).read_bytes()
    if row["kind"] == "skill":
        return parse_skill(data, path=row["file"])
    return parse(data, path=row["file"], dialect=None if guess else row["dialect"])


def sha256(text: str | None) -> str | None:
    return None if text is None else hashlib.sha256(text.encode()).hexdigest()


def differences(row: dict[str, Any], parsed: Parsed) -> list[str]:
    found: dict[str, Any] = {
        "name": parsed.name,
        "tools": None if parsed.tools is None else list(parsed.tools),
        "disallowed_tools": None if parsed.disallowed_tools is None else list(parsed.disallowed_tools),
        "model": list(parsed.model) if isinstance(parsed.model, tuple) else parsed.model,
    }
    if "body_sha256" in row:
        found["body_sha256"] = sha256(parsed.prompt)
    if "description_sha256" in row and not row["ambiguous"]:
        found["description_sha256"] = sha256(parsed.description)
    return [
        f"{row['file']}: {key} is {value!r}, expected {row[key]!r}" for key, value in found.items() if value != row[key]
    ]


@pytest.mark.parametrize("guess", [False, True], ids=["dialect given", "dialect guessed"])
def test_name_description_tools_model_and_body_are_as_surveyed(guess: bool) -> None:
    wrong = [line for row in rows() for line in differences(row, read(row, guess=guess))]
    assert wrong == []


def test_every_key_of_every_file_has_a_fate() -> None:
    for row in rows():
        parsed = read(row, guess=False)
        if row["kind"] == "yaml" or row["ambiguous"] or parsed.reading == "none":
            continue
        assert set(row["keys_in_order"]) == set(parsed.fates), row["file"]
        assert set(parsed.places) == set(parsed.fates), row["file"]


def test_a_file_either_has_a_spec_or_says_why_not() -> None:
    for row in rows():
        parsed = read(row, guess=False)
        assert (parsed.spec is None) == (parsed.error is not None), row["file"]
        assert row["value_source"] != "yaml-after-quoting" or parsed.reading == "quoted", row["file"]
        if parsed.reading in ("quoted", "lines"):
            assert "frontmatter-recovered" in {problem.code for problem in parsed.problems}, row["file"]


def test_claude_code_files_load_where_claude_code_loads_them() -> None:
    """Those it cannot read at all are read line by line here, with a warning."""
    for row in rows():
        if row["dialect"] != "claude":
            continue
        parsed = read(row, guess=False)
        outcome = row["claude_code_outcome_predicted"]
        if outcome.startswith("loads"):
            assert parsed.error is None, (row["file"], parsed.error)
        elif not outcome.startswith("skipped: YAML unreadable"):
            assert parsed.error is not None, row["file"]


def test_no_file_hides_another(tmp_path: Path) -> None:
    folder = tmp_path / ".claude" / "agents"
    folder.mkdir(parents=True)
    expected = [row for row in rows() if row["dialect"] == "claude"]
    for number, row in enumerate(expected):
        (folder / f"{number:04}.md").write_bytes((CORPUS / row["file"]).read_bytes())
    catalog = Catalog.load(tmp_path, environment={"HOME": str(tmp_path)}, builtins=False, cache=FileCache())
    assert len(catalog.entries) + len(catalog.failed) == len(expected)
    assert {entry.name for entry in catalog.winners} == {entry.name for entry in catalog.entries}
