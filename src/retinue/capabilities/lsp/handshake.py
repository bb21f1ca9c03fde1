"""The parameters of `initialize`, and our answers to requests of a server."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from retinue.capabilities.lsp.catalog import ServerKind

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
"""By request, the capability with which a server says that it answers it."""

_TEXT = ["markdown", "plaintext"]
_CAPABILITIES: dict[str, Any] = {
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
        "hover": {"contentFormat": _TEXT},
        "signatureHelp": {
            "signatureInformation": {
                "documentationFormat": _TEXT,
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


def introduction(kind: ServerKind, root: Path) -> dict[str, Any]:
    """Return the parameters of `initialize`."""
    return {
        # In a sandbox our number would mean another process or none, and servers that watch it would end.
        "processId": None,
        "clientInfo": {"name": "retinue"},
        "rootPath": str(root),
        "rootUri": root.as_uri(),
        "workspaceFolders": _folders(root),
        "initializationOptions": dict(kind.options),
        "capabilities": _CAPABILITIES,
    }


def answered(method: str, params: Any, kind: ServerKind, root: Path) -> Any:
    """Return our answer to a request of a server. Raise LookupError for an unknown one. Servers change nothing
    through us."""
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
    found: Any = kind.settings
    section = item.get("section") if isinstance(item, Mapping) else None
    if not section:
        return found
    for part in str(section).split("."):
        if not isinstance(found, Mapping):
            return None
        found = found.get(part)
    return found
