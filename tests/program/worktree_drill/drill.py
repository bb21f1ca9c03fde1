"""The whole drill, and what it found."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from retinue.testing.fixtures import temporary_repository
from tests.program.conftest import Project
from tests.program.model_server import ModelServer
from tests.program.worktree_drill import check
from tests.program.worktree_drill.agents import JOB, Agents
from tests.program.worktree_drill.batch import FREELY, Batch, Scene
from tests.program.worktree_drill.plans import FILES
from tests.program.worktree_drill.seen import Seen
from tests.program.worktree_drill.strikes import install

BOSS = "---\ndescription: has others work for it\ntools: Agent, bash, read, write, edit\n---\nYou have others work.\n"


@dataclass(frozen=True)
class Report:
    findings: tuple[str, ...]
    figures: dict[str, float]
    strikes: dict[str, int]


def run_drill(
    folder: Path, runs: int, seed: int, *, supervisors: int = 3, at_once: int = 4,
    tell: Callable[[str], None] = lambda text: None,
) -> Report:  # fmt: skip
    """At least `runs` isolated runs in the empty `folder`, `supervisors` processes at a time with
    `at_once` agents at work in each."""
    began = time.monotonic()
    project = Project(folder / "project", folder / "home")
    for each in (project.cwd, project.home, folder / "tmp"):
        each.mkdir()
    agents_folder = project.home / ".retinue" / "agents"
    agents_folder.mkdir(parents=True)
    (agents_folder / "boss.md").write_text(BOSS)
    with temporary_repository(FILES, path=project.cwd) as repository, Seen() as seen:
        agents = Agents(seed, seen)
        with ModelServer(agents.answer) as server:
            project.server = server
            scene = Scene(project, agents, folder, install(folder / "bin"), at_once)
            before = check.checkout(repository)
            batches = _batches(scene, runs, seed)

            def work(batch: Batch) -> None:
                try:
                    batch.run()
                except Exception as error:
                    scene.find(f"{batch.task}: {type(error).__name__}: {error}")
                server.requests.clear()
                tell(f"{batch.task}: {time.monotonic() - began:.0f} s, {len(scene.findings)} findings")

            with ThreadPoolExecutor(supervisors) as pool:
                list(pool.map(work, batches))
            scene.check_listed()
            check.put_away(scene)
            _resume_some(scene, seed)
            _last(scene, runs)
            names = [name for batch in batches for name in (batch.name, f"{batch.name}-clean")]
            check.everything(scene, repository, before, names)
    isolated = [row for row in scene.rows() if JOB.search(row.task)]
    figures: dict[str, float] = {
        "worktree runs": len(isolated),
        "of them interrupted": sum(row.state == "interrupted" for row in isolated),
        "commits checked": len(seen.commits),
        "uncommitted files checked": len(seen.blobs),
        **scene.counts,
        "kills": sum(scene.strikes.values()),
        "seconds": round(time.monotonic() - began, 1),
    }
    return Report(tuple(scene.findings), figures, dict(sorted(scene.strikes.items())))


def _batches(scene: Scene, runs: int, seed: int) -> list[Batch]:
    chosen, batches, first = random.Random(seed), [], 0
    while first < runs:
        jobs = range(first, min(first + chosen.choice([1, 1, 4, 8, 12]), runs))
        batches.append(Batch(scene, len(batches), jobs, seed))
        first = jobs.stop
    return batches


def _resume_some(scene: Scene, seed: int) -> None:
    """Of the runs that nobody took up, some are: each must get to an outcome. One whose folder went
    with a worktree above it must say whom to take up instead."""
    cut = [row for row in scene.rows() if row.state == "interrupted" and JOB.search(row.task)]
    for row in random.Random(seed).sample(cut, min(len(cut), 3 + len(cut) // 5)):
        done = scene.call("runs", "resume", row.id, "go on", "--json")
        after = next(each for each in scene.rows() if each.id == row.id)
        scene.count("taken up at the end")
        instead = f"retinue runs resume {row.parent_id}" in done.stderr and not Path(row.cwd).exists()
        if after.state != "ended" and not instead:
            scene.find(f"run {row.id} could not be taken up: {done.stderr[-400:]}")
    check.put_away(scene)


def _last(scene: Scene, runs: int) -> None:
    """The next run in the project sweeps what dead ones left in the folder for temporary files."""
    done = scene.call("run", "general-purpose", f"Do job {runs} .", *FREELY, "--isolation", "worktree")
    if "left over" in done.stderr:
        scene.find(f"the next run is told of leftovers: {done.stderr}")
