"""No deadlock in any nesting: whatever tree of foreground and background runs models build, with
whatever limit, waiting for whichever children and stopped wherever, every run ends.

RETINUE_TREES=1000 grows more trees.
"""

import asyncio
import os
import tempfile
from collections.abc import AsyncGenerator, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.runs.run_scene import INFO, Scene, message, task_of

from retinue.core.messages import ToolCall, ToolMessage
from retinue.core.request import EVERYTHING, RunRequest
from retinue.core.spec import AgentSpec
from retinue.runs.supervisor import Supervisor
from retinue.testing import Finished, ModelInfo, ModelRequest, Part

TREES = int(os.environ.get("RETINUE_TREES", "25"))
DEPTH = 3
TIMEOUT = 400
"""Steps of the fake clock. A wait for a result is bounded by 270 seconds: longer is a deadlock."""
SOON = 100


@dataclass(frozen=True)
class Node:
    """What one agent does: starts its children in one turn or one after another, then waits for
    the results of those it joins, then answers."""

    background: bool
    joins: bool
    at_once: bool
    children: tuple["Node", ...] = ()


def nodes(depth: int) -> st.SearchStrategy[Node]:
    below = st.just(()) if depth == 0 else st.lists(nodes(depth - 1), max_size=3).map(tuple)
    return st.builds(Node, st.booleans(), st.booleans(), st.booleans(), below)


MAIN = st.lists(nodes(DEPTH - 1), min_size=1, max_size=4).map(tuple)


def walk(children: tuple[Node, ...], path: str = "main") -> Iterator[tuple[str, Node]]:
    for number, node in enumerate(children):
        here = f"{path}/{number}"
        yield here, node
        yield from walk(node.children, here)


class TreeModel:
    """Answers from the tree and the conversation alone."""

    def __init__(self, tree: dict[str, Node], info: ModelInfo) -> None:
        self._tree = tree
        self.info = info

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Part, None]:
        await asyncio.sleep(0)
        yield Finished(self._answer(request))

    def _answer(self, request: ModelRequest):
        path = task_of(request)
        node = self._tree[path]
        results = [each for m in request.messages if isinstance(m, ToolMessage) for each in m.results]
        started = [each for each in results if each.name == "Agent"]
        if len(started) < len(node.children):
            batch = range(len(started), len(node.children) if node.at_once else len(started) + 1)
            return message("", tuple(self._start(path, number, node.children[number]) for number in batch))
        read = [each for each in results if each.name == "get_subagent_result"]
        ids = [each.text.partition("Agent ID: ")[2].split()[0] for each in started if "Agent ID: " in each.text]
        if node.joins and ids and not read:
            return message("", tuple(self._read(run_id) for run_id in ids))
        return message(f"done {path}")

    @staticmethod
    def _start(path: str, number: int, child: Node) -> ToolCall:
        name = f"{path}/{number}"
        arguments = {"prompt": name, "description": name, "subagent_type": "general-purpose"}
        return ToolCall(f"start-{number}", "Agent", {**arguments, "run_in_background": child.background})

    @staticmethod
    def _read(run_id: str) -> ToolCall:
        return ToolCall(f"read-{run_id}", "get_subagent_result", {"agent_id": run_id, "wait": True})

    async def close(self) -> None:
        pass


def stop_some(supervisor: Supervisor, numbers: list[int]) -> None:
    live = [node for node in supervisor.members.values() if node.live and node.depth]
    if numbers and live:
        node = live[numbers.pop() % len(live)]
        (supervisor.stop_tree if len(live) % 2 else supervisor.stop)(node, "Enough.")


async def grow(
    folder: Path, patch: pytest.MonkeyPatch, children: tuple[Node, ...], limit: int, stops: list[int]
) -> None:
    tree = {"main": Node(False, True, True, children), **dict(walk(children))}
    scene = Scene(folder, patch, max_concurrent=limit)
    patch.setattr("retinue.runs.plan.build_model", lambda chosen, *_, **__: TreeModel(tree, INFO))
    async with scene:
        main = await start(scene)
        left = list(stops)
        began = scene.clock.monotonic()
        for _ in range(TIMEOUT):
            await settle(scene)
            if not scene.supervisor.busy:
                break
            stop_some(scene.supervisor, left)
            await scene.clock.advance(1.0)
        waiting = {node.state.description: node.status for node in scene.supervisor.members.values() if node.live}
        assert waiting == {}, f"limit {limit}: {waiting}"
        outcome = await main.wait()
        assert outcome.ended == "completed", outcome
        if not stops:
            assert sorted(m.state.description for m in scene.supervisor.members.values()) == sorted(
                ["", *dict(walk(children))]
            )
            assert {m.status for m in scene.supervisor.members.values()} == {"completed"}
            assert scene.clock.monotonic() - began < SOON, "something waited until its bound"
        assert (scene.supervisor.queue.running, scene.supervisor.queue.waiting) == (0, ())


async def start(scene: Scene):
    spec = AgentSpec(name="main", prompt="You are main.")
    return await scene.supervisor.start(
        RunRequest(spec=spec, task="main", cwd=scene.folder / "project", pinned=EVERYTHING)
    )


async def settle(scene: Scene) -> None:
    """Lets everything happen that needs no time to pass."""
    for _ in range(3):
        await scene.supervisor.project.log.flush()
        for _ in range(20):
            await asyncio.sleep(0)


@pytest.mark.slow
@settings(max_examples=TREES, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(MAIN, st.integers(1, 4), st.lists(st.integers(0, 50), max_size=4))
def test_every_run_of_every_tree_ends(children, limit, stops):
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        asyncio.run(grow(Path(folder), patch, children, limit, stops))
