"""Changing settings files: nothing is lost, nothing is half written."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from settings_home import Home


def save(place: Home, changes: dict[str, Any], target: str = "project", cwd: Path | None = None) -> str:
    """Change settings one by one with `retinue settings set`; None removes one. Return why it could not."""
    complaints = ""
    for name, value in changes.items():
        change = ("unset", name) if value is None else ("set", name, json.dumps(value))
        done = place.retinue("settings", *change, f"--{target}", "--cwd", str(cwd or place.project))
        complaints += done.stderr if done.returncode else ""
    return complaints


def test_saving_writes_only_the_projects_file_and_creates_its_folder(place: Home, tmp_path: Path) -> None:
    assert save(place, {"maxConcurrent": 8}) == ""
    written = {path for path in tmp_path.rglob("*") if path.is_file() and ".git" not in path.parts}
    assert written == {place.project_file}
    assert json.loads(place.project_file.read_text()) == {"maxConcurrent": 8}
    assert place.listed()["maxConcurrent"] == 8


def test_an_impossible_folder_fails_with_a_reason(place: Home) -> None:
    (place.project / ".retinue").write_text("a file in the folder's place")
    assert str(place.project_file) in save(place, {"maxConcurrent": 8})


def test_unknown_fields_survive_in_their_place(place: Home) -> None:
    number = 123456789012345678901234567890
    place.write(place.project_file, {"theme": "dark", "maxConcurrent": 2, "big": number, "odd": {"a": [1, None]}})
    assert save(place, {"maxConcurrent": 8, "graceTurns": 2}) == ""
    data = json.loads(place.project_file.read_text())
    assert list(data) == ["theme", "maxConcurrent", "big", "odd", "graceTurns"]
    assert data["big"] == number
    assert data["odd"] == {"a": [1, None]}


def test_texts_of_every_kind_survive(place: Home) -> None:
    place.write(place.project_file, '{"a": "\\ud800", "b": "é", "c": NaN, "maxConcurrent": 2}')
    assert save(place, {"maxConcurrent": 3}) == ""
    data = json.loads(place.project_file.read_text())
    assert (data["a"], data["b"], data["maxConcurrent"]) == ("\ud800", "é", 3)


def test_groups_open_and_close_and_aliases_give_way(place: Home) -> None:
    place.write(place.project_file, {"subagents": {"timeoutMs": 5_000, "allowWrite": True}, "retry": {"other": 1}})
    save(place, {"timeoutSeconds": 9, "retry.maxAttempts": 3})
    data = json.loads(place.project_file.read_text())
    assert data == {
        "subagents": {"allowWrite": True},
        "retry": {"other": 1, "maxAttempts": 3},
        "timeoutSeconds": 9,
    }
    save(place, {"timeoutSeconds": None, "retry.maxAttempts": None, "allowWrite": None})
    assert json.loads(place.project_file.read_text()) == {"retry": {"other": 1}}
    assert place.listed()["timeoutSeconds"] is None


@pytest.mark.parametrize(("name", "value"), [("maxConcurrent", 0), ("nonsense", 1), ("scopeModels", "true")])
def test_a_bad_name_or_value_is_refused_and_nothing_is_written(place: Home, name: str, value: Any) -> None:
    assert name in save(place, {name: value})
    assert not place.project_file.exists()


def test_a_damaged_file_is_not_overwritten(place: Home) -> None:
    place.write(place.project_file, '{"precious": 1,')
    assert "repair it first" in save(place, {"maxConcurrent": 8})
    assert place.project_file.read_text() == '{"precious": 1,'
    place.write(place.project_file, "")
    assert save(place, {"maxConcurrent": 8}) == ""


def test_a_file_that_says_a_name_twice_is_not_overwritten(place: Home) -> None:
    text = '{"permissions": {"deny": ["Bash"], "deny": []}}'
    place.write(place.project_file, text)
    assert "has twice: deny" in save(place, {"maxConcurrent": 8})
    assert place.project_file.read_text() == text


def test_the_mode_is_kept_and_the_users_file_is_private(place: Home) -> None:
    place.write(place.project_file, {}).chmod(0o640)
    save(place, {"maxConcurrent": 8})
    assert stat.S_IMODE(place.project_file.stat().st_mode) == 0o640
    save(place, {"maxConcurrent": 8}, "user")
    assert stat.S_IMODE(place.user_file.stat().st_mode) == 0o600
    assert stat.S_IMODE(place.user_file.parent.stat().st_mode) == 0o700


def test_a_link_stays_a_link(place: Home, tmp_path: Path) -> None:
    real = place.write(tmp_path / "dotfiles" / "retinue.json", {"theme": "dark"})
    place.user_file.parent.mkdir(parents=True)
    place.user_file.symlink_to(real)
    assert save(place, {"maxConcurrent": 8}, "user") == ""
    assert place.user_file.is_symlink()
    assert json.loads(real.read_text()) == {"theme": "dark", "maxConcurrent": 8}


def test_the_nearest_project_file_is_the_one_that_changes(place: Home) -> None:
    deep = place.project / "a" / "b"
    deep.mkdir(parents=True)
    place.write(place.project_file, {"maxConcurrent": 2})
    save(place, {"maxConcurrent": 3}, cwd=deep)
    assert json.loads(place.project_file.read_text()) == {"maxConcurrent": 3}
    save(place, {"maxConcurrent": 4}, "local", cwd=deep)
    assert json.loads(place.local_file.read_text()) == {"maxConcurrent": 4}


def test_many_writers_at_once_lose_nothing(place: Home) -> None:
    program = (
        "import sys; from retinue.frontends.cli.main import run\n"
        "for value in range(1, 7):\n"
        "    assert run(['settings', 'set', sys.argv[2], str(value), '--cwd', sys.argv[1]]) == 0\n"
    )
    names = ["maxConcurrent", "graceTurns", "defaultMaxTurns", "retry.maxAttempts"]
    environment = {**os.environ, **place.environment}
    writers = [
        subprocess.Popen([sys.executable, "-c", program, str(place.project), name], env=environment) for name in names
    ]
    assert [writer.wait(60) for writer in writers] == [0, 0, 0, 0]
    assert json.loads(place.project_file.read_text()) == {
        "maxConcurrent": 6,
        "graceTurns": 6,
        "defaultMaxTurns": 6,
        "retry": {"maxAttempts": 6},
    }
    assert [path.name for path in place.project_file.parent.iterdir()] == ["settings.json"]


def test_a_reader_never_sees_a_half_written_file(place: Home) -> None:
    place.write(place.project_file, {"filler": "x" * 200_000, "maxConcurrent": 1})
    program = (
        "import sys; from retinue.frontends.cli.main import run\n"
        "for value in range(15):\n"
        "    assert run(['settings', 'set', 'maxConcurrent', str(value % 9 + 1), '--cwd', sys.argv[1]]) == 0\n"
    )
    environment = {**os.environ, **place.environment}
    writer = subprocess.Popen([sys.executable, "-c", program, str(place.project)], env=environment)
    while writer.poll() is None:
        assert [problem.field for problem in place.listed().problems] == ["filler"]
    assert writer.returncode == 0


def test_a_setting_that_shares_its_name_with_a_group_leaves_the_group_alone(place: Home) -> None:
    def now() -> tuple[bool, dict[str, Any]]:
        settings = place.listed()
        return settings["hooks.failOpen"], settings["hooks"]

    handlers = {"Stop": [{"command": "true"}]}
    save(place, {"hooks.failOpen": True}, "user")
    save(place, {"hooks": handlers}, "user")
    assert now() == (True, handlers)
    save(place, {"hooks": None}, "user")
    assert now() == (True, {})
    save(place, {"hooks": handlers, "hooks.failOpen": None}, "user")
    assert now() == (False, handlers)
