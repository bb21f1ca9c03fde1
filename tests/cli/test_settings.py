"""`retinue settings`, as a person or a script uses it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from retinue.faces.cli.main import run


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    project = tmp_path / "project"
    project.mkdir()
    monkeypatch.chdir(project)
    monkeypatch.setenv("RETINUE_HOME", str(tmp_path / "home"))
    return project


def document(capsys: pytest.CaptureFixture[str], *argv: str) -> dict:
    assert run(["settings", *argv, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_list_names_every_setting_and_creates_nothing(place: Path, capsys) -> None:
    from retinue.settings.table import fields

    listed = document(capsys, "list")
    assert [entry["name"] for entry in listed["settings"]] == list(fields())
    assert all(entry["origin"]["layer"] == "default" for entry in listed["settings"])
    assert list(place.iterdir()) == []


def test_set_writes_one_file_and_get_explains_every_layer(place: Path, capsys) -> None:
    assert run(["settings", "set", "maxConcurrent", "8"]) == 0
    assert run(["settings", "set", "maxConcurrent", "9", "--local"]) == 0
    assert json.loads((place / ".retinue/settings.json").read_text()) == {"maxConcurrent": 8}
    capsys.readouterr()
    found = document(capsys, "get", "maxConcurrent")
    assert found["value"] == 9
    assert [(layer["layer"], layer["value"]) for layer in found["layers"]] == [("project", 8), ("local", 9)]
    assert run(["settings", "get", "maxConcurrent", "--explain"]) == 0
    text = capsys.readouterr().out
    assert "from      local" in text and "under     project" in text


def test_a_value_that_something_stronger_hides_is_said(place: Path, capsys, monkeypatch) -> None:
    monkeypatch.setenv("RETINUE_MAX_CONCURRENT", "3")
    assert run(["settings", "set", "maxConcurrent", "8"]) == 0
    assert "no effect here: environment: RETINUE_MAX_CONCURRENT" in capsys.readouterr().err


def test_unset_brings_back_what_lies_under_it(place: Path, capsys) -> None:
    run(["settings", "set", "graceTurns", "7", "--user"])
    run(["settings", "set", "graceTurns", "9"])
    run(["settings", "set", "graceTurns", "--unset"])
    capsys.readouterr()
    assert document(capsys, "get", "graceTurns")["value"] == 7


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["set", "maxConcurrent", "0"], "from 1 to 1024"),
        (["set", "maxConcurrent", "many"], "from 1 to 1024"),
        (["set", "maxConcurrent"], "either a value or --unset"),
        (["set", "maxConcurrent", "3", "--unset"], "either a value or --unset"),
        (["get", "maxConcurent"], "Did you mean maxConcurrent?"),
        (["get", "nothing.like.it"], "There is no setting"),
    ],
)
def test_mistakes_change_nothing_and_say_what_to_do(place: Path, capsys, argv: list[str], says: str) -> None:
    assert run(["settings", *argv]) == 2
    assert says in capsys.readouterr().err
    assert list(place.iterdir()) == []


def test_keys_in_a_file_are_never_printed(place: Path, capsys) -> None:
    (place / ".retinue").mkdir()
    provider = {"baseUrl": "http://127.0.0.1:1", "apiKey": "hunter2-hunter2", "headers": {"X-Auth-Token": "t0ps3cret"}}
    (place / ".retinue/settings.json").write_text(json.dumps({"providers": {"mine": provider}}))
    for argv in (["list"], ["list", "--json"], ["get", "providers"], ["get", "providers", "--explain"]):
        assert run(["settings", *argv]) == 0
        printed = capsys.readouterr().out
        assert "hunter2" not in printed and "t0ps3cret" not in printed


def test_an_alias_names_the_same_setting(place: Path, capsys) -> None:
    assert document(capsys, "get", "subagents.maxDepth")["name"] == "maxSubagentDepth"


def test_a_bad_file_is_a_warning_and_the_rest_holds(place: Path, capsys) -> None:
    (place / ".retinue").mkdir()
    (place / ".retinue/settings.json").write_text('{"maxConcurrent": "lots", "graceTurns": 3}')
    assert run(["settings", "get", "graceTurns"]) == 0
    said = capsys.readouterr()
    assert said.out.strip() == "3" and "maxConcurrent is ignored" in said.err
