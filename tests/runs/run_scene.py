"""A supervisor whose models say what the test says, when it says so: no sleeps, no surprises.

Runs are told apart by their task. `model(task)` is where the run with that task asks its model:
`await model.asked()` returns when a request is waiting, `model.say(...)` and `model.call(...)`
answer it. The clock is the fake one; the log is real.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any

from retinue.cluster import open_project
from retinue.core.delegation import MOVES, Refusal, SpawnCall
from retinue.core.events import MessageAdded
from retinue.core.messages import AssistantMessage, ChildrenEnded, Text, ToolCall, UserMessage
from retinue.core.outcome import Failure
from retinue.core.person_prompt import words_of
from retinue.core.request import EVERYTHING, RunRequest
from retinue.core.run_state import ActiveRun, RunState
from retinue.core.spec import AgentSpec
from retinue.core.usage import Usage
from retinue.log.query import LogReader
from retinue.runs.delegate import Delegate
from retinue.runs.run import Run
from retinue.runs.supervisor import Supervisor
from retinue.testing import FakeClock, Finished, ModelInfo, ModelRequest, Part

SPENT = Usage(10, 5, 2, 1, 0.01)
_STATE: Any = RunState.__dict__["state"]
INFO = ModelInfo("anthropic", "claude-sonnet-4-5", "Scene")


class ScriptedModel:
    """The model's side of one run."""

    def __init__(self) -> None:
        self.requests: list[ModelRequest] = []
        self._replies: asyncio.Queue[AssistantMessage] = asyncio.Queue()
        self._calls = 0
        self._asked = asyncio.Event()
        self.standing: str | None = None
        """What it says to everything, once set."""

    async def answer(self, request: ModelRequest) -> AssistantMessage:
        self.requests.append(request)
        if self.standing is not None and self._replies.empty():
            return message(self.standing)
        self._asked.set()
        try:
            return await self._replies.get()
        except asyncio.CancelledError:
            self._asked.clear()
            raise

    async def asked(self) -> ModelRequest:
        async with asyncio.timeout(90):
            await self._asked.wait()
        return self.requests[-1]

    def _reply(self, answer: AssistantMessage) -> None:
        self._asked.clear()
        self._replies.put_nowait(answer)

    def say(self, text: str, usage: Usage = SPENT) -> None:
        self._reply(message(text, usage=usage))

    def call(self, name: str, text: str = "", **arguments: Any) -> str:
        self._calls += 1
        made = ToolCall(f"call-{self._calls}", name, arguments)
        self._reply(message(text, (made,)))
        return made.id

    def fail(self, text: str = "the provider is gone") -> None:
        failure = Failure("server", text)
        self._reply(AssistantMessage((), "error", SPENT, INFO.full_name, failure))


def message(text: str, calls: tuple[ToolCall, ...] = (), usage: Usage = SPENT) -> AssistantMessage:
    content = (*((Text(text),) if text else ()), *calls)
    return AssistantMessage(content, "tool_use" if calls else "end", usage, INFO.full_name)


class SceneModel:
    def __init__(self, scene: Scene, info: ModelInfo) -> None:
        self._scene = scene
        self.info = info

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Part, None]:
        yield Finished(await self._scene.model(task_of(request)).answer(request))

    async def close(self) -> None:
        pass


def task_of(request: ModelRequest) -> str:
    first = request.messages[0]
    assert isinstance(first, UserMessage)
    return words_of(first.text)


class Moves:
    """Stands for `RunState.state` and checks each move against the table of states."""

    def __init__(self) -> None:
        self.wrong: list[str] = []

    def __get__(self, run: RunState | None, owner: type[RunState]) -> Any:
        return self if run is None else _STATE.__get__(run, owner)

    def __set__(self, run: RunState, state: str) -> None:
        self.check(_STATE.__get__(run, RunState), state, run.id)
        _STATE.__set__(run, state)

    def check(self, old: str, new: str, run_id: str) -> None:
        before, after = (each if each in MOVES else "ended" for each in (old, new))
        if before != after and after not in MOVES[before]:
            self.wrong.append(f"run {run_id} went from {old} to {new}")

    def check_log(self, reader: LogReader) -> None:
        """The same for what the log makes of the events of every run."""
        for row in reader.list_runs():
            run, state = ActiveRun(row.id), None
            for event in reader.events(row.id):
                run.apply(event)
                if state is not None:
                    self.check(state, run.state, row.id)
                state = run.state


class Scene:
    """Use with `async with`. `again()` is a new supervisor on the same log: a restart."""

    def __init__(self, folder: Path, patch: Any, *, tools: tuple[Any, ...] = (), **settings: Any) -> None:
        self.folder = folder
        self.models: dict[str, ScriptedModel] = {}
        self.clock = FakeClock()
        self._tools = tools
        self._environment = {
            "HOME": str(folder),
            "PATH": os.environ["PATH"],
            "RETINUE_HOME": str(folder / "home"),
            "ANTHROPIC_API_KEY": "not-a-key",
            "RETINUE_MODEL": INFO.full_name,
            "RETINUE_PERMISSIONS_DEFAULT_MODE": "bypassPermissions",
            **{f"RETINUE_{name.upper()}": str(value) for name, value in settings.items()},
        }
        (folder / "project").mkdir(exist_ok=True)
        patch.setattr("retinue.runs.plan.build_model", lambda chosen, *_, **__: SceneModel(self, chosen.info))
        self.moves = Moves()
        patch.setattr(RunState, "state", self.moves)
        self.supervisor = self.again()

    def again(self) -> Supervisor:
        project = open_project(self.folder / "project", environment=self._environment, tools=self._tools)
        self.supervisor = Supervisor(project, clock=self.clock)
        return self.supervisor

    async def __aenter__(self) -> Scene:
        await self.supervisor.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.supervisor.close()
        with LogReader.open(self.supervisor.project.state) as reader:
            self.moves.check_log(reader)
        assert self.moves.wrong == []

    def model(self, task: str) -> ScriptedModel:
        return self.models.setdefault(task, ScriptedModel())

    async def main(self, task: str = "main", **options: Any) -> Run:
        spec = AgentSpec(name="main", prompt="You are main.")
        fields = {"spec": spec, "task": task, "cwd": self.folder / "project", "pinned": EVERYTHING}
        node = await self.supervisor.start(RunRequest(**{**fields, **options}))
        await self.model(task).asked()
        return node

    async def spawn(self, parent: Run, task: str, **options: Any) -> ActiveRun | Refusal:
        options.setdefault("agent", "general-purpose")
        return await Delegate(self.supervisor, parent.id).spawn(SpawnCall(prompt=task, **options))

    async def child(self, parent: Run, task: str, **options: Any) -> Run:
        """A background child whose model has been asked."""
        view = await self.spawn(parent, task, background=True, **options)
        assert isinstance(view, ActiveRun), view
        await self.model(task).asked()
        return self.supervisor.members[view.id]

    async def heard(self, parent: Run | str) -> list[str]:
        """The ids of children that a run was notified of, as its log has it."""
        run_id = parent if isinstance(parent, str) else parent.id
        await self.supervisor.project.log.flush()
        bodies = [event.body for event in self.supervisor.project.log.reader.events(run_id)]
        added = [body.message for body in bodies if isinstance(body, MessageAdded)]
        told = [message.notice for message in added if isinstance(message.notice, ChildrenEnded)]
        return [ending.id for notice in told for ending in notice.endings]

    async def said(self, run_id: str) -> list[tuple[str, str]]:
        """Everything that was said to a run: who spoke, and what."""
        await self.supervisor.project.log.flush()
        bodies = [event.body for event in self.supervisor.project.log.reader.events(run_id)]
        return [(b.message.origin, b.message.text) for b in bodies if isinstance(b, MessageAdded)]


async def until(condition: Callable[[], Any], why: str = "") -> Any:
    """Waits for something that other tasks or the log's thread bring about."""
    async with asyncio.timeout(90):
        while True:
            found = condition()
            if found:
                return found
            await asyncio.sleep(0.001)
