"""grep: a regular expression in the files below a folder."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from retinue.core.effects import ToolEffect
from retinue.core.tool import ToolContext, ToolOutput, ok
from retinue.tools.arguments import FOLDER_NAMES, Arguments
from retinue.tools.base import Aliases, BuiltinTool, Properties
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
    "filenames": "files",
    "paths": "files",
    "lines": "content",
    "matches": "content",
    "counts": "count",
}
_ENDINGS = {"python": "py", "rust": "rs", "markdown": "md", "js": "{js,jsx,mjs,cjs}", "ts": "{ts,tsx}"}
"""What ripgrep calls a type, where that is not the end of its files' names."""


class GrepTool(BuiltinTool):
    name = "grep"
    required = ("pattern",)
    properties: ClassVar[Properties] = {
        "pattern": {"type": "string"},
        "path": {"type": "string", "description": "Folder or file (default .)"},
        "glob": {"type": "string", "description": "*.py, src/**/*.{ts,tsx}; !x excludes"},
        "literal": {"type": "boolean", "description": "Plain text, no regex"},
        "ignore_case": {"type": "boolean"},
        "context": {"type": "integer", "description": "Lines around each match"},
        "mode": {
            "type": "string",
            "enum": ["content", "files", "count"],
            "description": "Default content",
        },
        "limit": {"type": "integer", "description": f"Default {LIMIT}"},
    }
    hidden: ClassVar[Properties] = {"hidden": {"type": "boolean"}}
    aliases: ClassVar[Aliases] = {
        "pattern": ("query", "regex", "search", "search_term", "text", "q"),
        "path": FOLDER_NAMES,
        "glob": ("include", "file_pattern", "include_pattern", "file_glob", "globs"),
        "literal": ("fixed_strings", "-F", "fixed"),
        "ignore_case": ("case_insensitive", "-i"),
        "context": ("context_lines", "-C", "-A", "-B"),
        "mode": ("output_mode",),
        "limit": ("head_limit", "max_results", "max_count", "-m"),
        "hidden": ("include_hidden", "dot"),
    }
    words: ClassVar[Mapping[str, Mapping[str, str]]] = {"mode": _MODES}
    ignored = frozenset({"-n", "-H", "-r", "line_number", "line_numbers", "explanation", "description"})

    @staticmethod
    def rewrite(arguments: dict[str, Any]) -> dict[str, Any]:
        """A type of files as a glob, and switches that say the opposite of ours."""
        kind = arguments.pop("type", None)
        if isinstance(kind, str) and kind and "glob" not in arguments:
            arguments["glob"] = f"*.{_ENDINGS.get(kind, kind)}"
        for switch, opposite in (("case_sensitive", "ignore_case"), ("is_regex", "literal"), ("isRegexp", "literal")):
            said = arguments.pop(switch, None)
            if said is False:
                arguments.setdefault(opposite, True)
        return arguments

    async def call(self, call_id: str, given: Arguments, context: ToolContext) -> ToolOutput:
        query = _query(given)
        mode = given.choice("mode", allowed=_MODES, default="content")
        limit = min(given.whole("limit", least=1) or LIMIT, MOST)
        start = start_of(given.optional_text("path"), context)
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
    glob_text = given.optional_text("glob")
    glob: Glob | None = compile_glob(glob_text) if glob_text else None
    return Query(
        pattern=given.text("pattern"),
        literal=given.flag("literal"),
        ignore_case=given.flag("ignore_case"),
        hidden=given.flag("hidden") or (glob is not None and glob.hidden),
        context=min(given.whole("context") or 0, 50),
        glob=glob,
    )


def _nothing(query: Query, start: Start) -> str:
    skipped = "Ignored files were" if query.hidden else "Ignored and hidden files were"
    return f"No match for {query.pattern!r} in {start.name}. {skipped} not searched."


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
