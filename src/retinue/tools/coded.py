"""Tools whose failures have a stable code for programs besides the message for the model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from retinue.core.messages import Text
from retinue.core.permission import ToolEffect
from retinue.core.tool import ToolContext, ToolOutput
from retinue.tools.base import Arguments, BuiltinTool, ToolError, explain


class CodedError(ToolError):
    """A failed call. `hosts` were contacted for it, and `provider` was queried."""

    def __init__(self, code: str, message: str, hosts: tuple[str, ...] = (), provider: str = "") -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.hosts = hosts
        self.provider = provider

    @property
    def effect_code(self) -> str:
        """The code in the effect of the call."""
        return self.code


class CodedTool(BuiltinTool):
    """A built-in tool that raises `CodedError`. Other errors of a call get a code as well: INVALID_INPUT, and for an
    `OSError` those of the subclass."""

    provider: ClassVar[str] = ""
    file_error_code: ClassVar[str]
    file_error_message: ClassVar[str]

    async def run(self, call_id: str, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        try:
            return await self.call(call_id, Arguments(self.name, arguments, self.aliases), context)
        except CodedError as error:
            failure = error
        except ToolError as error:
            failure = CodedError("INVALID_INPUT", str(error))
        except OSError as error:
            failure = CodedError(self.file_error_code, explain(error, self.file_error_message))
        provider = failure.provider or self.provider or None
        effect = ToolEffect(status="failed", hosts=failure.hosts, provider=provider, code=failure.effect_code)
        value = {"error": {"code": failure.code, "message": failure.message}}
        return ToolOutput((Text(str(failure)),), is_error=True, effect=effect, value=value)
