"""grep: a regular expression in the files below a folder, as two runs of ripgrep, which comes with its package.

The first run counts matches in all files in parallel. It yields exact totals and an order by path that does not
depend on rg's threads, at the cost of a few bytes per file. The second run searches only the files that will be
shown, and those whose folder has changed meanwhile (`tools/search.py` explains why). It receives open files, not
names.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

from msgspec import Struct

from retinue.core.permission import ToolEffect
from retinue.core.programs import prepare
from retinue.core.tool import ToolContext, ToolOutput, ok
from retinue.tools.base import FOLDER_NAMES, Aliases, Arguments, BuiltinTool, Properties, ToolError
from retinue.tools.processes import in_thread, own_variables, run_program
from retinue.tools.safe_dir import BY_DESCRIPTOR
from retinue.tools.search import Glob, Start, Unchanged, compile_glob, open_files, relative, start_of

MAX_SEARCH_SECONDS = 60.0


_PROGRAM = "rg.exe" if sys.platform == "win32" else "rg"

_program_path: Path | None = None


def find_ripgrep() -> Path | None:
    """Return the path of rg. It is looked for beside this Python, among its scripts, in the record of the package, and
    on PATH."""
    global _program_path
    if _program_path is None or not _program_path.exists():
        _program_path = next((path for path in _locations() if path.is_file() and os.access(path, os.X_OK)), None)
    return _program_path


def _locations() -> Iterator[Path]:
    yield Path(sys.executable).parent / _PROGRAM
    import sysconfig

    yield Path(sysconfig.get_path("scripts")) / _PROGRAM
    from importlib import metadata

    # A virtual environment on top of another one has the scripts elsewhere.
    with suppress(metadata.PackageNotFoundError):
        for file in metadata.files("ripgrep") or ():
            if file.name == _PROGRAM:
                yield Path(str(file.locate()))
    on_path = shutil.which(_PROGRAM)
    if on_path:
        yield Path(on_path)


async def ripgrep(
    arguments: list[str],
    cwd: Path,
    context: ToolContext,
    receive: Callable[[bytes], None],
    descriptors: Sequence[int] = (),
) -> int:
    """Run rg in `cwd`, without any configuration file, and return its exit code: 0 for matches, 1 for no match, 2 if
    some files could not be searched. `descriptors` are open files that it inherits. Raise ToolError if rg rejects the
    pattern, runs out of time or is not installed."""
    program = find_ripgrep()
    if program is None:
        raise ToolError(
            "ripgrep (rg) was not found, so searching does not work. "
            "Tell the user to run: pip install ripgrep. Until then use ls and read."
        )
    errors = bytearray()

    def split(stream: int, data: bytes) -> None:
        if stream == 1:
            receive(data)
        elif len(errors) < 4000:
            errors.extend(data)

    env = own_variables("PATH", "HOME", "XDG_CONFIG_HOME", "SYSTEMROOT")
    seconds = (
        MAX_SEARCH_SECONDS if context.tool_timeout is None else min(MAX_SEARCH_SECONDS, context.tool_timeout * 0.9)
    )
    ended = await run_program(
        prepare(
            [str(program), "--no-config", "--no-messages", "--color=never", *arguments],
            clearance="own",
            environment=env,
            cwd=cwd,
        ),
        receive=split,
        seconds=seconds,
        merge=False,
        alone=True,
        owner=context.run_id,
        descriptors=descriptors,
    )
    if ended.timed_out:
        raise ToolError(f"The search took longer than {seconds:g} s. Narrow it with path or glob.")
    message = errors.decode("utf-8", "replace").strip()
    if ended.code == 2 and message:
        raise ToolError(advice(message))
    # A signal, or a program that is not ripgrep.
    if ended.code not in (0, 1, 2):
        raise ToolError(f"ripgrep failed (exit {ended.code}). {message[:500]}")
    return ended.code


def hidden_flags(hidden: bool) -> list[str]:
    """Return the flags for hidden files. Folders of version control are always excluded."""
    if hidden:
        return ["--hidden", "--glob=!.git", "--glob=!.hg", "--glob=!.svn"]
    return []


def skipped_files(hidden: bool) -> str:
    """Return which files a search has skipped, as the subject of a sentence."""
    return "Ignored files were" if hidden else "Ignored and hidden files were"


def advice(message: str) -> str:
    """Return what rg said about a pattern, with the remedy."""
    text = message.removeprefix("rg: ")[:600]
    if "look-around" in text or "backreferences" in text:
        return f"{text}\nLook-around and backreferences are not supported. Search for a simpler pattern."
    if "regex" in text:
        return f"{text}\nTo search for the text as it is, set literal to true; otherwise escape special characters."
    return text


MAX_COLUMNS = 500
_ARGUMENT_BYTES = 100_000
_OPEN_FILES = 200
_DESCRIPTOR = "/dev/fd/{}"
_PRINTED = re.compile(rb"(?m)^/dev/fd/(\d+)(\0|: )")
_READ_BYTES = 4_000_000
"""Bytes of rg's output that are kept, far more than a result shows. Further output is dropped."""
_PLAIN_NAME = re.compile(r"[\w.*?+ -]+")
_LINE = re.compile(rb"(\d+)([:-])(.*)", re.DOTALL)


class GrepQuery(Struct, frozen=True):
    pattern: str
    literal: bool = False
    ignore_case: bool = False
    hidden: bool = False
    context: int = 0
    glob: Glob | None = None

    def flags(self) -> list[str]:
        multiline = "\n" in self.pattern or (not self.literal and r"\n" in self.pattern)
        switches = {
            "--fixed-strings": self.literal,
            "--ignore-case": self.ignore_case,
            "--multiline": multiline,
        }
        return [f"--regexp={self.pattern}", *(flag for flag, is_on in switches.items() if is_on)]


class Counts(Struct, frozen=True):
    """The number of matching lines in each file, ordered by path. Paths are relative to the folder of the search."""

    files: Mapping[str, int]
    withheld: int = 0
    """The number of matching files that a rule hides from the run."""

    @property
    def total(self) -> int:
        return sum(self.files.values())


async def count_matches(query: GrepQuery, start: Start, context: ToolContext) -> Counts:
    if "\0" in query.pattern:
        raise ToolError("The pattern holds a NUL character; text files have none.")
    printed = bytearray()
    unchanged = Unchanged(start)
    flags = [*hidden_flags(query.hidden), *_type_flags(query.glob), *query.flags()]
    await ripgrep(
        ["--count", "--null", "--with-filename", *flags, "--", start.target], start.folder, context, printed.extend
    )
    counts = await in_thread(lambda: _counts(bytes(printed), query.glob, start))
    if BY_DESCRIPTOR:
        counts = await _count_again(query, start, context, counts, unchanged)
    return await in_thread(lambda: without_withheld(counts, start, context))


async def _count_again(
    query: GrepQuery, start: Start, context: ToolContext, counts: Counts, unchanged: Unchanged
) -> Counts:
    """Count matches again in files whose folder changed during the search."""
    doubtful = await in_thread(lambda: [path for path in counts.files if not unchanged.holds(path)])
    if not doubtful:
        return counts
    counted: dict[str, int] = {}
    for at in range(0, len(doubtful), _OPEN_FILES):
        printed = bytearray()
        with open_files(doubtful[at : at + _OPEN_FILES], start) as opened:
            shape = ["--count", "--null", "--with-filename"]
            await _search_opened([*shape, *query.flags()], opened, start, context, printed.extend)
            counted |= _counts(_name_descriptors(bytes(printed), opened), None, start).files
    sure = {path: count for path, count in counts.files.items() if path not in frozenset(doubtful)}
    return Counts(dict(sorted((sure | counted).items())))


async def _search_opened(
    arguments: list[str],
    opened: Mapping[int, str],
    start: Start,
    context: ToolContext,
    receive: Callable[[bytes], None],
) -> None:
    if opened:
        names = list(map(_DESCRIPTOR.format, opened))
        await ripgrep([*arguments, "--", *names], start.folder, context, receive, tuple(opened))


def _name_descriptors(printed: bytes, opened: Mapping[int, str]) -> bytes:
    """Return the output of rg with each descriptor replaced by the name of its file."""

    def name(match: re.Match[bytes]) -> bytes:
        path = opened.get(int(match[1]))
        if path is None:
            return match[0]
        return b"./" + os.fsencode(path) + match[2]

    return _PRINTED.sub(name, printed)


def without_withheld(counts: Counts, start: Start, context: ToolContext) -> Counts:
    """Return the counts without files that rules hide from the run."""
    withheld = context.withheld()
    if withheld is None:
        return counts
    readable = {path: count for path, count in counts.files.items() if not withheld(os.path.join(start.folder, path))}  # noqa: PTH118 - many paths
    return Counts(readable, len(counts.files) - len(readable))


def _counts(printed: bytes, glob: Glob | None, start: Start) -> Counts:
    files: dict[str, int] = {}
    path, *pieces = printed.split(b"\0")
    for piece in pieces:
        count, _, following = piece.partition(b"\n")
        name = relative(path)
        if glob is None or start.accepts(name, glob):
            files[name] = int(count)
        path = following
    return Counts(dict(sorted(files.items())))


async def matching_lines(
    query: GrepQuery, start: Start, context: ToolContext, counts: Counts, limit: int
) -> tuple[list[str], int]:
    """Return the lines that show the first `limit` matches in path order, and the number of matches among them."""
    chosen: list[str] = []
    expected = size = 0
    for path in counts.files:
        size += len(os.fsencode(path)) + 3
        if expected >= limit or len(chosen) == _OPEN_FILES or (chosen and size > _ARGUMENT_BYTES):
            break
        chosen.append(path)
        expected += counts.files[path]
    printed = bytearray()

    def receive(data: bytes) -> None:
        # Lines are bounded in length by rg, but not in number.
        if len(printed) < _READ_BYTES:
            printed.extend(data)

    shape = ["--line-number", "--no-heading", "--null", "--with-filename", "--threads=1"]
    bounds = [
        f"--max-columns={MAX_COLUMNS}",
        "--max-columns-preview",
        f"--max-count={limit}",
        f"--context={query.context}",
    ]
    flags = [*shape, *bounds, *query.flags()]
    # Windows has no names for open files.
    if not BY_DESCRIPTOR:
        await ripgrep([*flags, "--", *(f"./{path}" for path in chosen)], start.folder, context, receive)
        return _parse(bytes(printed), start, limit)
    with open_files(chosen, start) as opened:
        await _search_opened(flags, opened, start, context, receive)
    return _parse(_name_descriptors(bytes(printed), opened), start, limit)


def _parse(printed: bytes, start: Start, limit: int) -> tuple[list[str], int]:
    lines: list[str] = []
    matches = 0
    for raw in printed.split(b"\n"):
        path, zero, numbered = raw.partition(b"\0")
        parsed = _LINE.fullmatch(numbered) if zero else None
        if parsed is None:
            if raw == b"--":
                lines.append("--")
            elif b"binary file matches" in raw:
                lines.append(f"{start.show(relative(raw.partition(b': ')[0]))}: binary file matches")
            continue
        number, mark, text = parsed.groups()
        if mark == b":":
            if matches == limit:
                break
            matches += 1
        separator = mark.decode()
        shown = text.decode("utf-8", "replace").rstrip("\r").replace("\0", "\ufffd")
        lines.append(f"{start.show(relative(path))}{separator}{int(number)}{separator}{shown}")
    # A separator without a match behind it was cut off at the limit.
    while lines and lines[-1] == "--":
        lines.pop()
    return lines, matches


def _type_flags(glob: Glob | None) -> list[str]:
    """Return flags with which rg skips files by name. Its --glob would also search ignored files, so the names become a
    file type instead. The exact check is made on the paths that rg prints."""
    if glob is None or not glob.names or not all(map(_PLAIN_NAME.fullmatch, glob.names)):
        return []
    definitions = [f"--type-add=wanted:{_any_case(name)}" for name in glob.names]
    return [*definitions, "--type=wanted"]


def _any_case(name: str) -> str:
    return re.sub("[A-Za-z]", lambda letter: f"[{letter[0].lower()}{letter[0].upper()}]", name)


DEFAULT_MATCHES = 100
MAX_MATCHES = 2000
MAX_SHOWN_CHARACTERS = 30_000

_OUTPUT_MODES = {
    **dict.fromkeys(("content", "lines", "matches"), "content"),
    **dict.fromkeys(("files", "files_with_matches", "filenames", "paths"), "files"),
    **dict.fromkeys(("count", "counts"), "count"),
}
_FILE_ENDINGS = {"python": "py", "rust": "rs", "markdown": "md", "js": "{js,jsx,mjs,cjs}", "ts": "{ts,tsx}"}
"""File endings of ripgrep's types, for types whose name is not the file ending."""


class GrepTool(BuiltinTool):
    name = "grep"
    required = ("pattern",)
    properties: ClassVar[Properties] = {
        "pattern": {"type": "string"},
        "path": {"type": "string", "description": "Folder or file (default .)"},
        "glob": {"type": "string", "description": "*.py, src/**/*.{ts,tsx}; !x excludes"},
        "literal": {"type": "boolean", "description": "No regex"},
        "ignore_case": {"type": "boolean"},
        "context": {"type": "integer", "description": "Lines around each match"},
        "mode": {"type": "string", "enum": ["content", "files", "count"], "description": "Default content"},
        "limit": {"type": "integer", "description": f"Default {DEFAULT_MATCHES}"},
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
    words: ClassVar[Mapping[str, Mapping[str, str]]] = {"mode": _OUTPUT_MODES}
    ignored = frozenset({"-n", "-H", "-r", "line_number", "line_numbers", "explanation", "description"})

    @staticmethod
    def rewrite(arguments: dict[str, Any]) -> dict[str, Any]:
        """Accept a file type as a glob, and switches with the opposite meaning of ours."""
        kind = arguments.pop("type", None)
        if isinstance(kind, str) and kind and "glob" not in arguments:
            arguments["glob"] = f"*.{_FILE_ENDINGS.get(kind, kind)}"
        for switch, opposite in (("case_sensitive", "ignore_case"), ("is_regex", "literal"), ("isRegexp", "literal")):
            if arguments.pop(switch, None) is False:
                arguments.setdefault(opposite, True)
        return arguments

    async def call(self, call_id: str, arguments: Arguments, context: ToolContext) -> ToolOutput:
        query = _query(arguments)
        mode = arguments.choice("mode", allowed=_OUTPUT_MODES, default="content")
        limit = min(arguments.whole_number("limit", least=1) or DEFAULT_MATCHES, MAX_MATCHES)
        start = start_of(arguments.optional_text("path"), context)
        counts = await count_matches(query, start, context)
        effect = ToolEffect(reads=(str(start.confined.path),))
        left_out = ""
        if counts.withheld:
            left_out = f"\n[{counts.withheld} more not shown: a rule keeps their content from you]"
        if not counts.files:
            return ok(_nothing(query, start) + left_out, effect)
        if mode == "files":
            return ok(_listing(list(map(start.show, counts.files)), limit, counts) + left_out, effect)
        if mode == "count":
            lines = [f"{start.show(path)}:{counts.files[path]}" for path in counts.files]
            return ok(f"{_listing(lines, limit, counts)}\n[{counts.total:,} matching lines]{left_out}", effect)
        lines, matches = await matching_lines(query, start, context, counts, limit)
        return ok(_content(lines, matches, counts) + left_out, effect)


def _query(arguments: Arguments) -> GrepQuery:
    glob_text = arguments.optional_text("glob")
    glob = compile_glob(glob_text) if glob_text else None
    return GrepQuery(
        pattern=arguments.text("pattern"),
        literal=arguments.flag("literal"),
        ignore_case=arguments.flag("ignore_case"),
        hidden=arguments.flag("hidden") or (glob is not None and glob.hidden),
        context=min(arguments.whole_number("context") or 0, 50),
        glob=glob,
    )


def _nothing(query: GrepQuery, start: Start) -> str:
    return f"No match for {query.pattern!r} in {start.name}. {skipped_files(query.hidden)} not searched."


def _listing(lines: list[str], limit: int, counts: Counts) -> str:
    if len(lines) <= limit:
        return "\n".join(lines)
    return "\n".join([*lines[:limit], f"[{limit} of {len(counts.files):,} files; {_NARROW_ADVICE}]"])


_NARROW_ADVICE = "narrow with path, glob or pattern, or raise limit"


def _content(lines: list[str], matches: int, counts: Counts) -> str:
    fitting: list[str] = []
    room = MAX_SHOWN_CHARACTERS
    for line in lines:
        room -= len(line) + 1
        if room < 0:
            break
        fitting.append(line)
    if matches >= counts.total and len(fitting) == len(lines):
        return "\n".join(fitting)
    seen = f"first {len(fitting):,} lines" if len(fitting) < len(lines) else f"first {matches:,}"
    total = f"{counts.total:,} matching lines in {len(counts.files):,} files"
    return "\n".join([*fitting, f"[{seen} of {total}; {_NARROW_ADVICE}]"])
