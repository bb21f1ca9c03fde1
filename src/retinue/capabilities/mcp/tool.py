"""A tool of a server as a tool of a run."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import field
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from retinue.capabilities.mcp.config import ServerConfig
from retinue.capabilities.mcp.connection import ServerError, ServerGoneError
from retinue.capabilities.mcp.elicit import Question
from retinue.capabilities.mcp.listing import Listed, safe_keys
from retinue.capabilities.mcp.pool import Caller, Server
from retinue.capabilities.mcp.process import CannotStartError
from retinue.core.effects import EffectKind, ToolEffect
from retinue.core.lean import dataclass
from retinue.core.tool import ToolContext, ToolOutput, ToolSpec, failed
from retinue.core.toolnames import served_name

AskFor = Callable[[str, Question], Awaitable[str | None]]
"""Puts a question of a call to a person; None when it was not answered."""

_ANYTHING: frozenset[EffectKind] = frozenset({"read", "write", "execute", "network"})
_READS: frozenset[EffectKind] = frozenset({"read", "network"})


@dataclass(frozen=True, slots=True)
class ServedTool:
    """`ask` leads to the person behind the run; without one, what the server asks is declined.
    Nothing a server does raises here: it becomes a result that says how to go on."""

    spec: ToolSpec
    server: Server
    remote: str
    characters: int
    seconds: float | None
    ask: AskFor | None = None
    renamed: Mapping[str, str] = field(default_factory=dict)
    """Arguments whose names no provider takes: as the model writes them, and as the server does."""

    async def run(self, call_id: str, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        caller = Caller(context.roots, self.seconds, partial(self._elicit, call_id) if self.ask is not None else None)
        hosts = (urlsplit(self.server.config.url).hostname or "",) if self.server.config.url else ()
        progress = partial(context.progress, call_id)
        if self.renamed:
            arguments = {self.renamed.get(name, name): value for name, value in arguments.items()}
        try:
            result = await self.server.call(self.remote, arguments, caller, progress)
        except CannotStartError as error:
            return failed(f"Not run: the MCP server '{self.name}' cannot be used: {error}")
        except TimeoutError:
            text = f"The MCP server '{self.name}' did not answer in time; whether the call took effect is not known."
            return failed(f"{text} Check before you repeat it.", ToolEffect("unknown", hosts=hosts))
        except ServerGoneError as error:
            text = f"The MCP server '{self.name}' was lost during the call: {error}. Whether it took effect is not"
            return failed(f"{text} known; the next call starts it again.", ToolEffect("unknown", hosts=hosts))
        except ServerError as error:
            return failed(f"The MCP server '{self.name}' refused the call: {error}", ToolEffect("failed", hosts=hosts))
        from retinue.capabilities.mcp.results import to_output

        effect = ToolEffect("failed" if result.is_error else "finished", hosts=hosts)
        make = partial(to_output, result, characters=self.characters, outputs=context.outputs, effect=effect)
        return await asyncio.to_thread(make)

    @property
    def name(self) -> str:
        return self.server.config.name

    async def _elicit(self, call_id: str, params: Any) -> Any:
        from retinue.capabilities.mcp.elicit import answer

        assert self.ask is not None
        return await answer(self.name, params, partial(self.ask, call_id))


def served_tool(
    server: Server, listed: Listed, *, characters: int, seconds: float | None, ask: AskFor | None
) -> ServedTool:
    config = server.config
    parameters, renamed = safe_keys(listed.parameters)
    spec = ToolSpec(
        name=served_name(config.name, listed.name),
        description=f"[MCP:{config.name}] {listed.description}".strip(),
        parameters=parameters,
        effects=effects(config, listed),
    )
    return ServedTool(spec, server, listed.name, characters, seconds, ask, renamed)


def effects(config: ServerConfig, listed: Listed) -> frozenset[EffectKind]:
    """A server is a program that may do anything; what it says of itself counts only where the
    user has said to believe it."""
    return _READS if config.trust_annotations and listed.read_only else _ANYTHING
