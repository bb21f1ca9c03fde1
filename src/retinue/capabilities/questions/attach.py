"""The list of things to do that a run keeps, and its questions to the run above it or to a person.

A question goes to the parent of the run, if the parent can answer: it is live, does not wait for this run, and has the
tool for the answer (`steer_subagent`). The next message of the parent to the run is the answer. A person is asked
through the inbox: at once if the parent is the main agent or cannot answer, otherwise when the parent has not answered
within `PARENT_SECONDS`. The first answer is used, and the question is then withdrawn everywhere else."""

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
from retinue.runs.offer import STEER_TOOL, can_answer
from retinue.tools.delegation.frame import as_data

if TYPE_CHECKING:
    from retinue.core.permission import InboxAnswer
    from retinue.guard.gate import Asker
    from retinue.runs.project import Project
    from retinue.runs.run import Run

_AUTOMATIC_ANSWERERS = frozenset({"policy", "expiry"})
MAX_SHOWN_LENGTH = 200
PARENT_SECONDS = 300.0
"""The time that a question waits for the parent before a person is asked."""


class _OpenQuestion(Struct, eq=False):
    """An open question. `parent_answer` gets the answer of the parent; `waits`: the call that asked waits for it."""

    id: str
    question: Question
    parent_answer: asyncio.Future[str]
    waits: bool
    task: asyncio.Task[None] | None = None


class SupervisedDialogue:
    """The to-do list and the questions of one attempt of a run."""

    def __init__(self, node: Run, *, resumed: bool) -> None:
        self._node = node
        self._project = project = node.project
        self._open: list[_OpenQuestion] = []
        self._unanswered: list[str] = []
        self.todos: tuple[Todo, ...] = _recorded_todos(project, node.id) if resumed else ()

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
        parent = self._answering_parent()
        if parent is None and not self._project.can_ask:
            self._unanswered.append(question.text)
            return Reply("nobody", "nobody can be asked.")
        waits = self._project.settings.settings.questions == "wait"
        open_question = _OpenQuestion(os.urandom(3).hex(), question, asyncio.get_running_loop().create_future(), waits)
        self._open.append(open_question)
        if parent is not None and not parent.controls.deliver(self._frame_question(open_question)):
            parent = None
        if waits:
            try:
                with self._node.controls.waiting(call_id):
                    reply = await self._await_reply(open_question, parent, self._asker(), call_id)
            finally:
                self._open.remove(open_question)
            if reply.kind == "nobody":
                self._unanswered.append(question.text)
            return reply
        open_question.task = asyncio.create_task(
            self._deliver_later(open_question, parent), name=f"question {open_question.id}"
        )
        return Reply("passed-on")

    def answer_question(self, text: str) -> bool:
        """Use a message of the parent as the answer to the oldest open question. Return True if a call waits for it;
        then the message must not be delivered as well."""
        for open_question in self._open:
            if not open_question.parent_answer.done():
                open_question.parent_answer.set_result(text)
                return open_question.waits
        return False

    async def close(self) -> None:
        """Withdraw all questions at the end of the run."""
        tasks = [open_question.task for open_question in self._open if open_question.task is not None]
        self._unanswered += [
            open_question.question.text for open_question in self._open if not open_question.parent_answer.done()
        ]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._open.clear()

    @property
    def notes(self) -> tuple[str, ...]:
        """Return a note for every unanswered question, which the reader of the result can still answer."""
        return tuple(
            f"It asked and was not answered: {_shorten(text)} Resume {self._node.id} with the answer."
            for text in dict.fromkeys(self._unanswered)
        )

    def _answering_parent(self) -> Run | None:
        """Return the parent, if it can answer. A parent that waits for this run cannot."""
        parent = self._node.parent
        if parent is None or not parent.live or not self._node.state.background:
            return None
        if not can_answer(parent):
            return None
        return parent

    def _asker(self) -> Asker | None:
        guard = self._project.part(RunGuards).get(self._node.id)
        return guard.asker if guard is not None else None

    async def _await_reply(
        self, open_question: _OpenQuestion, parent: Run | None, asker: Asker | None, call_id: str | None
    ) -> Reply:
        """Return the first answer. All tasks have ended when this returns or is cancelled."""
        tasks: dict[str, asyncio.Task[Any]] = {}

        def begin(name: str, work: Coroutine[Any, Any, Any]) -> None:
            tasks[name] = asyncio.create_task(work, name=f"question {open_question.id} {name}")

        def ask_person() -> bool:
            if "person" in tasks or asker is None or not self._project.can_ask:
                return "person" in tasks
            begin("person", self._ask_person(open_question, asker, call_id))
            return True

        try:
            begin("above", _result(open_question.parent_answer))
            if parent is not None:
                begin("end", parent.wait_settled())
                begin("patience", self._node.clock.sleep(PARENT_SECONDS))
            if (parent is None or parent.depth == 0) and not ask_person() and parent is None:
                return Reply("nobody", "nobody can be asked.")
            while True:
                await asyncio.wait(tasks.values(), return_when=asyncio.FIRST_COMPLETED)
                reply = self._reply(tasks, parent)
                if reply is not None:
                    return reply
                for name, task in list(tasks.items()):
                    if task.done():
                        del tasks[name]
                # The parent has ended or has not answered in time: only a person can answer now.
                if ("end" not in tasks or "patience" not in tasks) and not ask_person():
                    return Reply("nobody", "the agent that started you has not answered.")
        finally:
            for task in tasks.values():
                task.cancel()
            await asyncio.gather(*tasks.values(), return_exceptions=True)

    def _reply(self, tasks: dict[str, asyncio.Task[Any]], parent: Run | None) -> Reply | None:
        """Return the reply that results from the finished tasks; None while another may still bring an answer."""
        parent_answer, person = tasks["above"], tasks.get("person")
        if parent_answer.done():
            return Reply("answered", parent_answer.result(), "" if parent is None else parent.agent)
        if person is None or not person.done():
            return None
        answer: InboxAnswer | None = person.result()
        if answer is not None:
            return Reply("answered", _answer_text(answer), answer.by or "the user")
        if "patience" in tasks and "end" in tasks:
            return None  # the parent may still answer
        return Reply("nobody", "the user was asked as well.")

    async def _ask_person(self, open_question: _OpenQuestion, asker: Asker, call_id: str | None) -> InboxAnswer | None:
        """Return the answer of a person; None without one."""
        detail = f"Asked by {self._node.agent}: {self._node.state.description}".rstrip(": ")
        question = open_question.question
        options: dict[str, Any] = {"notes": list(question.notes)} if any(question.notes) else {}
        if question.several:
            options["several"] = True
        answer = await self._project.inbox_service.question(
            question.text, question.options, asker=asker, call_id=call_id, detail=detail, hints=options
        )
        return None if answer.by in _AUTOMATIC_ANSWERERS else answer

    async def _deliver_later(self, open_question: _OpenQuestion, parent: Run | None) -> None:
        """Deliver the answer of a person as a message while the run continues. An answer of the parent reaches the run
        as a message anyway."""
        asker = self._asker()
        if asker is not None:
            # With separate controls, because asking stops the clocks of the run; and without events in its record.
            asker = replace(asker, controls=Controls(), record=_ignore)
        with suppress(RetinueError):
            reply = await self._await_reply(open_question, parent, asker, None)
            if reply.kind == "answered" and not open_question.parent_answer.done():
                text = f'The answer to your question "{_shorten(open_question.question.text)}": {reply.text}'
                self._node.controls.steer(text)
            elif reply.kind == "nobody":
                self._unanswered.append(open_question.question.text)
        self._open.remove(open_question)

    def _frame_question(self, open_question: _OpenQuestion) -> UserMessage:
        """Return the question in a frame, so that the parent cannot mistake it for other text."""
        node = self._node
        agent = " ".join(f"{node.agent}: {node.state.description}".split())
        waits = " and waits" if open_question.waits else "; it works on meanwhile"
        lines = [
            "<agent-question>",
            f"<agent-id>{node.id}</agent-id>",
            f"<question-id>{open_question.id}</question-id>",
            f"<agent>{escape(agent)}</agent>",
            f"<question>{escape(as_data(open_question.question.text))}</question>",
            *(f"<option>{escape(as_data(option))}</option>" for option in open_question.question.options),
            "</agent-question>",
            f"An agent you started asks this{waits}. "
            f'Answer with {STEER_TOOL} (agent_id "{node.id}"): your message is the answer.',
        ]
        question = open_question.question
        return notification("\n".join(lines), ChildAsked(node.id, agent, question.text, question.options))


def todo_line(todo: Todo) -> str:
    """Return one entry for people and models: `[x] done`, `[>] at work`, `[ ] to come`."""
    mark = {"completed": "x", "in_progress": ">", "pending": " "}[todo.status]
    return f"[{mark}] {todo.content}"


def _recorded_todos(project: Project, run_id: str) -> tuple[Todo, ...]:
    for _, event in project.log.reader.ordered(run_id, ("todos.updated",), newest_first=True):
        return event.body.todos if isinstance(event.body, TodosUpdated) else ()
    return ()


def _answer_text(answer: InboxAnswer) -> str:
    return " ".join(filter(None, (answer.choice, answer.message))) or "(an empty answer)"


async def _result(future: asyncio.Future[str]) -> str:
    # Cancelling the waiting task must not cancel the future, which `answer_question` may still set.
    return await asyncio.shield(future)


def _ignore(body: Body) -> None:
    """Record no event: a question without a waiting call is in the inbox only."""


def _shorten(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= MAX_SHOWN_LENGTH else f"{line[: MAX_SHOWN_LENGTH - 1]}…"
