"""What a run begins with, in the database: the history of a commit once, and what is new since for each run."""

import itertools
import os
import random
import shutil
import subprocess
import uuid
from pathlib import Path

import pytest

from retinue.cluster.cluster_tables import ClusterTables, StoredWorkspace
from retinue.cluster.workspace_store import WorkspaceStore
from retinue.cluster.workspaces import snapshot, unpack

ENVIRONMENT = {"PATH": os.environ["PATH"], "HOME": "/nonexistent"}
LARGE = 2**20


def git(folder: Path, *arguments: str) -> str:
    who = ("-c", "user.name=t", "-c", "user.email=t@t")
    done = subprocess.run(["git", "-C", str(folder), *who, *arguments], capture_output=True, text=True, check=True)
    return done.stdout.strip()


class Scene:
    """A checkout with a large history, whose runs are sent through a database."""

    def __init__(self, url: str, folder: Path) -> None:
        self.tables, self.folder, self.here = ClusterTables(url), folder, folder / "here"
        self.project = f"store-{uuid.uuid4().hex[:8]}"
        self._numbers = itertools.count(1)
        self.here.mkdir()
        git(self.here, "init", "-q", "-b", "main")
        self.commit("large.bin", random.Random(0).randbytes(LARGE))

    def commit(self, name: str, content: bytes) -> str:
        (self.here / name).write_bytes(content)
        git(self.here, "add", "-A")
        git(self.here, "commit", "-qm", name)
        return git(self.here, "rev-parse", "HEAD")

    def send(self) -> WorkspaceStore:
        """Keep what a new run would begin with."""
        store = WorkspaceStore(self.tables, self.project, f"run-{next(self._numbers)}")
        with snapshot(self.here, ENVIRONMENT) as (packed, repository):
            store.put_base(repository, StoredWorkspace("base", packed.commit, packed.head))
        return store

    def arrive(self, store: WorkspaceStore, machine: str) -> Path:
        """Return the checkout of a run on a machine."""
        base = store.find("base")
        assert base is not None
        folder = self.folder / machine / base.commit
        return unpack(folder, base.commit, lambda repository: store.fetch(repository, base), ENVIRONMENT)

    def stored(self) -> int:
        """Return how many bytes of bundles are in the database."""
        import psycopg

        with psycopg.connect(self.tables.url) as connection:
            query = "SELECT coalesce(sum(length(data)), 0) FROM retinue.bundle_parts WHERE project=%s"
            return int(connection.execute(query, (self.project,)).fetchone()[0])


@pytest.fixture
def scene(postgres, tmp_path):
    made = Scene(postgres, tmp_path)
    yield made
    made.tables.close()


def test_the_history_is_kept_once_and_a_run_adds_what_is_new(scene):
    (scene.here / "a.txt").write_text("one\n")
    first = scene.send()
    whole = scene.stored()
    (scene.here / "a.txt").write_text("two\n")
    second = scene.send()
    scene.commit("b.txt", b"committed since\n")
    third = scene.send()
    assert scene.stored() - whole < 5_000 < LARGE < whole
    assert (scene.arrive(first, "one") / "a.txt").read_text() == "one\n"
    assert (scene.arrive(second, "two") / "a.txt").read_text() == "two\n"
    there = scene.arrive(third, "three")
    assert (there / "b.txt").read_text() == "committed since\n"
    assert git(there, "log", "--format=%s").splitlines() == ["b.txt", "large.bin"]
    assert git(there, "fsck", "--full") == ""


def test_a_clean_checkout_needs_nothing_but_the_history(scene):
    first, second = scene.send(), scene.send()
    assert scene.tables.histories(scene.project) == [git(scene.here, "rev-parse", "HEAD")]
    for store in (first, second):
        assert (scene.arrive(store, store.run_id) / "large.bin").stat().st_size == LARGE


def test_another_history_and_much_that_is_new_are_kept_as_a_whole(scene, monkeypatch):
    monkeypatch.setattr("retinue.cluster.workspace_store._MAX_INCREMENT_BYTES", 10_000)
    scene.send()
    git(scene.here, "commit", "-q", "--amend", "-m", "rewritten")
    rewritten = git(scene.here, "rev-parse", "HEAD")
    scene.send()
    much = scene.commit("more.bin", random.Random(1).randbytes(20_000))
    scene.send()
    assert {rewritten, much} < set(scene.tables.histories(scene.project))
    # Not committed, it does not make another history.
    (scene.here / "more.txt").write_bytes(random.Random(2).randbytes(20_000))
    store = scene.send()
    assert len(scene.tables.histories(scene.project)) == 3
    assert (scene.arrive(store, "there") / "more.txt").stat().st_size == 20_000


def test_the_history_stays_for_those_who_need_it_and_is_sent_again_when_it_is_gone(scene):
    first = scene.send()
    (scene.here / "a.txt").write_text("one\n")
    second = scene.send()
    scene.tables.mark_home(scene.project, first.run_id)
    scene.tables.remove_bundles(0)
    assert (scene.arrive(second, "one") / "a.txt").read_text() == "one\n"
    scene.tables.mark_home(scene.project, second.run_id)
    scene.tables.remove_bundles(0)
    assert scene.stored() == 0
    assert second.find("base") is None
    assert (scene.arrive(scene.send(), "two") / "a.txt").read_text() == "one\n"


def test_a_machine_that_has_the_history_does_not_fetch_it_again(scene):
    before = scene.arrive(scene.send(), "there")
    (scene.here / "a.txt").write_text("one\n")
    second = scene.send()
    base = second.find("base")
    with_history = []

    def bring(repository):
        with_history.append(repository.ask("cat-file", "-e", base.history) is not None)
        second.fetch(repository, base)

    there = unpack(scene.folder / "there" / base.commit, base.commit, bring, ENVIRONMENT)
    assert with_history == [True]
    shutil.rmtree(before)
    assert git(there, "fsck", "--full") == ""
    assert (there / "a.txt").read_text() == "one\n"
