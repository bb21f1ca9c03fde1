"""find and ls: search for files and folders by a glob, and list the names in one folder."""

from __future__ import annotations

from typing import ClassVar

from retinue.core.permission import ToolEffect
from retinue.core.tool import ToolContext, ToolOutput, ok
from retinue.tools.base import FOLDER_NAMES, Aliases, Arguments, BuiltinTool, Properties
from retinue.tools.grep import hidden_flags, ripgrep, skipped_files
from retinue.tools.paths import confine, folder_listing
from retinue.tools.processes import in_thread
from retinue.tools.search import Start, Unchanged, compile_glob, exists_inside, relative, start_of


class LsTool(BuiltinTool):
    name = "ls"
    required = ()
    properties: ClassVar[Properties] = {"path": {"type": "string", "description": "Folder (default .)"}}
    aliases: ClassVar[Aliases] = {"path": FOLDER_NAMES}

    async def call(self, call_id: str, arguments: Arguments, context: ToolContext) -> ToolOutput:
        confined = confine(arguments.optional_text("path") or ".", context)
        text = await in_thread(lambda: folder_listing(confined))
        return ok(text, ToolEffect(reads=(confined.real,)))


DEFAULT_PATHS = 200
MAX_PATHS = 5000


class FindTool(BuiltinTool):
    name = "find"
    required = ("pattern",)
    properties: ClassVar[Properties] = {
        "pattern": {"type": "string"},
        "path": {"type": "string", "description": "Folder (default .)"},
        "limit": {"type": "integer", "description": f"Default {DEFAULT_PATHS}"},
    }
    hidden: ClassVar[Properties] = {"hidden": {"type": "boolean"}}
    aliases: ClassVar[Aliases] = {
        "pattern": ("glob", "glob_pattern", "name", "query", "file_name", "file_pattern"),
        "path": FOLDER_NAMES,
        "limit": ("max_results", "head_limit"),
        "hidden": ("include_hidden", "dot"),
    }
    ignored = frozenset({"respect_git_ignore", "explanation", "description"})

    async def call(self, call_id: str, arguments: Arguments, context: ToolContext) -> ToolOutput:
        pattern = _from_root(arguments.text("pattern"), context)
        limit = min(arguments.whole_number("limit", least=1) or DEFAULT_PATHS, MAX_PATHS)
        start = start_of(arguments.optional_text("path"), context)
        hidden = arguments.flag("hidden") or compile_glob(pattern).hidden
        printed = bytearray()
        unchanged = Unchanged(start)
        flags = ["--files", "--null", *hidden_flags(hidden), "--", start.target]
        await ripgrep(flags, start.folder, context, printed.extend)

        def report() -> str:
            listed = map(relative, filter(None, bytes(printed).split(b"\0")))
            files = [path for path in listed if unchanged.holds(path) or exists_inside(path, start)]
            return _report(_paths(files, pattern), start, limit, pattern, hidden)

        text = await in_thread(report)
        return ok(text, ToolEffect(reads=(str(start.confined.path),)))


def _from_root(pattern: str, context: ToolContext) -> str:
    """Return an absolute pattern inside the working directory, made relative to it."""
    root = str(context.root).rstrip("/") + "/"
    if pattern.startswith(root) and len(pattern) > len(root):
        return pattern[len(root) :]
    return pattern


def _paths(files: list[str], pattern: str) -> list[str]:
    """Return the files that rg listed or, for a pattern that ends in /, the folders above them."""
    if not pattern.endswith("/"):
        return files
    folders: set[str] = set()
    for path in files:
        while (path := path.rpartition("/")[0]) and path not in folders:
            folders.add(path)
    return list(folders)


def _report(paths: list[str], start: Start, limit: int, pattern: str, hidden: bool) -> str:
    glob = compile_glob(pattern)
    matches = sorted(path for path in paths if start.accepts(path, glob))
    lines: list[str] = []
    # A plain word is a question about names, not a glob.
    if not matches and not set("*?[{!/") & set(pattern):
        wider = compile_glob(f"*{pattern}*")
        matches = sorted(filter(wider, paths))
        lines.append(f"[no name is exactly {pattern}; these contain it]")
    if not matches:
        return f"Nothing matches {pattern!r} in {start.name}. {skipped_files(hidden)} not looked at."
    end = "/" if pattern.endswith("/") else ""
    lines += [start.show(path) + end for path in matches[:limit]]
    if len(matches) > limit:
        lines.append(f"[{limit} of {len(matches):,} found; narrow the pattern or path, or raise limit]")
    return "\n".join(lines)
