"""Tools that affect only the run itself and the runs above it: todo, ask_parent, ask_user and exit_plan.

The to-do list persists across compaction and resume.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import starmap
from typing import Any, ClassVar, assert_never, cast

from msgspec.structs import replace

from retinue.core.tool import Question, Reply, Todo, TodoStatus, ToolContext, ToolOutput, ok
from retinue.tools.base import Aliases, Arguments, BuiltinTool, Properties, ToolError

MAX_OPTIONS = 10
MAX_QUESTIONS = 4
MAX_QUESTION_CHARACTERS = 4_000
MAX_OPTION_CHARACTERS = 200


class AskParentTool(BuiltinTool):
    name = "ask_parent"
    required = ("question",)
    exclusive = True
    properties: ClassVar[Properties] = {
        "question": {"type": "string"},
        "options": {"type": "array", "items": {"type": "string"}},
    }
    aliases: ClassVar[Aliases] = {"question": ("prompt", "message", "text"), "options": ("choices", "answers")}

    async def call(self, call_id: str, arguments: Arguments, context: ToolContext) -> ToolOutput:
        return self._describe_reply(await self._ask(arguments, call_id, context))

    async def _ask(self, arguments: Arguments, call_id: str, context: ToolContext) -> Reply:
        text = arguments.text("question").strip()
        if not text:
            raise ToolError(f"{self.name}: the question is empty.")
        if len(text) > MAX_QUESTION_CHARACTERS:
            raise ToolError(
                f"{self.name}: the question is too long. Ask in at most {MAX_QUESTION_CHARACTERS} characters."
            )
        if context.dialogue is None:
            raise ToolError(f"{self.name} is not available here. Go on, and say what you assumed.")
        options = _options(arguments)
        several = arguments.flag("several") if self.name == "ask_user" else False
        question = Question(text, tuple(options), tuple(options.values()), several=several and bool(options))
        return await context.dialogue.ask(question, call_id)

    def _describe_reply(self, reply: Reply) -> ToolOutput:
        match reply.kind:
            case "answered":
                return ok(f"Answer of {reply.by}: {reply.text}") if reply.by else ok(reply.text)
            case "passed-on":
                return ok("Your question was passed on. Go on with your work; the answer comes as a message.")
            case "nobody":
                return ok(
                    f"Nobody has answered: {reply.text} Go on as you think best and say in your answer what you "
                    "assumed. If you cannot, end with the question as your answer: whoever started you can take "
                    "you up again with the reply."
                )
            case _:
                assert_never(reply.kind)


def _options(arguments: Arguments) -> dict[str, str]:
    """Return the options, each with its note."""
    entries, notes = arguments.items("options") or [], arguments.items("notes") or []
    options: dict[str, str] = {}
    for number, entry in enumerate(entries):
        option = _field(entry, "label")
        if not isinstance(option, str) or not option.strip():
            raise arguments.wrong("options", "a list of texts", entries)
        note = str(notes[number]) if number < len(notes) else ""
        words, note = (" ".join(text.split())[:MAX_OPTION_CHARACTERS] for text in (option, note))
        options[words] = note
    if len(entries) > MAX_OPTIONS:
        raise ToolError(f"Give at most {MAX_OPTIONS} options.")
    return options


def _field(entry: Any, name: str) -> Any:
    """Return a field of an entry that is an object; any other entry is the value itself."""
    return entry.get(name, "") if isinstance(entry, dict) else entry


_SEVERAL_ALIASES = ("multiSelect", "allowMultiple", "multi_select", "multiple")


def _in_own_form(question: Any) -> dict[str, Any]:
    """Return a question with labels as its options and their descriptions as `notes`."""
    if not isinstance(question, dict):
        return {"question": str(question)}
    options = question.get("options")
    if not isinstance(options, list) or not any(isinstance(option, dict) for option in options):
        return question
    notes = [str(option.get("description") or "") if isinstance(option, dict) else "" for option in options]
    return {**question, "options": [_field(option, "label") for option in options], "notes": notes}


class AskUserTool(AskParentTool):
    """Asks the person one question, or several in sequence."""

    name = "ask_user"
    asked_for = ()
    hidden: ClassVar[Properties] = {
        "several": {"type": "boolean"},
        "questions": {"type": "array"},
        "notes": {"type": "array", "items": {"type": "string"}},
    }
    aliases: ClassVar[Aliases] = {**AskParentTool.aliases, "several": _SEVERAL_ALIASES}
    ignored = frozenset({"header"})

    @staticmethod
    def rewrite(arguments: dict[str, Any]) -> dict[str, Any]:
        """Accept the form of Claude Code: a list of questions, and options with a label and a description."""
        questions = arguments.get("questions")
        if isinstance(questions, list) and len(questions) == 1 and isinstance(questions[0], dict):
            arguments = {**questions[0], **arguments}
            del arguments["questions"]
        elif isinstance(questions, list) and questions:
            arguments["questions"] = list(map(_in_own_form, questions))
        return _in_own_form(arguments)

    async def call(self, call_id: str, arguments: Arguments, context: ToolContext) -> ToolOutput:
        questions = arguments.items("questions") or []
        if not questions:
            return await super().call(call_id, arguments, context)
        if len(questions) > MAX_QUESTIONS:
            raise ToolError(f"ask_user: ask at most {MAX_QUESTIONS} questions at once.")
        # All questions are checked before the first is asked.
        entries = [
            Arguments(f"ask_user: question {number}", question, self.aliases)
            for number, question in enumerate(questions, 1)
        ]
        texts = [" ".join(entry.text("question").split()) for entry in entries]
        for entry in entries:
            _options(entry)
        lines: list[str] = []
        for text, entry in zip(texts, entries, strict=True):
            reply = await self._ask(entry, call_id, context)
            lines.append(f"{text} {reply.text if reply.kind == 'answered' else self._describe_reply(reply).text}")
            if reply.kind == "nobody":
                # Nobody will answer the others either.
                break
        return ok("\n".join(lines))


_PLAN_UNANSWERED = "Nobody has answered, and plan mode goes on. End your turn with the plan as your answer."


class ExitPlanTool(BuiltinTool):
    """Asks the person to approve the plan. After approval the run continues in another mode."""

    name = "exit_plan"
    required = ("plan",)
    exclusive = True
    properties: ClassVar[Properties] = {"plan": {"type": "string", "description": "The whole plan, in Markdown"}}
    aliases: ClassVar[Aliases] = {"plan": ("content", "text", "summary")}

    async def call(self, call_id: str, arguments: Arguments, context: ToolContext) -> ToolOutput:
        plan = _plan(arguments)
        if context.dialogue is None:
            raise ToolError("exit_plan is not available here. End your turn with the plan as your answer.")
        reply = await context.dialogue.submit_plan(plan, call_id)
        if reply.kind == "nobody":
            return ok(_PLAN_UNANSWERED)
        return ok(f"{reply.text} ({reply.by})") if reply.by else ok(reply.text)


class FinalPlanTool(ExitPlanTool):
    """The tool of a run without a person to ask: the plan is the run's answer."""

    def __init__(self) -> None:
        super().__init__()
        self.spec = replace(self.spec, ends_run=True)

    async def call(self, call_id: str, arguments: Arguments, context: ToolContext) -> ToolOutput:
        return ok(
            f"{_plan(arguments)}\n\nNothing was changed: this was plan mode, and nobody is here to approve the plan. "
            "To have it carried out, give it as the task of a run in another permission mode."
        )


class PlanAnswerTool(ExitPlanTool):
    """The tool of an agent that plans for others: its plan is the run's answer."""

    def __init__(self) -> None:
        super().__init__()
        self.spec = replace(self.spec, ends_run=True, description="Hand in the finished plan: it is your answer.")

    async def call(self, call_id: str, arguments: Arguments, context: ToolContext) -> ToolOutput:
        return ok(_plan(arguments))


def _plan(arguments: Arguments) -> str:
    plan = arguments.text("plan").strip()
    if not plan:
        raise ToolError("exit_plan: the plan is empty.")
    return plan


MAX_TODOS = 100
MAX_TODO_CHARACTERS = 500
_STATUS_WORDS = {
    **dict.fromkeys(("pending", "todo", "open"), "pending"),
    **dict.fromkeys(("in_progress", "in-progress", "doing", "active"), "in_progress"),
    **dict.fromkeys(("completed", "complete", "done"), "completed"),
}


class TodoTool(BuiltinTool):
    name = "todo"
    required = ("todos",)
    exclusive = True
    properties: ClassVar[Properties] = {
        "todos": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "content": {"type": "string"},
                    "status": {"type": "string", "enum": ["pending", "in_progress", "completed"]},
                },
                "required": ["content", "status"],
            },
        }
    }
    aliases: ClassVar[Aliases] = {
        "todos": ("plan", "items", "tasks", "list", "todo_list"),
        "todos.content": ("title", "text", "task", "description", "step", "subject"),
        "todos.status": ("state",),
    }
    words: ClassVar[Mapping[str, Mapping[str, str]]] = {"todos.status": _STATUS_WORDS}
    ignored = frozenset({"explanation", "description"})

    @staticmethod
    def rewrite(arguments: dict[str, Any]) -> dict[str, Any]:
        """Accept entries that are plain texts, or that have no status yet."""
        for name in ("todos", *TodoTool.aliases["todos"]):
            entries = arguments.get(name)
            if isinstance(entries, list):
                arguments[name] = list(map(_with_status, entries))
        return arguments

    async def call(self, call_id: str, arguments: Arguments, context: ToolContext) -> ToolOutput:
        entries = arguments.items("todos")
        if entries is None:
            raise ToolError('todo needs "todos": the whole list. An empty list clears it.')
        if len(entries) > MAX_TODOS:
            raise ToolError(
                f"todo: {len(entries)} entries are too many. Keep at most {MAX_TODOS}: put several into one."
            )
        if context.dialogue is None:
            raise ToolError("todo is not available here.")
        # All entries are checked before any is kept: the list is replaced as a whole.
        todos = tuple(starmap(_todo, enumerate(entries, 1)))
        context.dialogue.write_todos(todos)
        return ok(_summary(todos))


def _with_status(entry: Any) -> Any:
    if isinstance(entry, str):
        return {"content": entry, "status": "pending"}
    if isinstance(entry, Mapping) and "status" not in entry and "state" not in entry:
        return {**entry, "status": "pending"}
    return entry


def _todo(number: int, entry: Any) -> Todo:
    entry = _with_status(entry)
    if not isinstance(entry, Mapping):
        raise ToolError(f"todo: entry {number} must be an object with content and status.")
    arguments = Arguments(f"todo: entry {number}", entry)
    content = " ".join(arguments.text("content", "title", "text", "task", "description").split())
    if not content:
        raise ToolError(f"todo: entry {number} says nothing. Say what is to be done.")
    status = arguments.choice("status", "state", allowed=_STATUS_WORDS, default="pending")
    doing = " ".join((arguments.optional_text("activeForm", "active_form") or "").split())
    return Todo(content[:MAX_TODO_CHARACTERS], cast(TodoStatus, status), doing[:MAX_TODO_CHARACTERS])


def _summary(todos: tuple[Todo, ...]) -> str:
    if not todos:
        return "The list is empty now."
    done = sum(todo.status == "completed" for todo in todos)
    doing = [todo.content for todo in todos if todo.status == "in_progress"]
    text = f"Noted: {done} of {len(todos)} done."
    if len(doing) > 1:
        return f"{text} {len(doing)} are in progress; work on one at a time."
    if doing:
        return f"{text} In progress: {doing[0]}"
    if done == len(todos):
        return text
    return f"{text} Nothing is in progress: mark what you do next."
