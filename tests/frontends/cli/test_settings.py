"""`retinue settings`, as a person or a script uses it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from retinue.frontends.cli.main import run


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


def test_a_value_that_would_not_count_in_the_file_is_refused_with_where_it_does(place: Path, capsys) -> None:
    assert run(["settings", "set", "sandbox.network", '["pypi.org"]']) == 2
    said = capsys.readouterr().err
    assert "counts only in your own settings" in said and "--user" in said
    assert list(place.iterdir()) == []
    assert run(["settings", "set", "sandbox.network", '["pypi.org"]', "--user"]) == 0
    capsys.readouterr()
    assert document(capsys, "get", "sandbox.network")["value"] == ["pypi.org"]


def test_unset_removes_a_setting_or_a_name_that_is_none_and_says_when_it_is_not_there(place: Path, capsys) -> None:
    file = place / ".retinue/settings.json"
    file.parent.mkdir()
    file.write_text('{"graceTurns": 7, "permisions": {"deny": ["Bash"]}, "web": {"jina": true, "taint": "ask"}}')
    assert run(["settings", "unset", "graceTurns"]) == 0
    assert run(["settings", "unset", "permisions"]) == 0
    assert run(["settings", "unset", "web.jina"]) == 0
    assert json.loads(file.read_text()) == {"web": {"taint": "ask"}}
    assert run(["settings", "unset", "maxConcurrent"]) == 2
    assert f"maxConcurrent is not set in {file}" in capsys.readouterr().err
    assert run(["settings", "unset", "maxConcurent"]) == 2
    assert "Did you mean maxConcurrent?" in capsys.readouterr().err


@pytest.mark.parametrize("command", [["doctor"], ["run", "Explore", "where is alpha?"]])
def test_rules_for_tools_that_do_not_exist_are_reported_by_the_doctor_and_by_runs(
    place: Path, capsys, command: list[str]
) -> None:
    file = place / ".retinue/settings.json"
    file.parent.mkdir()
    rules = {
        "deny": [
            "Bsh(rm:*)",
            "Bahs(rm:*)",
            "Sendmail(to:*)",
            "mcp__mail__send",
            "ExitPlanMode",
            "WebFetch(domain:x.example)",
        ]
    }
    file.write_text(json.dumps({"permissions": rules, "permisions": {}}))
    run(command)
    printed = capsys.readouterr()
    said = printed.out + printed.err
    assert "permisions is not a setting; did you mean permissions?" in said
    file.write_text(json.dumps({"permissions": rules}))
    run(command)
    printed = capsys.readouterr()
    said = printed.out + printed.err
    assert "Did you mean 'bash'?" in said
