"""The creation of a worktree: a copy of a repository for one run. If a step fails, nothing of it remains.

It is in the project's state folder, readable by its user alone. Git lists it as a locked worktree of the main checkout
(with run and process, and the commit it began at cannot be pruned), and it has a separate repository (`repository.py`).
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from retinue.capabilities.worktree.record import WorktreeRecord, hold_lock, load, store, worktrees_folder
from retinue.capabilities.worktree.repository import (
    LOCK_REASON,
    above_of,
    commit_tree,
    configuration,
    copied_index,
    create,
    discard,
    entries_of,
    guarded_git,
    open_git,
    source_git,
    tree_of,
    unlock,
)
from retinue.capabilities.worktree.save import include, keep_out
from retinue.core.programs import this_process
from retinue.errors import LaunchError
from retinue.guard.git import REMOTES, Git, GitError
from retinue.settings.places import private_folder

FETCH_SECONDS = 5.0
FRESH_SECONDS = 24 * 3600.0


def base_of(git: Git, base_ref: Literal["head", "fresh"], head: str, notes: list[str]) -> str:
    """Return `head`, or for `fresh` the default branch of the remote, fetched within the last day. If the remote does
    not answer in time, its last known state is used; without a remote, `head`."""
    if base_ref == "head":
        return head
    remote = (git.ask("remote") or "").split("\n")[0]
    if not remote:
        return head
    fetched = git.folder / git.text("rev-parse", "--git-path", "FETCH_HEAD")
    if not fetched.exists() or time.time() - fetched.stat().st_mtime > FRESH_SECONDS:
        # Git uses the first `remote.<name>.uploadpack`, so a setting cannot override the repository's.
        other_end = () if git.consented else ("--upload-pack=git-upload-pack",)
        reaching = git.having(GIT_ALLOW_PROTOCOL=REMOTES)
        try:
            reaching("fetch", "--quiet", "--no-tags", *other_end, remote, seconds=FETCH_SECONDS)
        except GitError as error:
            notes.append(f"{remote} could not be fetched, the worktree begins at its last known state ({error.why})")
    for name in ("HEAD", "main", "master"):
        commit = git.ask("rev-parse", "--verify", "--quiet", f"refs/remotes/{remote}/{name}^{{commit}}")
        if commit is not None:
            return commit
    return head


CHECKOUT_SECONDS = 900.0
_OTHER_REMEDIES = "Run it without isolation, or"


class WorktreeRequest(Struct, frozen=True, kw_only=True):
    """A worktree to create. `start` is the commit to begin at; None means `base_ref` of the checkout of `cwd`. `branch`
    has the saved work of an earlier attempt of the run."""

    run: str
    cwd: Path
    state: Path
    environment: Mapping[str, str]
    agent: str = ""
    description: str = ""
    from_dirty: bool = False
    base_ref: Literal["head", "fresh"] = "head"
    start: str | None = None
    branch: str | None = None
    consented: bool = False
    """A person has consented to the programs in the repository's configuration."""


class Checkout(Struct, frozen=True):
    """The checkout that a folder belongs to."""

    git: Git
    common: Path
    head: str
    below: str

    @property
    def top(self) -> Path:
        return self.git.folder


def make(request: WorktreeRequest, notes: list[str]) -> WorktreeRecord:
    """Create a worktree, with `notes` for the run. Raise LaunchError; then nothing of it remains."""
    source = source_of(request.cwd, request.environment, consented=request.consented)
    if not _is_ours(source):
        _check_programs(source)
    folder = _folder(request, source)
    with hold_lock(request.state, request.run):
        if folder.exists() or folder.with_suffix(".git").exists():
            raise LaunchError(f"{folder} exists already.", remedy="See: retinue worktrees list")
        record = WorktreeRecord(
            run=request.run,
            folder=str(folder),
            repository=str(source.top),
            common=str(source.common),
            base=source.head,
            below=source.below,
            agent=request.agent,
            description=request.description,
            branch=request.branch,
            tip=request.start,
            owner=this_process(),
            at=time.time(),
        )
        store(record)
        try:
            return _create_checkout(record, source, request, notes)
        except (GitError, OSError) as error:
            discard(record, request.environment)
            raise LaunchError(
                f"The worktree could not be made: {error}",
                remedy="The run was not started, and nothing has changed.",
            ) from error
        except BaseException:
            discard(record, request.environment)
            raise


def reopen(state: Path, run: str) -> WorktreeRecord | None:
    """Return the worktree of an earlier attempt of `run`, if it is complete; this process owns it then."""
    with hold_lock(state, run):
        record = load(worktrees_folder(state) / f"{run}.json")
        if record is None or record.phase in ("making", "removing"):
            return None
        if not record.work.is_dir() or not record.git.is_dir():
            return None
        unlock(record)
        return store(replace(record, phase="open", reason="", owner=this_process()))


def source_of(cwd: Path, environment: Mapping[str, str], *, consented: bool = False) -> Checkout:
    """Return the checkout that `cwd` is in. Raise LaunchError when no worktree can be made from it."""
    git, cwd = Git(cwd, environment, consented=consented), Path(os.path.realpath(cwd))
    asked = ("--is-inside-work-tree", "--show-toplevel", "--git-common-dir")
    try:
        # One call of git is enough unless something is wrong.
        answer = git.ask("rev-parse", *asked, "HEAD^{commit}")
        lines = (answer or git.text("rev-parse", *asked)).split("\n")
    except GitError as error:
        if "not a git repository" in error.why:
            raise LaunchError(
                f"A worktree was asked for, but {cwd} is in no git repository.",
                remedy=f"{_OTHER_REMEDIES} make it one: git init && git add -A && git commit",
            ) from error
        raise LaunchError(f"A worktree was asked for, but git cannot use {cwd}: {error.why}") from error
    expected = 3 if answer is None else 4
    if len(lines) != expected or lines[0] != "true":
        raise LaunchError(
            f"A worktree was asked for, but {cwd} is in no checkout that one could be made from.",
            remedy="Start in the checkout itself, not in a bare repository or inside .git.",
        )
    top, common = Path(os.path.realpath(lines[1])), Path(os.path.realpath(cwd / lines[2]))
    if answer is None:
        raise LaunchError(
            f"A worktree was asked for, but the repository {top} has no commits.",
            remedy=f"{_OTHER_REMEDIES} commit something first: git commit --allow-empty -m start",
        )
    below = "" if cwd == top else os.path.relpath(cwd, top)
    return Checkout(git.at(top), common, lines[3], below)


def _check_programs(source: Checkout) -> None:
    """Refuse a repository whose configuration filters files through programs without consent. Without the programs the
    files would be wrong; with them the programs would run without being asked for."""
    what = source.git.needing_consent()
    if what:
        raise LaunchError(
            f"A worktree was asked for, but files of {source.top} are filtered by programs in its own "
            f"configuration, which have no consent: {'; '.join(what[:3])}",
            remedy=f"Inspect them, and consent with: retinue trust add {source.common / 'config'}",
        )


def _folder(request: WorktreeRequest, source: Checkout) -> Path:
    for folder in (request.state, worktrees_folder(request.state)):
        if folder.is_symlink():
            raise LaunchError(
                f"{folder} is a symbolic link: a worktree is only created in a real folder.",
                remedy="Replace the link by a folder, or set RETINUE_HOME to another place.",
            )
    folder = Path(os.path.realpath(private_folder(worktrees_folder(request.state)))) / request.run
    if source.top in folder.parents and not _is_ours(source):
        raise LaunchError(
            f"The state folder {request.state} is inside the repository {source.top}: a worktree there would be "
            "a part of that checkout.",
            remedy="Set RETINUE_HOME to a folder outside of the repository.",
        )
    return folder


def _is_ours(source: Checkout) -> bool:
    return load(source.common.with_suffix(".json")) is not None


def _create_checkout(
    record: WorktreeRecord, source: Checkout, request: WorktreeRequest, notes: list[str]
) -> WorktreeRecord:
    main = source.git if above_of(record) is None else source_git(record, request.environment)
    base = request.start or base_of(main, request.base_ref, source.head, notes)
    record.path.mkdir(mode=0o700)
    main("worktree", "add", "--quiet", "--detach", "--no-checkout", "--lock", record.folder, base)
    for entry in entries_of(record):
        _write_lock_reason(entry / "locked", f"{LOCK_REASON}{record.run}, process {os.getpid()}\n")
    (record.path / ".git").unlink()
    record = store(replace(record, config=configuration(record, main)))
    git = create(record, main, base)
    if request.from_dirty and request.start is None:
        base = _commit_dirty_state(record, main, base, source.head, notes)
        (record.git / "HEAD").write_text(f"{base}\n")
    (record.path / ".git").write_bytes(b"gitdir: " + os.fsencode(record.git) + b"\n")
    git("-c", "filter.lfs.required=false", "-c", "filter.lfs.process=", "-c", "filter.lfs.smudge=",
        "read-tree", "--reset", "-u", base, seconds=CHECKOUT_SECONDS)  # fmt: skip
    if (record.path / ".gitmodules").is_file():
        notes.append("submodules are empty in the worktree: git submodule update --init fills them")
    if not record.work.is_dir():
        record.work.mkdir(parents=True)
        notes.append(f"{record.below} is not in the commit that the worktree begins at, and is empty there")
    copies, of_copies = include(main, record.path)
    notes += of_copies
    keep_out(copies, record.git / "info" / "exclude")
    plain = not request.from_dirty and request.start is None and above_of(record) is None
    if plain and main("status", "--porcelain", "-z", "--ignore-submodules=all"):
        notes.append("uncommitted changes of the main checkout are not in the worktree (setting worktree.fromDirty)")
    record = replace(record, base=base, phase="open", included=copies)
    return store(record)


def _write_lock_reason(lock: Path, reason: str) -> None:
    """Write the reason of a lock for `git worktree list` and `locked_by_user`."""
    lock.unlink(missing_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)
    with os.fdopen(os.open(lock, flags, 0o644), "w") as file:
        file.write(reason)


def _commit_dirty_state(record: WorktreeRecord, main: Git, base: str, head: str, notes: list[str]) -> str:
    """Return a commit with the uncommitted changes of the main checkout, whose objects are in the new repository. The
    user's index, stash and branches are not changed."""
    if base != head:
        notes.append("uncommitted changes were left out: the worktree does not begin at HEAD (worktree.baseRef)")
        return base
    theirs = main.folder / main.text("rev-parse", "--git-path", "index")
    above = above_of(record)
    source = contextlib.nullcontext(main) if above is None else guarded_git(above, main.environment)
    with copied_index(theirs, record.path.with_name(f"{record.run}.index")) as index, source as git:
        git = git.having(GIT_OBJECT_DIRECTORY=str(record.git / "objects"))
        tree = tree_of(git, index)
        own = open_git(record, main.environment, consented=main.consented)
        if tree == own.text("rev-parse", f"{head}^{{tree}}"):
            return base
        return commit_tree(git, tree, head, "retinue: uncommitted changes of the main checkout")
