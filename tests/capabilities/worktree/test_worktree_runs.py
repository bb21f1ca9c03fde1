"""Worktrees as part of a tree of runs: made first, shared with children, gone with the last of them."""

import asyncio

import pytest
from tests.runs.run_scene import Scene

from retinue.capabilities.worktree.attach import branch_of
from retinue.capabilities.worktree.record import load_records
from retinue.core.delegation import Refusal
from retinue.core.request import RunRequest
from retinue.core.run_state import ActiveRun
from retinue.core.spec import AgentSpec
from retinue.errors import RetinueError
from retinue.testing.fixtures import temporary_repository

SPEC = AgentSpec(name="worker", prompt="You work.")


@pytest.fixture
def repository(tmp_path):
    with temporary_repository({"a.txt": "a\n"}, path=tmp_path / "project") as made:
        yield made


def left(scene):
    folder = scene.supervisor.project.state / "worktrees"
    return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []


async def test_a_worktree_stays_while_a_child_works_in_it_and_goes_with_the_last(tmp_path, monkeypatch, repository):
    async with Scene(tmp_path, monkeypatch) as scene:
        parent = await scene.main(isolation="worktree")
        (record,) = load_records(scene.supervisor.project.state)
        child = await scene.child(parent, "child")
        assert child.launch.request.cwd == record.path
        assert child.launch.isolation is not None and not child.launch.isolation.own
        (record.path / "of-parent").write_text("p")
        scene.supervisor.stop(parent, "enough")
        outcome = await parent.wait()
        assert outcome.branch == f"retinue-agent-{parent.id}"
        assert any(child.id in note for note in outcome.notes)
        assert record.path.is_dir()
        (record.path / "of-child").write_text("c")
        scene.model("child").say("done")
        await child.wait()
        assert left(scene) == []
        names = repository.git("ls-tree", "-r", "--name-only", outcome.branch).split()
        assert names == ["a.txt", "of-child", "of-parent"]


@pytest.mark.parametrize("options", [{"model": "no-such-model"}, {"limits": {"max_cost_usd": 0}}])
async def test_a_launch_that_fails_later_leaves_no_worktree(tmp_path, monkeypatch, repository, options):
    async with Scene(tmp_path, monkeypatch) as scene:
        request = RunRequest(spec=SPEC, task="t", cwd=tmp_path / "project", isolation="worktree", depth=1, **options)
        try:
            node = await scene.supervisor.start(request)
        except RetinueError:
            assert scene.supervisor.members == {}
        else:
            await node.wait()
        assert left(scene) == []
        assert "locked" not in repository.git("worktree", "list", "--porcelain")


async def test_the_file_and_the_setting_decide_over_a_call(tmp_path, monkeypatch, repository):
    agents = tmp_path / "project" / ".retinue" / "agents"
    agents.mkdir(parents=True)
    (agents / "never.md").write_text("---\ndescription: d\nisolation: off\n---\nx\n")
    (agents / "open.md").write_text("---\ndescription: d\n---\nx\n")
    async with Scene(tmp_path, monkeypatch) as scene:
        main = await scene.main()
        never = await scene.child(main, "n", agent="never", isolation="worktree")
        assert never.launch.isolation is None and any("isolation=worktree" in note for note in never.notes)
        chosen = await scene.child(main, "o", agent="open", isolation="worktree")
        assert chosen.launch.isolation is not None and chosen.launch.isolation.own
        plain = await scene.child(main, "p", agent="open", isolation="off")
        assert plain.launch.isolation is None
    async with Scene(tmp_path, monkeypatch, worktree_isolation="false") as scene:
        main = await scene.main("main two")
        off = await scene.child(main, "x", agent="open", isolation="worktree")
        assert off.launch.isolation is None


async def test_a_failure_to_isolate_is_told_and_the_stored_call_goes_without(tmp_path, monkeypatch):
    async with Scene(tmp_path, monkeypatch) as scene:
        main = await scene.main()
        refused = await scene.spawn(main, "task", isolation="worktree", background=True)
        assert isinstance(refused, Refusal) and "no git repository" in refused.message and refused.retry
        assert len(scene.supervisor.members) == 1
        scene.model("task").standing = "ok"
        again = await scene.spawn(main, "", retry=refused.retry, background=True, agent=None)
        assert isinstance(again, ActiveRun)


async def test_many_isolated_runs_at_once_share_nothing(tmp_path, monkeypatch, repository):
    async with Scene(tmp_path, monkeypatch, max_concurrent=20) as scene:
        main = await scene.main()
        children = await asyncio.gather(
            *(scene.child(main, f"task {number}", isolation="worktree") for number in range(8))
        )
        for number, child in enumerate(children):
            (child.launch.request.cwd / "same").write_text(str(number))
            scene.model(f"task {number}").say("done")
        outcomes = [await child.wait() for child in children]
        assert [repository.git("show", f"{outcome.branch}:same") for outcome in outcomes] == list("01234567")
        await scene.supervisor.project.log.flush()
        assert branch_of(scene.supervisor.project, children[0].id) == outcomes[0].branch
        assert left(scene) == []
        assert repository.git("status", "--porcelain") == ""
