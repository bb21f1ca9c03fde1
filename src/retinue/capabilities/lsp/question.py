"""What a model asks: one call of the tool, read and checked."""

from __future__ import annotations

from pathlib import Path

from retinue.capabilities.lsp.errors import bad_input
from retinue.capabilities.lsp.tool import PRIVILEGED, READING, SEVERITIES
from retinue.core.lean import dataclass
from retinue.core.tool import ToolContext
from retinue.tools.arguments import Arguments, ToolError
from retinue.tools.paths import Confined, confine

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


@dataclass(frozen=True, slots=True)
class Question:
    """Lines and columns count from 1, as the model sent them."""

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


def read_action(given: Arguments) -> str:
    said = given.text("action")
    action = ACTIONS.get(said.strip().lower())
    if action is None:
        raise bad_input(f"there is no action {said[:40]!r}. Send one of: {', '.join((*READING, *PRIVILEGED))}.")
    return action


def read_question(action: str, given: Arguments, context: ToolContext) -> Question:
    """Raises ToolError, always with the code INVALID_INPUT."""
    try:
        file = given.optional_text("file")
        named = given.items("files") or []
        if len(named) > MOST_FILES:
            raise bad_input(f"{len(named)} files are too many for one call; send at most {MOST_FILES}.")
        if not all(isinstance(each, str) and each for each in named):
            raise bad_input('"files" must be a list of paths.')
        return Question(
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
        raise error if text.startswith("INVALID_INPUT") else bad_input(text) from None


def workspace_of(place: Confined, context: ToolContext) -> Path:
    """The folder of the workspace that a file is in, and where its server may begin at most."""
    if place.root in context.roots:
        return place.root
    raise bad_input(f"{place.shown} is not in the workspace.")
