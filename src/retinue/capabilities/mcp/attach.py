"""The tools of MCP servers in one run: which servers, which of their tools, and when.

A run has the configured servers, limited by the agent's file, and those that the file defines inline. A child has no
server that a file above it leaves out. All tools pass the same policy as built-in ones, at the launch and when they
appear later. Above a threshold the model gets only their names, and loads them by `tool_search`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container, Mapping
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any

from retinue.capabilities.mcp import ServerScope
from retinue.capabilities.mcp.servers import ProjectPool, choose_servers
from retinue.capabilities.mcp.tool import DECLINE, SKIP, served_tool
from retinue.core.events import ToolEnded
from retinue.core.tool import Tool, Wrap
from retinue.errors import LaunchError
from retinue.models.protocol import overhead
from retinue.runs.capability import RunPart
from retinue.runs.guard import RunGuards
from retinue.runs.plan import select
from retinue.tools.filter import ToolSelection
from retinue.tools.tool_search import NAME as SEARCH
from retinue.tools.tool_search import Deferred, ToolSearchTool, loaded_names

if TYPE_CHECKING:
    from retinue.capabilities.mcp.config import ServerConfig
    from retinue.capabilities.mcp.pool import Server
    from retinue.capabilities.mcp.tool import AskFor, ElicitQuestion
    from retinue.core.spec import ToolPolicy
    from retinue.log.query import LogReader
    from retinue.runs.launch import LateTools, LaunchPlan
    from retinue.runs.run import Run

_owners = count(1)
_REQUIRED_WAIT_FACTOR = 3
"""The factor by which a launch waits longer if the agent requires a server."""
_MAX_SHOWN_TOOLS = 40
"""If servers have more tools than this, the model loads them by search."""
_MAX_WINDOW_SHARE = 0.1
"""If the tools take more than this share of the model's window, the model loads them by search."""

Choose = Callable[[Mapping[str, Tool]], ToolSelection]


async def offer_servers(plan: LaunchPlan) -> None:
    """Offer the listed tools of the run's servers. Raise LaunchError when a required server is missing."""
    if plan.late is None:
        plan.late = await _serve(plan)
    if plan.late is not None:
        served = served_by(plan.late)
        plan.policy_changes.append(served.policy)
        plan.available |= served.tools


def served_by(late: LateTools) -> Served:
    """Return the servers behind the late tools of a run."""
    assert isinstance(late, Served)
    return late


async def _serve(plan: LaunchPlan) -> Served | None:
    project, spec = plan.project, plan.spec
    if plan.preview:
        plan.note("tools of MCP servers are not shown (see: retinue servers check)")
        return None
    ceiling = plan.request.ceiling.servers
    above = None if ceiling is None else frozenset(ceiling)
    scope = ServerScope(project.extensions.with_servers(spec), above)
    configs = choose_servers(plan.request, project, scope, plan.notes)
    if not configs:
        return None
    served = Served(plan, scope, configs)
    await served.start(plan.notes)
    return served


class Served:
    """The servers of one run. `settle` decides at the launch; `late` returns the tools that come later."""

    def __init__(self, plan: LaunchPlan, scope: ServerScope, configs: tuple[ServerConfig, ...]) -> None:
        self._settings = plan.settings
        self._spec = plan.spec
        self._scope = scope
        roots = (plan.request.cwd, *(plan.project.cwd / root for root in plan.project.settings.settings.extra_roots))
        self._roots = tuple(root.expanduser().resolve() for root in roots)
        pool, owner = plan.project.part(ProjectPool), str(next(_owners))
        # A server from the agent's file is for its run only.
        self.servers = [pool.server(config, self._roots, owner if config.inline else "") for config in configs]
        self.wrap: Wrap = tuple
        """Wraps late tools in the guard, like those of the launch."""
        self.person: AskFor | None = None
        """Asks the person behind the run; None if no person can be asked."""
        self._versions: dict[int, int] = {}
        """The version of each server's list that was last read."""
        self.tools: dict[str, Tool] = {}
        """Every listed tool of the servers that the run's file selects."""
        self._admitted: dict[str, Tool] = {}
        self._late: dict[str, Tool] = {}
        self._wrapped: dict[str, Tool] = {}
        self.choose: Choose | None = None
        """Selects tools by the policy of the run."""
        self._limit: frozenset[str] | None = None
        self._deferred: Deferred | None = None

    # At the launch

    async def start(self, notes: list[str]) -> None:
        """Start the servers without a remembered list, all at once, and wait for at most the configured time."""
        required = [server for server in self.servers if self._scope.requires(server.config.name)]
        seconds = self._settings.mcp_start_timeout_seconds * (_REQUIRED_WAIT_FACTOR if required else 1)
        starts: dict[Server, asyncio.Future[Any]] = {}
        for server in self.servers:
            if server.listing is None or server in required:
                starts[server] = asyncio.ensure_future(server.ready())
                # A start that takes too long is not awaited, and asyncio must not report its error as never retrieved.
                starts[server].add_done_callback(lambda done: done.cancelled() or done.exception())
        if starts:
            await asyncio.wait(starts.values(), timeout=seconds)
        for server, start in starts.items():
            name, why = server.config.name, ""
            if not start.done():
                why = f"it was not ready within {seconds:g} s; its tools are admitted when it is"
            elif (error := start.exception()) is not None:
                why = str(error)
            else:
                continue
            if server in required:
                raise LaunchError(
                    f"The agent '{self._spec.name}' requires the MCP server '{name}', which is not available: {why}.",
                    remedy=f"See what is wrong with: retinue servers check {name}",
                )
            notes.append(f"MCP server '{name}' is not available: {why}")
        for server in self.servers:
            if server.listing is not None:
                notes += [f"MCP server '{server.config.name}': {problem}" for problem in server.listing.problems]
        self._read_listings()

    @property
    def names(self) -> frozenset[str]:
        """Every tool of a server that the run may use, loaded or not."""
        self._read_listings()
        return frozenset((*self._admitted, *self._late))

    def policy(self, policy: ToolPolicy) -> ToolPolicy:
        return self._scope.policy(policy, self.tools, [server.config.name for server in self.servers])

    def settle(self, plan: LaunchPlan) -> None:
        """Decide once which tools the run has in its first request. A file that denies tool_search gets all tools."""
        if self.choose is not None:
            return
        self.choose = partial(select, plan)
        admitted = self._admitted = _only(plan.tools, self.tools)
        if self._scope.denies(SEARCH) or not self._too_many(admitted, plan.window):
            return
        # A tool that the file asks for by its name is never hidden behind a search.
        self._deferred = Deferred(
            {name: tool for name, tool in admitted.items() if not self._scope.names_exactly(name)}
        )
        for name in self._deferred.names:
            plan.tools.pop(name, None)
        plan.tools[SEARCH] = ToolSearchTool(self._deferred)

    def _too_many(self, tools: Mapping[str, Tool], window: int) -> bool:
        settings = self._settings
        if settings.tool_search_mode != "auto" or not tools:
            return settings.tool_search_mode == "always" and bool(tools)
        if len(tools) > _MAX_SHOWN_TOOLS:
            return True
        return overhead("", [tool.spec for tool in tools.values()]) > _MAX_WINDOW_SHARE * window

    # While it runs

    def running(self, node: Run, *, resumed: bool) -> RunPart:
        """Keep the servers from being closed while the run works."""

        def connect(tools: tuple[Tool, ...], wrap: Wrap) -> None:
            self.wrap = wrap
            self.person = partial(_ask_in_inbox, node)
            if resumed:
                self._reload_searched(node.project.log.reader, node.id)

        for server in self.servers:
            server.hold(self, self._roots)
        return RunPart(connect=connect, late_tools=self.late, close=self._release)

    async def _release(self, node: Run) -> None:
        for server in self.servers:
            server.release(self)

    def late(self) -> tuple[Tool, ...]:
        """Return the tools that were added after the launch: loaded by search, or new on a server."""
        self._read_listings()
        tools = list(self._late.values())
        if self._deferred is not None:
            tools[:0] = self._deferred.loaded
        new = tuple(tool for tool in tools if tool.spec.name not in self._wrapped)
        if new:
            self._wrapped |= {tool.spec.name: tool for tool in self.wrap(new)}
        return tuple(self._wrapped.values())

    def _read_listings(self) -> None:
        """Read the lists that have changed. New tools pass the policy of the launch."""
        new: dict[str, Tool] = {}
        for server in self.servers:
            if self._versions.get(id(server)) == server.version:
                continue
            self._versions[id(server)] = server.version
            for listed in server.listing.tools if server.listing is not None else ():
                if self._scope.selects(server.config.name, listed.name):
                    tool = served_tool(server, listed, ask=self._ask)
                    if tool.spec.name not in self.tools:
                        new[tool.spec.name] = tool
        self.tools |= new
        # Before the launch has decided, all tools are candidates.
        if self.choose is None or not new:
            return
        chosen = self.choose({**self._admitted, **new}).tools
        admitted = _only(new, chosen if self._limit is None else self._limit & chosen.keys())
        if self._deferred is not None:
            self._deferred.offer(admitted)
        else:
            self._late |= admitted
        self._admitted |= admitted

    async def _ask(self, call_id: str, question: ElicitQuestion) -> str | None:
        return None if self.person is None else await self.person(call_id, question)

    # A resumed run

    def limit_to(self, names: frozenset[str]) -> None:
        """Admit only `names`. A resumed run whose parent is gone keeps the tools it had."""
        self._limit = names
        self._admitted = _only(self._admitted, names)
        if self._deferred is not None:
            self._deferred.keep(names)

    def _reload_searched(self, reader: LogReader, run_id: str) -> None:
        """Load the tools again that the run had loaded by search, according to its log."""
        if self._deferred is None:
            return
        for _, event in reader.ordered(run_id, ("tool.ended",)):
            body = event.body
            if isinstance(body, ToolEnded) and body.name == SEARCH and not body.result.is_error:
                self._deferred.recall(loaded_names(body.result.text))


def _only(tools: Mapping[str, Tool], names: Container[str]) -> dict[str, Tool]:
    return {name: tool for name, tool in tools.items() if name in names}


async def _ask_in_inbox(node: Run, call_id: str, question: ElicitQuestion) -> str | None:
    """Ask a person through the inbox."""
    project = node.project
    guard = project.part(RunGuards).get(node.id)
    if guard is None:
        return None
    options: dict[str, Any] = {"decline": DECLINE}
    if question.several:
        options["several"] = True
    if question.skippable:
        options["skip"] = SKIP
    answer = await project.inbox_service.question(
        question.title, question.options, asker=guard.asker, call_id=call_id, detail=question.detail, hints=options
    )
    # Then the policy or the expiry answered, not a person.
    if answer.by in ("policy", "expiry"):
        return None
    return answer.choice
