"""What the program at the other end can do, as it says with each request (older ones: when it connects)."""

from __future__ import annotations

from typing import Any

from mcp.server.context import ServerRequestContext
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from msgspec import Struct

from retinue.faces.feed.feed import Feed

TASKS = "io.modelcontextprotocol/tasks"
_LONGEST_NAME = 30

RequestContext = ServerRequestContext[Any, Any]


class McpHost(Struct, frozen=True):
    """`tasks`: it follows a call that becomes a task. `progress`: it wants to hear of the progress of this call.
    `forms`: it shows forms to its user; `again`: it makes the call again with what the user has filled in, where older
    hosts are asked in the middle of a call."""

    name: str
    tasks: bool
    progress: bool
    forms: bool
    again: bool

    @property
    def by(self) -> str:
        """Return who asks, as runs and answers keep it."""
        return f"mcp:{self.name}" if self.name else "mcp"


def host_of(ctx: RequestContext) -> McpHost:
    """Return the host of a request."""
    session, modern = ctx.session, ctx.protocol_version in MODERN_PROTOCOL_VERSIONS
    info = session.client_params.client_info if session.client_params is not None else None
    name = "".join(each for each in (info.name if info is not None else "") if each.isascii() and each.isprintable())
    capabilities = session.client_capabilities
    tasks = forms = False
    if capabilities is not None:
        tasks = modern and TASKS in (capabilities.extensions or {})
        asked = capabilities.elicitation
        # Without any mode it means forms: there was nothing else in the beginning.
        forms = asked is not None and (asked.form is not None or asked.url is None)
    return McpHost(
        name=name[:_LONGEST_NAME],
        tasks=tasks,
        progress=bool(ctx.meta) and (ctx.meta or {}).get("progress_token") is not None,
        forms=forms,
        again=modern,
    )


class HostCall(Struct, frozen=True):
    """One request of a host, and the project that it is about. `answers` is what its user has said since the same call
    was made before, and `state` what that call left off with."""

    feed: Feed
    host: McpHost
    ctx: RequestContext
    answers: dict[str, Any]
    state: str | None = None
