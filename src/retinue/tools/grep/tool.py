"""grep: a regular expression in the files below a folder."""

from __future__ import annotations

from typing import ClassVar

from retinue.domain.effects import ToolEffect
from retinue.domain.tool import ToolContext, ToolOutput, ok
from retinue.tools.arguments import FOLDER_NAMES, Arguments
from retinue.tools.base import BuiltinTool, Properties
from retinue.tools.globs import Glob, compile_glob
from retinue.tools.grep.query import Counts, Query, count_matches, matching_lines
from retinue.tools.search import Start, start_of

LIMIT = 100
MOST = 2000
CHARACTERS = 30_000

_MODES = {
    "content": "content",
    "files": "files",
    "count": "count",
    "files_with_matches": "files",
    "lines": "content",
}


class GrepTool(BuiltinTool):
    name = "grep"
    required = ("pattern",)
    properties: ClassVar[Properties] = {
        "pattern": {"type": "string", "description": "Regular expression"},
        "path": {"type": "string", "description": "Folder or file to search (default .)"},
        "glob": {"type": "string", "description": "Only files like *.py or src/**/*.{ts,tsx}; !x excludes"},
        "literal": {"type": "boolean", "description": "Pattern is plain text"},
        "ignore_case": {"type": "boolean", "description": "Ignore case"},
        "context": {"type": "integer", "description": "Lines to show around each match"},
        "mode": {"type": "string", "enum": ["content", "files", "count"], "description": "What to list"},
        "hidden": {"type": "boolean", "description": "Search hidden files too"},
        "limit": {"type": "integer", "description": f"Most results (default {LIMIT})"},
    }

    async def call(self, call_id: str, given: Arguments, context: ToolContext) -> ToolOutput:
        query = _query(given)
        mode = given.choice("mode", "output_mode", allowed=_MODES, default="content")
        limit = min(given.whole("limit", "head_limit", "max_results", least=1) or LIMIT, MOST)
        start = start_of(given.optional_text("path", *FOLDER_NAMES), context)
        found = await count_matches(query, start, context)
        effect = ToolEffect(reads=(str(start.place.path),))
        left_out = f"\n[{found.withheld} more not shown: a rule keeps their content from you]" if found.withheld else ""
        if not found.files:
            return ok(_nothing(query, start) + left_out, effect)
        if mode == "files":
            return ok(_listing([start.show(path) for path in found.files], limit, found) + left_out, effect)
        if mode == "count":
            lines = [f"{start.show(path)}:{found.files[path]}" for path in found.files]
            return ok(f"{_listing(lines, limit, found)}\n[{found.total:,} matching lines]{left_out}", effect)
        lines, matches = await matching_lines(query, start, context, found, limit)
        return ok(_content(lines, matches, found) + left_out, effect)


def _query(given: Arguments) -> Query:
    glob_text = given.optional_text("glob", "include", "file_pattern", "filePattern")
    glob: Glob | None = compile_glob(glob_text) if glob_text else None
    return Query(
        pattern=given.text("pattern", "query", "regex", "search"),
        literal=given.flag("literal", "fixed_strings"),
        ignore_case=given.flag("ignore_case", "ignoreCase", "case_insensitive", "-i"),
        hidden=given.flag("hidden") or (glob is not None and glob.hidden),
        context=min(given.whole("context", "context_lines", "-C") or 0, 50),
        glob=glob,
    )


def _nothing(query: Query, start: Start) -> str:
    skipped = "Ignored files were" if query.hidden else "Ignored and hidden files were"
    return f"No match for {query.pattern!r} in {start.place.shown}. {skipped} not searched."


def _listing(lines: list[str], limit: int, found: Counts) -> str:
    if len(lines) <= limit:
        return "\n".join(lines)
    return "\n".join([*lines[:limit], f"[{limit} of {len(found.files):,} files; {_NARROW}]"])


_NARROW = "narrow with path, glob or pattern, or raise limit"


def _content(lines: list[str], matches: int, found: Counts) -> str:
    kept: list[str] = []
    room = CHARACTERS
    for line in lines:
        room -= len(line) + 1
        if room < 0:
            break
        kept.append(line)
    if matches >= found.total and len(kept) == len(lines):
        return "\n".join(kept)
    seen = f"first {matches:,}" if len(kept) == len(lines) else f"first {len(kept):,} lines"
    total = f"{found.total:,} matching lines in {len(found.files):,} files"
    return "\n".join([*kept, f"[{seen} of {total}; {_NARROW}]"])
