"""The tools of plugins that one run has: which plugins its file means, imported when needed."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING

from retinue.capabilities.plugins.plugin import Failed, Plugin
from retinue.core.lean import dataclass
from retinue.core.tool import Tool
from retinue.core.toolnames import BUILT_IN_SEVEN
from retinue.tools.registry import COMPANION_NAMES
from retinue.tools.scoping import PREFIX, Extension, Scoped, own_paths, scope_extensions

if TYPE_CHECKING:
    from retinue.capabilities.plugins.importing import Loaded
    from retinue.core.request import RunRequest
    from retinue.core.spec import AgentSpec, PermissionMode, ToolPolicy
    from retinue.runs.world import World

_OWN_SOURCES = frozenset({"user", "flag", "policy", "builtin"})
"""Where files come from whose code needs no consent of its own: nobody but the user put it there."""


@dataclass(frozen=True, slots=True)
class Extended:
    """What extensions bring to a run."""

    extensions: tuple[Extension, ...] = ()
    tools: Mapping[str, Tool] = field(default_factory=dict)
    servers: frozenset[str] = frozenset()

    def scoped(self, spec: AgentSpec, policy: ToolPolicy) -> tuple[Scoped, Mapping[str, Tool]]:
        """The policy of the run with everything about extensions decided, and their tools."""
        scoped = scope_extensions(spec, policy, self.extensions, others=self.servers)
        return scoped, {name: tool for name, tool in self.tools.items() if name in scoped.tools}


NOTHING = Extended()


async def extend(request: RunRequest, world: World, notes: list[str]) -> Extended:
    """Costs nothing for a run of a project without plugins whose file says nothing of them."""
    spec = request.spec
    plugins = world.extensions.plugins
    if request.parent_id is None:
        notes += world.extensions.notes()
    said = spec.tools.selectors or spec.tools.exclude_extensions or spec.tools.extensions is not None
    if spec.isolated or not (plugins.found or said):
        return NOTHING
    shop = world.extensions.workshop
    brought: list[tuple[Plugin, str]] = []
    for path, made in zip(own_paths(spec), shop.brought(spec), strict=True):
        why = made.reason if isinstance(made, Failed) else world.extensions.why_not(made)
        if isinstance(made, Plugin) and why is None:
            brought.append((made, path.lower()))
        else:
            notes.append(f'{PREFIX}extension "{path}" is not loaded: {why} (agent "{spec.name}")')
    usable = [plugin for plugin in plugins.found if world.extensions.why_not(plugin) is None]
    return await shop.extended(usable, brought, spec, notes if request.parent_id is None else [])


def suited(
    request: RunRequest,
    tools: Mapping[str, Tool],
    *,
    can_ask: bool = False,
    heard: bool = False,
    mode: PermissionMode = "default",
) -> Mapping[str, Tool]:
    """Without what a run of this kind has no use for: a main agent asks the person, if there is one
    (`can_ask`), and others the person or the run that started them, if that can answer (`heard`);
    (`can_ask`), and others the person or the run that started them, if that can answer (`heard`);
    only main hands in a plan; an isolated one, and one whose `extensions` are none or named, has
    the seven built-in tools of pi and no more."""
    spec, dropped = request.spec, set[str]()
    if has_only_builtins(spec):
        dropped = set(tools) - set(BUILT_IN_SEVEN)
    elif spec.dialect == "pi" and spec.tools.allow is None:
        dropped = set(companions(tools)) | {"ask_user"}
    if request.depth == 0 or not (can_ask or heard):
        dropped |= {"ask_parent"} & companions(tools)
    if request.depth > 0 or not can_ask:
        dropped.add("ask_user")
    if mode != "plan" or request.depth > 0:
        dropped.add("exit_plan")
    if "bash" not in tools:
        dropped.add("bash_output")
    return {name: tool for name, tool in tools.items() if name not in dropped} if dropped else tools


def has_only_builtins(spec: AgentSpec) -> bool:
    """Whether the agent lacks what others have from extensions, pi's web and language tools among it:
    `isolated: true`, or `extensions` that is false or a list without `*`, where `tools` does not ask
    for more by name."""
    if spec.isolated:
        return True
    listed = spec.tools.extensions
    loads_all = listed is None or listed is True or (isinstance(listed, tuple) and "*" in listed)
    return not loads_all and (spec.tools.allow is None or spec.dialect == "pi")


def companions(tools: Mapping[str, Tool]) -> frozenset[str]:
    """Tools that touch nothing but the run itself; not what a program put in their place."""
    found = (name for name in COMPANION_NAMES if name in tools and not tools[name].spec.effects)
    return frozenset(found)


class Workshop:
    """Imports each plugin once, and again when its files have changed."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._loaded: dict[str, tuple[str, asyncio.Future[Loaded]]] = {}

    def brought(self, spec: AgentSpec) -> list[Plugin | Failed]:
        """The extensions that an agent's file names by path, in its order. An agent of a plugin
        brings none: it may bring nothing that runs."""
        from retinue.capabilities.plugins.discover import read_path

        made: list[Plugin | Failed] = []
        for path in own_paths(spec):
            if spec.source == "plugin":
                made.append(Failed(path, "an agent of a plugin cannot bring code"))
            else:
                whole = self._world.cwd / Path(path).expanduser()
                personal = spec.source in _OWN_SOURCES
                made.append(read_path(whole, "agent", personal=personal))
        return made

    async def extended(
        self, plugins: list[Plugin], brought: list[tuple[Plugin, str]], spec: AgentSpec, notes: list[str]
    ) -> Extended:
        every = [(plugin, plugin.names) for plugin in plugins]
        every += [(plugin, plugin.names | {path}) for plugin, path in brought]
        wanted = [plugin for plugin, _ in every if plugin.code and spec.tools.extensions is not False]
        loaded = dict(zip((each.where for each in wanted), await asyncio.gather(*map(self._load, wanted)), strict=True))
        tools: dict[str, Tool] = {}
        extensions: list[Extension] = []
        for plugin, names in every:
            found = loaded.get(plugin.where)
            mine = self._free(found, tools, notes) if found is not None else {}
            tools |= mine
            extensions.append(Extension(plugin.name, names, tuple(mine), serves=bool(plugin.servers)))
        return Extended(tuple(extensions), tools, self._servers(spec))

    def _free(self, loaded: Loaded, taken: Mapping[str, Tool], notes: list[str]) -> dict[str, Tool]:
        """Its tools whose names nobody has yet."""
        title = f"Plugin '{loaded.plugin.name}'"
        notes += [f"{title}: {problem}" for problem in loaded.problems]
        mine = {}
        for name, tool in loaded.tools.items():
            if name in taken or name in self._world.tools:
                notes.append(f"{title}: its tool '{name}' is left out: there is another of that name.")
            else:
                mine[name] = tool
        return mine

    async def _load(self, plugin: Plugin) -> Loaded:
        """Runs that start together wait for one import."""
        content = _content(plugin)
        known = self._loaded.get(plugin.where)
        if known is None or known[0] != content:
            task = asyncio.ensure_future(self._import(plugin))
            known = self._loaded[plugin.where] = (content, task)
        return await asyncio.shield(known[1])

    async def _import(self, plugin: Plugin) -> Loaded:
        from retinue.capabilities.plugins.importing import Loaded, load_tools

        seconds = self._world.settings.settings.plugin_timeout_seconds
        try:
            return await asyncio.to_thread(load_tools, plugin, seconds)
        except Exception as error:  # noqa: BLE001 - whatever it is, the others work
            return Loaded(plugin, {}, (f"its tools cannot be used: {type(error).__name__}: {error}",))

    def _servers(self, spec: AgentSpec) -> frozenset[str]:
        """Names that mean MCP servers, for files that speak of extensions."""
        tools = spec.tools
        if not (tools.selectors or tools.exclude_extensions or isinstance(tools.extensions, tuple)):
            return frozenset()
        from retinue.capabilities.mcp.servers import project_servers

        names = frozenset(name.lower() for name in project_servers(self._world).servers)
        return names | {"mcp"} if names else names


def _content(plugin: Plugin) -> str:
    """What is compared to know whether to import again. Packages are imported once, as ever."""
    if plugin.entry:
        return ""
    from retinue.capabilities.plugins.content import UnboundError, content_digest

    try:
        return content_digest(plugin.place)
    except UnboundError:
        return ""
