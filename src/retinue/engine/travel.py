"""What a run on a worker sends to the shared database: its files after each turn that wrote, and its branch at the end.

So whoever takes it over goes on with the files, and whoever sent it gets the work. The worker removes nothing before
it is in the database.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from retinue.capabilities.worktree.home import load, worktrees_folder
from retinue.core.events import Body, ToolEnded, TurnEnded, Warned
from retinue.core.outcome import Outcome
from retinue.engine.carried_files import outputs_folder, pack_memories
from retinue.engine.cluster_tables import StoredWorkspace
from retinue.engine.file_pack import Packer
from retinue.engine.git_remote import RemoteAwayError, push_branch
from retinue.engine.workspace_store import WorkspaceStore
from retinue.engine.workspaces import save
from retinue.errors import RetinueError
from retinue.guard.git import Git, GitError
from retinue.runs.capability import Capability, Running, RunPart
from retinue.tools.safe_dir import SafeDir, files

if TYPE_CHECKING:
    from retinue.runs.run import Run


class Journey(Struct):
    """The workspace of one run on this worker: its project, the commit it began with, and the one that was sent last.
    `head` is the newest commit that the sender's repository has."""

    store: WorkspaceStore
    state: Path
    """The project's state folder on this worker."""
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

    def has_news(self) -> bool:
        """Return whether the run has written, or has other outputs, since files were sent last."""
        return self.wrote or self.list_outputs() != self.outputs

    def output_folders(self) -> Iterator[tuple[str, SafeDir]]:
        """Yield each run that has outputs, and their folder."""
        parent = outputs_folder(self.state)
        for run_id in sorted(self.runs):
            if (parent / run_id).is_dir():
                yield run_id, SafeDir(parent, (run_id,))

    def list_outputs(self) -> tuple[tuple[str, int], ...]:
        """Return the files of outputs, with their sizes."""
        sizes = []
        for run_id, folder in self.output_folders():
            for names in files(folder):
                path = "/".join((run_id, *names))
                with contextlib.suppress(OSError):
                    sizes.append((path, outputs_folder(self.state, path).stat().st_size))
        return tuple(sizes)


class TravelCapability(Capability):
    """Of one run that a worker serves, and those below it that work in its worktree."""

    def __init__(self, journey: Journey) -> None:
        self._journey = journey

    def running(self, node: Run, *, resumed: bool) -> Running:
        journey = self._journey
        journey.runs.add(node.id)

        async def watch(body: Body) -> None:
            if isinstance(body, ToolEnded) and (body.effect.writes or body.effect.command):
                journey.wrote = True
            elif isinstance(body, TurnEnded) and node.parent is None and journey.has_news():
                await self._send(node, body.turn)

        return contextlib.nullcontext(RunPart(watch=watch))

    async def _send(self, node: Run, turn: int) -> None:
        wrote, self._journey.wrote = self._journey.wrote, False
        try:
            await asyncio.to_thread(self._save_files, node)
            if wrote:
                await asyncio.to_thread(self._save, node, turn)
        except (GitError, RetinueError, OSError) as error:
            self._journey.wrote = wrote
            text = f"The files could not be saved for other machines after turn {turn}: {error}"
            node.project.log.append(node.place, Warned("workspace", text))

    async def save_now(self, node: Run) -> None:
        """Send the files of a run that is handed over in the middle of a turn."""
        with contextlib.suppress(GitError, RetinueError, OSError):
            await asyncio.to_thread(self._save, node, node.state.turns)
        with contextlib.suppress(RetinueError, OSError):
            await asyncio.to_thread(self._save_files, node)

    def _save_files(self, node: Run) -> None:
        """Send the outputs of tools and the memories, as far as they have changed."""
        journey, redactor = self._journey, node.project.redactor
        memories = pack_memories(journey.brought, redactor)
        if memories is not None:
            journey.store.save_pack("memory", memories)
        listed = journey.list_outputs()
        if listed == journey.outputs:
            return
        packer = Packer(redactor)
        for run_id, folder in journey.output_folders():
            packer.add(folder, run_id, clean=True)
        outputs = packer.pack()
        if outputs is not None:
            journey.store.save_pack("outputs", outputs)
        journey.outputs = listed

    def _save(self, node: Run, turn: int) -> None:
        journey, project = self._journey, node.project
        record = load(worktrees_folder(project.state) / f"{node.id}.json")
        if record is None:
            return

        def send(git: Git, commit: str) -> None:
            stored = StoredWorkspace("increment", commit, journey.head, turn=turn, remote=journey.remote)
            journey.store.put(git, stored, without=journey.base)

        journey.sent = save(record, project.environment, journey.base, journey.sent, turn, send) or journey.sent

    async def finish(self, node: Run, outcome: Outcome) -> Outcome:
        if node.parent is not None:
            return outcome
        if self._journey.began is not None:
            total_ms = round((time.time() - self._journey.began) * 1000)
            outcome = replace(outcome, duration_ms=max(total_ms, outcome.duration_ms))
        subject = "its outputs and notes are"
        try:
            await asyncio.to_thread(self._save_files, node)
            subject = f"its branch {outcome.branch} is"
            if outcome.branch is None:
                return outcome
            git = Git(node.project.cwd, node.project.environment)
            commit = await asyncio.to_thread(self._send_branch, node, git, outcome.branch)
        except (GitError, RetinueError, OSError) as error:
            note = f"{subject} still on the worker: it could not be sent ({error})"
            return replace(outcome, notes=(*outcome.notes, note))
        if self._journey.remote:
            note = await asyncio.to_thread(self._show_branch, git, outcome.branch, commit)
            outcome = replace(outcome, notes=(*outcome.notes, note))
        return outcome

    def _send_branch(self, node: Run, git: Git, branch: str) -> str:
        journey = self._journey
        commit = git.text("rev-parse", f"refs/heads/{branch}^{{commit}}")
        # Another run may have ended with the same commit, and another bundle of it.
        stored = StoredWorkspace("result", commit, journey.head, branch, remote=journey.remote)
        journey.store.put(git, stored, without=journey.head)
        return commit

    def _show_branch(self, git: Git, branch: str, commit: str) -> str:
        """Push the branch for people who look at the remote. Return what to say of it."""
        remote = self._journey.remote
        try:
            return f"its branch is also on {remote}, as {push_branch(git, remote, branch, commit)}"
        except (GitError, RemoteAwayError) as error:
            return f"its branch could not be pushed to {remote}: {error}"
