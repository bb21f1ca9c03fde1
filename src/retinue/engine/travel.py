"""What a run on a worker sends to the shared database: its files after each turn that wrote, and its branch at the end.

So whoever takes it over goes on with the files, and whoever sent it gets the work. The worker removes nothing before
it is in the database.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from retinue.core.events import Body, ToolEnded, TurnEnded, Warned
from retinue.core.outcome import Outcome
from retinue.engine.carried_home import pack_memories
from retinue.engine.cluster_tables import ClusterTables, StoredWorkspace
from retinue.engine.file_pack import Packer, save_pack
from retinue.engine.git_remote import RemoteAwayError, push_branch
from retinue.engine.returns import outputs_folder
from retinue.engine.workspace_store import WorkspaceStore
from retinue.engine.workspaces import save
from retinue.errors import RetinueError
from retinue.guard.git import Git, GitError
from retinue.runs.capability import Capability
from retinue.tools.safe_dir import SafeDir, files

if TYPE_CHECKING:
    from retinue.runs.node import RunNode


class Journey(Struct):
    """The workspace of one run on this worker: its project, the commit it began with, and the one that was sent last.
    `head` is the newest commit that the sender's repository has."""

    tables: ClusterTables
    project: str
    base: str
    head: str
    sent: str
    remote: str
    """The git repository that its files travel through; empty for the database."""
    brought: Path
    """Where the run has the memories that it may write."""
    runs: set[str]
    """The run, and those below it that have worked here or have outputs from elsewhere."""
    began: float | None = None
    """When the run began to work, on another machine; None for one that begins here."""
    wrote: bool = False
    outputs: tuple[tuple[str, int], ...] = ()
    """The files of its outputs, with their sizes, as they were sent last."""


class TravelCapability(Capability):
    """Of one run that a worker serves, and those below it that work in its worktree."""

    def __init__(self, journey: Journey) -> None:
        self._journey = journey

    def watcher(self, node: RunNode) -> Callable[[Body], Awaitable[None]] | None:
        journey = self._journey
        journey.runs.add(node.id)

        async def watch(body: Body) -> None:
            if isinstance(body, ToolEnded) and (body.effect.writes or body.effect.command):
                journey.wrote = True
            elif isinstance(body, TurnEnded) and node.parent is None and _has_news(journey, node):
                await self._send(node, body.turn)

        return watch

    async def _send(self, node: RunNode, turn: int) -> None:
        wrote, self._journey.wrote = self._journey.wrote, False
        try:
            await asyncio.to_thread(self._save_files, node)
            if wrote:
                await asyncio.to_thread(self._save, node, turn)
        except (GitError, RetinueError, OSError) as error:
            self._journey.wrote = wrote
            text = f"The files could not be saved for other machines after turn {turn}: {error}"
            node.project.log.append(node.handle.place, Warned("workspace", text))

    async def save_now(self, node: RunNode) -> None:
        """Send the files of a run that is handed over in the middle of a turn."""
        with contextlib.suppress(GitError, RetinueError, OSError):
            await asyncio.to_thread(self._save, node, node.turns)
        with contextlib.suppress(RetinueError, OSError):
            await asyncio.to_thread(self._save_files, node)

    def _save_files(self, node: RunNode) -> None:
        """Send the outputs of tools and the memories, as far as they have changed."""
        journey, redactor = self._journey, node.project.redactor
        memories = pack_memories(journey.brought, redactor)
        if memories is not None:
            save_pack(journey.tables, journey.project, node.id, "memory", memories)
        now = _outputs_of(journey, node)
        if now == journey.outputs:
            return
        packer = Packer(redactor)
        for run_id, folder in _output_folders(journey, node):
            packer.add(folder, run_id, clean=True)
        outputs = packer.made()
        if outputs is not None:
            save_pack(journey.tables, journey.project, node.id, "outputs", outputs)
        journey.outputs = now

    def _save(self, node: RunNode, turn: int) -> None:
        from retinue.capabilities.worktree.home import load, worktrees_folder

        journey, project = self._journey, node.project
        record = load(worktrees_folder(project.state) / f"{node.id}.json")
        if record is None:
            return
        store = WorkspaceStore(journey.tables, journey.project, node.id)

        def send(git: Git, commit: str) -> None:
            stored = StoredWorkspace("increment", commit, journey.head, turn=turn, remote=journey.remote)
            store.put(git, stored, without=journey.base)

        saved = save(record, project.environment, journey.base, journey.sent, turn, send)
        journey.sent = saved or journey.sent

    async def finish(self, node: RunNode, outcome: Outcome) -> Outcome:
        if node.parent is not None:
            return outcome
        if self._journey.began is not None:
            whole = round((time.time() - self._journey.began) * 1000)
            outcome = replace(outcome, duration_ms=max(whole, outcome.duration_ms))
        what = "its outputs and notes are"
        try:
            await asyncio.to_thread(self._save_files, node)
            what = f"its branch {outcome.branch} is"
            if outcome.branch is None:
                return outcome
            git = Git(node.project.cwd, node.project.environment)
            commit = await asyncio.to_thread(self._send_branch, node, git, outcome.branch)
        except (GitError, RetinueError, OSError) as error:
            note = f"{what} still on the worker: it could not be sent ({error})"
            return replace(outcome, notes=(*outcome.notes, note))
        if self._journey.remote:
            note = await asyncio.to_thread(self._show_branch, git, outcome.branch, commit)
            outcome = replace(outcome, notes=(*outcome.notes, note))
        return outcome

    def _send_branch(self, node: RunNode, git: Git, branch: str) -> str:
        journey = self._journey
        commit = git.text("rev-parse", f"refs/heads/{branch}^{{commit}}")
        # Another run may have ended with the same commit, and another bundle of it.
        stored = StoredWorkspace("result", commit, journey.head, branch, remote=journey.remote)
        WorkspaceStore(journey.tables, journey.project, node.id).put(git, stored, without=journey.head)
        return commit

    def _show_branch(self, git: Git, branch: str, commit: str) -> str:
        """Push the branch for people who look at the remote. Return what to say of it."""
        remote = self._journey.remote
        try:
            return f"its branch is also on {remote}, as {push_branch(git, remote, branch, commit)}"
        except (GitError, RemoteAwayError) as error:
            return f"its branch could not be pushed to {remote}: {error}"


def _has_news(journey: Journey, node: RunNode) -> bool:
    return journey.wrote or _outputs_of(journey, node) != journey.outputs


def _output_folders(journey: Journey, node: RunNode) -> Iterator[tuple[str, SafeDir]]:
    place = outputs_folder(node.project.state)
    for run_id in sorted(journey.runs):
        if (place / run_id).is_dir():
            yield run_id, SafeDir(place, (run_id,))


def _outputs_of(journey: Journey, node: RunNode) -> tuple[tuple[str, int], ...]:
    place = outputs_folder(node.project.state)
    found = []
    for run_id, folder in _output_folders(journey, node):
        for names in files(folder):
            path = "/".join((run_id, *names))
            with contextlib.suppress(OSError):
                found.append((path, (place / path).stat().st_size))
    return tuple(found)
