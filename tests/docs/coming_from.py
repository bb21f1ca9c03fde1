"""The tables of the pages for people who come from elsewhere: each row has a test that shows what it says."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest
from tests.docs.pages import tables
from tests.program.compatibility_scene import write
from tests.program.conftest import Project
from tests.program.model_server import Reply, Request

CORPUS = Path(__file__).parents[3] / "shared" / "corpus"
needs_corpus = pytest.mark.skipif(not CORPUS.exists(), reason="the corpus is not part of the repository")
Test = TypeVar("Test", bound=Callable[..., Any])
SHOWN: dict[str, set[str]] = {}
"""Of each page the rows that a test shows, by their first cell."""


def shows(page: str, *rows: str) -> Callable[[Test], Test]:
    """Mark a test as the one that shows these rows of a page."""

    def mark(test: Test) -> Test:
        SHOWN.setdefault(page, set()).update(rows)
        return test

    return mark


def rows(page: str) -> list[str]:
    """Return the first cell of every row of every table of a page."""
    return [row[0] for table in tables(page) for row in table.rows]


def real_files(dialect: str, count: int = 10) -> list[tuple[Path, str]]:
    """Return real agent files of a dialect, as they were found, with the names that the survey of them says."""
    found: dict[str, Path] = {}
    for line in (CORPUS / "expected.jsonl").read_text("utf-8").splitlines():
        entry = json.loads(line)
        usable = entry["dialect"] == dialect and entry["kind"] == "agent" and entry["has_frontmatter"]
        if usable and entry["name"] and entry["yaml_valid"]:
            found.setdefault(entry["name"], CORPUS / entry["file"])
    return [(path, name) for name, path in found.items()][:count]


def install(project: Project, folder: str, files: list[tuple[Path, str]], *, home: bool = False) -> dict[str, Path]:
    """Put real files into a folder of the project or of the user, and return them by their names."""
    placed = {}
    for number, (source, name) in enumerate(files):
        place = write(project, f"{folder}/{number}-{source.name}", "", home=home)
        place.write_bytes(source.read_bytes())
        placed[name] = place
    return placed


def listed(project: Project) -> dict[str, dict[str, Any]]:
    """Return the agents that the program lists, by name."""
    found = project.json("agents", "list", "--json")["agents"]
    return {agent["name"]: agent for agent in found if agent["shadowed_by"] is None}


def assert_read(project: Project, placed: dict[str, Path], *dialects: str) -> None:
    """Each file is an agent of one of these dialects, can be shown, and was not touched."""
    before = {path: path.read_bytes() for path in placed.values()}
    found = listed(project)
    for name, path in placed.items():
        assert Path(found[name]["path"]) == path, name
        assert found[name]["dialect"] in dialects, name
        shown = project.json("agents", "show", name, "--json")
        assert shown["fates"], name
    assert {path: path.read_bytes() for path in placed.values()} == before


def playing(*calls: tuple[str, dict[str, Any]]) -> Callable[[Request], Reply]:
    """Return a model that makes these calls, one a turn, and says `done`."""

    def answer(request: Request) -> Reply:
        return Reply(calls=[calls[request.turn]]) if request.turn < len(calls) else Reply("done")

    return answer


def said(request: Request) -> str:
    """Return everything that a request tells the model."""
    return json.dumps(request.body, ensure_ascii=False)


def ran(project: Project, *words: str, **options: Any) -> subprocess.CompletedProcess[str]:
    done = project.retinue(*words, **options)
    assert done.returncode == 0, (words, done.stdout, done.stderr)
    return done


def shown_by(*tests: str) -> None:
    """Fail unless these tests exist. They show a row that needs more than the test of this page."""
    from tests.docs.test_compatibility import faults

    assert faults([["row", "as written", *tests]]) == []
