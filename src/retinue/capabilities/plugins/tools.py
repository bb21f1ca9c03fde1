"""The tools of plugins that one run has: which its agent's file means, and whether anyone has consented to them.

A plugin is an extension, as is an MCP server (`retinue.capabilities.mcp.scope`). An agent's file chooses among
extensions with the fields of pi:

    extensions: false             none            isolated: true      none, whatever else is said
    extensions: [git, ./own.py]   only these      extensions: [*, …]  all, and these
    exclude_extensions: [web]     all but these; exclude wins
    tools: read, ext:git          of extensions only the tools of git
    tools: ext:git/status         only this one; several add up, and narrow `ext:git`

Names of extensions match in any case, names of tools exactly. A name that matches nothing is noted and stops no run.

Consent is bound to a digest of every byte in the plugin's folder, because its hooks and servers start programs there
and its modules import each other. Only Python's caches and the repository of git are left out. Therefore the caches
are never used: what we import is compiled from the text that was digested, and programs of a plugin cache elsewhere.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import stat
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct, field
from msgspec.structs import replace

from retinue.capabilities.plugins.attach import PluginExtensions
from retinue.capabilities.plugins.discover import FailedPlugin, Plugin, read_path
from retinue.core.foreign import read_file
from retinue.core.spec import AgentSpec, ToolPolicy
from retinue.core.tool import Tool
from retinue.core.tool_names import split_selector
from retinue.runs.services import Servers

if TYPE_CHECKING:
    from retinue.capabilities.plugins.load import PluginTools
    from retinue.runs.launch import LaunchPlan
    from retinue.runs.project import Project


PREFIX = "extension-error:"
_EVERY = "*"
_LISTS_BUILTINS = frozenset({"pi"})
"""Dialects whose list of tools says nothing about those of extensions."""


class Extension(Struct, frozen=True):
    """`names` in lower case: those by which a file may mean it, its path if the file brings it by
    one. `title` is for people. `serves` says that it also brings MCP servers."""

    title: str
    names: frozenset[str]
    tools: tuple[str, ...] = ()
    serves: bool = False


class Scoped(Struct, frozen=True):
    """`tools` are those of extensions that the run may have; `policy` is the file's with its
    selectors resolved."""

    policy: ToolPolicy
    tools: frozenset[str]
    notes: tuple[str, ...] = ()


def is_path(entry: str) -> bool:
    """Return whether an entry of `extensions` is a path and no name."""
    return "/" in entry or "\\" in entry or entry.startswith("~")


def own_paths(spec: AgentSpec) -> tuple[str, ...]:
    """Return the extensions that an agent's file brings by path."""
    listed = spec.tools.extensions
    if spec.isolated or not isinstance(listed, tuple):
        return ()
    return tuple(filter(is_path, listed))


def scope_extensions(
    spec: AgentSpec, policy: ToolPolicy, extensions: Sequence[Extension], *, others: Collection[str] = ()
) -> Scoped:
    """Resolve what a file says of extensions. `policy` is the spec's, perhaps with more in it. `others` are names, in
    lower case, of extensions that are dealt with elsewhere."""
    plain = replace(policy, selectors=())
    if spec.isolated:
        return Scoped(plain, frozenset())
    names = _Names(spec, extensions, frozenset(others))
    loaded = list(filter(names.loads, extensions))
    tools: list[str] = []
    if policy.selectors:
        tools = _select(policy.selectors, loaded, names)
    else:
        for extension in loaded:
            tools += extension.tools
    if policy.allow is not None and _adds_to_list(spec):
        allow: list[str] = []
        for entry in policy.allow:
            if entry.strip().lower() != "none":
                allow.append(entry)
        plain = replace(plain, allow=(*allow, *tools))
    return Scoped(plain, frozenset(tools), tuple(dict.fromkeys(names.notes)))


def _adds_to_list(spec: AgentSpec) -> bool:
    """Return whether tools of extensions come on top of a list of tools that does not name them."""
    return bool(spec.dialect in _LISTS_BUILTINS or spec.tools.selectors or spec.tools.extensions)


class _Names:
    """What the file says about extensions by name, and what is wrong with it."""

    def __init__(self, spec: AgentSpec, extensions: Sequence[Extension], others: frozenset[str]) -> None:
        self._agent = spec.name
        self.others = others
        self.known = set(others)
        for extension in extensions:
            self.known |= extension.names
        said = spec.tools.extensions
        listed: list[str] = []
        self._only: set[str] | None = None
        if isinstance(said, tuple):
            listed = list(map(str.strip, said))
            if _EVERY not in listed:
                self._only = set(map(str.lower, listed))
        self._off = said is False
        self._excluded = {each.strip().lower() for each in spec.tools.exclude_extensions}
        self.notes: list[str] = []
        self._check(listed, spec)

    def _check(self, listed: Sequence[str], spec: AgentSpec) -> None:
        if self._off and self._excluded:
            self.warn("exclude_extensions has no effect, because extensions is false")
            return
        for name in listed:
            if name == _EVERY or is_path(name):
                continue
            if name.lower() in self._excluded:
                self.warn(f'"{name}" is in extensions and in exclude_extensions: exclude wins')
            elif name.lower() not in self.known:
                self.warn(f'extension "{name}" is not loaded')
        for name in spec.tools.exclude_extensions:
            if name.strip().lower() not in self.known:
                self.warn(f'exclude_extensions: "{name}" matches no extension')

    def loads(self, extension: Extension) -> bool:
        if self._off or extension.names & self._excluded:
            return False
        return self._only is None or bool(extension.names & self._only)

    def warn(self, text: str) -> None:
        self.notes.append(f'{PREFIX}{text} (agent "{self._agent}")')


def _select(selectors: Sequence[str], loaded: Sequence[Extension], names: _Names) -> list[str]:
    """Return the tools that the `ext:` selectors leave."""
    wanted: dict[str, list[str]] = {}
    for selector in selectors:
        extension, tool = split_selector(selector)
        if extension:
            only = wanted.setdefault(extension, [])
            if tool:
                only.append(tool)
    found: dict[str, None] = {}
    for name, only in wanted.items():
        matching = [each for each in loaded if name in each.names]
        if not matching and name not in names.others:
            names.warn(f"ext:{name} selects from an extension that is not loaded")
        tools: list[str] = []
        serves = False
        for each in matching:
            tools += each.tools
            serves = serves or each.serves
        for tool in only:
            # Which tools a server has is known to the capability that starts it.
            if matching and tool not in tools and not serves:
                names.warn(f'ext:{name}/{tool}: extension "{matching[0].title}" has no tool of that name')
        for tool in tools:
            if tool in only or not only:
                found[tool] = None
    return list(found)


MOST_FILES = 5_000
MOST_BYTES = 64 * 1024 * 1024
_CACHES = frozenset({"__pycache__", ".git"})
_SETTLED = 2_100_000_000
"""Nanoseconds after which a change shows in a file's times on every file system."""


class UnboundError(Exception):
    """There is no content that consent could be bound to, for the reason given."""


_known: dict[str, tuple[object, str]] = {}


def content_digest(root: Path) -> str:
    """Return a digest over names, modes and contents of all files at `root`. Raise UnboundError for
    a folder that is too large, cannot be read, or leads out of itself by a link."""
    try:
        files = list(_files(root))
        signature = tuple((name, *_signature(status)) for name, _, status in files)
        known = _known.get(str(root))
        if known is None or known[0] != signature:
            now = time.time_ns()
            known = (signature, _digest(files))
            # A file that has just changed could change again and keep its times: then it is read every time.
            if all(status.st_ctime_ns < now - _SETTLED for _, _, status in files):
                _known[str(root)] = known
    except OSError as error:
        raise UnboundError(f"{error.filename or root} cannot be read: {error.strerror or error}") from error
    return known[1]


def _signature(status: os.stat_result) -> tuple[int, ...]:
    """Return what cannot stay the same when a file changes: no program can set the time of its change."""
    return status.st_mode, status.st_size, status.st_ino, status.st_mtime_ns, status.st_ctime_ns


def _files(root: Path) -> Iterator[tuple[str, Path, os.stat_result]]:
    """Yield every file below, in an order that does not depend on the file system."""
    base = root.resolve()
    if not root.is_dir():
        yield root.name, root, root.stat()
        return
    number = size = 0
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(set(folders) - _CACHES)
        here = Path(folder)
        # Links to folders are not walked, but one that leads out must be found.
        for each in folders:
            if (here / each).is_symlink():
                names.append(each)
        for name in sorted(names):
            path = here / name
            if path.is_symlink() and base not in path.resolve().parents:
                raise UnboundError(f"{path.relative_to(root)} is a link that leads out of the plugin")
            status = path.stat()
            if path.is_symlink() and not stat.S_ISREG(status.st_mode):
                # A link to a folder inside the plugin: its files are found where they lie.
                continue
            if not stat.S_ISREG(status.st_mode):
                raise UnboundError(f"{path.relative_to(root)} is no file")
            number, size = number + 1, size + status.st_size
            if number > MOST_FILES or size > MOST_BYTES:
                raise UnboundError(f"it has more than {MOST_FILES} files or {MOST_BYTES // 1024 // 1024} MiB")
            yield str(path.relative_to(root)), path, status


def _digest(files: list[tuple[str, Path, os.stat_result]]) -> str:
    whole = hashlib.sha256()
    for name, path, status in files:
        content = hashlib.sha256(read_file(path, MOST_BYTES)).hexdigest()
        runs = "x" if status.st_mode & stat.S_IXUSR else "-"
        whole.update(f"{len(name)} {name} {runs} {content}\n".encode("utf-8", "surrogateescape"))
    return whole.hexdigest()


class Extended(Struct, frozen=True):
    """What extensions bring to a run."""

    extensions: tuple[Extension, ...] = ()
    tools: Mapping[str, Tool] = field(default_factory=dict)
    servers: frozenset[str] = frozenset()


async def offer_tools(plan: LaunchPlan) -> None:
    """Offer the tools of plugins to a run, and let its policy speak of their extensions."""
    extended = await _extend(plan)
    scoped = scope_extensions(plan.spec, plan.policy, extended.extensions, others=extended.servers)
    plan.policy = scoped.policy
    plan.notes += scoped.notes
    for name, tool in extended.tools.items():
        if name in scoped.tools:
            plan.available[name] = tool


async def _extend(plan: LaunchPlan) -> Extended:
    spec, extensions = plan.spec, plan.project.part(PluginExtensions)
    loader = extensions.loader
    usable: list[tuple[Plugin, frozenset[str]]] = []
    for plugin in extensions.plugins.found:
        if extensions.why_not(plugin) is None:
            usable.append((plugin, plugin.names))
    for path, made in zip(own_paths(spec), loader.read_own(spec), strict=True):
        why = made.reason if isinstance(made, FailedPlugin) else extensions.why_not(made)
        if isinstance(made, Plugin) and why is None:
            usable.append((made, made.names | {path.lower()}))
        else:
            plan.note(f'{PREFIX}extension "{path}" is not loaded: {why} (agent "{spec.name}")')
    notes = plan.notes if plan.request.parent_id is None else []
    return await loader.load(usable, spec, notes)


class PluginLoader:
    """Imports each plugin once, and again when its files have changed."""

    def __init__(self, project: Project) -> None:
        self._project = project
        self._loaded: dict[str, tuple[str, asyncio.Future[PluginTools]]] = {}

    def read_own(self, spec: AgentSpec) -> list[Plugin | FailedPlugin]:
        """Return the extensions that an agent's file names by path, in its order. An agent of a plugin
        may bring nothing that runs."""
        made: list[Plugin | FailedPlugin] = []
        for path in own_paths(spec):
            whole = self._project.cwd / Path(path).expanduser()
            if spec.provenance == "plugin":
                made.append(FailedPlugin(path, "an agent of a plugin cannot bring code"))
            elif spec.provenance == "machine" and not whole.resolve().is_relative_to(self._project.cwd):
                made.append(FailedPlugin(path, "another machine can name files of its project only"))
            else:
                # What another machine may name is a file of the project.
                provenance = "project" if spec.provenance == "machine" else spec.provenance
                made.append(read_path(whole, "agent", provenance=provenance))
        return made

    async def load(self, plugins: list[tuple[Plugin, frozenset[str]]], spec: AgentSpec, notes: list[str]) -> Extended:
        """Import what has tools. Each plugin comes with the names by which the agent's file may mean it."""
        wanted: list[Plugin] = []
        for plugin, _ in plugins:
            if plugin.code and spec.tools.extensions is not False:
                wanted.append(plugin)
        imported = await asyncio.gather(*map(self._load, wanted))
        loaded = {each.plugin.where: each for each in imported}
        tools: dict[str, Tool] = {}
        extensions: list[Extension] = []
        for plugin, names in plugins:
            mine: dict[str, Tool] = {}
            if plugin.where in loaded:
                mine = self._pick_free(loaded[plugin.where], tools, notes)
            tools |= mine
            extensions.append(Extension(plugin.name, names, tuple(mine), serves=bool(plugin.servers)))
        return Extended(tuple(extensions), tools, self._servers(spec))

    def _pick_free(self, loaded: PluginTools, taken: Mapping[str, Tool], notes: list[str]) -> dict[str, Tool]:
        """Return the tools of a plugin whose names are free."""
        title = f"Plugin '{loaded.plugin.name}'"
        notes += [f"{title}: {problem}" for problem in loaded.problems]
        mine = {}
        for name, tool in loaded.tools.items():
            if name in taken or name in self._project.tools:
                notes.append(f"{title}: its tool '{name}' is left out: there is another of that name.")
            else:
                mine[name] = tool
        return mine

    async def _load(self, plugin: Plugin) -> PluginTools:
        """Import the tools of a plugin. Runs that start together wait for one import."""
        content = _content(plugin)
        known = self._loaded.get(plugin.where)
        if known is None or known[0] != content:
            task = asyncio.ensure_future(self._import(plugin))
            known = self._loaded[plugin.where] = (content, task)
        return await asyncio.shield(known[1])

    async def _import(self, plugin: Plugin) -> PluginTools:
        from retinue.capabilities.plugins.load import PluginTools, load_tools

        try:
            return await asyncio.to_thread(load_tools, plugin)
        except Exception as error:  # noqa: BLE001 - whatever it is, the others work
            return PluginTools(plugin, {}, (f"its tools cannot be used: {type(error).__name__}: {error}",))

    def _servers(self, spec: AgentSpec) -> frozenset[str]:
        """Return the names that mean MCP servers, for files that speak of extensions."""
        tools = spec.tools
        if not (tools.selectors or tools.exclude_extensions or isinstance(tools.extensions, tuple)):
            return frozenset()
        names = self._project.part(Servers).names()
        return frozenset({*map(str.lower, names), "mcp"}) if names else names


def _content(plugin: Plugin) -> str:
    """Return what is compared to know whether to import again. Packages are imported once, as always in Python."""
    if plugin.entry:
        return ""
    try:
        return content_digest(plugin.path)
    except UnboundError:
        return ""
