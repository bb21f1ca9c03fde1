"""ask_parent, ask_user and exit_plan: questions of a run to its parent or to a person."""

from __future__ import annotations

from typing import Any, ClassVar, assert_never

from msgspec.structs import replace

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


def _options(given: Arguments) -> tuple[str, ...]:
    entries = given.items("options") or []
    options: dict[str, None] = {}
    for entry in entries:
        option = _field(entry, "label")
        if not isinstance(option, str) or not option.strip():
            raise given.wrong("options", "a list of texts", entries)
        options[" ".join(option.split())[:LONGEST_OPTION]] = None
    if len(entries) > MOST_OPTIONS:
        raise ToolError(f"ask_parent: give at most {MOST_OPTIONS} options.")
    return tuple(options)


def _field(entry: Any, name: str) -> Any:
    """Return a field of an entry that is an object; any other entry is the value itself."""
    return entry.get(name, "") if isinstance(entry, dict) else entry


class AskUserTool(AskParentTool):
    name = "ask_user"
    aliases: ClassVar[Aliases] = {**AskParentTool.aliases, "options": ("choices", "answers")}
    ignored = frozenset({"header", "multiSelect", "allowMultiple"})

    @staticmethod
    def rewrite(arguments: dict[str, Any]) -> dict[str, Any]:
        """Accept the form of Claude Code: a list of questions, and options with a label and a description."""
        questions = arguments.pop("questions", None)
        if isinstance(questions, list) and len(questions) == 1 and isinstance(questions[0], dict):
            arguments = {**questions[0], **arguments}
        elif isinstance(questions, list) and questions:
            asked = [f"{number}. {_field(each, 'question')}" for number, each in enumerate(questions, 1)]
            arguments.setdefault("question", "\n".join(asked))
        options = arguments.get("options")
        if isinstance(options, list):
            arguments["options"] = [_field(each, "label") for each in options]
        return arguments


_UNASKED = "Nobody has answered, and plan mode goes on. End your turn with the plan as your answer."


class ExitPlanTool(BuiltinTool):
    """Asks the person; after a yes the run goes on in another mode."""

    name = "exit_plan"
    required = ("plan",)
    exclusive = True
    properties: ClassVar[Properties] = {"plan": {"type": "string", "description": "The whole plan, in Markdown"}}
    aliases: ClassVar[Aliases] = {"plan": ("content", "text", "summary")}

    async def call(self, call_id: str, given: Arguments, context: ToolContext) -> ToolOutput:
        plan = _plan(given)
        if context.companion is None:
            raise ToolError("exit_plan is not available here. End your turn with the plan as your answer.")
        reply = await context.companion.hand_in(plan, call_id)
        if reply.kind == "nobody":
            return ok(_UNASKED)
        if reply.text.startswith("Approved."):
            # The walls of a read-only run were those of plan mode.
            context.confinement = None
        return ok(f"{reply.text} ({reply.by})") if reply.by else ok(reply.text)


class FinalPlanTool(ExitPlanTool):
    """Without anyone to ask, the plan is the answer of the run."""

    def __init__(self) -> None:
        super().__init__()
        self.spec = replace(self.spec, ends_run=True)

    async def call(self, call_id: str, given: Arguments, context: ToolContext) -> ToolOutput:
        return ok(
            f"{_plan(given)}\n\nNothing was changed: this was plan mode, and nobody is here to approve the plan. "
            "To have it carried out, give it as the task of a run in another permission mode."
        )


def _plan(given: Arguments) -> str:
    plan = given.text("plan").strip()
    if not plan:
        raise ToolError("exit_plan: the plan is empty.")
    return plan
