"""What must be so at the end, asked of git and of the disk."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from retinue.core.run_state import RunState
from retinue.log.query import LogReader
from retinue.testing.fixtures import Repository
from tests.program.worktree_drill.agents import JOB
from tests.program.worktree_drill.batch import Scene
from tests.program.worktree_drill.strikes import carrying

BRANCH = "retinue-agent-"
ATTEMPT_EVENTS = {"run.created": "c", "run.resumed": "r", "run.ended": "e"}


def checkout(repository: Repository) -> dict[str, Any]:
    """All of the main checkout that agents have no business with."""
    git = repository.path / ".git"
    names = ("HEAD", "index", "config", "packed-refs", "ORIG_HEAD", "FETCH_HEAD", "logs/HEAD", "shallow")
    return {
        "status": repository.git("status", "--porcelain", "--ignored"),
        "refs": [line for line in repository.git("for-each-ref").splitlines() if "retinue" not in line],
        "hooks": sorted(path.name for path in (git / "hooks").glob("*")),
        "files": {str(path): path.read_bytes() for path in sorted(repository.path.glob("*/*")) if path.is_file()},
        **{name: (git / name).read_bytes() if (git / name).is_file() else None for name in names},
    }


def put_away(scene: Scene) -> None:
    """What a person does at the end: clean, look at what stays, take out what is in the way."""
    for _ in range(2):
        done = scene.call("worktrees", "clean", "--json")
        if done.returncode:
            return scene.find(f"worktrees clean: {done.stderr}")
        for each in json.loads(done.stdout)["cleaned"]:
            if each["kept"] is None:
                continue
            inner = Path(each["kept"]) / "inner"
            why = " ".join(each["notes"])
            if inner.is_dir() and "another repository" in why:
                shutil.rmtree(inner)
                scene.count("kept for a repository inside")
            elif "was made from it" not in why:
                scene.find(f"not cleaned: {each}")


def everything(scene: Scene, repository: Repository, before: dict[str, Any], names: list[str]) -> None:
    """Adds to the findings whatever is not as it must be."""
    for finding in (
        *_reachable(scene, repository),
        *_nothing_left(scene, repository),
        *_untouched(repository, before),
        *_outcomes(scene, repository),
        *sorted(scene.agents.seen.denied),
        *(f"a process is left: {pid}" for name in names for pid in carrying(name)),
    ):
        scene.find(finding)


def _reachable(scene: Scene, repository: Repository) -> Iterator[str]:
    seen = scene.agents.seen
    there = {line.split(" ")[0] for line in repository.git("rev-list", "--all", "--objects").splitlines()}
    for name in sorted(set(seen.commits) - there):
        yield f"commit {name} is not reachable: {seen.commits[name]}"
    for name in sorted(set(seen.blobs) - there):
        yield f"a file with content {name} is in no commit: {seen.blobs[name]}"
    for line in repository.git("fsck", "--unreachable", "--no-reflogs", "--no-progress").splitlines():
        if " commit " in line or not line.startswith("unreachable"):
            yield f"git fsck: {line}"


def _nothing_left(scene: Scene, repository: Repository) -> Iterator[str]:
    git = repository.path / ".git"
    listed = json.loads(scene.call("worktrees", "list", "--json").stdout)
    if listed != {"worktrees": [], "unknown": []}:
        yield f"still listed: {listed}"
    yield from (f"left over: {path.name}" for path in scene.worktrees.iterdir())
    yield from (f"stale entry: {path}" for path in (git / "worktrees").glob("*"))
    yield from (f"stale lock: {path}" for path in git.rglob("*.lock"))
    if repository.git("worktree", "list").count("\n"):
        yield "git still lists worktrees"
    yield from (f"scratch folder left: {path.name}" for path in (scene.folder / "tmp").glob("retinue-*/*"))


def _untouched(repository: Repository, before: dict[str, Any]) -> Iterator[str]:
    after = checkout(repository)
    yield from (f"the main checkout has another {name}" for name in before if before[name] != after[name])


def _outcomes(scene: Scene, repository: Repository) -> Iterator[str]:
    """One outcome for each time that a run was started or taken up, unless it was cut off; and the
    last word on each job's work."""
    refs = repository.git("for-each-ref", "--format=%(refname:short)", f"refs/heads/{BRANCH}*").split()
    with LogReader.open(scene.state) as reader:
        for row in reader.list_runs():
            attempts = "".join(ATTEMPT_EVENTS.get(event.body.type, "") for event in reader.events(row.id))
            if "ee" in attempts or not attempts.startswith("c") or (attempts.endswith("e") != (row.state == "ended")):
                yield f"run {row.id} is {row.state} after {attempts}"
            if row.state not in ("ended", "interrupted"):
                yield f"run {row.id} is {row.state}"
            job = JOB.search(row.task)
            if job is not None:
                yield from _work(scene, repository, row, f"{job[1]} {job[2]}", refs)


def _work(scene: Scene, repository: Repository, row: RunState, job: str, refs: list[str]) -> Iterator[str]:
    branch = f"{BRANCH}{row.id}"
    own = [ref for ref in refs if ref.startswith(branch)]
    plan = scene.agents.plan(int(job.split()[-1]), inner=job.startswith("inner"))
    if plan.kind == "idle" and own:
        yield f"{job} changed nothing and has {own}"
    if branch not in own or plan.kind != "plain" or job in scene.agents.seen.missed:
        return
    there = repository.git("ls-tree", "-r", "--name-only", branch).splitlines()
    yield from (
        f"{job}: {path} was removed and is on {branch}" for path in scene.agents.seen.gone.get(job, ()) if path in there
    )
    yield from (f"{job}: {path} is ignored and on {branch}" for path in there if path.endswith(".log"))
