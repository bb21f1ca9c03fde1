"""The memory of a run: whether it has one, whether it may write it, which tools reach it, and its part of the prompt.

Whether it may write is decided after all lists that remove tools. An agent with write or edit may write its memory. An
agent file of Claude Code, whose documentation promises it, gets read, write and edit for the memory folder only if it
lacks them. Every other agent only reads. The folder is reached by these three tools of this run; children do not have
it. In the prompt, constant text comes first and the bounded index last.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from retinue.capabilities.memory.store import INDEX, carried_folders, other_folders, own_folder
from retinue.core.files import read_head
from retinue.core.format import replace_unprintable
from retinue.core.spec import MemoryScope, ToolPolicy
from retinue.core.tool import Tool
from retinue.errors import UsageError
from retinue.runs.prompt import shipped
from retinue.tools.filter import memory_tools, select_tools
from retinue.tools.paths import Reaching, ReachingWriter
from retinue.tools.safe_dir import SafeDir, open_dir, read, write

if TYPE_CHECKING:
    from retinue.runs.launch import LaunchPlan
    from retinue.runs.run import Run


MAX_INDEX_LINES = 200
MAX_INDEX_BYTES = 25_000


def read_index(folder: SafeDir) -> str:
    """Return the beginning of MEMORY.md, with a note where it was cut; empty when the file is missing, is a
    link, or cannot be read."""
    try:
        data = read(folder, INDEX, most=MAX_INDEX_BYTES * 8)
    except OSError:
        return ""
    return cut_index(data)


def cut_index(data: bytes) -> str:
    """Return at most 200 lines and 25 KB, cut between lines where that is possible."""
    text = data.decode("utf-8", "replace").replace("\r\n", "\n").replace("\r", "\n").lstrip("\ufeff").strip()
    lines = text.split("\n")
    count, size = 0, 0
    for line in lines[:MAX_INDEX_LINES]:
        size += len(line.encode()) + 1
        if size > MAX_INDEX_BYTES:
            break
        count += 1
    if count == len(lines):
        return text
    beginning = "\n".join(lines[:count]) or text.encode()[:MAX_INDEX_BYTES].decode("utf-8", "ignore")
    limit = f"{MAX_INDEX_LINES} lines" if count == MAX_INDEX_LINES else "25 KB"
    return f"{beginning}\n... (truncated at {limit}: shorten {INDEX}, and move details into files of their own)"


def index_advice(data: bytes) -> str:
    """Return advice for an agent that has just written its index; empty while there is room."""
    lines, size = len(data.split(b"\n")), len(data)
    if data.endswith(b"\n") or not data:
        lines -= 1
    if lines > MAX_INDEX_LINES or size > MAX_INDEX_BYTES:
        return (
            f"{INDEX} now has {lines} lines and {size:,} bytes. Only the first {MAX_INDEX_LINES} lines and "
            f"{MAX_INDEX_BYTES:,} bytes are shown to you next time. "
            "Rewrite it shorter now: one line for each thing, details in files of their own."
        )
    if lines > MAX_INDEX_LINES * 0.9 or size > MAX_INDEX_BYTES * 0.9:
        used = f"{lines} of {MAX_INDEX_LINES} lines, {size:,} of {MAX_INDEX_BYTES:,} bytes"
        return f"{INDEX} is nearly full ({used}). Shorten it soon."
    return ""


_SCOPE_TEXTS: dict[MemoryScope, str] = {
    "user": "scope: user, for all projects",
    "project": "scope: project, shared by everyone who works on it",
    "local": "scope: local, for this project on this machine",
}


_TOOL_TEXTS = {
    False: "Use the write and edit tools with absolute paths in this folder.",
    True: "Your write and edit tools work in this folder only: use absolute paths in it.",
}


class Memory(Struct, frozen=True):
    """The memory of one run. `own` is the folder that may be written; `others` are only read."""

    agent: str
    scope: MemoryScope
    own: SafeDir
    others: tuple[SafeDir, ...] = ()
    writable: bool = False
    confined: bool = False
    """The run's write and edit tools work in this memory only."""

    @property
    def folder(self) -> Path:
        return self.own.real

    @property
    def folders(self) -> tuple[Path, ...]:
        """The folders that may be read."""
        return (self.folder, *(other.real for other in self.others))

    def block(self) -> str:
        """Return the part of the prompt. Reads the index; creates nothing."""
        name = "memory" if self.writable else "memory_readonly"
        text = shipped(name).replace("{{scope}}", _SCOPE_TEXTS[self.scope])
        if self.writable:
            text = text.replace("{{folder}}", _on_one_line(self.folder)).replace(
                "{{tools}}", _TOOL_TEXTS[self.confined]
            )
        return "\n\n".join([text, *self._indexes()])

    def _indexes(self) -> Sequence[str]:
        frames = [_frame(read_index(self.own), "")]
        for other in self.others:
            where = _on_one_line(other.real) if self.writable else "elsewhere"
            frames.append(_frame(read_index(other), f' from="{where}"'))
        if any(frames):
            return [*filter(None, frames)]
        if not self.writable:
            return ["There is no memory available."]
        path = _on_one_line(self.folder / INDEX)
        return [f"There is no {INDEX} yet. Create it at {path} when you have something to note."]


def _frame(index: str, attributes: str) -> str:
    """Return an index between tags; empty for an empty one."""
    if not index:
        return ""
    # An agent wrote the index, which must not be able to close the frame.
    return f"<memory_index{attributes}>\n{index.replace('</memory_index', '< /memory_index')}\n</memory_index>"


def _on_one_line(path: Path) -> str:
    # The name of a folder may contain line breaks and quotes, which would end the attribute or the line.
    return replace_unprintable(str(path)).replace('"', "'")


_ONLY_REASON = "your memory"
_GITIGNORE = b"# Memories of agents on this machine: not for the repository.\n*\n"


def add_memory(plan: LaunchPlan) -> None:
    """Give the run the memory that its file asks for, with the tools that reach it. Creates nothing on disk. An
    obstacle is noted."""
    spare = _spare_tools(plan)
    memory = _choose_memory(plan, spare)
    if memory is None:
        return
    plan.put(memory)
    plan.readable = memory.folders
    own = (memory.folder,) if memory.writable else ()
    before = tuple(plan.tools)
    for name in ("write", "edit"):
        # A tool that the run has anyway works everywhere; an added one reaches the memory only.
        if name in plan.tools and own:
            plan.tools[name] = ReachingWriter(plan.tools[name], own, after=_advise_after_write)
    for name in memory_tools(before, readonly=not own):
        if name in spare and name == "read":
            plan.tools[name] = Reaching(spare[name], memory.folders, only=_ONLY_REASON)
        elif name in spare:
            plan.tools[name] = ReachingWriter(spare[name], own, only=_ONLY_REASON, after=_advise_after_write)


def _choose_memory(plan: LaunchPlan, spare: Mapping[str, Tool]) -> Memory | None:
    """Return the memory that the run can have. `spare` are the file tools that no rule forbids."""
    spec, project = plan.spec, plan.project
    assert spec.memory is not None
    try:
        if project.brought is not None and spec.memory != "project":
            own, others = carried_folders(spec.name, spec.memory, project.brought)
        else:
            own = own_folder(spec.name, spec.memory, project.cwd, project.environment)
            others = other_folders(spec.name, spec.memory, project.cwd, project.environment)
    except UsageError as error:
        plan.note(f"it has no memory: {error.message}")
        return None
    own_tools = bool({"write", "edit"} & plan.tools.keys())
    able = own_tools or (spec.dialect == "claude" and bool({"write", "edit"} & spare.keys()))
    writable = able and not plan.readonly
    obstacle = own.obstacle()
    if obstacle is not None:
        plan.note(f"its memory is not used: {obstacle}")
        # Memories of other systems can be read even if our folder cannot be used.
        return Memory(spec.name, spec.memory, own, others) if others else None
    return Memory(spec.name, spec.memory, own, others, writable, confined=writable and not own_tools)


def _spare_tools(plan: LaunchPlan) -> Mapping[str, Tool]:
    """Return the file tools that neither the agent's file, an agent above it nor a rule takes from the run."""
    tools = plan.project.tools
    available = {name: tool for name, tool in tools.items() if name in ("read", "write", "edit")}
    policy = ToolPolicy(allow=tuple(available), deny=plan.spec.tools.deny)
    chosen = select_tools(policy, available, denied_above=plan.request.ceiling.denied).tools
    return {tool.spec.name: tool for tool in plan.permit(chosen, [])}


def make_folder(node: Run) -> None:
    """Create the folder of a run that may write its memory. If that fails, the agent gets the error when it writes."""
    memory = node.get(Memory)
    if memory is None or not memory.writable:
        return
    with suppress(OSError), open_dir(memory.own, create=True):
        if memory.scope == "local":
            above = SafeDir(memory.own.base, memory.own.names[:-1])
            try:
                read(above, ".gitignore", most=1)
            except FileNotFoundError:
                write(above, (".gitignore",), _GITIGNORE, over=None)


def _advise_after_write(path: Path) -> str:
    if path.name != INDEX:
        return ""
    try:
        return index_advice(read_head(path, MAX_INDEX_BYTES * 40))
    except OSError:
        return ""
