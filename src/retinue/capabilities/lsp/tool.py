"""lsp: what language servers know about code."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from retinue.core.effects import ToolEffect
from retinue.core.messages import Text
from retinue.core.tool import ToolContext, ToolOutput, ok
from retinue.tools.arguments import PATH_NAMES, Arguments, ToolError, explain
from retinue.tools.base import Aliases, BuiltinTool, Properties

if TYPE_CHECKING:
    from retinue.capabilities.lsp.pool import Pool

READING = (
    "definition",
    "references",
    "hover",
    "signature",
    "symbols",
    "diagnostics",
    "workspace-diagnostics",
    "servers",
)
PRIVILEGED = ("rename", "codeAction", "restart")
SEVERITIES = ("all", "error", "warning", "info", "hint")

_TEXT = {"type": "string"}
_NUMBER = {"type": "integer", "minimum": 1}


class LspTool(BuiltinTool):
    """`pool` gives the servers of the project, made on first use. `actions` are those that agents
    may ask for; the privileged ones are never for a run that another one started."""

    name = "lsp"
    required = ("action",)
    properties: ClassVar[Properties] = {}
    hidden: ClassVar[Properties] = {
        "line": _NUMBER,
        "column": _NUMBER,
        "files": {"type": "array", "items": _TEXT},
        "severity": {"type": "string", "enum": list(SEVERITIES)},
        "server": _TEXT,
    }
    aliases: ClassVar[Aliases] = {
        "action": ("operation",),
        "file": ("path", *PATH_NAMES),
        "column": ("character", "col"),
        "query": ("symbol", "name"),
    }

    @staticmethod
    def rewrite(arguments: dict[str, Any]) -> dict[str, Any]:
        """Actions under the names that other systems and the protocol give them."""
        from retinue.capabilities.lsp.question import ACTIONS

        for name in ("action", "operation"):
            said = arguments.get(name)
            if isinstance(said, str):
                arguments[name] = ACTIONS.get(said.strip().lower(), said)
        return arguments

    def __init__(self, pool: Callable[[], Pool], actions: Sequence[str] = READING) -> None:
        self._pool = pool
        self._actions = tuple(actions)
        self.properties = _properties(self._actions)  # type: ignore[misc]  # it depends on what is allowed
        super().__init__()

    async def run(self, call_id: str, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        from retinue.capabilities.lsp.errors import LspError

        try:
            return await self.call(call_id, Arguments(self.name, arguments, self.aliases), context)
        except ToolError as error:
            code: str = error.code if isinstance(error, LspError) else "INVALID_INPUT"
            text = str(error) if isinstance(error, LspError) else f"{code}: {error}"
        except OSError as error:
            code, text = "INVALID_INPUT", f"INVALID_INPUT: {explain(error, 'the file cannot be read')}"
        value = {"error": {"code": code, "message": text.partition(": ")[2]}}
        return ToolOutput((Text(text),), is_error=True, effect=ToolEffect(status="failed", code=code), value=value)

    async def call(self, call_id: str, given: Arguments, context: ToolContext) -> ToolOutput:
        from retinue.capabilities.lsp.question import read_action, read_question

        action = read_action(given)
        self._check(action, context)
        question = read_question(action, given, context)
        pool = self._pool()
        if action in ("servers", "restart"):
            from retinue.capabilities.lsp.status import restart, status

            return ok(await (status if action == "servers" else restart)(pool, question, context))
        from retinue.capabilities.lsp.actions import Asking

        seconds = pool.habits.seconds
        if context.tool_timeout is not None:
            seconds = min(seconds, context.tool_timeout * 0.9)
        asking = Asking(pool, context, question, seconds, {})
        text = await asking.answer()
        return ok(text, ToolEffect(reads=tuple(asking.reads), provider=asking.provider))

    def _check(self, action: str, context: ToolContext) -> None:
        from retinue.capabilities.lsp.errors import LspError

        if action in PRIVILEGED and context.child:
            raise LspError("LSP_ACTION_NOT_ALLOWED", f"{action} is never for a run that another run started.")
        if action not in self._actions:
            allowed = f"Allowed are: {', '.join(self._actions)}."
            hint = " The setting lsp.allowMutatingActions allows it." if action in PRIVILEGED else ""
            raise LspError("LSP_ACTION_NOT_ALLOWED", f"{action} is not allowed here. {allowed}{hint}")


def _properties(actions: Sequence[str]) -> dict[str, Any]:
    found: dict[str, Any] = {
        "action": {"type": "string", "enum": list(actions)},
        "file": _TEXT,
        "line": {"type": "integer", "description": "From 1"},
        "column": {"type": "integer", "description": "From 1"},
        "query": {**_TEXT, "description": "Symbol: name or Class.name"},
    }
    if "rename" in actions:
        found["newName"] = {**_TEXT, "description": "New name (rename)"}
    if "codeAction" in actions:
        found["endLine"] = {**_NUMBER, "description": "Last line (codeAction)"}
        found["endColumn"] = {**_NUMBER, "description": "Last column (codeAction)"}
    return found
