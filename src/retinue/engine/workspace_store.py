"""The commits of one run's workspace between machines: git bundles in the database, or refs of a git remote.

All functions block: call them in a thread.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from msgspec import Struct

from retinue.capabilities.worktree.worktree import CHECKOUT_SECONDS
from retinue.engine import git_remote
from retinue.engine.cluster_tables import ClusterTables, StoredWorkspace, WorkspaceKind
from retinue.errors import StateError
from retinue.guard.git import Git

MOST_BYTES = 512 * 2**20
"""A larger bundle is refused: it would hold up everyone who shares the database."""
_TRAVELS = "refs/heads/retinue-travels"
_SHALLOW = "refs/retinue/shallow"
"""Where the history of a shallow clone ends, as the file that git keeps of it."""


class WorkspaceStore(Struct, frozen=True):
    """Of one run."""

    tables: ClusterTables
    project: str
    run_id: str

    def find(self, kind: WorkspaceKind) -> StoredWorkspace | None:
        """Return the newest workspace of that kind; None without one, and after it was removed."""
        found = self.tables.workspace(self.project, self.run_id, kind)
        if found is None or found.remote or self.tables.has_bundle(self.project, found.key):
            return found
        return None

    def put(self, git: Git, stored: StoredWorkspace, without: str | None = None) -> None:
        """Keep a commit of the repository of `git`, without what `without` reaches. Raise GitError or StateError."""
        if stored.kind == "base":
            # First its name: from then on nobody removes what is there.
            self.tables.save_workspace(self.project, self.run_id, stored, None)
        if stored.remote:
            before = self.find(stored.kind)
            # Until the database names the new one, someone who takes over needs the last.
            commits = {stored.commit, before.commit} if before is not None else {stored.commit}
            git_remote.push(git, stored.remote, self.run_id, stored.kind, commits)
            self.tables.save_workspace(self.project, self.run_id, stored, None)
        elif stored.kind != "base" or not self.tables.has_bundle(self.project, stored.key):
            ref = f"refs/heads/{stored.branch}"
            if not stored.branch:
                ref = _TRAVELS
                git("update-ref", ref, stored.commit)
            self.tables.save_workspace(self.project, self.run_id, stored, bundle(git, ref, without))

    def bring(self, git: Git, stored: StoredWorkspace) -> None:
        """Put a commit into the repository of `git`. Raise GitError, or StateError when it is not there any more."""
        if stored.remote:
            git_remote.fetch(git, stored.remote, self.run_id, stored.kind, stored.commit)
            return
        data = self.tables.bundle(self.project, stored)
        if data is None:
            raise StateError(f"The workspace {stored.commit[:12]} is not in the database.")
        unbundle(git, data)


def bundle(git: Git, ref: str, without: str | None = None) -> bytes:
    """Return a bundle of `ref` without what `without` reaches. Raise StateError when it is too large."""
    refs = [ref]
    shallow = None if git.git_dir is None else git.git_dir / "shallow"
    if without is not None:
        refs.append(f"^{without}")
    elif shallow is not None and shallow.is_file():
        refs.append(_SHALLOW)
        git("update-ref", _SHALLOW, git.text("hash-object", "-w", str(shallow)))
    with tempfile.NamedTemporaryFile(prefix="retinue-bundle-") as file:
        git("bundle", "create", "--quiet", file.name, *refs, seconds=CHECKOUT_SECONDS)
        size = os.path.getsize(file.name)  # noqa: PTH202 - git has replaced the file
        if size > MOST_BYTES:
            raise StateError(
                f"The workspace has {size // 2**20} MB, and at most {MOST_BYTES // 2**20} travel through the database.",
                remedy="Let it travel through a git remote (setting workspaceRemote), keep large files out of the "
                "repository, or run it here.",
            )
        return Path(file.name).read_bytes()


def unbundle(git: Git, data: bytes) -> None:
    """Put what is in a bundle into the repository of `git`, and where its history ends into a new one."""
    with tempfile.NamedTemporaryFile(prefix="retinue-bundle-") as file:
        file.write(data)
        file.flush()
        said = git("bundle", "unbundle", file.name, seconds=CHECKOUT_SECONDS).decode()
    for line in said.splitlines():
        name, ref = line.split(" ", 1)
        if ref == _SHALLOW:
            (git.folder / ".git" / "shallow").write_bytes(git("cat-file", "blob", name))
