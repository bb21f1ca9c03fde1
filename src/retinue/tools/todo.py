"""todo: what is to be done, as a list that outlives compaction and resume."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import starmap
from typing import Any, ClassVar, cast

from retinue.core.tool import Todo, TodoStatus, ToolContext, ToolOutput, ok
from retinue.tools.arguments import Arguments, ToolError
from retinue.tools.base import Aliases, BuiltinTool, Properties

MOST = 100
LONGEST = 500
_STATUSES = {
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
    words: ClassVar[Mapping[str, Mapping[str, str]]] = {"todos.status": _STATUSES}
    ignored = frozenset({"explanation", "description"})

    @staticmethod
    def rewrite(arguments: dict[str, Any]) -> dict[str, Any]:
        """Accept entries that are plain texts, or that have no status yet."""
        for name in ("todos", *TodoTool.aliases["todos"]):
            entries = arguments.get(name)
            if isinstance(entries, list):
                arguments[name] = list(map(_with_status, entries))
        return arguments

    async def call(self, call_id: str, given: Arguments, context: ToolContext) -> ToolOutput:
        entries = given.items("todos")
        if entries is None:
            raise ToolError('todo needs "todos": the whole list. An empty list clears it.')
        if len(entries) > MOST:
            raise ToolError(f"todo: {len(entries)} entries are too many. Keep at most {MOST}: put several into one.")
        if context.companion is None:
            raise ToolError("todo is not available here.")
        # All entries are checked before any is kept: the list is replaced as a whole.
        todos = tuple(starmap(_todo, enumerate(entries, 1)))
        context.companion.write_todos(todos)
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
    given = Arguments(f"todo: entry {number}", entry)
    content = " ".join(given.text("content", "title", "text", "task", "description").split())
    if not content:
        raise ToolError(f"todo: entry {number} says nothing. Say what is to be done.")
    status = given.choice("status", "state", allowed=_STATUSES, default="pending")
    doing = " ".join((given.optional_text("activeForm", "active_form") or "").split())
    return Todo(content[:LONGEST], cast(TodoStatus, status), doing[:LONGEST])


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
