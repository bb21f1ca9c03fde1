"""How a conversion fails: the codes are those of devkit-pi."""

from __future__ import annotations

from typing import Literal

from retinue.tools.arguments import ToolError

Code = Literal[
    "INVALID_INPUT",
    "FILE_NOT_FOUND",
    "FILE_TOO_LARGE",
    "UNSUPPORTED_PROTOCOL",
    "PRIVATE_NETWORK_BLOCKED",
    "NETWORK_ERROR",
    "CONVERT_TIMEOUT",
    "COMMAND_NOT_FOUND",
    "CONVERT_FAILED",
]


class ConvertError(ToolError):
    """`hosts` were contacted before it failed."""

    def __init__(self, code: Code, message: str, hosts: tuple[str, ...] = ()) -> None:
        super().__init__(f"{code}: {message}")
        self.code: Code = code
        self.message = message
        self.hosts = hosts
