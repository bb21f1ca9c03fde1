"""ask_parent: a question to the run that started this one, or to the person behind it."""

from __future__ import annotations

from typing import ClassVar, assert_never

from retinue.core.tool import ToolContext, ToolOutput, ok
from retinue.tools.arguments import Arguments, ToolError
from retinue.tools.base import Aliases, BuiltinTool, Properties

MOST_OPTIONS = 10
LONGEST = 4_000
LONGEST_OPTION = 200


class AskParentTool(BuiltinTool):
    name = "ask_parent"
    required = ("question",)
    exclusive = True
    properties: ClassVar[Properties] = {
        "question": {"type": "string"},
        "options": {"type": "array", "items": {"type": "string"}},
    }
    aliases: ClassVar[Aliases] = {"question": ("prompt", "message", "text"), "options": ("choices", "answers")}

    async def call(self, call_id: str, given: Arguments, context: ToolContext) -> ToolOutput:
        question = given.text("question").strip()
        if not question:
            raise ToolError(f"{self.name}: the question is empty.")
        if len(question) > LONGEST:
            raise ToolError(f"{self.name}: the question is too long. Ask in at most {LONGEST} characters.")
        if context.companion is None:
            raise ToolError(f"{self.name} is not available here. Go on, and say what you assumed.")
        reply = await context.companion.ask(question, _options(given), call_id)
        match reply.kind:
            case "answered":
                return ok(f"Answer of {reply.by}: {reply.text}" if reply.by else reply.text)
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


def _options(given: Arguments) -> tuple[str, ...]:
    entries = given.items("options") or []
    options = [entry.get("label") if isinstance(entry, dict) else entry for entry in entries]
    if not all(isinstance(option, str) and option.strip() for option in options):
        raise given.wrong("options", "a list of texts", entries)
    if len(options) > MOST_OPTIONS:
        raise ToolError(f"ask_parent: give at most {MOST_OPTIONS} options.")
    return tuple(dict.fromkeys(" ".join(str(option).split())[:LONGEST_OPTION] for option in options))
