"""Errors of questions to language servers: a code for programs, and a sentence for the model."""

from __future__ import annotations

from typing import Literal

from retinue.tools.arguments import ToolError

Code = Literal["INVALID_INPUT", "LSP_ACTION_NOT_ALLOWED", "LSP_SERVER_NOT_FOUND", "LSP_SERVER_FAILED", "LSP_TIMEOUT"]


class LspError(ToolError):
    def __init__(self, code: Code, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code: Code = code


class ServerFailedError(LspError):
    """The server ended, cannot be started, or does not keep to the protocol."""

    def __init__(self, message: str) -> None:
        super().__init__("LSP_SERVER_FAILED", message)


class RefusedError(Exception):
    """The server answered a request with an error. `code` is the protocol's number for it."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


def bad_input(message: str) -> LspError:
    return LspError("INVALID_INPUT", message)
