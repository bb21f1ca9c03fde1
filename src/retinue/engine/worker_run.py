"""A run as a worker finds it: its project on this machine, and what the run is told about the change of machines.

All methods block: call them in a thread.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

from msgspec import Struct

from retinue.core.events import RunCreated
from retinue.core.foreign import OPERATOR_RIGHTS
from retinue.core.request import Attempt, WorkerView
from retinue.engine.carried_files import explain_left_out, outputs_folder, put_outputs
from retinue.engine.cluster_tables import ClusterTables, WorkspaceKind
from retinue.engine.travel import Journey
from retinue.engine.workspace_store import WorkspaceStore
from retinue.engine.workspaces import put_branch, unpack
from retinue.errors import StateError
from retinue.log.query import LogReader
from retinue.runs.project import Project
from retinue.settings.places import private_folder

_PACKS_IN: tuple[WorkspaceKind, ...] = ("memory", "home")


class WorkerRun(Struct, frozen=True):
    """One attempt of a run on this machine, whose state of the project is in the folder `state`."""

    attempt: Attempt
    state: Path
    tables: ClusterTables
    view: WorkerView
    environment: Mapping[str, str]

    @property
    def _store(self) -> WorkspaceStore:
        return WorkspaceStore(self.tables, self.attempt.project, self.attempt.run_id, self.view.may_use)

    def prepare(self) -> tuple[Project, Journey] | None:
        """Return the run's project on this machine; None when it has ended meanwhile. Raise StateError or GitError."""
        run_id = self.attempt.run_id
        with LogReader.open(self.state) as reader:
            row = reader.run(run_id)
            if row.state == "ended":
                return None
            first = reader.events(run_id, limit=1)[0].body
        if not isinstance(first, RunCreated):
            raise StateError(f"The log of run {run_id} has no beginning.")
        checkout, journey = self._check_out()
        journey.began = row.started_at
        project = Project(checkout, environment=self.environment, state=self.state)
        project.session_settings["permissions.headless"] = "wait"
        placed = first.options.placement or {}
        project.moved = (Path(placed.get("root") or first.cwd), checkout)
        project.brought = journey.brought
        project.allowed = frozenset(right for right in OPERATOR_RIGHTS if right in self.view.allow)
        consents = self._put_files(journey)
        project.consents = {checkout / path: digests for path, digests in consents.items()}
        return project, journey

    def _check_out(self) -> tuple[Path, Journey]:
        """Return the checkout with what was saved last, and how its files travel on."""
        run_id, store = self.attempt.run_id, self._store
        base = store.find("base")
        if base is None:
            raise StateError(f"The workspace of run {run_id} is not in the database.")
        folder = self.state / "workspaces" / base.commit
        checkout = unpack(folder, base.commit, lambda git: store.bring(git, base), self.environment)
        brought = self.state / "brought" / run_id
        journey = Journey(store, self.state, base.commit, base.head, base.commit, base.remote, brought, {run_id})
        saved = store.find("increment")
        if saved is not None:
            put_branch(checkout, run_id, saved.commit, lambda git: store.bring(git, saved), self.environment)
            journey.sent = saved.commit
        return checkout, journey

    def _put_files(self, journey: Journey) -> Mapping[str, Collection[str]]:
        """Put here what a run has from its sender's home, and saved on its last machine. Return the sender's
        consents."""
        private_folder(journey.brought)
        # What it has noted meanwhile comes first: a file that is there stays.
        for kind in _PACKS_IN:
            pack = journey.store.load_pack(kind)
            if pack is not None:
                pack.write(journey.brought)
        outputs = journey.store.load_pack("outputs")
        if outputs is not None:
            put_outputs(outputs, self.state)
            journey.runs |= outputs.folders()
        return pack.consents if pack is not None else {}

    def news(self) -> str | None:
        """Return what a run that goes on must hear: it is on another machine, with the files that were saved. None for
        one that begins."""
        with LogReader.open(self.state) as reader:
            row = reader.run(self.attempt.run_id)
        if row.started_at is None:
            return None
        saved = self._store.find("increment")
        files = "at the start"
        if saved is not None and saved.turn:
            files = f"after turn {saved.turn}"
        return (
            "Go on with your task from where you were. You are on another machine now: your files are as they were "
            f"{files}. What was changed after that, and files that git ignores, are not there; look before you rely "
            f"on them.{self._explain_outputs()}"
        )

    def _explain_outputs(self) -> str:
        run_id, outputs = self.attempt.run_id, self._store.load_pack("outputs")
        if outputs is None or run_id not in outputs.folders():
            return ""
        folder = outputs_folder(self.state, run_id)
        return (
            f" Outputs that were too long for a message, and saved as …/outputs/{run_id}/NAME, are here now: "
            f"{folder}{explain_left_out(outputs)}."
        )
