"""What all built-in tools share: a spec with its prompt beside it, and failure as a result."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from retinue.domain.tool import ToolContext, ToolOutput, ToolSpec, failed
from retinue.domain.toolnames import TOOLS
from retinue.tools.arguments import Arguments
from retinue.tools.errors import ToolError, explain

Properties = Mapping[str, Any]
"""The `properties` of a JSON Schema object: each parameter with its description."""


class BuiltinTool(ABC):
    """A subclass states its name and parameters, and does the work in `call`.

    `prompt.md` beside the subclass's module is the description the model sees. A `ToolError` or
    an `OSError` of the work becomes a failed result; every other exception is a defect.
    """

    name: ClassVar[str]
    properties: ClassVar[Properties]
    required: ClassVar[tuple[str, ...]]
    exclusive: ClassVar[bool] = False
    confinable: ClassVar[bool] = False

    def __init__(self) -> None:
        prompt = Path(inspect.getfile(type(self))).with_name("prompt.md")
        self.spec = ToolSpec(
            name=self.name,
            description=prompt.read_text(encoding="utf-8").strip(),
            parameters={
                "type": "object",
                "properties": self.properties,
                "required": list(self.required),
                "additionalProperties": False,
            },
            effects=TOOLS[self.name],
            exclusive=self.exclusive,
            confinable=self.confinable,
        )

    async def run(self, call_id: str, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        try:
            return await self.call(call_id, Arguments(self.name, arguments), context)
        except ToolError as error:
            return failed(str(error))
        except OSError as error:
            return failed(explain(error, f"{self.name} failed on {error.filename or 'the file system'}"))

    @abstractmethod
    async def call(self, call_id: str, given: Arguments, context: ToolContext) -> ToolOutput: ...
