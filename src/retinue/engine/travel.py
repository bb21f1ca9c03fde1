"""What a run on a worker sends to the shared database: its files after each turn that wrote, and its branch at the end.

So whoever takes it over goes on with the files, and whoever sent it gets the work. The worker removes nothing before
it is in the database.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from msgspec import Struct

from retinue.core.events import Body, ToolEnded, TurnEnded, Warned
from retinue.core.outcome import Outcome
from retinue.engine.cluster_tables import ClusterTables, StoredWorkspace
from retinue.errors import RetinueError
from retinue.guard.git import Git, GitError
from retinue.runs.capability import Capability

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
    wrote: bool = False


class TravelCapability(Capability):
    """Of one run that a worker serves, and those below it that work in its worktree."""

    def __init__(self, journey: Journey) -> None:
        self._journey = journey

    def watcher(self, node: RunNode) -> Callable[[Body], Awaitable[None]] | None:
        journey = self._journey

        async def watch(body: Body) -> None:
            if isinstance(body, ToolEnded) and (body.effect.writes or body.effect.command):
                journey.wrote = True
            elif isinstance(body, TurnEnded) and journey.wrote and node.parent is None:
                journey.wrote = False
                await self._send(node, body.turn)

        return watch

    async def _send(self, node: RunNode, turn: int) -> None:
        try:
            await asyncio.to_thread(self._save, node, turn)
        except (GitError, RetinueError, OSError) as error:
            self._journey.wrote = True
            text = f"The files could not be saved for other machines after turn {turn}: {error}"
            node.project.log.append(node.handle.place, Warned("workspace", text))

    async def save_now(self, node: RunNode) -> None:
        """Send the files of a run that is handed over in the middle of a turn."""
        with contextlib.suppress(GitError, RetinueError, OSError):
            await asyncio.to_thread(self._save, node, node.turns)

    def _save(self, node: RunNode, turn: int) -> None:
        from retinue.capabilities.worktree.home import load, worktrees_folder
        from retinue.engine.workspaces import save

        journey, project = self._journey, node.project
        record = load(worktrees_folder(project.state) / f"{node.id}.json")
        if record is None:
            return
        saved = save(record, project.environment, journey.base, journey.sent, turn)
        if saved is None:
            return
        commit, data = saved
        stored = StoredWorkspace("increment", commit, journey.head, turn=turn)
        journey.tables.save_workspace(journey.project, node.id, stored, data)
        journey.sent = commit

    async def finish(self, node: RunNode, outcome: Outcome) -> Outcome:
        if outcome.branch is None or node.parent is not None:
            return outcome
        try:
            await asyncio.to_thread(self._send_branch, node, outcome.branch)
        except (GitError, RetinueError, OSError) as error:
            from msgspec.structs import replace

            note = f"its branch {outcome.branch} is still on the worker: it could not be sent ({error})"
            return replace(outcome, notes=(*outcome.notes, note))
        return outcome

    def _send_branch(self, node: RunNode, branch: str) -> None:
        from retinue.engine.workspaces import bundle

        journey = self._journey
        git = Git(node.project.cwd, node.project.environment)
        commit = git.text("rev-parse", f"refs/heads/{branch}^{{commit}}")
        data = bundle(git, f"refs/heads/{branch}", without=journey.head)
        # Another run may have ended with the same commit, and another bundle of it.
        stored = StoredWorkspace("result", commit, journey.head, branch)
        journey.tables.save_workspace(journey.project, node.id, stored, data)
