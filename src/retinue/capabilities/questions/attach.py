"""The list of things to do that a run keeps, and its questions to the run above it or to a person.

A question goes to the parent of the run, if the parent can answer: it lives, does not wait for this run, and has a
tool to answer with (`steer_subagent`). The next message of the parent to the run is the answer. A person is asked
through the inbox: at once if the parent is the main agent or cannot answer, otherwise when the parent has not answered
for a while. The first answer counts; the question is then withdrawn everywhere else.
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
from retinue.core.messages import ChildAsked, UserMessage, notification
from retinue.core.tool import Question, Reply, Todo
from retinue.errors import RetinueError
from retinue.loop.job import Controls
from retinue.runs.guard import RunGuards
from retinue.runs.notifications import escape
from retinue.runs.offer import STEER, can_answer
from retinue.tools.delegation.frame import as_data

if TYPE_CHECKING:
    from retinue.core.permission import InboxAnswer
    from retinue.guard.gate import Asker
    from retinue.runs.project import Project
    from retinue.runs.run import Run

_NOBODY = frozenset({"policy", "expiry"})
MAX_SHOWN_LENGTH = 200
PARENT_SECONDS = 300.0
"""How long a question waits for the agent above before a person is asked, or nobody answers."""


class _Question(Struct, eq=False):
    """An open question. `heard` is set with the answer of the run above; `waits` says that the asking call waits."""

    id: str
    question: Question
    heard: asyncio.Future[str]
    waits: bool
    task: asyncio.Task[None] | None = None


class SupervisedDialogue:
    """The list and the questions of one run, for one attempt."""

    def __init__(self, node: Run, *, resumed: bool) -> None:
        self._node = node
        self._project = project = node.project
        self._open: list[_Question] = []
        self._unanswered: list[str] = []
        self.todos: tuple[Todo, ...] = _written(project, node.id) if resumed else ()

    # The to-do list

    def write_todos(self, todos: tuple[Todo, ...]) -> None:
        self.todos = todos
        self._node.record(TodosUpdated(todos))

    def reminder(self) -> str:
        """Return the list as text, for a conversation that has just been shortened."""
        head = "Your list of what is to be done (todo). Update it if it is behind your work:"
        return "\n".join([head, *map(todo_line, self.todos)]) if self.todos else ""

    async def submit_plan(self, plan: str, call_id: str) -> Reply:
        mode = self._node.plan_mode
        return Reply("nobody") if mode is None else await mode.submit_plan(plan, call_id)

    # Questions

    async def ask(self, question: Question, call_id: str) -> Reply:
        # A question leaves the run, so it must not carry a secret.
        redact = self._project.redactor
        question = replace(
            question,
            text=redact(question.text),
            options=tuple(map(redact, question.options)),
            notes=tuple(map(redact, question.notes)),
        )
        above = self._listener()
        if above is None and not self._project.can_ask:
            self._unanswered.append(question.text)
            return Reply("nobody", "nobody is there who could.")
        waits = self._project.settings.settings.questions == "wait"
        asked = _Question(os.urandom(3).hex(), question, asyncio.get_running_loop().create_future(), waits)
        self._open.append(asked)
        if above is not None and not above.controls.deliver(self._put(asked)):
            above = None
        if waits:
            try:
                with self._node.controls.waiting(call_id):
                    reply = await self._answered(asked, above, self._asker(), call_id)
            finally:
                self._open.remove(asked)
            if reply.kind == "nobody":
                self._unanswered.append(question.text)
            return reply
        asked.task = asyncio.create_task(self._later(asked, above), name=f"question {asked.id}")
        return Reply("passed-on")

    def answer_question(self, text: str) -> bool:
        """Take a message from above as the answer to the oldest open question. Return True if a call waits for it:
        then it must not be delivered as a message as well."""
        for asked in self._open:
            if not asked.heard.done():
                asked.heard.set_result(text)
                return asked.waits
        return False

    async def close(self) -> None:
        """Withdraw all questions at the end of the run."""
        tasks = [asked.task for asked in self._open if asked.task is not None]
        self._unanswered += [asked.question.text for asked in self._open if not asked.heard.done()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._open.clear()

    @property
    def notes(self) -> tuple[str, ...]:
        """Return a note for every unanswered question: the reader of the result can still answer it."""
        return tuple(
            f"It asked and was not answered: {_cut(text)} Resume {self._node.id} with the answer."
            for text in dict.fromkeys(self._unanswered)
        )

    def _listener(self) -> Run | None:
        """Return the run above, if it can answer. One that waits for this run cannot."""
        above = self._node.parent
        if above is None or not above.live or not self._node.state.background:
            return None
        if not can_answer(above):
            return None
        return above

    def _asker(self) -> Asker | None:
        guard = self._project.part(RunGuards).get(self._node.id)
        return guard.asker if guard is not None else None

    async def _answered(self, asked: _Question, above: Run | None, asker: Asker | None, call_id: str | None) -> Reply:
        """Return the first answer. All tasks have ended when this returns or is cancelled."""
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
                begin("end", above.wait_settled())
                begin("patience", self._node.clock.sleep(PARENT_SECONDS))
            if (above is None or above.depth == 0) and not ask_person() and above is None:
                return Reply("nobody", "nobody is there who could.")
            while True:
                await asyncio.wait(tasks.values(), return_when=asyncio.FIRST_COMPLETED)
                reply = self._reply(tasks, above)
                if reply is not None:
                    return reply
                for name, task in list(tasks.items()):
                    if task.done():
                        del tasks[name]
                # The run above has ended or has had its time: only a person can answer now.
                if ("end" not in tasks or "patience" not in tasks) and not ask_person():
                    return Reply("nobody", "the agent that started you has not answered.")
        finally:
            for task in tasks.values():
                task.cancel()
            await asyncio.gather(*tasks.values(), return_exceptions=True)

    def _reply(self, tasks: dict[str, asyncio.Task[Any]], above: Run | None) -> Reply | None:
        """Return the reply that follows from the finished tasks; None while others may still bring an answer."""
        heard, person = tasks["above"], tasks.get("person")
        if heard.done():
            return Reply("answered", heard.result(), "" if above is None else above.agent)
        if person is None or not person.done():
            return None
        answer: InboxAnswer | None = person.result()
        if answer is not None:
            return Reply("answered", _said(answer), answer.by or "the user")
        if "patience" in tasks and "end" in tasks:
            return None  # the run above may still say something
        return Reply("nobody", "it was put to the user, too.")

    async def _person(self, asked: _Question, asker: Asker, call_id: str | None) -> InboxAnswer | None:
        """Return the answer of a person; None when nobody answered."""
        detail = f"Asked by {self._node.agent}: {self._node.state.description}".rstrip(": ")
        question = asked.question
        options: dict[str, Any] = {"notes": list(question.notes)} if any(question.notes) else {}
        if question.several:
            options["several"] = True
        answer = await self._project.inbox_service.question(
            question.text, question.options, asker=asker, call_id=call_id, detail=detail, hints=options
        )
        return None if answer.by in _NOBODY else answer

    async def _later(self, asked: _Question, above: Run | None) -> None:
        """Deliver the answer of a person as a message while the run works on. An answer of the run above reaches the
        run as a message anyway."""
        asker = self._asker()
        if asker is not None:
            # Controls of their own, because asking stops the run's clocks; and no events in the run's record.
            asker = replace(asker, controls=Controls(), record=_nothing)
        with suppress(RetinueError):
            reply = await self._answered(asked, above, asker, None)
            if reply.kind == "answered" and not asked.heard.done():
                text = f'The answer to your question "{_cut(asked.question.text)}": {reply.text}'
                self._node.controls.steer(text)
            elif reply.kind == "nobody":
                self._unanswered.append(asked.question.text)
        self._open.remove(asked)

    def _put(self, asked: _Question) -> UserMessage:
        """Return the question as the run above reads it: framed, so that it cannot pass for anything else."""
        node = self._node
        agent = " ".join(f"{node.agent}: {node.state.description}".split())
        waits = " and waits" if asked.waits else "; it works on meanwhile"
        lines = [
            "<agent-question>",
            f"<agent-id>{node.id}</agent-id>",
            f"<question-id>{asked.id}</question-id>",
            f"<agent>{escape(agent)}</agent>",
            f"<question>{escape(as_data(asked.question.text))}</question>",
            *(f"<option>{escape(as_data(option))}</option>" for option in asked.question.options),
            "</agent-question>",
            f"An agent you started asks this{waits}. "
            f'Answer with {STEER} (agent_id "{node.id}"): your message is the answer.',
        ]
        question = asked.question
        return notification("\n".join(lines), ChildAsked(node.id, agent, question.text, question.options))


def todo_line(todo: Todo) -> str:
    """Return one entry for people and models: `[x] done`, `[>] at work`, `[ ] to come`."""
    mark = {"completed": "x", "in_progress": ">", "pending": " "}[todo.status]
    return f"[{mark}] {todo.content}"


def _written(project: Project, run_id: str) -> tuple[Todo, ...]:
    for _, event in project.log.reader.ordered(run_id, ("todos.updated",), newest_first=True):
        return event.body.todos if isinstance(event.body, TodosUpdated) else ()
    return ()


def _said(answer: InboxAnswer) -> str:
    return " ".join(filter(None, (answer.choice, answer.message))) or "(an empty answer)"


async def _result(future: asyncio.Future[str]) -> str:
    # Cancelling the task that waits must not cancel the future, which `hear` may still set.
    return await asyncio.shield(future)


def _nothing(body: Body) -> None:
    """Record no event: a question for which no call waits is in the inbox only."""


def _cut(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= MAX_SHOWN_LENGTH else f"{line[: MAX_SHOWN_LENGTH - 1]}…"
