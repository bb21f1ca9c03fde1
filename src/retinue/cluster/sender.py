"""Sends runs of a project to workers: their workspaces out, the offer, and their branches back."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from retinue.cluster.carried_files import agents_of, explain_left_out, pack_home, receive_files
from retinue.cluster.cluster_tables import ClusterTables
from retinue.cluster.git_remote import RemoteAwayError, find_remote
from retinue.cluster.workspace_store import WorkspaceStore
from retinue.cluster.workspaces import collect_branch, snapshot
from retinue.core.events import Warned
from retinue.core.request import Attempt, ClusterPlacement, RunNeeds, explain_waiting
from retinue.core.version import __version__
from retinue.errors import LaunchError, RetinueError
from retinue.guard.git import Git, GitError
from retinue.runs.project import has_git_consent
from retinue.settings.places import ProjectDatabase, repository_root

if TYPE_CHECKING:
    from retinue.core.outcome import Outcome
    from retinue.runs.project import Project
    from retinue.runs.run import Run


class ClusterSender:
    """The sender of one project. Implements `runs.remote.RemoteSender`."""

    def __init__(self, project: Project, database: ProjectDatabase) -> None:
        self._project = project
        self._name = database.project
        self._tables = ClusterTables(database.url)
        self._remotes: dict[str, str] = {}
        """The git remote that has the files of each run; runs whose files are in the database are missing."""

    async def place(self, node: Run) -> None:
        _check_guards(node)
        # In two threads, because one waits for git. If one fails, wait for the other before giving up.
        sends = (asyncio.to_thread(send, node) for send in (self._send_workspace, self._send_home))
        for failure in await asyncio.gather(*sends, return_exceptions=True):
            if failure is not None:
                raise failure
        await self._project.log.release_queued(node.id)
        await asyncio.to_thread(self._tables.put, Attempt(self._name, node.id, 1, self._needs(node)))

    def _needs(self, node: Run) -> RunNeeds:
        launch = node.launch
        placement = launch.request.placement or ClusterPlacement()
        allow = ("hooks",) if node.hooks.listens("PreToolUse") else ()
        return RunNeeds(
            launch.model.info.provider,
            placement.labels,
            allow,
            __version__,
            placement.priority,
            self._project.settings.settings.tenant or self._name,
            self._remotes.get(node.id, ""),
        )

    def _send_workspace(self, node: Run) -> None:
        request, project = node.launch.request, self._project
        consented = has_git_consent(project, request.cwd)
        remote = own_remote(project, request.cwd)
        with snapshot(request.cwd, project.environment, consented=consented) as (workspace, git):
            try:
                self._store(node).put_base(git, replace(workspace, remote=remote))
            except (GitError, RemoteAwayError) as error:
                where = remote or "the database"
                raise LaunchError(
                    f"The workspace could not be sent to {where}: {error}",
                    remedy="Nothing has changed. Run it here, without --on cluster.",
                ) from error
        if remote:
            self._remotes[node.id] = remote

    def _store(self, node: Run) -> WorkspaceStore:
        cwd = node.launch.request.cwd
        return WorkspaceStore(
            self._tables, self._name, node.id, lambda remote: remote == own_remote(self._project, cwd)
        )

    def _send_home(self, node: Run) -> None:
        pack = pack_home(self._project, node.launch.request.spec)
        if pack is None:
            return
        self._store(node).save_pack("home", pack)
        if pack.left_out:
            text = f"Of your home, the worker has skills and memories{explain_left_out(pack)}"
            self._project.log.append(node.place, Warned("placement", text))

    async def withdraw(self, node: Run) -> bool:
        row = self._project.log.reader.run(node.id)
        if row.state != "queued" or row.started_at is not None:
            return False
        # A worker that gets it out of the queue finds that the offer is gone.
        await asyncio.to_thread(self._tables.drop, self._name, node.id)
        await self._mark_home(node)
        return True

    async def close(self) -> None:
        await asyncio.to_thread(self._tables.close)

    async def explain_waiting(self, node: Run) -> str | None:
        workers = await asyncio.to_thread(self._tables.workers)
        return explain_waiting(self._needs(node), workers)

    async def collect(self, node: Run, outcome: Outcome) -> Outcome:
        # Its transcript is a file of the worker.
        note = f"It worked on another machine. To see its work: retinue runs show {node.id}"
        outcome = replace(outcome, notes=(*outcome.notes, note))
        self._remotes.pop(node.id, None)
        try:
            notes = await asyncio.to_thread(self._receive_files, node)
        except (RetinueError, OSError) as error:
            note = f"its outputs and memories are in the database and could not be loaded: {error}"
            return replace(outcome, notes=(*outcome.notes, note))
        outcome = replace(outcome, notes=(*outcome.notes, *notes))
        if outcome.branch is None:
            if outcome.ended == "completed":
                # It has changed nothing.
                await self._mark_home(node)
            return outcome
        try:
            branch = await asyncio.to_thread(self._collect, node)
        except (GitError, RetinueError, OSError) as error:
            note = (
                f"its branch {outcome.branch} is safe but could not be fetched: {error}. "
                f"Later: retinue workers fetch {node.id}"
            )
            return replace(outcome, notes=(*outcome.notes, note))
        if branch is None:
            return outcome
        await self._mark_home(node)
        return replace(outcome, branch=branch)

    def _receive_files(self, node: Run) -> list[str]:
        reader, spec = self._project.log.reader, node.launch.request.spec
        agents = agents_of(self._project, reader.tree(reader.run(node.id))) | {spec.name: spec}
        return receive_files(self._store(node), self._project, agents)

    async def _mark_home(self, node: Run) -> None:
        # Without the mark the files are kept, which only costs space.
        with contextlib.suppress(RetinueError):
            await asyncio.to_thread(self._tables.mark_home, self._name, node.id)

    def _collect(self, node: Run) -> str | None:
        cwd, store = node.launch.request.cwd, self._store(node)
        stored = store.find("result")
        if stored is None:
            return None
        return collect_branch(
            repository_root(cwd) or cwd,
            stored.branch,
            stored.commit,
            lambda git: store.fetch(git, stored),
            self._project.environment,
        )


def own_remote(project: Project, cwd: Path) -> str:
    """Return the git remote that the user's own settings name for the files of runs; empty for none. Raise
    UsageError."""
    return find_remote(project.settings.settings.workspace_remote, Git(cwd, project.environment))


def _check_guards(node: Run) -> None:
    """Raise LaunchError if hooks from outside of the run's workspace guard it: no worker would have them."""
    cwd = node.launch.request.cwd
    root = repository_root(cwd) or cwd
    missing = sorted(source for source in node.hooks.guard_sources if not Path(source).is_relative_to(root))
    if missing:
        names = ", ".join(filter(None, missing)) or "this program"
        raise LaunchError(
            f"Hooks of {names} guard this run, and only hooks of the project are sent to workers.",
            remedy="Run it here, or put these hooks into the settings of the project and consent (retinue trust).",
        )
