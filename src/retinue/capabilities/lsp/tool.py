"""The tool `lsp`, which asks language servers about code. Its calls are parsed and checked here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from msgspec import Struct

from retinue.capabilities.lsp.protocol import LspError, bad_input
from retinue.core.messages import Text
from retinue.core.permission import ToolEffect
from retinue.core.tool import ToolContext, ToolOutput, ok
from retinue.tools.base import PATH_NAMES, Aliases, Arguments, BuiltinTool, Properties, ToolError, explain
from retinue.tools.paths import Confined, confine

if TYPE_CHECKING:
    from retinue.capabilities.lsp.pool import LanguageServerPool


READING = (
    *("definition", "references", "hover", "signature", "symbols", "diagnostics", "workspace-diagnostics", "servers"),
)
PRIVILEGED = ("rename", "codeAction", "restart")
SEVERITIES = ("all", "error", "warning", "info", "hint")

_TEXT = {"type": "string"}
_NUMBER = {"type": "integer", "minimum": 1}


class LspTool(BuiltinTool):
    """The tool `lsp`. `pool` returns the servers of the project, made on first use. `actions` are those that agents
    may ask for; the privileged ones are never for a run that another run started."""

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
        """Replace names that other systems and the protocol have for an action."""
        for name in ("action", "operation"):
            said = arguments.get(name)
            if isinstance(said, str):
                arguments[name] = ACTIONS.get(said.strip().lower(), said)
        return arguments

    def __init__(self, pool: Callable[[], LanguageServerPool], actions: Sequence[str] = READING) -> None:
        self._pool = pool
        self._actions = tuple(actions)
        self.properties = _properties(self._actions)  # type: ignore[misc]  # it depends on what is allowed
        super().__init__()

    async def run(self, call_id: str, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        code: str
        try:
            return await self.call(call_id, Arguments(self.name, arguments, self.aliases), context)
        except LspError as error:
            code, text = error.code, str(error)
        except ToolError as error:
            code, text = "INVALID_INPUT", f"INVALID_INPUT: {error}"
        except OSError as error:
            code, text = "INVALID_INPUT", f"INVALID_INPUT: {explain(error, 'the file cannot be read')}"
        value = {"error": {"code": code, "message": text.partition(": ")[2]}}
        return ToolOutput((Text(text),), is_error=True, effect=ToolEffect(status="failed", code=code), value=value)

    async def call(self, call_id: str, given: Arguments, context: ToolContext) -> ToolOutput:
        said = given.text("action")
        action = ACTIONS.get(said.strip().lower())
        if action is None:
            raise bad_input(f"there is no action {said[:40]!r}. Send one of: {', '.join((*READING, *PRIVILEGED))}.")
        self._check(action, context)
        question = read_question(action, given, context)
        pool = self._pool()
        if action in ("servers", "restart"):
            from retinue.capabilities.lsp.pool import restart, status

            manage = status if action == "servers" else restart
            return ok(await manage(pool, question, context))
        from retinue.capabilities.lsp.actions import Asking

        seconds = pool.habits.seconds
        if context.tool_timeout is not None:
            # Less than the tool's own limit, so that the call ends with an error that names the server.
            seconds = min(seconds, context.tool_timeout * 0.9)
        asking = Asking(pool, context, question, seconds, {})
        text = await asking.answer()
        return ok(text, ToolEffect(reads=tuple(asking.reads), provider=asking.provider))

    def _check(self, action: str, context: ToolContext) -> None:
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


MOST_FILES = 64

_OTHER_NAMES = {
    "gotodefinition": "definition",
    "findreferences": "references",
    "signaturehelp": "signature",
    "documentsymbol": "symbols",
    "documentsymbols": "symbols",
    "workspacesymbol": "symbols",
    "workspacesymbols": "symbols",
    "workspacediagnostics": "workspace-diagnostics",
    "workspace_diagnostics": "workspace-diagnostics",
    "status": "servers",
    "problems": "diagnostics",
    "code-action": "codeAction",
    "code_action": "codeAction",
}
ACTIONS = {**{name.lower(): name for name in (*READING, *PRIVILEGED)}, **_OTHER_NAMES}
"""Every accepted spelling, in lower case."""


class LspQuestion(Struct, frozen=True):
    """A parsed call. Lines and columns count from 1, as the model sent them."""

    action: str
    file: Confined | None = None
    files: tuple[Confined, ...] = ()
    line: int | None = None
    column: int | None = None
    end_line: int | None = None
    end_column: int | None = None
    query: str | None = None
    new_name: str | None = None
    severity: str = "all"
    server: str | None = None


def read_question(action: str, given: Arguments, context: ToolContext) -> LspQuestion:
    """Parse a call. Raise ToolError, always with the code INVALID_INPUT."""
    try:
        file = given.optional_text("file")
        named = given.items("files") or []
        if len(named) > MOST_FILES:
            raise bad_input(f"{len(named)} files are too many for one call; send at most {MOST_FILES}.")
        if not all(isinstance(each, str) and each for each in named):
            raise bad_input('"files" must be a list of paths.')
        return LspQuestion(
            action=action,
            file=confine(file, context) if file else None,
            files=tuple(confine(each, context) for each in dict.fromkeys(named)),
            line=given.whole("line", least=1),
            column=given.whole("column", least=1),
            end_line=given.whole("endLine", "end_line", least=1),
            end_column=given.whole("endColumn", "end_column", least=1),
            query=given.optional_text("query"),
            new_name=given.optional_text("newName", "new_name"),
            severity=given.choice("severity", allowed={each: each for each in SEVERITIES}, default="all"),
            server=given.optional_text("server"),
        )
    except ToolError as error:
        text = str(error)
        if text.startswith("INVALID_INPUT"):
            raise
        raise bad_input(text) from None


def workspace_of(confined: Confined, context: ToolContext) -> Path:
    """Return the folder of the workspace that holds a file. The root of its server is never above it."""
    if confined.root in context.roots:
        return confined.root
    raise bad_input(f"{confined.shown} is not in the workspace.")
