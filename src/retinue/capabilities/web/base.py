"""What the web tools share: a service that is made on first use, and failure with a code."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from retinue.capabilities.web.errors import WebError
from retinue.core.effects import ToolEffect
from retinue.core.messages import Text
from retinue.core.tool import ToolContext, ToolOutput
from retinue.tools.arguments import Arguments, ToolError
from retinue.tools.base import BuiltinTool

if TYPE_CHECKING:
    from retinue.capabilities.web.service import Web


class WebTool(BuiltinTool):
    """`web` gives the service; nothing of it is loaded before the first call."""

    def __init__(self, web: Callable[[], Web]) -> None:
        super().__init__()
        self.web = web

    async def run(self, call_id: str, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        try:
            return await self.call(call_id, Arguments(self.name, arguments, self.aliases), context)
        except WebError as error:
            return failure(error)
        except ToolError as error:
            return failure(WebError("INVALID_INPUT", str(error)))
        except OSError as error:
            return failure(WebError("STORAGE", f"What was found could not be kept: {error.strerror or error}."))


def failure(error: WebError) -> ToolOutput:
    effect = ToolEffect(
        status="failed",
        hosts=error.hosts,
        provider=error.provider or None,
        code="RATE_LIMITED" if error.limited else error.code,
    )
    value = {"error": {"code": error.code, "message": error.message}}
    return ToolOutput((Text(str(error)),), is_error=True, effect=effect, value=value)


def _listed(value: Any) -> list[Any]:
    """A list; also one that a model has written as text."""
    if isinstance(value, str) and value.strip().startswith("["):
        try:
            value = json.loads(value)
        except ValueError:
            return [value]
    return value if isinstance(value, list) else [value]


def texts(given: Arguments, one: str, many: str, *others: str) -> list[str]:
    """What stands under either name, trimmed and without doubles, in order."""
    single = given.find(one, *others)
    several = given.find(many)
    found: list[str] = []
    for value in (single, several):
        if value is None:
            continue
        for text in _listed(value):
            if not isinstance(text, str):
                raise given.wrong(many, "a list of texts", text)
            if text.strip():
                found.append(text.strip())
    return list(dict.fromkeys(found))
