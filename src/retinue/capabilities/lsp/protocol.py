"""The client side of the protocol: positions, the parameters of `initialize`, answers to requests of the server.

Lines and columns count from 1 for people and models, from 0 for servers. Our columns count characters; servers count
UTF-16 units unless another encoding was agreed on, so columns differ after an emoji.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct

from retinue.capabilities.lsp.catalog import ServerKind

Encoding = Literal["utf-8", "utf-16", "utf-32"]

_LINE_END = re.compile(r"\r\n|\n|\r")


class TextPosition(Struct, frozen=True):
    """A position from 0, its column in characters."""

    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.line + 1}:{self.column + 1}"


class TextDocument:
    """The text of a file, split into lines like the protocol does: a form feed does not end a line."""

    def __init__(self, text: str) -> None:
        self.text = text

    @cached_property
    def lines(self) -> list[str]:
        return _LINE_END.split(self.text)

    def line(self, number: int) -> str:
        return self.lines[number] if 0 <= number < len(self.lines) else ""

    def to_units(self, spot: TextPosition, encoding: Encoding) -> int:
        """Return the column of a position in the server's units, at most the end of its line."""
        return _units(self.line(spot.line)[: spot.column], encoding)

    def to_spot(self, line: int, units: int, encoding: Encoding) -> TextPosition:
        """Return the position of a server's column. A position inside of a character is moved before it."""
        text = self.line(line)
        if encoding == "utf-32" or text.isascii():
            return TextPosition(line, min(units, len(text)))
        column = 0
        for character in text:
            units -= _units(character, encoding)
            if units < 0:
                break
            column += 1
        return TextPosition(line, column)

    def occurrences(self, word: str, line: int | None = None) -> Iterator[TextPosition]:
        """Yield the positions of `word` as a whole word, comments and strings included, from the top."""
        if not word:
            return
        pattern = re.compile(rf"(?<!\w){re.escape(word)}(?!\w)")
        numbers = range(len(self.lines)) if line is None else (line,)
        for number in numbers:
            for match in pattern.finditer(self.line(number)):
                yield TextPosition(number, match.start())


def _units(text: str, encoding: Encoding) -> int:
    if text.isascii() or encoding == "utf-32":
        return len(text)
    if encoding == "utf-8":
        return len(text.encode("utf-8", "surrogatepass"))
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


PROVIDERS = {
    "textDocument/definition": "definitionProvider",
    "textDocument/references": "referencesProvider",
    "textDocument/hover": "hoverProvider",
    "textDocument/signatureHelp": "signatureHelpProvider",
    "textDocument/documentSymbol": "documentSymbolProvider",
    "workspace/symbol": "workspaceSymbolProvider",
    "textDocument/diagnostic": "diagnosticProvider",
    "textDocument/rename": "renameProvider",
    "textDocument/codeAction": "codeActionProvider",
}
"""For each request, the capability of servers that answer it."""

_TEXT_FORMATS = ["markdown", "plaintext"]
_CLIENT_CAPABILITIES: dict[str, Any] = {
    "general": {"positionEncodings": ["utf-32", "utf-16", "utf-8"]},
    "window": {"workDoneProgress": True},
    "workspace": {
        "configuration": True,
        "workspaceFolders": True,
        "didChangeConfiguration": {"dynamicRegistration": True},
        "didChangeWatchedFiles": {"dynamicRegistration": True, "relativePatternSupport": True},
        "symbol": {},
        "diagnostics": {"refreshSupport": True},
        "workspaceEdit": {"documentChanges": True},
    },
    "textDocument": {
        "synchronization": {"dynamicRegistration": False},
        "definition": {"linkSupport": True},
        "references": {},
        "hover": {"contentFormat": _TEXT_FORMATS},
        "signatureHelp": {
            "signatureInformation": {
                "documentationFormat": _TEXT_FORMATS,
                "parameterInformation": {"labelOffsetSupport": True},
                "activeParameterSupport": True,
            }
        },
        "documentSymbol": {"hierarchicalDocumentSymbolSupport": True},
        "diagnostic": {"dynamicRegistration": False, "relatedDocumentSupport": False},
        "publishDiagnostics": {"versionSupport": True, "relatedInformation": False},
        "rename": {},
        "codeAction": {
            "codeActionLiteralSupport": {
                "codeActionKind": {"valueSet": ["quickfix", "refactor", "source", "source.organizeImports"]}
            },
            "resolveSupport": {"properties": ["edit"]},
            "dataSupport": True,
        },
    },
    "experimental": {"serverStatusNotification": True},
}


def initialize_parameters(kind: ServerKind, root: Path) -> dict[str, Any]:
    """Return the parameters of `initialize`."""
    return {
        # In a sandbox our process id is invalid, and servers that watch it would end.
        "processId": None,
        "clientInfo": {"name": "retinue"},
        "rootPath": str(root),
        "rootUri": root.as_uri(),
        "workspaceFolders": _folders(root),
        "initializationOptions": dict(kind.options),
        "capabilities": _CLIENT_CAPABILITIES,
    }


def answer_request(method: str, params: Any, kind: ServerKind, root: Path) -> Any:
    """Return our answer to a request of a server; edits are refused. Raise LookupError for an unknown request."""
    match method:
        case "workspace/configuration":
            items = params.get("items") if isinstance(params, Mapping) else None
            return [_section(kind, item) for item in items or ()]
        case "workspace/workspaceFolders":
            return _folders(root)
        case "workspace/applyEdit":
            return {"applied": False, "failureReason": "this client changes nothing"}
        case "window/showDocument":
            return {"success": False}
        case "window/workDoneProgress/create" | "window/showMessageRequest" | "client/unregisterCapability":
            return None
        case _ if method.startswith("workspace/") and method.endswith("/refresh"):
            return None
        case _:
            raise LookupError(method)


def _folders(root: Path) -> list[dict[str, str]]:
    return [{"uri": root.as_uri(), "name": root.name or "workspace"}]


def _section(kind: ServerKind, item: Any) -> Any:
    value: Any = kind.settings
    section = item.get("section") if isinstance(item, Mapping) else None
    for key in str(section).split(".") if section else ():
        value = value.get(key) if isinstance(value, Mapping) else None
    return value
