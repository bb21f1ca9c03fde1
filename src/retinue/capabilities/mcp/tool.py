"""A tool of a server as a tool of a run, and the questions a server asks a person.

A form becomes one question per field. The answer to each is checked against what the server asked
for; a wrong one is asked again. `skip` leaves a field to its default, or out. If nobody answers, the
server is told that the question was cancelled. The protocol forbids asking for secrets; the question
says which server asks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from msgspec import Struct, field

from retinue.capabilities.mcp.config import ServerConfig
from retinue.capabilities.mcp.connection import ServerError, ServerGoneError
from retinue.capabilities.mcp.pool import Caller, Server
from retinue.capabilities.mcp.tool_list import ServerTool, harmless_schema, safe_keys
from retinue.core.permission import EffectKind, ToolEffect
from retinue.core.tool import ToolContext, ToolOutput, ToolSpec, failed
from retinue.core.toolnames import served_name
from retinue.tools.delegation.frame import from_server, harmless
from retinue.tools.processes import CannotStartError

if TYPE_CHECKING:
    from mcp_types import ElicitRequestParams, ElicitResult


OUTPUT_CHARACTERS = 50_000
"""How much text of one result a model gets; the rest is kept in a file."""
CALL_SECONDS = 300.0
"""How long a call may go without an answer or a word of progress, unless the server's `timeout` says."""
DECLINE = "decline"
DONE = "done"
SKIP = "skip"
_MOST_FIELDS = 20
_ATTEMPTS = 3
_LENGTH = 2_000
_CHECKED = ("type", "format", "minLength", "maxLength", "minimum", "maximum")
"""What an answer is held to. A pattern is not: matching one of a stranger may take for ever."""


class ElicitQuestion(Struct, frozen=True):
    """`options` empty means free text."""

    title: str
    detail: str = ""
    options: tuple[str, ...] = ()


Ask = Callable[[ElicitQuestion], Awaitable[str | None]]
"""Puts a question to a person. None when it was not answered."""


async def answer(server: str, params: ElicitRequestParams, ask: Ask) -> ElicitResult:
    from mcp_types import ElicitResult

    message = params.message[:_LENGTH]
    if params.mode == "url":
        detail = f"{message}\n\nOpen this address yourself if you trust it: {params.url[:_LENGTH]}"
        said = await ask(ElicitQuestion(f"The MCP server {server} wants you to open a page", detail, (DONE, DECLINE)))
        return ElicitResult(action="accept") if said == DONE else _refused(said)
    schema = params.requested_schema
    fields = schema.get("properties")
    if not isinstance(fields, Mapping):
        fields = {}
    if len(fields) > _MOST_FIELDS:
        return ElicitResult(action="decline")
    required = schema.get("required")
    if not isinstance(required, list):
        required = []
    title = f"The MCP server {server} asks: {message}"
    if not fields:
        said = await ask(ElicitQuestion(title, "", ("accept", DECLINE)))
        return ElicitResult(action="accept", content={}) if said == "accept" else _refused(said)
    content: dict[str, Any] = {}
    for number, (name, shown) in enumerate(fields.items(), 1):
        field = shown if isinstance(shown, Mapping) else {}
        numbered = title
        if len(fields) > 1:
            numbered = f"{title} ({number} of {len(fields)})"
        value = await _field(numbered, str(name), field, str(name) in required, ask)
        if isinstance(value, _Refused):
            return _refused(value.said)
        if value is not None:
            content[str(name)] = value
    return ElicitResult(action="accept", content=content)


class _Refused(Struct, frozen=True):
    said: str | None


def _refused(said: str | None) -> ElicitResult:
    from mcp_types import ElicitResult

    if said is None:
        return ElicitResult(action="cancel")
    return ElicitResult(action="decline")


async def _field(title: str, name: str, field: Mapping[str, Any], needed: bool, ask: Ask) -> Any:
    """Return the value, None for a field left out, or _Refused."""
    label = str(field.get("title") or name)
    default = field.get("default")
    options = _options(field)
    hint = str(field.get("description") or "")[:_LENGTH]
    skip = "" if needed else f" (answer {SKIP} to leave it out)"
    if default is not None:
        skip = f" (answer {SKIP} for {str(default)[:80]!r})"
    # A field may have the word among its own choices.
    skips = {"", SKIP}.difference(options) if skip else set[str]()
    if options and SKIP in skips:
        options = (*options, SKIP)
    if options:
        options = (*options, DECLINE)
    for _ in range(_ATTEMPTS):
        said = await ask(ElicitQuestion(title, f"{label}: {hint}{skip}".strip(), options))
        if said is None or said.strip().lower() == DECLINE:
            return _Refused(said)
        if said.strip().lower() in skips:
            return default
        value = _value(said.strip(), field)
        if value is not None and _fits(value, field):
            return value
        wanted = field.get("format") or field.get("type", "string")
        hint = f"'{said.strip()[:80]}' does not fit; a {str(wanted)[:80]} is wanted."
    return _Refused(None)


def _options(field: Mapping[str, Any]) -> tuple[str, ...]:
    if field.get("type") == "boolean":
        return ("yes", "no")
    choices = field.get("enum")
    if isinstance(choices, list):
        return tuple(map(str, choices))
    return ()


def _value(text: str, field: Mapping[str, Any]) -> Any:
    """Return the answer as the type that the field has; None when it cannot be."""
    try:
        match field.get("type"):
            case "boolean":
                return {"yes": True, "true": True, "no": False, "false": False}.get(text.lower())
            case "integer":
                return int(text)
            case "number":
                return float(text)
            case _:
                choices = field.get("enum")
                if isinstance(choices, list) and text not in map(str, choices):
                    return None
                return text
    except ValueError:
        return None


def _fits(value: Any, field: Mapping[str, Any]) -> bool:
    """Return whether a value keeps the bounds and the format of its field. Bounds that make no sense bind nobody."""
    import jsonschema_rs

    schema = {key: field[key] for key in _CHECKED if key in field}
    try:
        return jsonschema_rs.validator_for(schema, validate_formats=True, offline=True).is_valid(value)
    except ValueError:
        return True


AskFor = Callable[[str, ElicitQuestion], Awaitable[str | None]]
"""Puts a question of a call to a person; None when it was not answered."""

_ANYTHING: frozenset[EffectKind] = frozenset({"read", "write", "execute", "network"})
_READS: frozenset[EffectKind] = frozenset({"read", "network"})


class ServedTool(Struct, frozen=True):
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
        elicit = None if self.ask is None else partial(self._elicit, call_id)
        caller = Caller(context.roots, self.seconds, elicit, context.environment.get("TRACEPARENT", ""))
        hosts: tuple[str, ...] = ()
        if self.server.config.url:
            hosts = (urlsplit(self.server.config.url).hostname or "",)
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
            text = from_server(f"The MCP server '{self.name}' refused the call: {error}")
            return failed(text, ToolEffect("failed", hosts=hosts))
        from retinue.capabilities.mcp.tool_list import to_output

        effect = ToolEffect("finished", hosts=hosts)
        if result.is_error:
            effect = ToolEffect("failed", hosts=hosts)
        make = partial(to_output, result, characters=self.characters, outputs=context.outputs, effect=effect)
        return await asyncio.to_thread(make)

    @property
    def name(self) -> str:
        return self.server.config.name

    async def _elicit(self, call_id: str, params: Any) -> Any:
        assert self.ask is not None
        return await answer(self.name, params, partial(self.ask, call_id))


def served_tool(
    server: Server,
    listed: ServerTool,
    *,
    ask: AskFor | None,
    characters: int = OUTPUT_CHARACTERS,
    seconds: float | None = CALL_SECONDS,
) -> ServedTool:
    config = server.config
    parameters, renamed, lost = safe_keys(harmless_schema(listed.parameters))
    description = f"[MCP:{config.name}] {harmless(listed.description)}".strip()
    if lost:
        description = f"{description}\n{lost}"
    spec = ToolSpec(
        name=served_name(config.name, listed.name),
        description=description,
        parameters=parameters,
        effects=effects(config, listed),
    )
    return ServedTool(spec, server, listed.name, characters, seconds, ask, renamed)


def effects(config: ServerConfig, listed: ServerTool) -> frozenset[EffectKind]:
    """Return what a tool may do: anything, because a server is a program. What the server says of itself counts
    only where the user has said to believe it."""
    return _READS if config.trust_annotations and listed.read_only else _ANYTHING
