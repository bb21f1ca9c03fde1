"""todo: what is to be done, as a list that outlives compaction and resume."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, cast

from retinue.core.tool import Todo, TodoStatus, ToolContext, ToolOutput, ok
from retinue.tools.arguments import Arguments, ToolError
from retinue.tools.base import Aliases, BuiltinTool, Properties

MOST = 100
LONGEST = 500
_STATUSES = {
    "pending": "pending",
    "todo": "pending",
    "open": "pending",
    "in_progress": "in_progress",
    "in-progress": "in_progress",
    "doing": "in_progress",
    "active": "in_progress",
    "completed": "completed",
    "complete": "completed",
    "done": "completed",
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
        """Entries that are plain texts, or that have no status yet."""
        for name in ("todos", *TodoTool.aliases["todos"]):
            entries = arguments.get(name)
            if isinstance(entries, list):
                arguments[name] = [_with_status(entry) for entry in entries]
        return arguments

    async def call(self, call_id: str, given: Arguments, context: ToolContext) -> ToolOutput:
        entries = given.items("todos")
        if entries is None:
            raise ToolError('todo needs "todos": the whole list. An empty list clears it.')
        if len(entries) > MOST:
            raise ToolError(f"todo: {len(entries)} entries are too many. Keep at most {MOST}: put several into one.")
        if context.companion is None:
            raise ToolError("todo is not available here.")
        todos = tuple(_todo(number, entry) for number, entry in enumerate(entries, 1))
        context.companion.write_todos(todos)
        return ok(_told(todos))


def _with_status(entry: Any) -> Any:
    if isinstance(entry, str):
        return {"content": entry, "status": "pending"}
    if isinstance(entry, Mapping) and "status" not in entry and "state" not in entry:
        return {**entry, "status": "pending"}
    return entry


def _todo(number: int, entry: Any) -> Todo:
    values: Mapping[str, Any] = {"content": entry} if isinstance(entry, str) else entry
    if not isinstance(values, Mapping):
        raise ToolError(f"todo: entry {number} must be an object with content and status.")
    given = Arguments(f"todo: entry {number}", values)
    content = " ".join(given.text("content", "title", "text", "task", "description").split())
    if not content:
        raise ToolError(f"todo: entry {number} says nothing. Say what is to be done.")
    status = given.choice("status", "state", allowed=_STATUSES, default="pending")
    doing = " ".join((given.optional_text("activeForm", "active_form") or "").split())
    return Todo(content[:LONGEST], cast(TodoStatus, status), doing[:LONGEST])


def _told(todos: tuple[Todo, ...]) -> str:
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
