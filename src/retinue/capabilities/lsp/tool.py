"""The tool `lsp`, which asks language servers about code. Its calls are parsed and checked here.

An error has a code for programs and a sentence for the model.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from msgspec import Struct

from retinue.core.lazy import LazyModule
from retinue.core.permission import ToolEffect
from retinue.core.tool import ToolContext, ToolOutput, ok
from retinue.tools.base import PATH_NAMES, Aliases, Arguments, Properties
from retinue.tools.coded import CodedError, CodedTool
from retinue.tools.paths import Confined, confine

if TYPE_CHECKING:
    import retinue.capabilities.lsp.actions as _actions
    from retinue.capabilities.lsp.pool import LanguageServerPool
else:
    _actions = LazyModule("retinue.capabilities.lsp.actions")

Code = Literal["INVALID_INPUT", "LSP_ACTION_NOT_ALLOWED", "LSP_SERVER_NOT_FOUND", "LSP_SERVER_FAILED", "LSP_TIMEOUT"]
READ_ACTIONS = (
    *("definition", "references", "hover", "signature", "symbols", "diagnostics", "workspace-diagnostics", "servers"),
)
PRIVILEGED_ACTIONS = ("rename", "codeAction", "restart")
SEVERITIES = ("all", "error", "warning", "info", "hint")
MAX_FILES_PER_CALL = 64
TIMEOUT_SHARE = 0.9
"""The share of the tool's time limit that a server gets, so that a timeout is reported with the server's name."""
_ACTION_ALIASES = {
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
ACTIONS = {**{name.lower(): name for name in (*READ_ACTIONS, *PRIVILEGED_ACTIONS)}, **_ACTION_ALIASES}
"""The action for every accepted name, in lower case."""

_TEXT_SCHEMA = {"type": "string"}
_NUMBER_SCHEMA = {"type": "integer", "minimum": 1}


class LspError(CodedError):
    def __init__(self, code: Code, message: str) -> None:
        super().__init__(code, message)


class ServerFailedError(LspError):
    """The server ended, cannot be started, or violates the protocol."""

    def __init__(self, message: str) -> None:
        super().__init__("LSP_SERVER_FAILED", message)


def bad_input(message: str) -> LspError:
    return LspError("INVALID_INPUT", message)


class LspTool(CodedTool):
    """The tool `lsp`. `pool` returns the servers of the project, created on first use. `actions` are the allowed ones;
    a child run never gets a privileged one."""

    name = "lsp"
    file_error_code = "INVALID_INPUT"
    file_error_message = "the file cannot be read"
    required = ("action",)
    properties: ClassVar[Properties] = {}
    hidden: ClassVar[Properties] = {
        "line": _NUMBER_SCHEMA,
        "column": _NUMBER_SCHEMA,
        "files": {"type": "array", "items": _TEXT_SCHEMA},
        "severity": {"type": "string", "enum": list(SEVERITIES)},
        "server": _TEXT_SCHEMA,
    }
    aliases: ClassVar[Aliases] = {
        "action": ("operation",),
        "file": ("path", *PATH_NAMES),
        "column": ("character", "col"),
        "query": ("symbol", "name"),
    }

    @staticmethod
    def rewrite(arguments: dict[str, Any]) -> dict[str, Any]:
        """Replace the names that other systems and the protocol use for an action."""
        for name in ("action", "operation"):
            action = arguments.get(name)
            if isinstance(action, str):
                arguments[name] = ACTIONS.get(action.strip().lower(), action)
        return arguments

    def __init__(self, pool: Callable[[], LanguageServerPool], actions: Sequence[str] = READ_ACTIONS) -> None:
        self._pool = pool
        self._actions = tuple(actions)
        self.properties = _properties(self._actions)  # type: ignore[misc]  # it depends on what is allowed
        super().__init__()

    async def call(self, call_id: str, parameters: Arguments, context: ToolContext) -> ToolOutput:
        asked = parameters.text("action")
        action = ACTIONS.get(asked.strip().lower())
        if action is None:
            raise bad_input(
                f"there is no action {asked[:40]!r}. Send one of: {', '.join((*READ_ACTIONS, *PRIVILEGED_ACTIONS))}."
            )
        if action in PRIVILEGED_ACTIONS and context.child:
            raise LspError("LSP_ACTION_NOT_ALLOWED", f"{action} is not available to a run that another run started.")
        if action not in self._actions:
            allowed = f"Allowed are: {', '.join(self._actions)}."
            hint = " The setting lsp.allowMutatingActions allows it." if action in PRIVILEGED_ACTIONS else ""
            raise LspError("LSP_ACTION_NOT_ALLOWED", f"{action} is not allowed here. {allowed}{hint}")
        question = read_question(action, parameters, context)
        pool = self._pool()
        if action == "servers":
            return ok(await pool.status(question, context))
        if action == "restart":
            return ok(await pool.restart(question, context))
        seconds = pool.seconds
        if context.tool_timeout is not None:
            seconds = min(seconds, context.tool_timeout * TIMEOUT_SHARE)
        asking = _actions.Asking(pool, context, question, seconds)
        text = await asking.answer()
        return ok(text, ToolEffect(reads=tuple(asking.reads), provider=asking.provider))


def _properties(actions: Sequence[str]) -> dict[str, Any]:
    properties: dict[str, Any] = {
        "action": {"type": "string", "enum": list(actions)},
        "file": _TEXT_SCHEMA,
        "line": {"type": "integer", "description": "From 1"},
        "column": {"type": "integer", "description": "From 1"},
        "query": {**_TEXT_SCHEMA, "description": "Symbol: name or Class.name"},
    }
    if "rename" in actions:
        properties["newName"] = {**_TEXT_SCHEMA, "description": "New name (rename)"}
    if "codeAction" in actions:
        properties["endLine"] = {**_NUMBER_SCHEMA, "description": "Last line (codeAction)"}
        properties["endColumn"] = {**_NUMBER_SCHEMA, "description": "Last column (codeAction)"}
    return properties


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


def read_question(action: str, parameters: Arguments, context: ToolContext) -> LspQuestion:
    """Parse a call. Raise ToolError."""
    file = parameters.optional_text("file")
    files = parameters.items("files") or []
    if len(files) > MAX_FILES_PER_CALL:
        raise bad_input(f"{len(files)} files are too many for one call; send at most {MAX_FILES_PER_CALL}.")
    if not all(isinstance(path, str) and path for path in files):
        raise bad_input('"files" must be a list of paths.')
    return LspQuestion(
        action=action,
        file=confine(file, context) if file else None,
        files=tuple(confine(path, context) for path in dict.fromkeys(files)),
        line=parameters.whole_number("line", least=1),
        column=parameters.whole_number("column", least=1),
        end_line=parameters.whole_number("endLine", "end_line", least=1),
        end_column=parameters.whole_number("endColumn", "end_column", least=1),
        query=parameters.optional_text("query"),
        new_name=parameters.optional_text("newName", "new_name"),
        severity=parameters.choice("severity", allowed={name: name for name in SEVERITIES}, default="all"),
        server=parameters.optional_text("server"),
    )


def workspace_of(confined: Confined, context: ToolContext) -> Path:
    """Return the folder of the workspace that contains a file. The root of its server is never above that folder."""
    if confined.root in context.roots:
        return confined.root
    raise bad_input(f"{confined.shown} is not in the workspace.")
