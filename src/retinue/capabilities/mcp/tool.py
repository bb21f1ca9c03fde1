"""The tools of a server as tools of a run, and the questions that a server asks a person.

A form becomes one question per field. Each answer is validated; after a wrong one the question is asked again. `skip`,
or an empty answer, selects the default or omits the field. Choices are shown by their titles and sent as their values.
If no person answers, the server is told that the question was cancelled. The protocol forbids asking for secrets, and
the question names the server that asks.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

from msgspec import Struct, field

from retinue.capabilities.mcp.connection import ServerError, ServerGoneError
from retinue.capabilities.mcp.pool import Caller, Server
from retinue.capabilities.mcp.tool_list import ServerTool, harmless_schema, safe_keys, to_output
from retinue.core.permission import EffectKind, ToolEffect
from retinue.core.tool import ToolContext, ToolOutput, ToolSpec, failed
from retinue.core.tool_names import served_name
from retinue.tools.delegation.frame import from_server, harmless
from retinue.tools.processes import CannotStartError

if TYPE_CHECKING:
    from mcp_types import ElicitRequestParams, ElicitResult


MAX_OUTPUT_CHARACTERS = 50_000
"""The text of one result that a model gets; a longer text is stored in a file."""
CALL_TIMEOUT_SECONDS = 300.0
"""The time that a call waits for an answer or progress, unless the server's `timeout` is set."""
DECLINE = "decline"
ACCEPT = "accept"
DONE = "done"
SKIP = "skip"
_MAX_FIELDS = 20
_MAX_REPLIES = 3
_MAX_QUESTION_CHARACTERS = 2_000
_CHECKED_KEYWORDS = ("type", "format", "minLength", "maxLength", "minimum", "maximum", "minItems", "maxItems")
"""Keywords that answers are validated against. `pattern` is not one: a hostile pattern may take forever."""


class ElicitQuestion(Struct, frozen=True):
    """`options` empty means free text. `several`: more than one may be chosen. `skippable`: none is needed."""

    title: str
    detail: str = ""
    options: tuple[str, ...] = ()
    several: bool = False
    skippable: bool = False


Ask = Callable[[ElicitQuestion], Awaitable[str | None]]
"""Asks a person. Returns None if there is no answer."""


class _UnansweredError(Exception):
    """The person declined the form or did not answer. `action` is the answer to the server."""

    def __init__(self, reply: str | None) -> None:
        super().__init__()
        self.action: Literal["cancel", "decline"] = "cancel" if reply is None else "decline"


async def answer(server: str, params: ElicitRequestParams, ask: Ask) -> ElicitResult:
    """Answer a question of a server by asking a person."""
    from mcp_types import ElicitResult

    try:
        return await _fill_form(server, params, ask)
    except _UnansweredError as error:
        return ElicitResult(action=error.action)


async def _fill_form(server: str, params: ElicitRequestParams, ask: Ask) -> ElicitResult:
    """Return the answers of a person. Raise _UnansweredError."""
    from mcp_types import ElicitResult

    message = params.message[:_MAX_QUESTION_CHARACTERS]
    if params.mode == "url":
        detail = f"{message}\n\nOpen this address yourself if you trust it: {params.url[:_MAX_QUESTION_CHARACTERS]}"
        title = f"The MCP server {server} wants you to open a page"
        await _ask_choice(ask, ElicitQuestion(title, detail, (DONE, DECLINE)), DONE)
        return ElicitResult(action="accept")
    schema = params.requested_schema
    fields = schema.get("properties")
    if not isinstance(fields, Mapping):
        fields = {}
    if len(fields) > _MAX_FIELDS:
        return ElicitResult(action="decline")
    required = schema.get("required")
    if not isinstance(required, list):
        required = []
    title = f"The MCP server {server} asks: {message}"
    if not fields:
        await _ask_choice(ask, ElicitQuestion(title, "", (ACCEPT, DECLINE)), ACCEPT)
        return ElicitResult(action="accept", content={})
    content: dict[str, Any] = {}
    for number, (name, shown) in enumerate(fields.items(), 1):
        field = shown if isinstance(shown, Mapping) else {}
        numbered = f"{title} ({number} of {len(fields)})" if len(fields) > 1 else title
        value = await _field(numbered, str(name), field, str(name) in required, ask)
        if value is not None:
            content[str(name)] = value
    return ElicitResult(action="accept", content=content)


async def _ask_choice(ask: Ask, question: ElicitQuestion, choice: str) -> None:
    """Raise _UnansweredError unless the person chooses `choice`."""
    reply = await ask(question)
    if reply != choice:
        raise _UnansweredError(reply)


async def _field(title: str, name: str, field: Mapping[str, Any], needed: bool, ask: Ask) -> Any:
    """Return the value, or None for an omitted field. Raise _UnansweredError."""
    label = str(field.get("title") or name)
    several = field.get("type") == "array"
    choices = _choices(field)
    default = field.get("default")
    if several and needed and default is None and not field.get("minItems"):
        default = []
    hint = str(field.get("description") or "")[:_MAX_QUESTION_CHARACTERS]
    asides = _asides(field, choices, needed, default)
    # `skip` may be one of the field's own choices.
    skips = {"", SKIP}.difference(choices) if default is not None or not needed else set[str]()
    options = tuple(choices)
    if options and SKIP in skips:
        options = (*options, SKIP)
    if options:
        options = (*options, DECLINE)
    for _ in range(_MAX_REPLIES):
        detail = f"{label}: {hint}{asides}".strip()
        reply = await ask(ElicitQuestion(title, detail, options, several=several, skippable=bool(skips)))
        if reply is None or reply.strip().lower() == DECLINE:
            raise _UnansweredError(reply)
        if reply.strip().lower() in skips:
            return default
        value = _value(reply.strip(), field, choices)
        if value is not None and _fits(value, field):
            return value
        expected = field.get("format") or field.get("type", "string")
        hint = f"'{reply.strip()[:80]}' does not fit; a {str(expected)[:80]} is wanted."
    raise _UnansweredError(None)


def _asides(field: Mapping[str, Any], choices: Mapping[str, Any], needed: bool, default: Any) -> str:
    """Return the hints on the number of choices and on skipping the field."""
    asides = []
    if field.get("type") == "array":
        words = {"minItems": "at least", "maxItems": "at most"}
        bounds = [f"{word} {field[key]}" for key, word in words.items() if key in field]
        asides.append(", ".join(["choose any, separated by commas", *bounds]))
    if default is not None:
        values = default if isinstance(default, list) else [default]
        titles = {str(value): title for title, value in choices.items()}
        shown = ", ".join(titles.get(str(value), str(value)) for value in values)
        asides.append(f"answer {SKIP} for {shown[:80]!r}")
    elif not needed:
        asides.append(f"answer {SKIP} to leave it out")
    return "".join(f" ({aside})" for aside in asides)


def _choices(field: Mapping[str, Any]) -> dict[str, Any]:
    """Return the possible values of a field by the titles that people see; empty if any value is possible."""
    if field.get("type") == "boolean":
        return {"yes": True, "no": False}
    source = field.get("items") if field.get("type") == "array" else field
    if not isinstance(source, Mapping):
        return {}
    titled = source.get("anyOf") or source.get("oneOf")
    values: Any
    titles: Any
    if isinstance(titled, list):
        entries = [entry for entry in titled if isinstance(entry, Mapping) and "const" in entry]
        values = [entry["const"] for entry in entries]
        titles = [entry.get("title") or entry["const"] for entry in entries]
    else:
        values = source.get("enum")
        if not isinstance(values, list):
            return {}
        titles = source.get("enumNames")
    # Titles that are not unique cannot be used.
    if not isinstance(titles, list) or len(set(map(str, titles))) != len(values):
        titles = values
    return dict(zip(map(str, titles), values, strict=True))


def _value(text: str, field: Mapping[str, Any], choices: Mapping[str, Any]) -> Any:
    """Return the answer in the type of the field; None if it cannot be converted."""
    if choices:
        chosen = _chosen(text, choices)
        if field.get("type") == "array" or not chosen:
            return chosen
        return chosen[0] if len(chosen) == 1 else None
    try:
        match field.get("type"):
            case "integer":
                return int(text)
            case "number":
                return float(text)
            case "array" | "object":
                return None
            case _:
                return text
    except ValueError:
        return None


def _chosen(text: str, choices: Mapping[str, Any]) -> list[Any] | None:
    """Return the values of titles, or of values, separated by commas; None when one of them is unknown."""
    named = {str(value).lower(): value for value in choices.values()}
    named |= {title.lower(): value for title, value in choices.items()}
    longest_first = sorted(named, key=len, reverse=True)
    values: list[Any] = []
    remaining = text.strip()
    while remaining:
        # A title may contain commas.
        separated = (name for name in longest_first if re.match(rf"{re.escape(name)}\s*(,|\Z)", remaining.lower()))
        name = next(separated, None)
        if name is None:
            return None
        if named[name] not in values:
            values.append(named[name])
        remaining = remaining[len(name) :].lstrip(" ,")
    return values


def _fits(value: Any, field: Mapping[str, Any]) -> bool:
    """Return whether a value is within the bounds of its field and has its format. Invalid bounds are ignored."""
    import jsonschema_rs

    schema = {key: field[key] for key in _CHECKED_KEYWORDS if key in field}
    try:
        return jsonschema_rs.validator_for(schema, validate_formats=True, offline=True).is_valid(value)
    except ValueError:
        return True


AskFor = Callable[[str, ElicitQuestion], Awaitable[str | None]]
"""Asks a person a question of a call. Returns None if there is no answer."""

_ALL_EFFECTS: frozenset[EffectKind] = frozenset({"read", "write", "execute", "network"})
_READ_EFFECTS: frozenset[EffectKind] = frozenset({"read", "network"})


class ServedTool(Struct, frozen=True):
    """A tool of a server. `ask` asks the person behind the run; without it, questions of the server are declined. A
    failure of the server becomes a failed result that says how to continue."""

    spec: ToolSpec
    server: Server
    remote: str
    ask: AskFor | None = None
    renamed: Mapping[str, str] = field(default_factory=dict)
    """Names of arguments that providers refuse: the name that the model uses, and the server's."""

    async def run(self, call_id: str, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        elicit = None if self.ask is None else partial(self._elicit, call_id)
        caller = Caller(context.roots, CALL_TIMEOUT_SECONDS, elicit, context.environment.get("TRACEPARENT", ""))
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
        effect = ToolEffect("failed" if result.is_error else "finished", hosts=hosts)
        make = partial(to_output, result, characters=MAX_OUTPUT_CHARACTERS, outputs=context.outputs, effect=effect)
        return await asyncio.to_thread(make)

    @property
    def name(self) -> str:
        return self.server.config.name

    async def _elicit(self, call_id: str, params: Any) -> Any:
        assert self.ask is not None
        return await answer(self.name, params, partial(self.ask, call_id))


def served_tool(server: Server, listed: ServerTool, *, ask: AskFor | None) -> ServedTool:
    config = server.config
    parameters, renamed, lost = safe_keys(harmless_schema(listed.parameters))
    description = f"[MCP:{config.name}] {harmless(listed.description)}".strip()
    if lost:
        description = f"{description}\n{lost}"
    spec = ToolSpec(
        name=served_name(config.name, listed.name),
        description=description,
        parameters=parameters,
        # A server is a program, so its tools may do anything, unless the user trusts its annotations.
        effects=_READ_EFFECTS if config.trust_annotations and listed.read_only else _ALL_EFFECTS,
    )
    return ServedTool(spec, server, listed.name, ask, renamed)
