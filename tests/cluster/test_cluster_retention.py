"""What ended runs have left goes when all of it is home, and not before."""

import uuid

import pytest

from retinue.capabilities.worktree.record import WorktreeRecord, store, worktrees_folder
from retinue.cluster.cluster_tables import ClusterTables, StoredWorkspace
from retinue.cluster.retention import remove_leftovers
from retinue.settings.places import ProjectDatabase, database_folder

BASE = StoredWorkspace("base", "a" * 40)


@pytest.fixture
def tables(postgres):
    """Tables of a database of its own: what is removed is counted in all projects."""
    import psycopg

    name = f"retention_{uuid.uuid4().hex}"
    with psycopg.connect(postgres, autocommit=True) as server:
        server.execute(f'CREATE DATABASE "{name}"')
    made = ClusterTables(postgres.replace("/postgres?", f"/{name}?"))
    yield made
    made.close()


def test_files_that_two_runs_began_with_stay_until_both_are_home(tables, tmp_path):
    project = "p"
    state = database_folder(tmp_path, ProjectDatabase(tables.url, project))
    checkout = state / "workspaces" / BASE.commit
    checkout.mkdir(parents=True)
    unknown = state / "workspaces" / ("b" * 40)
    unknown.mkdir()
    for run_id in ("one", "two"):
        tables.save_workspace(project, run_id, BASE, b"base")
        tables.save_workspace(project, run_id, StoredWorkspace("result", run_id), b"result")
    tables.mark_home(project, "one")
    assert remove_leftovers(tables, tmp_path, 0) == ["Removed of ended runs: 0 checkouts, 1 bundles."]
    assert tables.bundle(project, BASE) == b"base"
    assert checkout.is_dir()
    tables.mark_home(project, "two")
    assert remove_leftovers(tables, tmp_path, 3600) == []
    # A worktree of it is still on this machine.
    folder = worktrees_folder(state)
    folder.mkdir()
    record = store(WorktreeRecord(run="two", folder=str(folder / "two"), repository=str(checkout), common="", base=""))
    assert remove_leftovers(tables, tmp_path, 0) == ["Removed of ended runs: 0 checkouts, 2 bundles."]
    assert checkout.is_dir()
    record.file.unlink()
    assert remove_leftovers(tables, tmp_path, 0) == ["Removed of ended runs: 1 checkouts, 0 bundles."]
    assert not checkout.exists()
    assert unknown.is_dir(), "the database does not know it"


def test_what_is_sent_again_is_kept_again(tables, tmp_path):
    project = "p"
    tables.save_workspace(project, "one", BASE, b"base")
    tables.mark_home(project, "one")
    tables.save_workspace(project, "two", BASE, None)
    assert remove_leftovers(tables, tmp_path, 0) == []
    tables.mark_home(project, "two")
    tables.save_workspace(project, "one", BASE, None)
    assert remove_leftovers(tables, tmp_path, 0) == []
    assert tables.has_bundle(project, BASE.commit)
