"""Bringing the commits of a worktree into the repository it was made from, and naming them there.

Nothing that exists is overwritten: a name that is taken gets a number, and only the branch that
an earlier leg of the same run left is moved on, forwards, from exactly where that leg left it.
"""

from __future__ import annotations

import re
import shutil
import time
from pathlib import Path

from retinue.capabilities.worktree.record import Record
from retinue.core.lean import dataclass
from retinue.guard.git import Git, GitError

BRANCH = "retinue-agent-"
_LOOSE = re.compile(r"[0-9a-f]{38}|[0-9a-f]{62}")
_MOST_NAMES = 1000
LOCK_SECONDS = 2.0
"""A git at work holds a name for some milliseconds, and waits no longer than 0.1 s for another."""


@dataclass(frozen=True, slots=True)
class Brought:
    """`branch` with the work at `tip`; `moved` when it is new or was moved on by this."""

    branch: str | None
    tip: str | None
    moved: bool = False
    notes: tuple[str, ...] = ()


def bring_home(record: Record, git: Git, main: Git, head: str) -> Brought:
    """`head` is the commit it stands at. Raises GitError when anything of it would not be reachable
    afterwards."""
    made = made_commits(record, git)
    tips = set(made).difference(parent for parents in made.values() for parent in parents)
    tips |= {head} & set(made)
    names = _names(git)
    known = {sha for sha, ref in names if ref.startswith("refs/remotes/")}
    wanted = [tip for tip in sorted(tips) if tip == head or tip not in known]
    if not wanted:
        return Brought(record.branch, record.tip)
    options = ("--quiet", "--no-tags", "--no-write-fetch-head", "--upload-pack=git-upload-pack", "--stdin")
    main.having(GIT_ALLOW_PROTOCOL="file")(
        "fetch", *options, str(record.git), given="".join(f"{tip}\n" for tip in wanted).encode()
    )
    _copy_large_files(record)
    _unlock_names(record)
    branch, tip, moved, notes = record.branch, record.tip, False, []
    if head in made:
        branch, tip, moved = _branch(record, main, head), head, True
    others = [other for other in wanted if other != head]
    for other in others:
        own = next((ref.removeprefix("refs/heads/") for sha, ref in names if sha == other and "/heads/" in ref), None)
        if own is not None:
            plain = _plain(own)  # a branch that came home into this one keeps its name
            wanted_name = plain if plain.startswith(BRANCH) else f"{BRANCH}{record.run}-{plain}"
            name = _free(record, main, f"refs/heads/{wanted_name}", other)
            notes.append(f"its branch {own} is saved as {name.removeprefix('refs/heads/')}")
    hidden = [other for other in others if not any(sha == other and "/heads/" in ref for sha, ref in names)]
    for number, other in enumerate(hidden, 1):
        _free(record, main, f"refs/retinue/{record.run}/{number}", other)
    if hidden:
        notes.append(f"{len(hidden)} abandoned commits are kept under refs/retinue/{record.run}/")
    _check_reachable(main, wanted)
    return Brought(branch, tip, moved, tuple(notes))


def made_commits(record: Record, git: Git) -> dict[str, list[str]]:
    """Every commit that was made in the worktree, with its parents: those whose objects are in its
    own repository, whatever refs or reflogs say. The commit it began at is not one of them."""
    own = record.git / "objects"
    names = [f"{folder.name}{file.name}" for folder in own.glob("[0-9a-f][0-9a-f]") for file in folder.iterdir()
             if _LOOSE.fullmatch(file.name)]  # fmt: skip
    for pack in own.glob("pack/*.idx"):
        names += [line.split()[1].decode() for line in git("show-index", given=pack.read_bytes()).splitlines()]
    if not names:
        return {}
    asked = "".join(f"{name}\n" for name in names).encode()
    kinds = git("cat-file", "--batch-check=%(objecttype) %(objectname)", given=asked).decode().splitlines()
    commits = sorted({line.split()[1] for line in kinds if line.startswith("commit ")} - {record.base})
    if not commits:
        return {}
    listed = git("rev-list", "--no-walk=unsorted", "--parents", "--stdin", given="\n".join(commits).encode() + b"\n")
    lines = [line.split() for line in listed.decode().splitlines()]
    return {line[0]: line[1:] for line in lines}


def merge_hint(branch: str) -> str:
    return f"git merge {branch}"


def _names(git: Git) -> list[tuple[str, str]]:
    listed = git("for-each-ref", "--format=%(objectname) %(refname)").decode("utf-8", "surrogateescape")
    pairs = (line.split(" ", 1) for line in listed.splitlines())
    return [(sha, ref) for sha, ref in pairs]


def _branch(record: Record, main: Git, head: str) -> str:
    before = record.branch
    if before is not None and record.tip is not None and _checked_out(main, before) is None:
        old = main.ask("rev-parse", "--verify", "--quiet", f"refs/heads/{before}")
        if old == head:
            return before
        if old == record.tip and main.holds("merge-base", "--is-ancestor", old, head):
            main("update-ref", "-m", "retinue: saved", f"refs/heads/{before}", head, old)
            return before
    return _free(record, main, f"refs/heads/{BRANCH}{record.run}", head).removeprefix("refs/heads/")


def _checked_out(main: Git, branch: str) -> str | None:
    """The worktree in which `branch` is checked out: moving it would put that one out of step."""
    listed = main.text("worktree", "list", "--porcelain")
    for block in listed.split("\n\n"):
        if f"branch refs/heads/{branch}" in block.split("\n"):
            return block.split("\n")[0].removeprefix("worktree ")
    return None


def _free(record: Record, main: Git, wanted: str, sha: str) -> str:
    """Creates a ref at `sha` and gives its name: `wanted`, or with a number after it when that is
    taken by something else."""
    nothing = "0" * len(sha)
    for number in range(1, _MOST_NAMES):
        name = wanted if number == 1 else f"{wanted}-{number}"
        command = ("update-ref", "-m", "retinue: saved", name, sha, nothing)
        if main.ask(*command) is not None:
            return name
        there = main.ask("rev-parse", "--verify", "--quiet", f"{name}^{{commit}}")
        if there == sha or (there is None and _unlock_names(record) and main.ask(*command) is not None):
            return name
        if there is None and number > 3:
            break
    # Not a matter of the name: git says itself what is wrong.
    main("update-ref", "-m", "retinue: saved", f"{wanted}-saved", sha, nothing)
    return f"{wanted}-saved"


def _unlock_names(record: Record) -> bool:
    """Removes the lock that a git of ours left on a name of this run when it was killed: nobody
    else has reason to write to these names, and no later attempt could. False if there was none."""
    refs = Path(record.common) / "refs"
    locks = [*(refs / "heads").glob(f"{BRANCH}{record.run}*.lock"), *(refs / "retinue" / record.run).glob("*.lock")]
    until = time.monotonic() + LOCK_SECONDS
    for lock in locks:
        while lock.exists() and time.monotonic() < until:
            time.sleep(0.02)
        lock.unlink(missing_ok=True)
    return bool(locks)


def _plain(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.")[:100].removesuffix(".lock") or "branch"


def _check_reachable(main: Git, tips: list[str]) -> None:
    refs = ("--branches", "--tags", "--remotes", "--glob=refs/retinue/*")
    left = main(
        "rev-list", "--max-count=1", "--stdin", "--not", *refs, given="".join(f"{tip}\n" for tip in tips).encode()
    )
    if left.strip():
        raise GitError(("rev-list",), f"commit {left.decode().strip()} would not be reachable")


def _copy_large_files(record: Record) -> None:
    """What git-lfs stored beside the commits belongs to them."""
    ours, theirs = record.git / "lfs" / "objects", Path(record.common) / "lfs" / "objects"
    for file in ours.rglob("*") if ours.is_dir() else ():
        target = theirs / file.relative_to(ours)
        if file.is_file() and not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, target)
