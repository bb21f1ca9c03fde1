"""Loading again: unchanged files are not read, and no change on disk is missed."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from retinue import Retinue
from retinue.agents.catalog import Catalog, FileCache


class AgentFolder:
    def __init__(self, folder: Path) -> None:
        self.root = folder
        self.agents = folder / ".claude" / "agents"
        self.agents.mkdir(parents=True)

    def write(self, name: str, description: str = "d", file: str | None = None) -> Path:
        path = self.agents / (file or f"{name}.md")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"---\nname: {name}\ndescription: {description}\n---\n")
        return path


class Session(AgentFolder):
    """The agents as one program sees them while it goes on."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        home = str(folder / "home")
        self._retinue = Retinue(
            folder, environment={"HOME": home, "RETINUE_HOME": home, "RETINUE_DISABLE_BUILTIN_AGENTS": "1"}
        )

    def load(self) -> Any:
        return self._retinue.agents


class Project(AgentFolder):
    """The same with the cache in the hands of the test."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.cache = FileCache()

    def load(self) -> Catalog:
        home = {"HOME": str(self.root / "home")}
        return Catalog.load(self.root, environment=home, builtins=False, cache=self.cache)


@pytest.fixture
def session(tmp_path: Path) -> Session:
    return Session(tmp_path)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def age(path: Path) -> None:
    """Makes a file look old, as if it had been there for an hour. The change time cannot be set,
    so the folder is left alone until the clock of the file system has moved on."""
    past = time.time() - 3600
    os.utime(path, (past, past))


def settle(project: Project) -> None:
    """Loads until nothing looks freshly written any more."""
    deadline = time.monotonic() + 10
    while any(known.signatures is None for known in project.cache._folders.values()):
        project.load()
        assert time.monotonic() < deadline


def test_nothing_changed_gives_the_very_same_catalog(project: Project) -> None:
    project.write("a")
    first = project.load()
    assert project.load() is first
    settle(project)
    assert project.load() is first


def test_an_unchanged_file_keeps_its_reading_when_another_changes(session: Session) -> None:
    session.write("a")
    session.write("b")
    before = session.load().find("a").parsed
    session.write("b", "changed")
    after = session.load()
    assert after.find("a").parsed is before
    assert after.find("b").spec.description == "changed"


def test_rewriting_in_the_same_instant_with_the_same_size_is_seen(session: Session) -> None:
    """No waiting here: the times of the file may well be equal."""
    for number in range(50):
        session.write("a", f"{number:04}")
        assert session.load().find("a").spec.description == f"{number:04}"


def test_a_change_that_keeps_size_and_modification_time_is_seen(project: Project) -> None:
    path = project.write("a", "one")
    age(path)
    settle_after_first = project.load()
    assert settle_after_first.find("a").spec.description == "one"
    settle(project)
    stamp = path.stat().st_mtime_ns
    path.write_text(path.read_text().replace("one", "two"))
    os.utime(path, ns=(stamp, stamp))
    assert project.load().find("a").spec.description == "two"


def test_new_removed_and_renamed_files_are_seen(project: Project) -> None:
    project.write("a")
    settle(project)
    assert project.load().names == ("a",)
    path = project.write("b")
    assert set(project.load().names) == {"a", "b"}
    settle(project)
    path.rename(path.with_name("c.txt"))
    assert project.load().names == ("a",)
    project.write("d", file="deep/er/d.md")
    assert set(project.load().names) == {"a", "d"}
    settle(project)
    project.write("e", file="deep/er/e.md")
    assert set(project.load().names) == {"a", "d", "e"}


def test_a_file_replaced_by_another_one_is_seen(project: Project) -> None:
    path = project.write("a", "old")
    project.load()
    settle(project)
    new = project.root / "new.md"
    new.write_text(path.read_text().replace("old", "new"))
    os.replace(new, path)
    assert project.load().find("a").spec.description == "new"


def test_a_link_that_begins_to_lead_somewhere_is_seen(session: Session) -> None:
    target = session.root / "elsewhere"
    (session.agents / "team").symlink_to(target)
    (session.agents / "one.md").symlink_to(session.root / "one.md")
    session.write("a")
    catalog = session.load()
    assert (catalog.names, len(catalog.failed)) == (("a",), 1)
    target.mkdir()
    (target / "t.md").write_text("---\nname: t\ndescription: d\n---\n")
    (session.root / "one.md").write_text("---\nname: one\ndescription: d\n---\n")
    catalog = session.load()
    assert set(catalog.names) == {"a", "t", "one"}
    assert catalog.failed == ()


def test_a_broken_file_that_is_repaired_is_seen(project: Project) -> None:
    path = project.agents / "x.md"
    path.write_bytes(b"\x00")
    assert [failed.problem.code for failed in project.load().failed] == ["binary"]
    settle(project)
    project.write("x")
    catalog = project.load()
    assert (catalog.names, catalog.failed) == (("x",), ())


def test_folders_that_appear_and_vanish(session: Session) -> None:
    session.write("a")
    pi = session.root / ".pi" / "agents"
    pi.mkdir(parents=True)
    (pi / "b.md").write_text("Prompt")
    assert set(session.load().names) == {"a", "b"}
    (pi / "b.md").unlink()
    pi.rmdir()
    assert session.load().names == ("a",)


def test_hashes_are_there_for_whoever_asks(session: Session) -> None:
    session.write("a")
    entry = session.load().find("a")
    assert len(entry.spec.hash) == 64
    assert entry.parsed.spec is entry.spec
