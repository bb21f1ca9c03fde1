"""ls: the names in one folder."""

from __future__ import annotations

import os
from typing import ClassVar

from retinue.core.permission import ToolEffect
from retinue.core.tool import ToolContext, ToolOutput, ok
from retinue.tools.arguments import FOLDER_NAMES, Arguments, ToolError
from retinue.tools.base import Aliases, BuiltinTool, Properties
from retinue.tools.paths import Confined, confine, list_folder, visible
from retinue.tools.processes import in_thread

LIMIT = 500
_LISTED = 100_000


class LsTool(BuiltinTool):
    name = "ls"
    required = ()
    properties: ClassVar[Properties] = {"path": {"type": "string", "description": "Folder (default .)"}}
    aliases: ClassVar[Aliases] = {"path": FOLDER_NAMES}

    async def call(self, call_id: str, given: Arguments, context: ToolContext) -> ToolOutput:
        confined = confine(given.optional_text("path") or ".", context)
        text = await in_thread(lambda: folder_listing(confined))
        return ok(text, ToolEffect(reads=(confined.real,)))


def folder_listing(confined: Confined) -> str:
    """Return the names in a folder, a line each. Raise ToolError for what is not a folder."""
    try:
        entries = list_folder(confined, _LISTED)
    except FileNotFoundError:
        raise ToolError(f"{confined.shown} does not exist. List the folder above it, or use find.") from None
    except NotADirectoryError:
        raise ToolError(f"{confined.shown} is not a folder. Use read to see a file.") from None
    if not entries:
        return "(empty folder)"
    names = sorted(map(_marked_name, entries))
    if len(names) <= LIMIT:
        return "\n".join(names)
    total = f"{len(names):,}"
    if len(names) == _LISTED:
        total += "+"
    return "\n".join([*names[:LIMIT], f"[{LIMIT} of {total} entries; use find with a pattern for the others]"])


def _marked_name(entry: os.DirEntry[str]) -> str:
    if entry.is_symlink():
        return f"{visible(entry.name)}@"
    if entry.is_dir(follow_symlinks=False):
        return f"{visible(entry.name)}/"
    return visible(entry.name)
