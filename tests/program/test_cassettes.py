"""`retinue runs export --cassette`: a run and its tree as a file without secrets that reads the same everywhere."""

from __future__ import annotations

import json
from pathlib import Path

from retinue.recordings.cassette import read_cassette
from retinue.recordings.portable import MachineFolders, PortableText, localize
from tests.guard.test_redact_formats import TOKENS
from tests.program.conftest import Project
from tests.program.model_server import Reply, Request


def delegate(request: Request) -> Reply:
    """The main agent starts Explore, which reads a file; both answer with what they saw."""
    tools = {tool["name"] for tool in request.body.get("tools", [])}
    if "Agent" not in tools:
        if request.turn == 0:
            return Reply("I look.", [("read", {"path": "secrets.txt"})])
        return Reply(f"Seen: {TOKENS['GitHub']}")
    if request.turn == 0:
        call = {"subagent_type": "Explore", "description": "look", "prompt": "Read it.", "run_in_background": False}
        return Reply("I ask.", [("Agent", call)])
    return Reply("Done.")


def export(project: Project, serve, name: str = "one.jsonl") -> Path:
    lines = [f"{service}: {token}" for service, token in TOKENS.items()]
    (project.cwd / "secrets.txt").write_text("\n".join(lines))
    serve(delegate)
    done = project.retinue("-p", "Look at the file.")
    assert done.returncode == 0, done.stderr
    rows = project.json("runs", "list", "--json")["runs"]
    main = next(row for row in rows if row["parent_id"] is None)
    exported = project.retinue("runs", "export", main["id"], "--cassette", name)
    assert exported.returncode == 0, exported.stderr
    return project.cwd / name


def test_no_secret_of_any_known_shape_is_in_a_cassette(project: Project, serve) -> None:
    text = export(project, serve).read_text()
    assert [service for service, token in TOKENS.items() if token in text] == []
    assert "test-key" not in text


def test_a_cassette_holds_the_whole_tree_without_this_machine(project: Project, serve, tmp_path: Path) -> None:
    path = export(project, serve)
    text = path.read_text()
    assert str(tmp_path) not in text
    cassette = read_cassette(path)
    assert [run.created.agent for run in cassette.runs] == ["main", "Explore"]
    assert [run.parent for run in cassette.runs] == [None, 1]
    marks = [event.mark for run in cassette.runs for event in run.events if event.mark is not None]
    assert len(marks) == 4 and len({mark.messages for mark in marks}) == 4


def test_the_same_run_again_gives_the_same_cassette(project: Project, serve) -> None:
    first = export(project, serve, "one.jsonl").read_text().splitlines()
    second = export(project, serve, "two.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in first] == [json.loads(line) for line in second]


def test_a_run_that_cannot_be_exported_is_said(project: Project) -> None:
    done = project.retinue("runs", "export", "nothing", "--cassette", "x.jsonl")
    assert done.returncode == 2 and "Traceback" not in done.stderr


def test_what_looks_like_a_placeholder_comes_back_as_it_was() -> None:
    here = MachineFolders("/work/app", "/home/u/.retinue/projects/x", "/home/u", "/opt/retinue")
    there = MachineFolders("/srv/other dir", "/state", "/root", "/usr/lib/retinue")
    said = {"text": 'echo $CWD $$CWD $RUN1 "$USER_HOME" /work/app/a.py /work/app2/b.py /home/u/x 12345678-abcd-4ef'}
    text = PortableText(here, ["12345678-abcd-4ef"])
    portable = text(json.dumps(said).encode())
    assert b"/work/app/" not in portable and b"$CWD/a.py" in portable and b"/work/app2/b.py" in portable
    back = localize(json.loads(portable), there, {1: "new-run"}.get)
    expected = 'echo $CWD $$CWD $RUN1 "$USER_HOME" /srv/other dir/a.py /work/app2/b.py /root/x new-run'
    assert back == {"text": expected}
