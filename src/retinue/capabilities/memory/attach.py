"""The memory of a run: whether it has one, whether it may write it, and the tools that reach it.

Writing is decided after every list that takes tools away. An agent with write or edit may write
its memory; a file written for Claude Code, whose documentation promises it, gets read, write and
edit for its memory folder and nothing else where it lacks them; every other agent only reads.
The folder is reached by these three tools of this run alone: no child has it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from retinue.core.permission import Decision, Permissions, ToolUse
from retinue.core.spec import PermissionMode, ToolPolicy
from retinue.core.tool import Tool
from retinue.errors import UsageError
from retinue.settings.places import home
from retinue.tools.filter import memory_tools, select_tools
from retinue.tools.reach import Beyond, Reaching, ReachingWriter

if TYPE_CHECKING:
    from retinue.capabilities.memory.block import Memory
    from retinue.core.request import RunRequest
    from retinue.runs.plan import Launch
    from retinue.runs.project import Project

_FILE_TOOLS = ("read", "write", "edit")
_WHY = "your memory"
_IGNORE = b"# Memories of agents on this machine: not for the repository.\n*\n"


def memory_for(
    request: RunRequest,
    project: Project,
    tools: Mapping[str, Tool],
    spare: Mapping[str, Tool],
    notes: list[str],
    *,
    readonly: bool,
) -> Memory | None:
    """The memory that the run's file asks for, or None. `tools` are those it has, `spare` the file
    tools that nothing forbids it. Makes nothing. What stands in the way is noted."""
    spec = request.spec
    if spec.memory is None or not project.settings.settings.memory_enabled:
        return None
    from retinue.capabilities.memory.block import Memory
    from retinue.capabilities.memory.store import other_places, own_place

    try:
        own = own_place(spec.name, spec.memory, project.cwd, project.environment)
        others = other_places(spec.name, spec.memory, project.cwd, project.environment)
    except UsageError as error:
        notes.append(f"it has no memory: {error.message}")
        return None
    own_tools = bool({"write", "edit"} & tools.keys())
    able = own_tools or (spec.dialect == "claude" and bool({"write", "edit"} & spare.keys()))
    writable = able and not readonly
    obstacle = own.obstacle()
    if obstacle is not None:
        notes.append(f"its memory is not used: {obstacle}")
        return Memory(spec.name, spec.memory, own, others) if others else None
    return Memory(spec.name, spec.memory, own, others, writable, confined=writable and not own_tools)


def spare_tools(
    request: RunRequest, project: Project, permitted: Callable[[Mapping[str, Tool]], Any]
) -> Mapping[str, Tool]:
    """The file tools that neither the agent's file, an agent above it nor a rule takes from the run."""
    if request.spec.memory is None:
        return {}
    available = {name: project.tools[name] for name in _FILE_TOOLS if name in project.tools}
    policy = ToolPolicy(allow=tuple(available), deny=request.spec.tools.deny)
    chosen = select_tools(policy, available, denied_above=request.ceiling.denied).tools
    return {tool.spec.name: tool for tool in permitted(chosen)}


def reaching(
    tools: Mapping[str, Tool],
    memory: Memory | None,
    spare: Mapping[str, Tool],
    beyond: Beyond | None = None,
) -> tuple[Tool, ...]:
    """The tools with those that reach the memory, and with `read` reaching what is `beyond`."""
    folders = memory.folders if memory is not None else ()
    own = (memory.folder,) if memory is not None and memory.writable else ()
    made = dict(tools)
    if "read" in tools and (folders or beyond is not None):
        made["read"] = Reaching(tools["read"], folders, beyond=beyond)
    for name in ("write", "edit"):
        if name in tools and own:
            made[name] = ReachingWriter(tools[name], own, after=_advice)
    if memory is not None:
        for name in memory_tools(tools.keys(), readonly=not own):
            if name in spare and name == "read":
                made[name] = Reaching(spare[name], folders, only=_WHY)
            elif name in spare:
                made[name] = ReachingWriter(spare[name], own, only=_WHY, after=_advice)
    return tuple(made.values())


def make_folder(launch: Launch) -> None:
    """At the start of a run that may write its memory. One that cannot be made is found out by
    the agent when it writes."""
    memory = launch.memory
    if memory is None or not memory.writable:
        return
    from retinue.guard.safe_dir import SafeDir, opened, read, write

    with suppress(OSError), opened(memory.own, create=True):
        if memory.scope == "local":
            above = SafeDir(memory.own.base, memory.own.names[:-1])
            try:
                read(above, ".gitignore", most=1)
            except FileNotFoundError:
                write(above, (".gitignore",), _IGNORE, over=None)


def _advice(path: Path) -> str:
    from retinue.capabilities.memory.block import BYTES, advice
    from retinue.capabilities.memory.store import INDEX

    if path.name != INDEX:
        return ""
    try:
        with path.open("rb") as file:
            return advice(file.read(BYTES * 40))
    except OSError:
        return ""


class OwnMemory:
    """The permissions of a run, but that it need not ask before it writes its own memory. What a
    rule forbids or wants asked stays so, and children have the permissions without this."""

    def __init__(self, inner: Permissions, tools: Mapping[str, Reaching], root: Path, house: str) -> None:
        self._inner = inner
        self._tools = tools
        self._root = root
        self._house = house

    @property
    def mode(self) -> PermissionMode:
        return self._inner.mode

    def decide(self, use: ToolUse) -> Decision:
        decision = self._inner.decide(use)
        tool = self._tools.get(use.tool)
        if tool is None or decision.verdict == "allow" or decision.by != "mode" or self._inner.mode == "plan":
            return decision
        if tool.target(use.arguments, self._root, self._house) is None:
            return decision
        return Decision("allow", "It is the agent's own memory.", "mode")

    def grant(self, rule: str) -> None:
        self._inner.grant(rule)


def with_memory(permissions: Permissions, launch: Launch, project: Project) -> Permissions:
    """For the gate of one run."""
    if launch.memory is None or not launch.memory.writable:
        return permissions
    tools = {tool.spec.name: tool for tool in launch.tools if isinstance(tool, ReachingWriter)}
    return OwnMemory(permissions, tools, launch.request.cwd.resolve(), str(home(project.environment)))
