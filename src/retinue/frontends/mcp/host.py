"""The host: its capabilities, which it sends with each request (older ones when they connect), and the forms that it
shows to its user.

The schemas of forms are flat: one choice, and text.
"""

from __future__ import annotations

from typing import Any

from mcp.server.context import ServerRequestContext
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from msgspec import Struct

from retinue.app.approvals import choice_label, headline, item_lines
from retinue.app.feed import Feed
from retinue.core.permission import InboxItem
from retinue.errors import AnsweredError, UsageError

TASKS_EXTENSION = "io.modelcontextprotocol/tasks"
_MAX_HOST_NAME_CHARACTERS = 30

RequestContext = ServerRequestContext[Any, Any]


class McpHost(Struct, frozen=True):
    """`tasks` means that it can follow a call that becomes a task, `progress` that it wants progress of this call,
    `forms` that it shows forms to its user. `again` means that it repeats the call with the user's input; older hosts
    receive a request during the call instead."""

    name: str
    tasks: bool
    progress: bool
    forms: bool
    again: bool

    @property
    def by(self) -> str:
        """Return the caller's name for runs and answers."""
        return f"mcp:{self.name}" if self.name else "mcp"


def host_of(ctx: RequestContext) -> McpHost:
    """Return the host of a request."""
    session, modern = ctx.session, ctx.protocol_version in MODERN_PROTOCOL_VERSIONS
    info = session.client_params.client_info if session.client_params is not None else None
    name = "".join(
        letter for letter in (info.name if info is not None else "") if letter.isascii() and letter.isprintable()
    )
    capabilities = session.client_capabilities
    tasks = forms = False
    if capabilities is not None:
        tasks = modern and TASKS_EXTENSION in (capabilities.extensions or {})
        asked = capabilities.elicitation
        # Without a mode it means forms, which were the first kind.
        forms = asked is not None and (asked.form is not None or asked.url is None)
    return McpHost(
        name=name[:_MAX_HOST_NAME_CHARACTERS],
        tasks=tasks,
        progress=bool(ctx.meta) and (ctx.meta or {}).get("progress_token") is not None,
        forms=forms,
        again=modern,
    )


class HostCall(Struct, frozen=True):
    """One request of a host, and the project it concerns. If the call is repeated, `answers` has the user's input and
    `state` the state of the earlier call."""

    feed: Feed
    host: McpHost
    ctx: RequestContext
    answers: dict[str, Any]
    state: str | None = None


def describe_item(item: InboxItem) -> str:
    """Return who asks, and the complete call: its command, its diff, or its arguments."""
    return "\n".join([headline(item), *item_lines(item)])


def form_of(item: InboxItem) -> dict[str, Any]:
    """Return the parameters of `elicitation/create` for an item."""
    fields: dict[str, Any] = {}
    required = []
    if item.options:
        names = [choice_label(option) for option in item.options]
        fields["choice"] = {"type": "string", "title": "Answer", "enum": list(item.options), "enumNames": names}
    if item.kind == "question":
        title = "Other words" if item.options else "Answer"
        fields["message"] = {"type": "string", "title": title, "maxLength": 10_000}
        if not item.options:
            required.append("message")
    else:
        required.append("choice")
        about = "For a denial: the alternative"
        fields["message"] = {"type": "string", "title": "Message", "description": about, "maxLength": 10_000}
    schema: dict[str, Any] = {"type": "object", "properties": fields, "required": required}
    return {"mode": "form", "message": describe_item(item), "requestedSchema": schema}


def form_request(item: InboxItem) -> dict[str, Any]:
    """Return an item as an entry of `inputRequests`."""
    return {"method": "elicitation/create", "params": form_of(item)}


def read_form(item: InboxItem, action: str, content: dict[str, Any]) -> tuple[str, str] | None:
    """Return the choice and the message of a form; None if the user has closed it."""
    if action == "cancel":
        return None
    message = str(content.get("message") or "").strip()
    choice = str(content.get("choice") or "").strip()
    if item.kind == "question":
        if action == "decline":
            return "The user declined to answer.", ""
        return message or choice, ""
    if action == "decline":
        return "deny", message
    return choice, message


async def take_answers(call: HostCall, waiting: tuple[InboxItem, ...]) -> set[str]:
    """Answer the items with the input of the host's user. Return the ids of those that the user dismissed or answered
    invalidly."""
    aside = set()
    for item in waiting:
        response = call.answers.get(item.id)
        if response is None:
            continue
        try:
            answered = await answer_item(
                call.feed, item, response["action"], response.get("content") or {}, call.host.by
            )
        except UsageError:
            answered = False
        if not answered:
            aside.add(item.id)
    return aside


async def answer_item(feed: Feed, item: InboxItem, action: str, content: dict[str, Any], by: str) -> bool:
    """Answer one item with the input of a user. Return False if the user has closed the form. A late answer is dropped,
    because the first one takes effect. Raise UsageError for an invalid answer."""
    answer = read_form(item, action, content)
    if answer is None:
        return False
    try:
        await feed.answer(item.id, *answer, by=by)
    except AnsweredError:
        return True
    return True
