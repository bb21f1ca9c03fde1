"""Which database holds the log, and under which name a project stands in it."""

import json
import subprocess

import pytest

from retinue.core.foreign import ProjectName, is_valid
from retinue.errors import StateError, UsageError
from retinue.guard.redact import secret_values
from retinue.settings.places import database_of, project_name, state_folder

URL = "postgresql://ada:lovelace-1815@db.example/retinue"


def test_the_folder_of_a_project_names_its_database_and_holds_no_password(tmp_path):
    folder = state_folder(tmp_path / "shop", {"RETINUE_HOME": str(tmp_path), "RETINUE_DATABASE": URL})
    assert folder.parent == tmp_path / "projects"
    assert folder.name.startswith("shop@")
    assert "lovelace" not in str(folder)
    assert database_of(folder) == (URL, "shop")
    other = URL.replace("lovelace-1815", "another-word-1")
    assert state_folder(tmp_path / "shop", {"RETINUE_HOME": str(tmp_path), "RETINUE_DATABASE": other}) == folder


def test_the_users_own_file_names_a_database_and_a_projects_file_does_not(tmp_path):
    project = tmp_path / "shop"
    (project / ".retinue").mkdir(parents=True)
    (project / ".retinue" / "settings.json").write_text(json.dumps({"database": URL}))
    environment = {"RETINUE_HOME": str(tmp_path / "home"), "HOME": str(tmp_path)}
    assert database_of(state_folder(project, environment)) is None
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "settings.json").write_text(json.dumps({"database": URL}))
    assert database_of(state_folder(project, environment)) == (URL, "shop")
    assert database_of(state_folder(project, {**environment, "RETINUE_DATABASE": ""})) is None


def name_of(folder, origin):
    folder.mkdir()
    subprocess.run(["git", "init", "-q", folder], check=True)
    subprocess.run(["git", "-C", folder, "remote", "add", "origin", origin], check=True)
    return project_name(folder, {})


SAME = [
    "git@host.example:team/Shop.git",
    "https://host.example/team/Shop",
    "https://me:secret@HOST.example:443/team/Shop.git/",
    "ssh://git@host.example:22/team/Shop.git",
    "host.example:team/Shop",
]
OTHERS = [
    "https://evil.example/team/Shop",
    "https://evil.example/host.example/team/Shop",
    "https://host.example:8443/team/Shop",
    "https://host.example.team/Shop",
    "https://host-example/team/Shop",
    "git@host.example:team-shop.git",
    "https://host.example/x/team/Shop",
    "https://host.example@bad.example/team/Shop",
    "/srv/host.example/team/Shop",
]


def test_clones_of_one_repository_are_one_project(tmp_path):
    (name,) = {name_of(tmp_path / f"clone{number}", origin) for number, origin in enumerate(SAME)}
    assert name.startswith("host-example-team-shop-") and is_valid(name, ProjectName)
    assert project_name(tmp_path / "clone0", {"RETINUE_DATABASE_PROJECT": "Other thing"}) == "other-thing"
    assert len(project_name(tmp_path, {"RETINUE_DATABASE_PROJECT": "x" * 200})) <= 48


def test_a_repository_of_the_same_name_elsewhere_is_another_project(tmp_path):
    names = [name_of(tmp_path / f"other{number}", origin) for number, origin in enumerate((SAME[0], *OTHERS))]
    assert len(set(names)) == len(names)
    assert all(is_valid(name, ProjectName) for name in names)
    # An archive can have a folder of any name.
    assert project_name(tmp_path / names[0], {}) != names[0]
    assert project_name(tmp_path / "shop", {}) == "shop"


def test_a_database_that_is_not_named_here_and_one_that_is_none(tmp_path, monkeypatch):
    monkeypatch.delenv("RETINUE_DATABASE", raising=False)
    with pytest.raises(StateError, match="Set RETINUE_DATABASE"):
        database_of(tmp_path / "shop@00000000")
    with pytest.raises(UsageError, match="RETINUE_DATABASE is not the URL"):
        state_folder(tmp_path, {"RETINUE_DATABASE": "mysql://host/x"})


def test_the_url_and_its_password_are_secrets():
    assert set(secret_values({"RETINUE_DATABASE": URL})) == {URL, "lovelace-1815"}
