"""One attempt of a run on a worker: its project on this machine, and the files that it sends to the shared database.

The files are sent after each turn that wrote, and the branch at the end. So a worker that takes the run over has the
files, and the sender gets the result. The worker removes nothing before it is in the database.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from retinue.capabilities.worktree.record import load, worktrees_folder
from retinue.cluster.carried_files import explain_left_out, outputs_folder, pack_memories, put_outputs
from retinue.cluster.cluster_tables import ClusterTables, StoredWorkspace, WorkspaceKind
from retinue.cluster.file_pack import Packer
from retinue.cluster.git_remote import RemoteAwayError, push_branch
from retinue.cluster.workspace_store import WorkspaceStore
from retinue.cluster.workspaces import put_branch, save, unpack
from retinue.core.events import Body, ToolEnded, TurnEnded, Warned
from retinue.core.foreign import OPERATOR_RIGHTS
from retinue.core.outcome import Outcome
from retinue.core.request import Attempt, WorkerView
from retinue.errors import RetinueError, StateError
from retinue.guard.git import Git, GitError
from retinue.log.query import LogReader
from retinue.runs.capability import Capability, RunPart
from retinue.runs.project import Project
from retinue.settings.places import private_folder
from retinue.tools.safe_dir import SafeDir, files

if TYPE_CHECKING:
    from retinue.runs.run import Run

_RECEIVED_PACKS: tuple[WorkspaceKind, ...] = ("memory", "home")


class WorkerRun(Capability):
    """A capability of the run that the worker serves, and of the runs below it that share its worktree. `prepare`,
    `describe_move` and all private methods block: call them in a thread."""

    def __init__(
        self, attempt: Attempt, state: Path, tables: ClusterTables, view: WorkerView, environment: Mapping[str, str]
    ) -> None:
        """`state` is the project's state folder on this worker."""
        self._run_id = attempt.run_id
        self._state = state
        self._view = view
        self._environment = environment
        self._store = WorkspaceStore(tables, attempt.project, attempt.run_id, view.may_use)
        self._base = StoredWorkspace("base", "")
        """The commit at the start of the run."""
        self._sent_commit = ""
        self._received = state / "brought" / attempt.run_id
        """The folder with the skills of the sender, and the memories that the run may write."""
        self._runs = {attempt.run_id}
        """The run, and the runs below it that have worked here or have outputs from elsewhere."""
        self._began: float | None = None
        """When the run began to work on another machine; None if it begins here."""
        self._wrote = False
        self._sent_outputs: tuple[tuple[str, int], ...] = ()
        """The files of its outputs that were sent last, with their sizes."""

    def prepare(self) -> Project | None:
        """Return the run's project on this machine; None if the run has ended. Raise StateError or GitError."""
        with LogReader.open(self._state) as reader:
            row = reader.run(self._run_id)
            if row.state == "ended":
                return None
            first = reader.created(self._run_id)
        if first is None:
            raise StateError(f"The log of run {self._run_id} has no beginning.")
        self._began = row.started_at
        checkout = self._check_out()
        project = Project(checkout, environment=self._environment, state=self._state)
        project.session_settings["permissions.headless"] = "wait"
        placed = first.options.placement or {}
        project.moved = (Path(placed.get("root") or first.cwd), checkout)
        project.brought = self._received
        project.allowed = frozenset(right for right in OPERATOR_RIGHTS if right in self._view.allow)
        project.consents = {checkout / path: digests for path, digests in self._put_files().items()}
        return project

    def _check_out(self) -> Path:
        """Return the checkout with the files that were saved last."""
        base = self._store.find("base")
        if base is None:
            raise StateError(f"The workspace of run {self._run_id} is not in the database.")
        self._base, self._sent_commit = base, base.commit
        folder = self._state / "workspaces" / base.commit
        checkout = unpack(folder, base.commit, lambda git: self._store.fetch(git, base), self._environment)
        saved = self._store.find("increment")
        if saved is not None:
            put_branch(
                checkout, self._run_id, saved.commit, lambda git: self._store.fetch(git, saved), self._environment
            )
            self._sent_commit = saved.commit
        return checkout

    def _put_files(self) -> Mapping[str, Collection[str]]:
        """Write the run's files from its sender's home and from its last machine. Return the sender's consents."""
        private_folder(self._received)
        # The newer memories come first: a pack does not overwrite existing files.
        for kind in _RECEIVED_PACKS:
            pack = self._store.load_pack(kind)
            if pack is not None:
                pack.write(self._received)
        outputs = self._store.load_pack("outputs")
        if outputs is not None:
            put_outputs(outputs, self._state)
            self._runs |= outputs.folders()
        return pack.consents if pack is not None else {}

    def describe_move(self) -> str | None:
        """Return the prompt of a run that was resumed on another machine; None for a run that begins."""
        if self._began is None:
            return None
        saved = self._store.find("increment")
        files = f"after turn {saved.turn}" if saved is not None and saved.turn else "at the start"
        return (
            "Continue your task from where you were. You are on another machine now: your files are as they were "
            f"{files}. Later changes, and files that git ignores, are missing; look before you rely on them."
            f"{self._explain_outputs()}"
        )

    def _explain_outputs(self) -> str:
        run_id, outputs = self._run_id, self._store.load_pack("outputs")
        if outputs is None or run_id not in outputs.folders():
            return ""
        folder = outputs_folder(self._state, run_id)
        return (
            f" Outputs that were too long for a message, and saved as …/outputs/{run_id}/NAME, are here now: "
            f"{folder}{explain_left_out(outputs)}."
        )

    # Sending

    async def running(self, node: Run, *, resumed: bool) -> RunPart:
        self._runs.add(node.id)

        async def watch(body: Body) -> None:
            if isinstance(body, ToolEnded) and (body.effect.writes or body.effect.command):
                self._wrote = True
            elif isinstance(body, TurnEnded) and node.parent is None and self._has_changes():
                await self._send(node, body.turn)

        return RunPart(watch=watch)

    def _has_changes(self) -> bool:
        return self._wrote or self._list_outputs() != self._sent_outputs

    async def _send(self, node: Run, turn: int) -> None:
        wrote, self._wrote = self._wrote, False
        try:
            await asyncio.to_thread(self._save_files, node)
            if wrote:
                await asyncio.to_thread(self._save_worktree, node, turn)
        except (GitError, RetinueError, OSError) as error:
            self._wrote = wrote
            text = f"The files could not be saved for other machines after turn {turn}: {error}"
            node.project.log.append(node.place, Warned("workspace", text))

    async def save_now(self, node: Run) -> None:
        """Send the files of a run that is handed over in the middle of a turn."""
        with contextlib.suppress(GitError, RetinueError, OSError):
            await asyncio.to_thread(self._save_worktree, node, node.state.turns)
        with contextlib.suppress(RetinueError, OSError):
            await asyncio.to_thread(self._save_files, node)

    def _output_folders(self) -> Iterator[tuple[str, SafeDir]]:
        """Yield each run that has outputs, and their folder."""
        parent = outputs_folder(self._state)
        for run_id in sorted(self._runs):
            if (parent / run_id).is_dir():
                yield run_id, SafeDir(parent, (run_id,))

    def _list_outputs(self) -> tuple[tuple[str, int], ...]:
        """Return the files of the outputs, with their sizes."""
        sizes = []
        for run_id, folder in self._output_folders():
            for names in files(folder):
                path = "/".join((run_id, *names))
                with contextlib.suppress(OSError):
                    sizes.append((path, outputs_folder(self._state, path).stat().st_size))
        return tuple(sizes)

    def _save_files(self, node: Run) -> None:
        """Send the outputs of tools and the memories if they have changed."""
        redactor = node.project.redactor
        memories = pack_memories(self._received, redactor)
        if memories is not None:
            self._store.save_pack("memory", memories)
        listed = self._list_outputs()
        if listed == self._sent_outputs:
            return
        packer = Packer(redactor)
        for run_id, folder in self._output_folders():
            packer.add(folder, run_id, clean=True)
        outputs = packer.pack()
        if outputs is not None:
            self._store.save_pack("outputs", outputs)
        self._sent_outputs = listed

    def _save_worktree(self, node: Run, turn: int) -> None:
        project, base = node.project, self._base
        record = load(worktrees_folder(project.state) / f"{node.id}.json")
        if record is None:
            return

        def send(git: Git, commit: str) -> None:
            stored = StoredWorkspace("increment", commit, base.head, turn=turn, remote=base.remote)
            self._store.put(git, stored, without=base.commit)

        commit = save(record, project.environment, base.commit, self._sent_commit, turn, send)
        self._sent_commit = commit or self._sent_commit

    async def finish(self, node: Run, outcome: Outcome) -> Outcome:
        if node.parent is not None:
            return outcome
        if self._began is not None:
            total_ms = round((time.time() - self._began) * 1000)
            outcome = replace(outcome, duration_ms=max(total_ms, outcome.duration_ms))
        subject = "its outputs and memories are"
        try:
            await asyncio.to_thread(self._save_files, node)
            subject = f"its branch {outcome.branch} is"
            if outcome.branch is None:
                return outcome
            git = Git(node.project.cwd, node.project.environment)
            commit = await asyncio.to_thread(self._send_branch, git, outcome.branch)
        except (GitError, RetinueError, OSError) as error:
            note = f"{subject} still on the worker: it could not be sent ({error})"
            return replace(outcome, notes=(*outcome.notes, note))
        if self._base.remote:
            note = await asyncio.to_thread(self._show_branch, git, outcome.branch, commit)
            outcome = replace(outcome, notes=(*outcome.notes, note))
        return outcome

    def _send_branch(self, git: Git, branch: str) -> str:
        commit = git.text("rev-parse", f"refs/heads/{branch}^{{commit}}")
        # Another run may have ended with the same commit and another base; its bundle has another key.
        stored = StoredWorkspace("result", commit, self._base.head, branch, remote=self._base.remote)
        self._store.put(git, stored, without=self._base.head)
        return commit

    def _show_branch(self, git: Git, branch: str, commit: str) -> str:
        """Push the branch for people who look at the remote. Return a note about it."""
        remote = self._base.remote
        try:
            return f"its branch is also on {remote}, as {push_branch(git, remote, branch, commit)}"
        except (GitError, RemoteAwayError) as error:
            return f"its branch could not be pushed to {remote}: {error}"
