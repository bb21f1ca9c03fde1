"""What people allow goes where they said and nowhere else, over random trees of real runs."""

from __future__ import annotations

import json
import random

import pytest
from tests.runs.run_scene import Scene

from retinue.capabilities.permissions.gatekeeper import grant, recall
from retinue.core.permission import InboxAnswer, ToolUse
from retinue.log.inbox import granted
from retinue.runs.guard import RunGuards, identity_of
from retinue.runs.run import Run

PATHS = [f"{name}.txt" for name in "abcde"]


def write(path: str) -> ToolUse:
    return ToolUse("write", {"path": path, "content": "x"}, frozenset({"write"}), "c1")


def allowed(scene: Scene, node: Run) -> set[str]:
    decide = scene.supervisor.project.part(RunGuards)[node.id].permissions.decide
    return {path for path in PATHS if decide(write(path)).verdict == "allow"}


def recalled(scene: Scene, node: Run) -> set[str]:
    """What is allowed after another process would have asked the log."""
    project = scene.supervisor.project
    recall(project.part(RunGuards)[node.id], project)
    return allowed(scene, node)


async def give(scene: Scene, node: Run, path: str, choice: str) -> None:
    guard = scene.supervisor.project.part(RunGuards)[node.id]
    rule = guard.permissions.decide(write(path)).rule
    if rule is not None:
        await grant(guard, scene.supervisor.project, rule, InboxAnswer(choice, by="test"))


@pytest.mark.parametrize("seed", range(12))
async def test_grants_for_a_run_never_flow_up_or_sideways(tmp_path, monkeypatch, seed):
    chance = random.Random(seed)
    async with Scene(tmp_path, monkeypatch, permissions_default_mode="default", max_concurrent=20) as scene:
        members = [await scene.main()]
        expected: dict[str, set[str]] = {members[0].id: set()}
        for step in range(14):
            node = chance.choice(members)
            if chance.random() < 0.5 and node.depth < 3 and len(members) < 7:
                child = await scene.child(node, f"task {step}")
                members.append(child)
                expected[child.id] = set(expected[node.id])
            else:
                path = chance.choice(PATHS)
                await give(scene, node, path, "allow-run")
                expected[node.id].add(path)
            assert {each.id: allowed(scene, each) for each in members} == expected


async def test_what_is_allowed_for_an_agent_is_for_its_runs_only_and_kept(tmp_path, monkeypatch):
    async with Scene(tmp_path, monkeypatch, permissions_default_mode="default", max_concurrent=20) as scene:
        main = await scene.main()
        one, two = await scene.child(main, "one"), await scene.child(main, "two")
        other = await scene.child(main, "other", agent="Plan")
        await give(scene, one, "a.txt", "allow-agent")
        assert allowed(scene, one) == allowed(scene, two) == {"a.txt"}
        assert allowed(scene, main) == set() == allowed(scene, other)
        assert len(granted(scene.supervisor.project.log.reader, identity_of(one))) == 1


async def test_what_is_allowed_for_an_agent_ends_with_a_change_of_its_file(tmp_path, monkeypatch):
    async with Scene(tmp_path, monkeypatch, permissions_default_mode="default", max_concurrent=20) as scene:
        file = tmp_path / "project" / ".claude" / "agents" / "helper.md"
        file.parent.mkdir(parents=True)
        main = await scene.main()

        async def helper(task: str, prompt: str) -> Run:
            file.write_text(f"---\nname: helper\ndescription: Helps.\n---\n{prompt}\n")
            return await scene.child(main, task, agent="helper")

        one = await helper("one", "Help well.")
        await give(scene, one, "a.txt", "allow-agent")
        assert recalled(scene, one) == {"a.txt"}
        changed = await helper("two", "Do what the repository says.")
        assert recalled(scene, changed) == set()
        await give(scene, changed, "b.txt", "allow-agent")
        assert (recalled(scene, one), recalled(scene, changed)) == ({"a.txt"}, {"b.txt"})
        assert recalled(scene, await helper("three", "Help well.")) == {"a.txt"}


async def test_what_was_allowed_before_there_were_digests_is_allowed_no_more(tmp_path, monkeypatch):
    async with Scene(tmp_path, monkeypatch, permissions_default_mode="default", max_concurrent=20) as scene:
        main = await scene.main()
        spec = main.launch.request.spec
        values = (spec.name, spec.source, "Edit(/a.txt)", 1.0, "somebody")
        await scene.supervisor.project.log.transact(
            lambda connection: connection.execute("INSERT INTO grants VALUES (?, ?, ?, ?, ?)", values)
        )
        assert recalled(scene, main) == set()


async def test_always_is_a_rule_in_the_local_settings_for_everyone(tmp_path, monkeypatch):
    async with Scene(tmp_path, monkeypatch, permissions_default_mode="default", max_concurrent=20) as scene:
        main = await scene.main()
        one = await scene.child(main, "one")
        await give(scene, one, "a.txt", "always")
        await give(scene, one, "b.txt", "always")
        assert allowed(scene, one) == allowed(scene, main) == {"a.txt", "b.txt"}
        two = await scene.child(main, "two")
        assert allowed(scene, two) == {"a.txt", "b.txt"}
        file = tmp_path / "project" / ".retinue" / "settings.local.json"
        assert len(json.loads(file.read_text())["permissions"]["allow"]) == 2
