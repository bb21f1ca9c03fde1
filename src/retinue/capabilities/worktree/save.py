"""The end of a worktree: all work of an agent is saved, and only then the worktree is removed.

Uncommitted changes are committed. All commits of the worktree are fetched into the user's repository: its head as
branch `retinue-agent-<run>`, other branches of the agent beside it, and abandoned commits under `refs/retinue/<run>/`,
where garbage collection keeps them. If anything is uncertain, the directory stays, and a note says where it is. Every
step can be repeated, so that another process can finish the work of a killed one. `sweep` ends the worktrees of runs
whose process is dead.

Ignored files that a worktree needs are copied into it if `.worktreeinclude` names them. Git matches that file, so its
syntax is that of .gitignore. Only ignored files are copied: the others are in the commit or in the uncommitted changes.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from retinue.capabilities.worktree.record import (
    WorktreeRecord,
    hold_lock,
    load,
    load_records,
    save_commits,
    store,
    worktrees_folder,
)
from retinue.capabilities.worktree.repository import (
    TEMPORARY_SUFFIXES,
    commit_subject,
    commit_tree,
    copied_index,
    discard,
    distrust,
    guarded_git,
    locked_by_user,
    remove_folder,
    source_git,
    tree_of,
    unlock,
)
from retinue.guard.git import Git, GitError, literal_pattern, paths

INCLUDE_FILE = ".worktreeinclude"
"""A file in the checkout that lists, in the syntax of .gitignore, the ignored files to copy into worktrees."""


def include(source: Git, target: Path) -> tuple[dict[str, list[int]], list[str]]:
    """Copy the ignored files of `source` that `INCLUDE_FILE` lists. Links that lead out of the checkout are skipped,
    because the agent must not reach their targets. Return size and time of each copy, and notes on failed ones."""
    patterns = source.folder / INCLUDE_FILE
    copies: dict[str, list[int]] = {}
    notes: list[str] = []
    if patterns.is_symlink() or not patterns.is_file():
        return copies, notes
    matching = paths(source("ls-files", "-z", "--others", "--ignored", f"--exclude-from={patterns}"))
    if not matching:
        return copies, notes
    ignored = frozenset(paths(source("ls-files", "-z", "--others", "--ignored", "--exclude-standard")))
    for path in matching:
        if path not in ignored or path.endswith("/"):
            continue
        try:
            if _copy(source.folder, target, path):
                copies[path] = stamp(target / path)
            else:
                notes.append(f"{INCLUDE_FILE}: {path} leads out of the checkout and was not copied")
        except OSError as error:
            notes.append(f"{INCLUDE_FILE}: {path} could not be copied ({error.strerror})")
    return copies, notes


def keep_out(files: Iterable[str], exclude: Path) -> None:
    """Make git ignore the copies, even if the .gitignore that covers them is not committed yet: a secret must not get
    into a branch."""
    lines = [f"/{literal_pattern(name)}\n" for name in files]
    if lines:
        with exclude.open("a", encoding="utf-8", errors="surrogateescape") as file:
            file.write("\n# copied in by Retinue\n" + "".join(lines))


def stamp(path: Path) -> list[int]:
    entry = path.lstat()
    return [entry.st_size, entry.st_mtime_ns]


def changed_copies(files: Mapping[str, list[int]], folder: Path) -> list[str]:
    """Return the copies that have changed."""
    changed = []
    for name, before in files.items():
        now: list[int] | None = None
        with contextlib.suppress(OSError):
            now = stamp(folder / name)
        if now != before:
            changed.append(name)
    return changed


def _copy(root: Path, target: Path, name: str) -> bool:
    source, copy = root / name, target / name
    if not Path(os.path.realpath(source)).is_relative_to(os.path.realpath(root)):
        return False
    if source.is_symlink() and source.readlink().is_absolute():
        return False
    copy.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(source, copy, follow_symlinks=False)
    return True


MAX_NAMED_FILES = 10
_LINK_MODE = "160000 "
"""Git's mode of a submodule."""
_UNFINISHED_OPERATIONS = {
    "MERGE_HEAD": "merge",
    "rebase-merge": "rebase",
    "rebase-apply": "rebase",
    "CHERRY_PICK_HEAD": "pick",
}


class SavedWork(Struct, frozen=True):
    """The result of saving a worktree. `branch` has the work, if there was any. `remaining_folder` is the directory if
    it was not removed, for a reason in `notes`."""

    branch: str | None = None
    remaining_folder: Path | None = None
    notes: tuple[str, ...] = ()


def finish(
    state: Path, run: str, environment: Mapping[str, str], *, keep: str = "", leftover: bool = False
) -> SavedWork | None:
    """Save and remove the worktree of `run`. `keep` is a reason to keep the directory after saving. Return None if
    `run` has no worktree; with `leftover` also if a process owns it or is locking it. A worktree of another live
    process is never changed."""
    with hold_lock(state, run, wait=not leftover) as mine:
        if not mine:
            return None
        record = load(worktrees_folder(state) / f"{run}.json")
        if record is None or (leftover and record.busy()):
            return None
        if record.elsewhere():
            pid = record.owner.pid if record.owner else 0
            note = f"its worktree stays at {record.path}: process {pid} works in it"
            return SavedWork(record.branch, record.path, (note,))
        if record.phase in ("making", "removing"):
            discard(record, environment)
            return SavedWork(record.branch, record.path if record.path.exists() else None)
        try:
            return _save(state, record, environment, keep)
        except (GitError, OSError, ValueError, LookupError) as error:
            return _keep(record, f"its work could not be saved ({error})")


def _save(state: Path, record: WorktreeRecord, environment: Mapping[str, str], keep: str) -> SavedWork:
    if locked_by_user(record):
        return _keep(record, "it is locked by you (git worktree unlock releases it)")
    if not record.git.is_dir() and not record.path.exists():
        discard(record, environment)
        return SavedWork(record.branch, None, ("its worktree was deleted by another program",))
    notes: list[str] = []
    git = distrust(record, environment)
    unlock(record)
    # Checked before saving: work that is saved into this worktree later must be saved from it as well.
    dependent = _find_dependent(state, record)
    there = record.path.is_dir() and not record.path.is_symlink()
    head, tree = git.text("rev-parse", "HEAD^{commit}", "HEAD^{tree}", "--").split("\n")[:2]
    if there:
        for name, what in _UNFINISHED_OPERATIONS.items():
            if (record.git / name).exists():
                notes.append(f"a {what} was not finished: its files are committed as they were")
        head = _commit_leftovers(record, git, head, tree)
    else:
        notes.append("the directory of its worktree was deleted; its commits are saved")
    main = source_git(record, environment)
    record, notes_on_branches = save_commits(record, git, main, head)
    notes += notes_on_branches
    record = store(record)
    why = keep or dependent or _find_dependent(state, record) or _obstacle_inside(record, git, there)
    if why:
        return _keep(record, why, notes, occupied=bool(keep))
    if there:
        notes += _note_unsaved(record, git)
    record = store(replace(record, phase="removing"))
    discard(record, environment)
    remains = record.path if record.path.exists() else None
    if remains is not None:
        notes.append(f"everything is saved, but {remains} could not be removed entirely")
    return SavedWork(record.branch, remains, tuple(notes))


def _keep(record: WorktreeRecord, why: str, notes: Sequence[str] = (), *, occupied: bool = False) -> SavedWork:
    """Keep the directory. `occupied`: runs of this process still work in it, so the owner stays."""
    owner = record.owner if occupied else None
    # If the disk is full, the record stays unchanged.
    with contextlib.suppress(OSError):
        store(replace(record, phase="kept", reason=why, owner=owner))
    notes = (*notes, f"its worktree stays at {record.path}: {why}")
    return SavedWork(record.branch, record.path, notes)


def _commit_leftovers(record: WorktreeRecord, git: Git, head: str, committed: str) -> str:
    """Commit all changes like `git commit`, but without hooks and signatures. Return the new head; `committed` is the
    tree of `head`."""
    own = record.git / "index"
    with copied_index(own, record.path.with_name(f"{record.run}.index")) as index:
        with guarded_git(record, git.environment) as filing:
            tree = tree_of(filing, index, record.included.keys())
            if tree == committed:
                return head
            commit = commit_tree(filing, tree, head, commit_subject(record.description or record.agent))
        git("update-ref", "-m", "retinue: saved", "HEAD", commit, head)
        index.replace(own)
    return commit


def _note_unsaved(record: WorktreeRecord, git: Git) -> list[str]:
    """Return notes on ignored files, which are removed with the directory."""
    notes = []
    lost = changed_copies(record.included, record.path)
    if lost:
        notes.append(f"ignored files that were copied in and changed there are not in the branch: {', '.join(lost)}")
    listed = paths(git("ls-files", "-z", "--others", "--ignored", "--exclude-standard", "--directory"))
    written = [name for name in listed if name not in record.included and not _holds_only_copies(record, name)]
    if written:
        names = ", ".join(written[:MAX_NAMED_FILES])
        if len(written) > MAX_NAMED_FILES:
            names += f" and {len(written) - MAX_NAMED_FILES} more"
        notes.append(f"ignored files it wrote are not in the branch and went with its worktree: {names}")
    return notes


def _holds_only_copies(record: WorktreeRecord, folder: str) -> bool:
    """Return whether a folder that git ignores contains only files that we copied."""
    if not folder.endswith("/"):
        return False
    for inside, _, files in os.walk(record.path / folder):
        below = os.path.relpath(inside, record.path)
        if any(os.path.join(below, name) not in record.included for name in files):  # noqa: PTH118 - for every file
            return False
    return True


def _find_dependent(state: Path, record: WorktreeRecord) -> str:
    """Return a reason to keep the repository if another worktree was made from it; otherwise an empty text."""
    for other in load_records(state):
        if _within(other, record):
            return f"the worktree of run {other.run} was made from it"
    return ""


def _obstacle_inside(record: WorktreeRecord, git: Git, there: bool) -> str:
    """Return why the directory cannot be removed although its commits are saved; empty if it can."""
    if (record.git / "modules").is_dir():
        return "a submodule was filled in it, and may contain commits"
    if not there:
        return ""
    links, others = [], []
    for line in paths(git("ls-files", "-z", "-t", "--stage", "--others", "--directory")):
        if line.startswith("? "):
            if line.endswith("/"):
                others.append(line[2:].rstrip("/"))
        elif line[2:].startswith(_LINK_MODE):
            links.append(line.partition("\t")[2])
    nested = next(_repositories(record.path, (*links, *others)), None)
    if nested is not None:
        return f"there is another repository in it: {nested}"
    filled = [name for name in links if any(files for _, _, files in os.walk(record.path / name))]
    if not filled:
        return ""
    return f"files were written where a submodule belongs, which cannot be committed: {', '.join(filled)}"


def _repositories(root: Path, names: Iterable[str]) -> Iterator[Path]:
    """Yield other repositories in these folders below `root`, including ignored ones and one that replaced its own
    .git file."""
    if (root / ".git").is_dir():
        yield root
    for name in names:
        for folder, folders, files in os.walk(root / name):
            if ".git" in folders or ".git" in files:
                yield Path(folder)


_LEFTOVER_SUFFIXES = (*TEMPORARY_SUFFIXES, ".lock")


def list_worktrees(state: Path) -> list[WorktreeRecord]:
    """Return every worktree of a project. One that was made from another comes before it, because its work is saved
    into that one."""
    records = load_records(state)
    return sorted(records, key=lambda record: -sum(_within(record, other) for other in records))


def list_strangers(state: Path) -> list[Path]:
    """Return the files among the worktrees that belong to no readable record. They are shown and never changed."""
    return [path for _, ending, path in _unrecorded(state) if ending not in _LEFTOVER_SUFFIXES]


def sweep(
    state: Path,
    environment: Mapping[str, str],
    live: Callable[[], Collection[str]],
    tell: Callable[[WorktreeRecord, SavedWork | None], None],
) -> None:
    """Finish every worktree without a live process. `tell` gets each result at once, so that an interrupted sweep has
    reported its work; None means that another process was faster. `live` is called again for each, because runs may be
    resumed meanwhile."""
    for record in list_worktrees(state):
        if not record.busy() and record.run not in live():
            tell(record, finish(state, record.run, environment, leftover=True))
    _tidy(state)


def _tidy(state: Path) -> None:
    """Remove files of processes that died before they had written a record."""
    unrecorded = list(_unrecorded(state))
    with_work = {run for run, ending, _ in unrecorded if ending not in _LEFTOVER_SUFFIXES}
    for run in {run for run, _, _ in unrecorded} - with_work:
        # Releasing the lock also removes its file.
        with hold_lock(state, run, wait=False) as mine:
            if not mine or (worktrees_folder(state) / f"{run}.json").exists():
                continue
            for ending in TEMPORARY_SUFFIXES:
                remove_folder(worktrees_folder(state) / f"{run}{ending}")


def _unrecorded(state: Path) -> Iterator[tuple[str, str, Path]]:
    """Yield the files without a record: the run in the name, the suffix, and the path."""
    try:
        entries = sorted(worktrees_folder(state).iterdir())
    except OSError:
        return
    recorded = {record.run for record in load_records(state)}
    for path in entries:
        run, _, suffix = path.name.partition(".")
        ending = f".{suffix}" if suffix else ""
        if run not in recorded:
            yield run, ending, path


def _within(record: WorktreeRecord, other: WorktreeRecord) -> bool:
    """Return whether the first worktree was made from the other one."""
    return record.run != other.run and other.path in (Path(record.repository), *Path(record.repository).parents)
