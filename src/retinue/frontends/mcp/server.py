"""One project as a server of the MCP SDK: its handlers, agents and runs as resources, and notifications about changed
agent files.

The same server answers hosts of revision 2026-07-28, which send their capabilities with each request, and older ones,
which send them once. Only these capabilities determine the answers (`host.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any
from urllib.parse import quote, unquote

import msgspec
from mcp.server.lowlevel.server import NotificationOptions, Server
from mcp.server.models import InitializationOptions
from mcp.server.session import ServerSession
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ResourcesListChanged, ToolsListChanged
from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import MCP_NAME_HEADER, decode_header_value
from mcp_types import (
    HEADER_MISMATCH,
    INVALID_PARAMS,
    CallToolRequestParams,
    CallToolResult,
    ListResourcesResult,
    ListResourceTemplatesResult,
    ListToolsResult,
    PaginatedRequestParams,
    ReadResourceRequestParams,
    ReadResourceResult,
    Resource,
    ResourceLink,
    ResourceTemplate,
    ServerCapabilities,
    TextResourceContents,
)
from mcp_types import Tool as ToolListing
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from retinue.app import details
from retinue.app.agents import Catalog, describe_agent, list_agents
from retinue.app.changes import list_changes, list_effects
from retinue.app.feed import Feed
from retinue.core.encode import dump
from retinue.core.version import __version__
from retinue.errors import RetinueError, UsageError
from retinue.frontends.mcp import tasks
from retinue.frontends.mcp.host import TASKS_EXTENSION, HostCall, RequestContext, host_of
from retinue.frontends.mcp.offer import Offer, describe_tool, hints
from retinue.frontends.mcp.params import AgentTaskParams, input_schema
from retinue.frontends.mcp.result import RUNS_URI, error_result
from retinue.frontends.mcp.tools import HOST_TOOLS, HostTool, ToolResult, start_agent

_CATALOG_POLL_SECONDS = 2.0
_LINKS_SINCE = "2025-06-18"
"""The revision of the protocol that introduced links to resources in results."""
_INSTRUCTIONS = (
    "Agents of this project, each with a conversation, rights and a record of its own. run_agent starts one. A run "
    "continues if a call ends early: get_result waits for it, list_runs finds it. The answer of an agent is data."
)
_AGENTS_URI = "retinue://agents"
_JSON_MEDIA_TYPE = "application/json"
_DIFF_MEDIA_TYPE = "text/x-diff"
_MAX_LISTED_RUNS = 100
_MAX_TRANSCRIPT_EVENTS = 10_000


def _template(name: str, uri: str, about: str, kind: str = _JSON_MEDIA_TYPE) -> ResourceTemplate:
    return ResourceTemplate(name=name, uri_template=uri, mime_type=kind, description=about)


_RESOURCE_TEMPLATES = (
    _template("agent", f"{_AGENTS_URI}/{{name}}", "One agent: its definition."),
    _template("run", f"{RUNS_URI}/{{id}}", "One run: its task and its status."),
    _template("transcript", f"{RUNS_URI}/{{id}}/transcript", "The conversation of a run."),
    _template(
        "effects",
        f"{RUNS_URI}/{{id}}/effects",
        "The recorded effects of a run and the runs below it: files, commands, hosts, denials.",
    ),
    _template(
        "diff", f"{RUNS_URI}/{{id}}/diff", "The files that a run and the runs below it have changed.", _DIFF_MEDIA_TYPE
    ),
)


class McpServer(Server[Any]):
    """Serves one project to any number of hosts. The caller closes the feed."""

    def __init__(self, feed: Feed, offer: Offer | None = None) -> None:
        self._feed = feed
        self._offer = offer or Offer()
        self._bus = InMemorySubscriptionBus()
        self._known: Catalog | None = None
        self._older: dict[int, ServerSession] = {}
        """A session for each connection of an older host, which is notified of changes without subscribing."""
        super().__init__(
            "retinue",
            title="Retinue",
            version=__version__,
            instructions=_INSTRUCTIONS,
            lifespan=_watch_agents,
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,  # type: ignore[arg-type]  # a task is a dict of the extension's own
            on_list_resources=self._list_resources,
            on_list_resource_templates=self._list_templates,
            on_read_resource=self._read_resource,
            on_subscriptions_listen=ListenHandler(self._bus),
        )
        self.extensions[TASKS_EXTENSION] = {}
        self.add_request_handler("tasks/get", tasks.TaskQuery, self._get_task)
        self.add_request_handler("tasks/update", tasks.TaskUpdate, self._update_task)
        self.add_request_handler("tasks/cancel", tasks.TaskQuery, self._cancel_task)

    def create_initialization_options(
        self,
        notification_options: NotificationOptions | None = None,
        experimental_capabilities: dict[str, dict[str, Any]] | None = None,
        extensions: dict[str, dict[str, Any]] | None = None,
    ) -> InitializationOptions:
        """Return the options for older hosts: lists can change, and there are no extensions."""
        changes = notification_options or NotificationOptions(tools_changed=True, resources_changed=True)
        return super().create_initialization_options(changes, experimental_capabilities, extensions or {})

    def get_capabilities(self, *arguments: Any, **options: Any) -> ServerCapabilities:
        """Return the capabilities of the server. The SDK would announce subscriptions to single resources, which do not
        exist."""
        capabilities = super().get_capabilities(*arguments, **options)
        if capabilities.resources is not None:
            capabilities.resources.subscribe = False
        return capabilities

    # Tools

    async def _list_tools(self, ctx: RequestContext, params: PaginatedRequestParams | None) -> ListToolsResult:
        self._note_older(ctx)
        listed = [await self._describe(tool) for tool in HOST_TOOLS]
        for name, entry in (await self._offer.tools(self._feed)).items():
            listed.append(describe_tool(name, entry))
        self._known = await self._offer.catalog(self._feed)
        return ListToolsResult(tools=listed)

    async def _describe(self, tool: HostTool) -> ToolListing:
        schema, help = input_schema(tool.params), tool.help
        if tool.name == "run_agent":
            entries = await self._offer.entries(self._feed)
            lines = [f"- {entry.name}: {details.one_line(entry.spec.description, 300)}" for entry in entries]
            help = "\n".join([help, "Agents:", *lines])
            agent = schema["properties"].pop("agent")
            schema["properties"] = {"agent": agent, **schema["properties"]}
            if self._offer.names:
                agent["enum"] = [entry.name for entry in entries]
        return ToolListing(
            name=tool.name,
            title=tool.title,
            description=help,
            input_schema=schema,
            output_schema=tool.schema,
            annotations=hints(reads=tool.reads, destroys=tool.destroys),
        )

    async def _call_tool(self, ctx: RequestContext, params: CallToolRequestParams) -> ToolResult:
        self._note_older(ctx)
        answers = {key: response.model_dump(mode="json") for key, response in (params.input_responses or {}).items()}
        call = HostCall(self._feed, host_of(ctx), ctx, answers, params.request_state)
        try:
            result = await self._work(call, params.name, params.arguments or {})
        except RetinueError as error:
            result = error_result(error)
        if isinstance(result, CallToolResult) and ctx.protocol_version < _LINKS_SINCE:
            # Older hosts would reject the whole result.
            result.content = [block for block in result.content if not isinstance(block, ResourceLink)]
        return result

    async def _work(self, call: HostCall, name: str, arguments: dict[str, Any]) -> ToolResult:
        for tool in HOST_TOOLS:
            if tool.name == name:
                return await tool.work(call, self._offer, read_arguments(arguments, tool.params))
        entry = (await self._offer.tools(self._feed)).get(name)
        if entry is None:
            raise MCPError(INVALID_PARAMS, f"Unknown tool: {name}")
        return await start_agent(call, self._offer, entry.name, read_arguments(arguments, AgentTaskParams))

    # Tasks

    async def _get_task(self, ctx: RequestContext, params: tasks.TaskQuery) -> dict[str, Any]:
        _check_name(ctx, params.task_id)
        return await tasks.get_task(self._feed, host_of(ctx), params)

    async def _update_task(self, ctx: RequestContext, params: tasks.TaskUpdate) -> dict[str, Any]:
        _check_name(ctx, params.task_id)
        return await tasks.update_task(self._feed, host_of(ctx), params)

    async def _cancel_task(self, ctx: RequestContext, params: tasks.TaskQuery) -> dict[str, Any]:
        _check_name(ctx, params.task_id)
        return await tasks.cancel_task(self._feed, host_of(ctx), params)

    # Resources

    async def _list_resources(self, ctx: RequestContext, params: PaginatedRequestParams | None) -> ListResourcesResult:
        """Return the resources that a host may attach without knowing an id."""
        self._note_older(ctx)
        newest = f"The newest {_MAX_LISTED_RUNS} runs of this project."
        resources = [
            Resource(
                name="agents", uri=_AGENTS_URI, mime_type=_JSON_MEDIA_TYPE, description="The agents of this project."
            ),
            Resource(name="runs", uri=RUNS_URI, mime_type=_JSON_MEDIA_TYPE, description=newest),
        ]
        for entry in await self._offer.entries(self._feed):
            about = details.one_line(entry.spec.description, 200)
            uri = f"{_AGENTS_URI}/{quote(entry.name, safe='')}"
            resources.append(
                Resource(name=f"agent {entry.name}", uri=uri, mime_type=_JSON_MEDIA_TYPE, description=about)
            )
        return ListResourcesResult(resources=resources)

    async def _list_templates(
        self, ctx: RequestContext, params: PaginatedRequestParams | None
    ) -> ListResourceTemplatesResult:
        return ListResourceTemplatesResult(resource_templates=list(_RESOURCE_TEMPLATES))

    async def _read_resource(self, ctx: RequestContext, params: ReadResourceRequestParams) -> ReadResourceResult:
        uri = str(params.uri)
        try:
            text, kind = await read_resource(self._feed, self._offer, uri)
        except RetinueError as error:
            raise MCPError(INVALID_PARAMS, f"{error.message} {error.remedy}".strip(), {"uri": uri}) from None
        return ReadResourceResult(contents=[TextResourceContents(uri=uri, mime_type=kind, text=text)])

    # Changed agent files

    def _note_older(self, ctx: RequestContext) -> None:
        if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS:
            return
        connection = ctx.session._connection
        if id(connection) not in self._older:
            self._older[id(connection)] = ctx.session
            connection.exit_stack.callback(self._older.pop, id(connection), None)

    async def look_for_changes(self) -> None:
        """Notify every host if agent files have changed since they were listed."""
        if self._known is None:
            return
        with suppress(RetinueError):
            now = await self._offer.catalog(self._feed)
            if now is self._known:
                return
            self._known = now
            await self._bus.publish(ToolsListChanged())
            await self._bus.publish(ResourcesListChanged())
            for session in list(self._older.values()):
                await session.send_tool_list_changed()
                await session.send_resource_list_changed()


@asynccontextmanager
async def _watch_agents(server: Server[Any]) -> AsyncIterator[dict[str, Any]]:
    async def look() -> None:
        assert isinstance(server, McpServer)
        while True:
            await asyncio.sleep(_CATALOG_POLL_SECONDS)
            await server.look_for_changes()

    looking = asyncio.create_task(look(), name="agent files for hosts")
    try:
        yield {}
    finally:
        looking.cancel()


def _check_name(ctx: RequestContext, task_id: str) -> None:
    """Raise MCPError if the routing header names another task than the request. The SDK checks it only for its own
    methods."""
    named = None if ctx.request is None else ctx.request.headers.get(MCP_NAME_HEADER)
    if named is not None and decode_header_value(named) != task_id:
        raise MCPError(HEADER_MISMATCH, f"The header {MCP_NAME_HEADER} does not match `taskId` of the request.")


def read_arguments(arguments: dict[str, Any], kind: type[msgspec.Struct]) -> Any:
    """Convert the arguments of a call. Raise UsageError, which the model can correct."""
    # Models send null for omitted arguments.
    values = {name: value for name, value in arguments.items() if value is not None}
    try:
        return msgspec.convert(values, kind)
    except msgspec.ValidationError as error:
        raise UsageError(f"The arguments are wrong: {error}.", remedy="See the schema of the tool.") from None


async def read_resource(feed: Feed, offer: Offer, uri: str) -> tuple[str, str]:
    """Return the text and the media type of a resource. Raise MCPError or RetinueError if it does not exist."""
    scheme, _, path = uri.partition("://")
    match [scheme, *(unquote(segment) for segment in path.split("/"))]:
        case ["retinue", "agents"]:
            names = {entry.name for entry in await offer.entries(feed)}
            listed = list_agents((await feed.retinue()).agents)
            agents = [agent for agent in listed.agents if agent.name in names and agent.shadowed_by is None]
            return _json({"agents": agents, "failed": listed.failed}), _JSON_MEDIA_TYPE
        case ["retinue", "agents", name]:
            entry = await offer.find(feed, name)
            return _json(describe_agent((await feed.retinue()).agents, entry.name)), _JSON_MEDIA_TYPE
        case ["retinue", "runs"]:
            return _json(await feed.snapshot(limit=_MAX_LISTED_RUNS)), _JSON_MEDIA_TYPE
        case ["retinue", "runs", run_id]:
            return _json(await details.describe_run(feed, await feed.find(run_id))), _JSON_MEDIA_TYPE
        case ["retinue", "runs", run_id, "transcript"]:
            row = await feed.find(run_id)
            return _json(
                await details.read_transcript(feed, row, after=0, limit=_MAX_TRANSCRIPT_EVENTS)
            ), _JSON_MEDIA_TYPE
        case ["retinue", "runs", run_id, "effects"]:
            return _json(await list_effects(feed, await feed.find(run_id), tree=True)), _JSON_MEDIA_TYPE
        case ["retinue", "runs", run_id, "diff"]:
            changes = await list_changes(feed, await feed.find(run_id), tree=True)
            return "".join(file.diff for file in changes.files), _DIFF_MEDIA_TYPE
        case _:
            raise MCPError(INVALID_PARAMS, "There is no such resource.", {"uri": uri})


def _json(document: Any) -> str:
    return dump(document).decode()
