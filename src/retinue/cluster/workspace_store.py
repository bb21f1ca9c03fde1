"""The storage of one run's files between machines: commits of its workspace as git bundles in the database or as refs
of a git remote, and packs of other files in the database.

The start of a run is stored as two bundles: the complete history of some commit, once for all runs of the project, and
the newer commits. So a complete repository is sent only now and then, and not for every run.

All functions block: call them in a thread.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from retinue.capabilities.worktree.worktree import CHECKOUT_SECONDS
from retinue.cluster import git_remote
from retinue.cluster.cluster_tables import MAX_BUNDLE_BYTES, ClusterTables, StoredWorkspace, WorkspaceKind
from retinue.cluster.file_pack import MAX_ENCODED_BYTES, FilePack, decode, digest_of
from retinue.cluster.git_remote import RemoteAwayError
from retinue.cluster.workspaces import make_borrower
from retinue.errors import StateError
from retinue.guard.git import Git, GitError

_MAX_INCREMENT_BYTES = 16 * 2**20
"""If the commits since the stored history are larger, the history of a newer commit is stored."""
_MAX_HISTORIES = 10
_SENT_REF = "refs/heads/retinue-travels"
_RECEIVED_REF = "refs/retinue/received"
_SHALLOW_REF = "refs/retinue/shallow"
"""Holds git's file with the limits of a shallow clone."""


class WorkspaceStore(Struct, frozen=True):
    """The storage of one run. `may_use` decides whether the user, or the operator of a worker, allows a git remote."""

    tables: ClusterTables
    project: str
    run_id: str
    may_use: Callable[[str], bool] = lambda remote: False

    def find(self, kind: WorkspaceKind) -> StoredWorkspace | None:
        """Return the newest workspace of that kind; None if it is missing or was removed."""
        stored = self.tables.workspace(self.project, self.run_id, kind)
        if stored is None or stored.remote or self._has(stored.key):
            return stored
        in_history = stored.history == stored.commit and self._has(_history(stored.commit).key)
        return stored if in_history else None

    def put_base(self, git: Git, stored: StoredWorkspace) -> None:
        """Store the start of the run, from a snapshot in the repository of `git`. Raise GitError or StateError."""
        if stored.remote:
            self._push(git, stored)
            return
        if _shallow_file(git) is not None:
            # Here and below, record the name first: from then on nobody removes the bundle.
            self._save(stored, None)
            if not self._has(stored.key):
                self._save(stored, self._bundle(git, stored))
            return
        commit = self._find_history(git, stored.head)
        if commit is not None and self._put_increment(git, replace(stored, history=commit)):
            return
        history = _history(stored.head)
        self._save(history, None)
        if not self._has(history.key):
            self._save(history, self._bundle(git, history))
        self._put_increment(git, replace(stored, history=stored.head))

    def _find_history(self, git: Git, head: str) -> str | None:
        """Return the newest ancestor of `head` whose history is stored; None if there is none."""
        commits = self.tables.histories(self.project)
        if head in commits:
            return head
        listed = git.ask("rev-list", "--no-walk=sorted", "--ignore-missing", *commits) if commits else None
        for commit in (listed or "").split()[:_MAX_HISTORIES]:
            if git.ask("merge-base", "--is-ancestor", commit, head) is not None:
                return commit
        return None

    def _put_increment(self, git: Git, stored: StoredWorkspace) -> bool:
        """Store the commits since a stored history. Return False if they are too large, or the history is gone."""
        self._save(_history(stored.history), None)
        self._save(stored, None)
        if not self._has(_history(stored.history).key):
            return False
        if stored.commit == stored.history or self._has(stored.key):
            return True
        data = self._bundle(git, stored, without=stored.history)
        if len(data) > _MAX_INCREMENT_BYTES and stored.history != stored.head:
            return False
        self._save(stored, data)
        return True

    def put(self, git: Git, stored: StoredWorkspace, without: str | None = None) -> None:
        """Store a commit of the run, without the ancestors of `without`. Raise GitError or StateError."""
        if stored.remote:
            # If the remote fails, the commit goes into the database.
            with contextlib.suppress(GitError, RemoteAwayError):
                self._push(git, stored)
                return
        self._save(replace(stored, remote=""), self._bundle(git, stored, without))

    def _push(self, git: Git, stored: StoredWorkspace) -> None:
        before = self.find(stored.kind)
        # Until the database names the new commit, a worker that takes the run over needs the one before.
        commits = {stored.commit, before.commit} if before is not None else {stored.commit}
        git_remote.push(git, stored.remote, self.run_id, stored.kind, commits)
        self._save(stored, None)

    def _bundle(self, git: Git, stored: StoredWorkspace, without: str | None = None) -> bytes:
        if stored.branch:
            return bundle(git, f"refs/heads/{stored.branch}", without)
        git("update-ref", _SENT_REF, stored.commit)
        return bundle(git, _SENT_REF, without)

    def _save(self, stored: StoredWorkspace, data: bytes | None) -> None:
        self.tables.save_workspace(self.project, self.run_id, stored, data)

    def _has(self, key: str) -> bool:
        return self.tables.has_bundle(self.project, key)

    def fetch(self, git: Git, stored: StoredWorkspace) -> None:
        """Fetch a commit into the repository of `git`. Raise GitError, or StateError if the commit is gone, or is at a
        git remote that may not be used here."""
        if stored.remote:
            if not self.may_use(stored.remote):
                raise StateError(
                    f"The run's files are at the git remote {stored.remote}, which may not be used here.",
                    remedy="Name it: your own setting workspaceRemote, or on a worker the option --remote.",
                )
            git_remote.fetch(git, stored.remote, self.run_id, stored.kind, stored.commit)
            return
        if stored.kind != "base":
            receive(git, self._load(stored), stored.commit)
            return
        if stored.history and git.ask("cat-file", "-e", f"{stored.history}^{{commit}}") is None:
            unbundle(git, self._load(_history(stored.history)))
        if stored.commit != stored.history:
            unbundle(git, self._load(stored))

    def save_pack(self, kind: WorkspaceKind, pack: FilePack) -> None:
        """Store files of the run. Equal packs of a home are stored once for all runs."""
        data = pack.encode()
        name = digest_of(data)
        if kind != "home":
            self._save(StoredWorkspace(kind, f"{name}-{self.run_id}"), data)
            return
        stored = StoredWorkspace(kind, name)
        # Record the name first: from then on nobody removes the bundle.
        self._save(stored, None)
        if not self._has(stored.key):
            self._save(stored, data)

    def load_pack(self, kind: WorkspaceKind) -> FilePack | None:
        """Return the newest pack of that kind; None if there is none. Raise StateError if it is damaged."""
        stored = self.tables.workspace(self.project, self.run_id, kind)
        data = None if stored is None else self.tables.bundle(self.project, stored, MAX_ENCODED_BYTES)
        if stored is None or data is None:
            return None
        return decode(stored.commit.removesuffix(f"-{self.run_id}"), data)

    def _load(self, stored: StoredWorkspace) -> bytes:
        data = self.tables.bundle(self.project, stored)
        if data is None:
            raise StateError(f"The workspace {stored.commit[:12]} is not in the database.")
        return data


def _history(commit: str) -> StoredWorkspace:
    return StoredWorkspace("history", commit)


def _shallow_file(git: Git) -> Path | None:
    file = None if git.git_dir is None else git.git_dir / "shallow"
    return file if file is not None and file.is_file() else None


def bundle(git: Git, ref: str, without: str | None = None) -> bytes:
    """Return a bundle of `ref` without the ancestors of `without`. Raise StateError if it is too large."""
    refs = [ref]
    shallow = _shallow_file(git)
    if without is not None:
        refs.append(f"^{without}")
    elif shallow is not None:
        refs.append(_SHALLOW_REF)
        git("update-ref", _SHALLOW_REF, git.text("hash-object", "-w", str(shallow)))
    with tempfile.NamedTemporaryFile(prefix="retinue-bundle-") as file:
        git("bundle", "create", "--quiet", file.name, *refs, seconds=CHECKOUT_SECONDS)
        size = os.path.getsize(file.name)  # noqa: PTH202 - git has replaced the file
        if size > MAX_BUNDLE_BYTES:
            raise StateError(
                f"The workspace has {size // 2**20} MB; at most {MAX_BUNDLE_BYTES // 2**20} MB can be sent through the "
                "database.",
                remedy="Send it through a git remote (setting workspaceRemote), keep large files out of it, or run it "
                "here.",
            )
        return Path(file.name).read_bytes()


def receive(git: Git, data: bytes, commit: str) -> None:
    """Put a commit of a bundle into the repository of `git`, which may be the user's. The bundle is unpacked into a
    separate repository, from which git fetches the commit: nothing else of the bundle arrives, and git checks that the
    objects are sound and complete. Raise GitError."""
    with git_remote.reaching(git) as near, tempfile.TemporaryDirectory(prefix="retinue-bundle-") as temporary:
        folder, file = Path(temporary) / "received.git", Path(temporary) / "bundle"
        assert near.git_dir is not None, "it is a repository of ours"
        # The bundle leaves out what the copied files reach.
        make_borrower(folder, near.git_dir, near.variables["GIT_OBJECT_DIRECTORY"], "packed-refs", "shallow")
        apart = Git(Path(temporary), git.environment, git_dir=folder)
        file.write_bytes(data)
        apart("bundle", "unbundle", str(file), seconds=CHECKOUT_SECONDS)
        apart("update-ref", _RECEIVED_REF, commit)
        check = ("-c", "fetch.fsckObjects=true")
        near(*check, "fetch", *git_remote.FETCH_OPTIONS, "--", str(folder), _RECEIVED_REF, seconds=CHECKOUT_SECONDS)


def unbundle(git: Git, data: bytes) -> None:
    """Unpack a bundle into a new repository of ours, with the limits of a shallow history."""
    with tempfile.NamedTemporaryFile(prefix="retinue-bundle-") as file:
        file.write(data)
        file.flush()
        unbundled = git("bundle", "unbundle", file.name, seconds=CHECKOUT_SECONDS).decode()
    for line in unbundled.splitlines():
        name, ref = line.split(" ", 1)
        if ref == _SHALLOW_REF:
            (git.folder / ".git" / "shallow").write_bytes(git("cat-file", "blob", name))
