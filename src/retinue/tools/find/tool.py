"""find: files or folders whose name or path matches a glob."""

from __future__ import annotations

import os
from typing import ClassVar

from retinue.domain.effects import ToolEffect
from retinue.domain.tool import ToolContext, ToolOutput, ok
from retinue.tools.arguments import FOLDER_NAMES, Arguments
from retinue.tools.base import BuiltinTool, Properties
from retinue.tools.globs import compile_glob
from retinue.tools.grep.query import hidden_flags
from retinue.tools.ripgrep import ripgrep
from retinue.tools.search import Start, relative, start_of

LIMIT = 200
MOST = 5000


class FindTool(BuiltinTool):
    name = "find"
    required = ("pattern",)
    properties: ClassVar[Properties] = {
        "pattern": {"type": "string", "description": "Glob for the name or path"},
        "path": {"type": "string", "description": "Folder to look in (default .)"},
        "hidden": {"type": "boolean", "description": "Include hidden files"},
        "limit": {"type": "integer", "description": f"Most results (default {LIMIT})"},
    }

    async def call(self, call_id: str, given: Arguments, context: ToolContext) -> ToolOutput:
        pattern = _from_root(given.text("pattern", "glob", "glob_pattern", "name", "query"), context)
        limit = min(given.whole("limit", "max_results", least=1) or LIMIT, MOST)
        start = start_of(given.optional_text("path", *FOLDER_NAMES), context)
        glob = compile_glob(pattern)
        hidden = given.flag("hidden") or glob.hidden
        paths = await _list(start, context, hidden, folders=pattern.endswith("/"))
        matches = sorted(path for path in paths if start.accepts(path, glob))
        note = ""
        if not matches and not set("*?[{!/") & set(pattern):
            wider = compile_glob(f"*{pattern}*")
            matches = sorted(path for path in paths if wider(path))
            note = f"[no name is exactly {pattern}; these contain it]\n" if matches else ""
        effect = ToolEffect(reads=(str(start.place.path),))
        return ok(note + _report(matches, start, limit, pattern, hidden), effect)


def _from_root(pattern: str, context: ToolContext) -> str:
    """An absolute pattern inside the working directory, made relative to it."""
    root = str(context.root).rstrip("/") + "/"
    return pattern[len(root) :] if pattern.startswith(root) and len(pattern) > len(root) else pattern


async def _list(start: Start, context: ToolContext, hidden: bool, *, folders: bool) -> list[str]:
    printed = bytearray()
    await ripgrep(
        ["--files", "--null", *hidden_flags(hidden), "--", start.target], start.folder, context, printed.extend
    )
    files = [relative(raw) for raw in bytes(printed).split(b"\0") if raw]
    if not folders:
        return files
    found: set[str] = set()
    for path in files:
        folder = os.path.dirname(path)  # noqa: PTH120 - a million times; Path costs ten times more
        while folder and folder not in found:
            found.add(folder)
            folder = os.path.dirname(folder)  # noqa: PTH120
    return list(found)


def _report(matches: list[str], start: Start, limit: int, pattern: str, hidden: bool) -> str:
    if not matches:
        skipped = "Ignored files were" if hidden else "Ignored and hidden files were"
        return f"Nothing matches {pattern!r} in {start.place.shown}. {skipped} not looked at."
    end = "/" if pattern.endswith("/") else ""
    lines = [start.show(path) + end for path in matches[:limit]]
    if len(matches) > limit:
        lines.append(f"[{limit} of {len(matches):,} found; narrow the pattern or path, or raise limit]")
    return "\n".join(lines)
