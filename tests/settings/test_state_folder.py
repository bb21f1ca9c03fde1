"""Each project has a state folder of its own, and keeps the one that an earlier version made."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.fork_server import run_program
from tests.git_folder import make_git_folder

from retinue.settings.places import encode_folder, state_folder


class Place:
    """A home and two projects whose paths are the same word when `/` becomes `-`."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "home"
        self.one, self.two = folder / "x-y", folder / "x" / "y"
        for project in (self.one, self.two):
            project.mkdir(parents=True)
        self.environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "RETINUE_HOME": str(self.home),
        }

    def retinue(self, project: Path, *arguments: str) -> str:
        done = run_program(arguments, project, self.environment)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def runs(self, project: Path) -> list[str]:
        return [run["task"] for run in json.loads(self.retinue(project, "runs", "list", "--json"))["runs"]]

    def state(self, project: Path) -> Path:
        return state_folder(project, self.environment)

    def as_before(self, project: Path) -> Path:
        """The project's state folder under the name that earlier versions gave it."""
        earlier = self.home / "projects" / encode_folder(str(project))
        self.state(project).rename(earlier)
        return earlier


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_projects_whose_paths_differ_by_a_dash_see_nothing_of_each_other(place: Place) -> None:
    place.retinue(place.one, "run", "Explore", "of one")
    place.retinue(place.two, "run", "Explore", "of two")
    assert place.state(place.one) != place.state(place.two)
    assert place.runs(place.one) == ["of one"]
    assert place.runs(place.two) == ["of two"]


@pytest.mark.parametrize("first", ["one", "two"])
def test_a_folder_of_before_is_kept_by_the_project_whose_runs_are_in_it(place: Place, first: str) -> None:
    mine, other = (place.one, place.two) if first == "one" else (place.two, place.one)
    place.retinue(mine, "run", "Explore", "Where is alpha defined?")
    earlier = place.as_before(mine)
    assert place.state(mine) == earlier
    assert place.state(other) != earlier
    place.retinue(mine, "run", "Explore", "Where is beta defined?")
    place.retinue(other, "run", "Explore", "Where is gamma defined?")
    assert place.runs(mine) == ["Where is beta defined?", "Where is alpha defined?"]
    assert place.runs(other) == ["Where is gamma defined?"]
    assert place.state(mine) == earlier


def test_a_folder_that_both_have_used_stays_with_the_first(place: Place) -> None:
    place.retinue(place.one, "run", "Explore", "first")
    earlier = place.as_before(place.one)
    later = earlier.with_name("later")
    place.retinue(place.two, "run", "Explore", "second")
    place.state(place.two).rename(later)
    subprocess.run(
        [
            sys.executable,
            "-c",
            "import sqlite3, sys\n"
            "log = sqlite3.connect(sys.argv[1]); log.execute('ATTACH ? AS other', (sys.argv[2],))\n"
            "log.execute('INSERT INTO owners SELECT * FROM other.owners')\n"
            "log.execute('INSERT INTO runs SELECT * FROM other.runs'); log.commit()",
            str(earlier / "log.db"),
            str(later / "log.db"),
        ],
        check=True,
    )
    assert (place.state(place.one), place.state(place.two) == earlier) == (earlier, False)


def test_a_path_too_long_for_a_file_name_has_a_state_folder_all_the_same(place: Place) -> None:
    deep = place.one.joinpath(*["ä" * 60] * 8)
    deep.mkdir(parents=True)
    place.retinue(deep, "run", "Explore", "deep")
    assert place.runs(deep) == ["deep"]
    assert len(os.fsencode(place.state(deep).name)) <= 255


def test_an_empty_folder_called_git_makes_no_project(place: Place) -> None:
    """Another program had left `.git` in the temporary folder, and everything below became one project."""
    (place.one.parent / ".git").mkdir()
    place.retinue(place.one, "settings", "set", "maxConcurrent", "3", "--local")
    assert (place.one / ".retinue" / "settings.local.json").is_file()
    assert not (place.one.parent / ".retinue").exists()
    assert place.state(place.one) != place.state(place.two)


@pytest.mark.parametrize("left", ["no-head", "no-objects", "bad-head", "file"])
def test_what_git_does_not_accept_makes_no_project(place: Place, left: str) -> None:
    make_git_folder(place.one)
    git = place.one / ".git"
    if left == "no-head":
        (git / "HEAD").unlink()
    elif left == "no-objects":
        (git / "objects").rmdir()
    elif left == "bad-head":
        (git / "HEAD").write_text("nothing\n")
    else:
        git.rename(place.one / "elsewhere")
        git.write_text("gitdir: nowhere\n")
    inner = place.one / "inner"
    inner.mkdir()
    assert subprocess.run(["git", "rev-parse"], cwd=inner, capture_output=True).returncode != 0
    assert place.state(inner) != place.state(place.one)


def test_worktrees_and_submodules_are_projects_as_git_accepts_them(place: Place) -> None:
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run([*git, "init", "-q"], cwd=place.one, check=True)
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "x"], cwd=place.one, check=True)
    tree = place.two / "tree"
    subprocess.run([*git, "worktree", "add", "-q", str(tree)], cwd=place.one, check=True)
    for root in (place.one, tree):
        (root / "inner").mkdir()
        assert place.state(root / "inner") == place.state(root)
    separate = place.two / "separate"
    subprocess.run([*git, "init", "-q", "--separate-git-dir", str(place.two / "git"), str(separate)], check=True)
    (separate / "inner").mkdir()
    assert place.state(separate / "inner") == place.state(separate)


def test_a_repository_of_another_user_above_makes_no_project(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    make_git_folder(place.one)
    inner = place.one / "inner"
    inner.mkdir()
    assert place.state(inner) == place.state(place.one)
    user = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: user + 1)
    assert place.state(inner) != place.state(place.one)
