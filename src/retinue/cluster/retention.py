"""Removes files of ended runs from a worker, the shared database and git remotes.

A run's files are removed some time after its sender has received the branch, or someone has fetched it. Files that
nobody has fetched are kept, however old they are. A checkout is also kept while a worktree on this machine uses it.
All functions block: call them in a thread.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

from retinue.capabilities.worktree.record import load_records
from retinue.cluster.cluster_tables import ClusterTables
from retinue.cluster.git_remote import RemoteAwayError, remove
from retinue.guard.git import GitError
from retinue.settings.places import digest, home_of_projects

KEEP_DAYS = 7.0
DAY_SECONDS = 86_400.0


def remove_leftovers(tables: ClusterTables, home: Path, keep_seconds: float) -> list[str]:
    """Remove bundles from the database, and checkouts from this machine, if all their runs were brought home more than
    `keep_seconds` ago. Return a report in at most one sentence."""
    checkouts = 0
    for folder in home_of_projects(home).glob(f"*@{digest(tables.url)}/workspaces"):
        project = folder.parent.name.rpartition("@")[0]
        used = {Path(record.repository).resolve() for record in load_records(folder.parent)}
        for commit in tables.finished_bases(project, keep_seconds):
            if (folder / commit).resolve() not in used:
                checkouts += _remove_checkout(tables, project, folder / commit, keep_seconds)
    bundles = tables.remove_bundles(keep_seconds)
    if not checkouts and not bundles:
        return []
    return [f"Removed of ended runs: {checkouts} checkouts, {bundles} bundles."]


def remove_from_remotes(
    tables: ClusterTables, keep_seconds: float, may_use: Callable[[str], bool], environment: Mapping[str, str]
) -> list[str]:
    """Remove the commits of runs that were brought home more than `keep_seconds` ago from the git remotes that this
    machine may use. Return a report in sentences. The next call tries again what failed."""
    sentences: list[str] = []
    failed: set[str] = set()
    for project, run_id, url in tables.finished_on_remotes(keep_seconds):
        if url in failed or not may_use(url):
            continue
        try:
            remove(url, run_id, environment)
        except (GitError, RemoteAwayError) as error:
            failed.add(url)
            sentences.append(f"Commits of ended runs could not be removed from {url}: {error}")
            continue
        tables.leave_remote(project, run_id)
        sentences.append(f"Removed of ended runs: the commits of {run_id} at {url}.")
    return sentences


def _remove_checkout(tables: ClusterTables, project: str, checkout: Path, keep_seconds: float) -> bool:
    aside = checkout.with_name(f"{checkout.name}.old")
    try:
        checkout.rename(aside)
    except FileNotFoundError:
        return False
    # Another run with the same files may have been sent in the meantime.
    if checkout.name not in tables.finished_bases(project, keep_seconds) and not checkout.exists():
        aside.rename(checkout)
        return False
    shutil.rmtree(aside, ignore_errors=True)
    return True
