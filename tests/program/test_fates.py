"""Fates are proved: what `agents show` calls honoured or translated does what the key says."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from retinue.agents.dialects.table import FieldRow
from retinue.agents.dialects.tables import DIALECTS
from retinue.core.spec import DialectName
from tests.program import fate_proofs, fate_rights  # noqa: F401 - each adds to PROOFS
from tests.program.conftest import Project
from tests.program.fate_scene import PROOFS, ROWS, Scene
from tests.program.model_server import ModelServer, Reply


@pytest.fixture(scope="module")
def server() -> Iterator[ModelServer]:
    """One for all keys: starting and stopping it takes longer than a run."""
    with ModelServer(lambda request: Reply("done")) as started:
        yield started


def title(value: object) -> str:
    return value.key if isinstance(value, FieldRow) else str(value)


def test_every_field_that_a_key_can_become_has_a_proof() -> None:
    assert {str(row.to) for _, row in ROWS} == set(PROOFS)


@pytest.mark.parametrize(("dialect", "row"), ROWS, ids=title)
async def test_a_key_that_is_called_honoured_does_what_it_says(
    project: Project, server: ModelServer, dialect: DialectName, row: FieldRow
) -> None:
    server.requests.clear()
    server.answer = lambda request: Reply("done")
    project.server = server
    await PROOFS[str(row.to)](Scene(project, server, dialect, row))


@pytest.mark.parametrize(("dialect", "row"), [each for each in ROWS if each[1].also], ids=title)
def test_every_other_spelling_of_a_key_becomes_the_same_field(dialect: DialectName, row: FieldRow) -> None:
    for spelling in row.also:
        match = DIALECTS[dialect].match(spelling)
        assert match is not None and match.field.to is not None, spelling
        assert match.field.to.partition(".")[0] == str(row.to).partition(".")[0], spelling


def test_the_words_a_file_begins_with_reach_the_model_through_the_program(project: Project, serve: Any) -> None:
    folder = project.cwd / ".claude/agents"
    folder.mkdir(parents=True)
    (folder / "x.md").write_text("---\nname: x\ndescription: d\ninitialPrompt: Look around first\n---\nWork.\n")
    server = serve(lambda request: Reply("done"))
    assert project.retinue("run", "x", "Do it").returncode == 0
    assert "Look around first\n\nDo it" in str(server.requests[0].body["messages"][0]).replace("\\n", "\n")


def session_file(project: Project, folder: str) -> str:
    home = project.cwd / ".pi/agents"
    home.mkdir(parents=True, exist_ok=True)
    (home / "keeper.md").write_text(f"---\ndescription: d\nsession_dir: {folder}\n---\nWork.\n")
    done = project.retinue("run", "keeper", "go")
    assert done.returncode == 0, done.stderr
    return done.stderr


def test_a_repository_cannot_have_transcripts_written_outside_of_itself(project: Project, serve: Any) -> None:
    serve(lambda request: Reply("done"))
    said = session_file(project, "~/elsewhere")
    assert "session_dir ~/elsewhere is not in the project" in said
    assert not (project.home / "elsewhere").exists()
    session_file(project, "sessions")
    assert len(list((project.cwd / "sessions").glob("*.jsonl"))) == 1


def test_a_session_that_is_not_to_be_kept_is_not_written_into_the_session_folder(project: Project, serve: Any) -> None:
    serve(lambda request: Reply("done"))
    session_file(project, "out\npersist_session: false")
    assert not (project.cwd / "out").exists()
    assert "'persist_session' is false" in project.retinue("agents", "show", "keeper").stdout
    session_file(project, "out\npersist_session: true")
    assert len(list((project.cwd / "out").glob("*.jsonl"))) == 1


def test_an_agent_cannot_lead_its_transcript_into_another_file_by_a_link(project: Project, serve: Any) -> None:
    private = project.home / "private"
    private.mkdir()
    swap = f"rm -r sessions && ln -s {private} sessions"
    serve(lambda request: Reply("done", calls=[("bash", {"command": swap})] if request.turn == 0 else []))
    said = session_file(project, "sessions")
    assert (project.cwd / "sessions").is_symlink(), said
    assert list(private.iterdir()) == []
