"""Guarantee 6 for any story: spawn, end, fail, read, steer, stop, resume, restart, in any order
and at any moment of the fake clock, every end of a child reaches its parent exactly once.

RETINUE_STORIES=500 tells more stories.
"""

import asyncio
import os
import re
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.runs.run_scene import Scene, until

from retinue.core.events import MessageAdded, ToolEnded
from retinue.core.run_state import ActiveRun
from retinue.runs.run import Run

STORIES = int(os.environ.get("RETINUE_STORIES", "40"))
MODES = st.sampled_from(["async", "smart", "group"])
WHICH = st.integers(0, 5)
STEP = st.one_of(
    st.tuples(st.just("spawn"), MODES),
    st.tuples(st.just("end"), WHICH),
    st.tuples(st.just("fail"), WHICH),
    st.tuples(st.just("read"), WHICH),
    st.tuples(st.just("stop"), WHICH),
    st.tuples(st.just("resume"), WHICH, MODES),
    st.tuples(st.just("steer"), WHICH),
    st.tuples(st.just("pass"), st.sampled_from([0.05, 0.1, 0.2, 1.0, 15.0, 30.0])),
    st.tuples(st.just("turn")),
    st.tuples(st.just("leave")),
    st.tuples(st.just("restart")),
)


@dataclass
class Told:
    """How often an answer came to the parent, and how."""

    announced: int = 0
    read: int = 0
    order: list[str] = field(default_factory=list)


class Story:
    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.tasks: list[str] = []
        self.ids: dict[str, str] = {}
        self.answers: list[tuple[str, str]] = []
        """(task, answer) of every attempt that ended by itself, in order."""

    @property
    def supervisor(self):
        return self.scene.supervisor

    @property
    def main(self) -> Run:
        return self.supervisor.members[self.ids["main"]]

    def node(self, number: int, live: bool) -> Run | None:
        known = [self.supervisor.members.get(self.ids[task]) for task in self.tasks]
        fit = [node for node in known if node is not None and node.live == live]
        return fit[number % len(fit)] if fit else None

    def task(self, node: Run) -> str:
        return next(task for task, run_id in self.ids.items() if run_id == node.id)

    async def tell(self, step: tuple) -> None:
        word, *rest = step
        if word in ("end", "fail", "read", "stop", "resume", "steer"):
            child = self.node(rest[0], live=word not in ("read", "resume"))
            if child is not None:
                await getattr(self, word)(child, *rest[1:])
        else:
            await getattr(self, {"pass": "later"}.get(word, word))(*rest)

    async def spawn(self, mode: str) -> None:
        task = f"task-{len(self.tasks)}"
        child = await self.scene.child(self.main, task, join=mode)
        self.tasks.append(task)
        self.ids[task] = child.id

    async def end(self, child: Run) -> None:
        if child.live:
            task = self.task(child)
            answer = f"[{task} answer {len(self.answers)}]"
            self.scene.model(task).say(answer)
            outcome = await child.wait()
            self.answers.append((task, outcome.text))

    async def fail(self, child: Run) -> None:
        task = self.task(child)
        failure = f"[{task} failure {len(self.answers)}]"
        self.scene.model(task).fail(failure)
        await child.wait()
        self.answers.append((task, failure))

    async def read(self, child: Run) -> None:
        self.scene.model("main").call("get_subagent_result", agent_id=child.id)
        await self.scene.model("main").asked()

    async def stop(self, child: Run) -> None:
        reason = f"[{self.task(child)} stopped {len(self.answers)}]"
        self.supervisor.stop(child, reason, by="agent")
        await child.wait()
        self.answers.append((self.task(child), ""))

    async def resume(self, child: Run, mode: str) -> None:
        assert not child.steer_now("too late")
        view = await self.scene.spawn(self.main, "go on", resume=child.id, background=True, join=mode)
        assert isinstance(view, ActiveRun), view
        await self.scene.model(self.task(child)).asked()

    async def steer(self, child: Run) -> None:
        assert child.steer_now("more")
        self.scene.model(self.task(child)).call("ls")
        await self.scene.model(self.task(child)).asked()

    async def later(self, seconds: float) -> None:
        await self.scene.clock.advance(seconds)

    async def turn(self) -> None:
        """The parent has a turn, in which it hears what there is to hear."""
        self.main.steer_now("anything new?")
        self.scene.model("main").say("hm")
        await self.scene.model("main").asked()

    async def leave(self) -> None:
        """A person stops the parent and comes back."""
        self.supervisor.stop(self.main, "Later.")
        await self.main.wait()
        await self.supervisor.resume(self.ids["main"], "back")
        await self.scene.model("main").asked()

    async def restart(self) -> None:
        """The process dies and another takes the parent up."""
        live = [self.task(m) for m in self.supervisor.members.values() if m.live and m.id != self.ids["main"]]
        for task in list(self.supervisor._tasks.values()):
            task.cancel()
        await until(lambda: not self.supervisor._tasks)
        for room in self.supervisor._notifications.values():
            room.close()
        await self.supervisor.project.close()
        self.scene.again()
        await self.supervisor.resume(self.ids["main"], "back")
        await self.scene.model("main").asked()
        for task in live:  # an interrupted child is taken up again by its parent, who was told of it
            view = await self.scene.spawn(self.main, "go on", resume=self.ids[task], background=True)
            assert isinstance(view, ActiveRun), view
            await self.scene.model(task).asked()

    async def finish(self) -> None:
        for task in self.tasks:
            child = self.supervisor.members.get(self.ids[task])
            if child is not None:
                await self.end(child)
        await self.scene.clock.advance(50)
        await self.turn()

    async def told(self) -> dict[str, Told]:
        await self.supervisor.project.log.flush()
        found: dict[str, Told] = {}
        for event in self.supervisor.project.log.reader.events(self.ids["main"]):
            match event.body:
                case MessageAdded(message) if message.origin == "notification":
                    kind, text = "announced", message.text
                case ToolEnded() as ended:
                    kind, text = "read", ended.result.text
                case _:
                    continue
            for answer in set(re.findall(r"\[task-\d+ (?:answer|failure|stopped) \d+\]", text)):
                told = found.setdefault(answer, Told())
                setattr(told, kind, getattr(told, kind) + text.count(answer) if kind == "announced" else 1)
                told.order.append(kind)
        return found


async def tell(folder: Path, patch: pytest.MonkeyPatch, steps: list[tuple]) -> None:
    story = Story(Scene(folder, patch, max_concurrent=64))
    main = await story.scene.main()
    story.ids["main"] = main.id
    for step in steps:
        await story.tell(step)
    await story.finish()
    told = await story.told()
    for task in story.tasks:
        last = [answer for who, answer in story.answers if who == task][-1:]
        for answer in last:
            if answer.startswith("["):
                assert answer in told, f"the last end of {task} never arrived: {answer}"
    for answer, how in told.items():
        errors = 2 if "failure" in answer or "stopped" in answer else 1  # in <status> and <summary>
        assert how.announced <= errors, f"{answer} was announced twice"
        assert how.order[:1] != ["read"] or how.announced == 0, f"{answer} was announced after it was read"
    kept = [expected for room in story.supervisor._notifications.values() for expected in room._expected]
    assert kept == [], "something is still expected"
    await story.supervisor.close()


@pytest.mark.slow
@settings(max_examples=STORIES, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(MODES, st.lists(STEP, min_size=5, max_size=30))
def test_every_end_reaches_the_parent_exactly_once(mode, steps):
    steps = [("spawn", mode), *steps]
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        asyncio.run(tell(Path(folder), patch, steps))
