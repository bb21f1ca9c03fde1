"""A few lines of what an agent has said, without its whole output: filtered, numbered, bounded.

Numbers count in the full source, so that the next peek can go on where this one ended. The
pattern comes from a model: ripgrep searches in linear time, where a backtracking matcher
could be kept busy for ever by one bad expression.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence

from retinue.core.lean import dataclass
from retinue.core.tool import ToolContext
from retinue.tools.arguments import Arguments
from retinue.tools.delegation.bounds import MOST
from retinue.tools.delegation.frame import framed, one_line
from retinue.tools.errors import ToolError
from retinue.tools.ripgrep import ripgrep
from retinue.tools.threads import in_thread

LINES = 20
MOST_LINES = 200
LONGEST_LINE = 4_000


@dataclass(frozen=True, slots=True)
class Peek:
    """The last `lines` lines or, with `after`, those behind that number; of those that match."""

    lines: int = LINES
    regex: str | None = None
    after: int | None = None


def read_peek(given: Arguments) -> Peek | None:
    """The `peek` of a call; `true` means the defaults."""
    value = given.find("peek")
    if isinstance(value, str) and value.strip().startswith("{"):
        try:
            value = json.loads(value)
        except ValueError:
            raise given.wrong("peek", "an object", value) from None
    if value is None or value is False or value == "":
        return None
    if value is True:
        return Peek()
    if not isinstance(value, Mapping):
        raise given.wrong("peek", "an object with lines, regex or after", value)
    inner = Arguments("peek", value)
    lines = inner.whole("lines", "limit") or LINES
    return Peek(min(lines, MOST_LINES), inner.optional_text("regex", "pattern"), inner.whole("after"))


async def peek_text(peek: Peek, source: Sequence[str], kind: str, context: ToolContext) -> str:
    """The lines under a heading that says which they are. `kind` names the source."""
    numbers, matching = await _matches(peek, source, context)
    most = MOST_LINES if peek.after is not None else peek.lines
    if peek.after is not None:
        wanted = [number for number in numbers if number > peek.after]
        chosen, which = wanted[:most], f"after line number {peek.after}"
    else:
        wanted = numbers[-most:]
        chosen, which = wanted, f"last {most} lines"
    shown = _fitting([(number, source[number - 1]) for number in chosen], newest=peek.after is None)
    bounds = _bounds(len(shown), len(chosen), len(wanted))
    heading = (
        f"Showing {len(shown)} line{'' if len(shown) == 1 else 's'}, {which}{matching}{bounds}, "
        f"of {len(source)} total ({kind}). Line numbers index the full source."
    )
    parts = [heading, framed("\n".join(f"[{number}] {line}" for number, line in shown)) if shown else "(no such lines)"]
    if peek.after is not None and shown and shown[-1][0] != wanted[-1]:
        parts.append(f"Use peek.after: {shown[-1][0]} to continue.")
    return "\n".join(parts)


async def _matches(peek: Peek, source: Sequence[str], context: ToolContext) -> tuple[list[int], str]:
    """The numbers of the matching lines, and how to say what was matched."""
    if peek.regex is None:
        return list(range(1, len(source) + 1)), ""
    shown = one_line(peek.regex, 120)
    try:
        return await _search(peek.regex, source, context), f", matching /{shown}/"
    except (ToolError, OSError, ValueError):
        literal = peek.regex
        numbers = [number for number, line in enumerate(source, 1) if literal in line]
        return numbers, f', containing "{shown}" (it cannot be used as a regular expression)'


async def _search(pattern: str, source: Sequence[str], context: ToolContext) -> list[int]:
    if not source:
        return []
    if "\0" in pattern:
        raise ToolError("no line holds a NUL character")
    path = context.outputs / f"peek-{secrets.token_hex(6)}.txt"
    text = "\n".join(line.replace("\n", " ").replace("\0", " ") for line in source) + "\n"

    def store() -> None:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        path.write_bytes(text.encode("utf-8", "replace"))

    printed = bytearray()
    try:
        await in_thread(store)
        arguments = ["--line-number", "--no-filename", "--text", "--only-matching", "--replace=", f"--regexp={pattern}"]
        await ripgrep([*arguments, "--", path.name], path.parent, context, printed.extend)
    finally:
        path.unlink(missing_ok=True)
    found = dict.fromkeys(int(line.partition(b":")[0]) for line in printed.splitlines() if line)
    return list(found)


def _fitting(lines: list[tuple[int, str]], *, newest: bool) -> list[tuple[int, str]]:
    """As many as fit the bound on characters, from the end that matters; at least one."""
    kept: list[tuple[int, str]] = []
    room = MOST
    for number, line in reversed(lines) if newest else lines:
        if len(line) > LONGEST_LINE:
            line = f"{line[:LONGEST_LINE]}… [{len(line) - LONGEST_LINE:,} more characters]"
        room -= len(line) + 10
        if room < 0 and kept:
            break
        kept.append((number, line))
    return kept[::-1] if newest else kept


def _bounds(shown: int, chosen: int, wanted: int) -> str:
    if shown < chosen:
        return f", limited to {MOST} characters"
    return f", limited to {MOST_LINES} lines" if chosen < wanted else ""
