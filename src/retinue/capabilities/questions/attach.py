"""What a run keeps beside its work: its list of things to do, and its questions to those above.

A question goes to the run that started the asking one, if that can hear it: it lives, works on
meanwhile, and has a tool to answer with (`steer_subagent`). Whatever it then says to the child is
the answer. A person is asked through the inbox: at once when the run above is the main agent or
cannot hear, otherwise when it has not answered for a while. The first answer counts and takes the
question back everywhere else.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Coroutine
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from retinue.core.events import Body, TodosUpdated
from retinue.core.tool import Reply, Todo
from retinue.errors import RetinueError
from retinue.loop.controls import Controls
from retinue.runs.guard import RunGuards
from retinue.runs.notification_text import escape
from retinue.runs.offer import STEER, can_answer
from retinue.tools.delegation.frame import as_data

if TYPE_CHECKING:
    from retinue.core.permission import InboxAnswer
    from retinue.guard.approval import Asker
    from retinue.runs.node import RunNode
    from retinue.runs.project import Project

_NOBODY = frozenset({"policy", "expiry"})
_SHOWN = 200
PARENT_SECONDS = 300.0
"""How long a question waits for the agent above before a person is asked, or nobody answers."""


class _Question(Struct, eq=False):
    """`heard` is set with the answer of the run above; `waits` says that the asking call waits."""

    id: str
    text: str
    options: tuple[str, ...]
    heard: asyncio.Future[str]
    waits: bool
    task: asyncio.Task[None] | None = None


class RunCompanion:
    """Of one run, for one attempt of it."""

    def __init__(self, node: RunNode, *, resumed: bool) -> None:
        self._node = node
        self._project = project = node.project
        self._open: list[_Question] = []
        self._unanswered: list[str] = []
        self.todos: tuple[Todo, ...] = _written(project, node.id) if resumed else ()

    # What is to be done

    def write_todos(self, todos: tuple[Todo, ...]) -> None:
        self.todos = todos
        body = TodosUpdated(todos)
        self._project.log.append(self._node.handle.place, body)
        self._node.observe(body)

    def reminder(self) -> str:
        """The list, for a conversation that has just been shortened."""
        if not self.todos:
            return ""
        head = "Your list of what is to be done (todo). Update it if it is behind your work:"
        return "\n".join([head, *map(todo_line, self.todos)])

    async def hand_in(self, plan: str, call_id: str) -> Reply:
        mode = self._node.plan_mode
        return Reply("nobody") if mode is None else await mode.hand_in(plan, call_id)

    # Questions

    async def ask(self, question: str, options: tuple[str, ...], call_id: str) -> Reply:
        redact = self._project.redactor  # what is asked leaves the run: no secret goes along
        question, options = redact(question), tuple(map(redact, options))
        above = self._listener()
        if above is None and not self._project.can_ask:
            self._unanswered.append(question)
            return Reply("nobody", "nobody is there who could.")
        waits = self._project.settings.settings.questions == "wait"
        asked = _Question(os.urandom(3).hex(), question, options, asyncio.get_running_loop().create_future(), waits)
        self._open.append(asked)
        if above is not None and not above.handle.controls.steer(self._put(asked), "notification"):
            above = None
        if waits:
            try:
                with self._node.handle.controls.waiting(call_id):
                    reply = await self._answered(asked, above, self._asker(), call_id)
            finally:
                self._open.remove(asked)
            if reply.kind == "nobody":
                self._unanswered.append(question)
            return reply
        asked.task = asyncio.create_task(self._later(asked, above), name=f"question {asked.id}")
        return Reply("passed-on")

    def hear(self, text: str) -> bool:
        """Someone above says something to the run. True when it is the answer that it waits for:
        then it hears it as that and not as a message."""
        asked = next((each for each in self._open if not each.heard.done()), None)
        if asked is None:
            return False
        asked.heard.set_result(text)
        return asked.waits

    async def close(self) -> None:
        """The run is over: what it asked is taken back."""
        tasks = [asked.task for asked in self._open if asked.task is not None]
        self._unanswered += [asked.text for asked in self._open if not asked.heard.done()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._open.clear()

    @property
    def notes(self) -> tuple[str, ...]:
        """What whoever reads the result should know: they can still answer."""
        return tuple(
            f"It asked and was not answered: {_cut(text)} Resume {self._node.id} with the answer."
            for text in dict.fromkeys(self._unanswered)
        )

    def _listener(self) -> RunNode | None:
        """The run above, if it can hear and answer. One that waits for this run cannot."""
        above = self._node.parent
        if above is None or not above.live or not self._node.background:
            return None
        return above if can_answer(above.handle.launch) else None

    def _asker(self) -> Asker | None:
        guard = self._project.part(RunGuards).get(self._node.id)
        return guard.asker if guard is not None else None

    async def _answered(
        self, asked: _Question, above: RunNode | None, asker: Asker | None, call_id: str | None
    ) -> Reply:
        """The first answer there is. Nothing of this goes on when it returns or is cancelled."""
        tasks: dict[str, asyncio.Task[Any]] = {}

        def begin(name: str, work: Coroutine[Any, Any, Any]) -> None:
            tasks[name] = asyncio.create_task(work, name=f"question {asked.id} {name}")

        def ask_person() -> bool:
            if "person" in tasks or asker is None or not self._project.can_ask:
                return "person" in tasks
            begin("person", self._person(asked, asker, call_id))
            return True

        try:
            begin("above", _result(asked.heard))
            if above is not None:
                begin("end", above.handle.wait_settled())
                begin("patience", self._node.clock.sleep(PARENT_SECONDS))
            if (above is None or above.depth == 0) and not ask_person() and above is None:
                return Reply("nobody", "nobody is there who could.")
            while True:
                await asyncio.wait(tasks.values(), return_when=asyncio.FIRST_COMPLETED)
                reply = self._reply(tasks, above)
                if reply is not None:
                    return reply
                for name in [name for name, task in tasks.items() if task.done()]:
                    del tasks[name]
                if ("end" not in tasks or "patience" not in tasks) and not ask_person():
                    return Reply("nobody", "the agent that started you has not answered.")
        finally:
            for task in tasks.values():
                task.cancel()
            await asyncio.gather(*tasks.values(), return_exceptions=True)

    def _reply(self, tasks: dict[str, asyncio.Task[Any]], above: RunNode | None) -> Reply | None:
        """What the tasks that are done come to; None when others may still bring an answer."""
        heard, person = tasks["above"], tasks.get("person")
        if heard.done():
            return Reply("answered", heard.result(), above.handle.agent if above is not None else "")
        if person is None or not person.done():
            return None
        answer: InboxAnswer | None = person.result()
        if answer is not None:
            return Reply("answered", _said(answer), answer.by or "the user")
        if "patience" in tasks and "end" in tasks:
            return None  # the run above may still say something
        return Reply("nobody", "it was put to the user, too.")

    async def _person(self, asked: _Question, asker: Asker, call_id: str | None) -> InboxAnswer | None:
        """What a person answers; None when nobody did."""
        detail = f"Asked by {self._node.handle.agent}: {self._node.description}".rstrip(": ")
        answer = await self._project.inbox_service.question(
            asked.text, asked.options, asker=asker, call_id=call_id, detail=detail
        )
        return None if answer.by in _NOBODY else answer

    async def _later(self, asked: _Question, above: RunNode | None) -> None:
        """Bring the answer as a message, while the run works on. What the run above says reaches
        it as any other message; a person's answer is brought here."""
        asker = self._asker()
        # A mailbox of nobody, so that no clock of the run stands still; and no events in its record.
        quiet = replace(asker, controls=Controls(), record=_nothing) if asker is not None else None
        with suppress(RetinueError):
            reply = await self._answered(asked, above, quiet, None)
            if reply.kind == "answered" and not asked.heard.done():
                text = f'The answer to your question "{_cut(asked.text)}": {reply.text}'
                self._node.handle.controls.steer(text)
            elif reply.kind == "nobody":
                self._unanswered.append(asked.text)
        self._open.remove(asked)

    def _put(self, asked: _Question) -> str:
        """The question as the run above reads it: framed, so that it cannot pass for more."""
        node = self._node
        lines = [
            "<agent-question>",
            f"<agent-id>{node.id}</agent-id>",
            f"<question-id>{asked.id}</question-id>",
            f"<agent>{escape(' '.join(f'{node.handle.agent}: {node.description}'.split()))}</agent>",
            f"<question>{escape(as_data(asked.text))}</question>",
            *(f"<option>{escape(as_data(option))}</option>" for option in asked.options),
            "</agent-question>",
            f"An agent you started asks this{' and waits' if asked.waits else '; it works on meanwhile'}. "
            f'Answer with {STEER} (agent_id "{node.id}"): your message is the answer.',
        ]
        return "\n".join(lines)


def todo_line(todo: Todo) -> str:
    """One entry for people and models: `[x] done`, `[>] at work`, `[ ] to come`."""
    mark = {"completed": "x", "in_progress": ">", "pending": " "}[todo.status]
    return f"[{mark}] {todo.content}"


def _written(project: Project, run_id: str) -> tuple[Todo, ...]:
    found = project.log.reader.ordered(run_id, ("todos.updated",))
    body = found[-1][1].body if found else None
    return body.todos if isinstance(body, TodosUpdated) else ()


def _said(answer: InboxAnswer) -> str:
    return " ".join(filter(None, (answer.choice, answer.message))) or "(an empty answer)"


async def _result(future: asyncio.Future[str]) -> str:
    return await asyncio.shield(future)


def _nothing(body: Body) -> None:
    """A question that nobody waits for leaves no events in the run: it is in the inbox."""


def _cut(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _SHOWN else f"{line[: _SHOWN - 1]}…"
