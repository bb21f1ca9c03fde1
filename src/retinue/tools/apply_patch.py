"""apply_patch: changes of several files in the format that OpenAI's coding models were trained on.

The tool has no additional rights. Each file is changed by the run's read, edit and write tools with their gate, hooks
and checks, so every rule for those tools applies to a patch. A moved file is read, written under its new name and
deleted under the old one.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import starmap
from typing import Any, ClassVar, Literal

from msgspec import Struct, field
from msgspec.structs import replace

from retinue.core.permission import ToolEffect
from retinue.core.tool import Tool, ToolContext, ToolOutput, failed, ok
from retinue.tools.base import Aliases, Arguments, BuiltinTool, Properties, ToolError
from retinue.tools.content import Edit, apply
from retinue.tools.edit import check_fresh, read_whole
from retinue.tools.paths import confine, open_parent
from retinue.tools.processes import in_thread

_BEGIN, _END = "*** Begin Patch", "*** End Patch"
_MOVE = "*** Move to: "
_HEADS: dict[str, Literal["add", "delete", "update"]] = {
    "*** Add File": "add",
    "*** Delete File": "delete",
    "*** Update File": "update",
}


class FileChange(Struct):
    """One file of a patch. `lines` is the content of a new file, `hunks` are pairs of old and new text, and `move_to`
    is the new path of a file that is moved."""

    kind: Literal["add", "delete", "update"]
    path: str
    lines: list[str] = field(default_factory=list)
    hunks: list[tuple[str, str]] = field(default_factory=list)
    move_to: str = ""


def read_patch(text: str) -> list[FileChange]:
    """Return the file changes of a patch. Raise ToolError with the problem and the form of a patch."""
    lines = text.strip().splitlines()
    if not lines or lines[0].strip() != _BEGIN or lines[-1].strip() != _END:
        raise ToolError(f"apply_patch: a patch begins with the line {_BEGIN!r} and ends with {_END!r}.")
    changes: list[FileChange] = []
    hunk: list[str] = []
    for line in lines[1:-1]:
        head, colon, path = line.partition(": ")
        if colon and head in _HEADS:
            _finish(changes, hunk)
            changes.append(FileChange(_HEADS[head], path.strip()))
        elif not changes:
            raise ToolError(f"apply_patch: {line[:80]!r} stands before any '*** Update File: PATH'.")
        elif line.startswith(_MOVE):
            if changes[-1].kind != "update":
                raise ToolError("apply_patch: '*** Move to: PATH' belongs below '*** Update File: PATH'.")
            changes[-1].move_to = line.removeprefix(_MOVE).strip()
        elif line.startswith("@@"):
            _finish(changes, hunk)
        elif line.strip() != "*** End of File":
            hunk.append(line)
    _finish(changes, hunk)
    if not changes:
        raise ToolError("apply_patch: the patch changes no file.")
    return changes


def _finish(changes: list[FileChange], hunk: list[str]) -> None:
    """Add the collected lines to the file they belong to."""
    if not hunk:
        return
    change = changes[-1]
    if change.kind == "add":
        change.lines += [line.removeprefix("+") for line in hunk]
    else:
        old: list[str] = []
        new: list[str] = []
        for line in hunk:
            # A line of context, which has a blank in front, belongs to both texts.
            if not line.startswith("+"):
                old.append(line[1:])
            if not line.startswith("-"):
                new.append(line[1:])
        change.hunks.append(("\n".join(old), "\n".join(new)))
    hunk.clear()


class ApplyPatchTool(BuiltinTool):
    """The tool of one run. `tools` are the run's guarded tools, set before the first call. Models that were not
    trained on patches do not see it."""

    name = "apply_patch"
    required = ("input",)
    exclusive = True
    properties: ClassVar[Properties] = {"input": {"type": "string", "description": "The whole patch"}}
    aliases: ClassVar[Aliases] = {"input": ("patch", "patch_text", "diff", "content")}

    def __init__(self, *, shown: bool = True) -> None:
        super().__init__()
        self.tools: Mapping[str, Tool] = {}
        if not shown:
            self.spec = replace(self.spec, shown=False)

    async def call(self, call_id: str, arguments: Arguments, context: ToolContext) -> ToolOutput:
        changes = read_patch(arguments.text("input"))
        done: list[str] = []
        effect = ToolEffect()
        for change in changes:
            # Files before a failure stay changed, as separate edits would: the result names them.
            output = await self._apply(change, call_id, context)
            effect = _join_effects(effect, output.effect)
            if output.is_error:
                before = "\n".join(done) or "Nothing was changed."
                return failed(f"{change.path}: {output.text}\nBefore that:\n{before}", effect)
            done.append(output.text)
        return ok("\n".join(done), effect)

    async def _apply(self, change: FileChange, call_id: str, context: ToolContext) -> ToolOutput:
        if change.kind == "delete":
            return await self._tool("write").run(call_id, {"path": change.path, "delete": True}, context)
        if change.kind == "add":
            content = "".join(f"{line}\n" for line in change.lines)
            return await self._tool("write").run(call_id, {"path": change.path, "content": content}, context)
        if change.move_to and not _same_file(change, context):
            return await self._move(change, call_id, context)
        edits = [{"old_string": old, "new_string": new} for old, new in change.hunks]
        return await self._tool("edit").run(call_id, {"path": change.path, "edits": edits}, context)

    async def _move(self, change: FileChange, call_id: str, context: ToolContext) -> ToolOutput:
        """Move a file. The rules about reading are checked first: a move must not reveal a file that they hide."""
        write = self._tool("write")
        looked = await self._tool("read").run(call_id, {"path": change.path, "limit": 1}, context)
        if looked.is_error:
            return looked
        text, executable = await in_thread(lambda: _read_moved(change, context))
        arguments = {"path": change.move_to, "content": text, "executable": executable}
        written = await write.run(call_id, arguments, context)
        if written.is_error:
            return written
        deleted = await write.run(call_id, {"path": change.path, "delete": True}, context)
        effect = _join_effects(written.effect, deleted.effect)
        return replace(deleted, content=(*written.content, *deleted.content), effect=effect)

    def _tool(self, name: str) -> Tool:
        if name not in self.tools:
            raise ToolError(f"apply_patch needs {name}, which is not among your tools.")
        return self.tools[name]


def _same_file(change: FileChange, context: ToolContext) -> bool:
    old = confine(change.path, context, writing=True)
    return old.real == confine(change.move_to, context, writing=True).real


def _read_moved(change: FileChange, context: ToolContext) -> tuple[str, bool]:
    """Return the text of the file after its hunks, and whether it is executable."""
    confined = confine(change.path, context, writing=True)
    with open_parent(confined) as where:
        status = where.stat()
        data = read_whole(where, confined)
    # The move writes the text anew, so it must be the version that the run has seen.
    check_fresh(confined, context, data)
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise ToolError(f"{confined.shown} is not UTF-8 text. Move it with the shell.") from None
    edits = list(starmap(Edit, change.hunks))
    return apply(text, edits, confined.shown), bool(status and status.st_mode & 0o100)


def _join_effects(one: ToolEffect, other: ToolEffect) -> ToolEffect:
    paths: dict[str, Any] = {"reads": (*one.reads, *other.reads), "writes": (*one.writes, *other.writes)}
    return ToolEffect(other.status, **paths, denied=other.denied, allowed=other.allowed)
