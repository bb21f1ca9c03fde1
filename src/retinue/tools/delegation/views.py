"""The texts about a run for the model that started it, in one module so that all tools describe runs alike.

Lines of the harness come first, and the agent's output is in a frame. No text that an agent chose, from its
description to an error text, can add a line.

A peek shows a few lines of an agent's output: filtered, numbered and bounded. Line numbers refer to the full source,
so that the next peek can continue after this one. The pattern comes from a model, so ripgrep searches for it in
linear time: a backtracking matcher could take forever.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from retinue.core.delegation import Refusal, Status
from retinue.core.format import context_percent, format_cost, format_count, format_duration, session_tokens
from retinue.core.outcome import CUT_OFF
from retinue.core.run_state import ActiveRun
from retinue.core.tool import ToolContext
from retinue.tools.base import Arguments, ToolError
from retinue.tools.delegation.base import MAX_PARENT_CHARACTERS
from retinue.tools.delegation.frame import framed, one_line
from retinue.tools.grep import ripgrep
from retinue.tools.processes import in_thread

NO_OUTPUT = "No output."
_MAX_LISTED_AGENTS = 10

_STATUS_NOTES: dict[Status, str] = {
    "steered": "it wrapped up at its turn limit, so the work may be unfinished",
    "aborted": "it went over its turn limit and was cut off, so the work is probably unfinished",
    "stopped": "it was stopped before it was done, so the work is unfinished",
    "timeout": "it ran out of time, so the work is unfinished",
    "over-budget": "it ran out of budget, so the work is unfinished",
    "refused": "it was not begun, because no language model is set up",
    "interrupted": "its process ended while it worked; resume takes it up again",
}
_RETRY_FIELDS = {
    **dict.fromkeys(("UNKNOWN_MODEL", "MODEL_NOT_IN_SCOPE"), "model"),
    **dict.fromkeys(("UNKNOWN_AGENT", "AGENT_DISABLED", "SUBAGENT_DISABLED"), "subagent_type"),
}
_NOT_FOUND = frozenset({"UNKNOWN_RUN", "NOT_FOUND", "AGENT_NOT_FOUND"})


def status_note(child: ActiveRun) -> str:
    """Return a note about how the run ended; empty for a plain success."""
    if child.outcome is not None and child.outcome.truncated:
        return f"its answer was {CUT_OFF}, so the end is missing; resume it to have the rest"
    if child.outcome is not None and child.outcome.stopped_by == "person":
        return "the user stopped it, so the work is unfinished; leave it, and do not resume or repeat it unasked"
    return _STATUS_NOTES.get(child.status, "")


def shown_name(child: ActiveRun) -> str:
    return one_line(child.display_name or child.agent, 128)


def error_text(child: ActiveRun) -> str:
    """Return why it failed, on one line; never empty."""
    return one_line(child.failure_text, 1_000) or status_note(child) or "the run ended without saying why"


def partial_text(child: ActiveRun) -> str:
    """Return the output of a failed run, or "" if the output is only its error."""
    text = child.result.strip()
    return "" if text == child.failure_text.strip() else text


def stats(child: ActiveRun, *, show_cost: bool = False) -> str:
    """Return `3 tool uses, 33.8k tokens, ~$0.0042`."""
    parts = [count_noun(child.tool_uses, "tool use"), _tokens(child)]
    if show_cost:
        parts.append(format_cost(child.usage.cost_usd))
    return ", ".join(filter(None, parts))


def count_noun(count: int, noun: str) -> str:
    """Return `1 tool use` or `3 tool uses`."""
    return f"1 {noun}" if count == 1 else f"{count} {noun}s"


def identity(child: ActiveRun) -> list[str]:
    """Return the lines that identify the run to its parent."""
    lines = [f"Agent ID: {child.id}"]
    if child.name:
        lines.append(f"Name: {one_line(child.name, 128)}")
    lines.append(f"Type: {one_line(child.agent, 128)}")
    if child.description:
        lines.append(f"Description: {one_line(child.description)}")
    if child.transcript:
        lines.append(f"Output file: {child.transcript}")
    return lines


def queue_line(child: ActiveRun, most: int) -> str:
    """Return the queue position of a run that has not begun. `most` is the limit of this process, which is shown only
    if the run waits for it."""
    return "Position: queued" if child.queue_position is None else f"Position: queued (max {most} concurrent)"


def header(child: ActiveRun, *, show_cost: bool = False) -> list[str]:
    """Return the first lines of `get_subagent_result`."""
    note = status_note(child)
    status: str = child.status
    if note:
        status += f" ({note})"
    agent = one_line(child.agent, 128)
    fields = [f"Type: {agent}", f"Status: {status}", f"Tool uses: {child.tool_uses}", _tokens(child)]
    if show_cost and format_cost(child.usage.cost_usd):
        fields.append(f"Cost: {format_cost(child.usage.cost_usd)}")
    percent = context_percent(child.context_tokens, child.window)
    if percent is not None:
        fields.append(f"Context: {round(percent)}%")
    if child.compactions:
        fields.append(f"Compactions: {child.compactions}")
    fields.append(f"Duration: {format_duration(child.duration_ms)}")
    lines = [f"Agent: {child.id}", " | ".join(filter(None, fields))]
    if child.description:
        lines.append(f"Description: {one_line(child.description)}")
    if child.transcript:
        lines.append(f"Output file: {child.transcript}")
    return [*lines, *notes(child.notes)]


def state(child: ActiveRun) -> str:
    """Return `33.8k tokens · 3 tool uses · context 62% full · 2 compactions`."""
    parts = [_tokens(child), count_noun(child.tool_uses, "tool use")]
    percent = context_percent(child.context_tokens, child.window)
    if percent is not None:
        parts.append(f"context {round(percent)}% full")
    if child.compactions:
        parts.append(count_noun(child.compactions, "compaction"))
    return " · ".join(filter(None, parts))


def notes(warnings: Iterable[str]) -> list[str]:
    """Return a note for each distinct warning."""
    return [f"Note: {one_line(note, 1_000)}" for note in dict.fromkeys(warnings) if note]


def list_line(child: ActiveRun) -> str:
    """Return one run as one line of a list."""
    line = child.id
    if child.name:
        line += f" @{one_line(child.name, 128)}"
    line += f" [{child.status}] {shown_name(child)}: {one_line(child.description, 100) or '(no description)'}"
    if child.live:
        doing = one_line(child.last_tool, 80)
        return f"{line} - {doing}" if doing else line
    line += f" ({stats(child)}, {format_duration(child.duration_ms)}"
    if not child.consumed:
        line += ", not read yet"
    line += ")"
    if not child.succeeded:
        line += f" - {one_line(error_text(child), 160)}"
    return line


def refusal(refused: Refusal, children: Sequence[ActiveRun] = ()) -> str:
    """Return why nothing happened and what to do. A stored call says how to repeat it; an unknown id
    comes with the ids there are, each once."""
    text = refused.message.strip() or f"Refused ({refused.code})."
    if refused.retry:
        field = _RETRY_FIELDS.get(refused.code)
        example = f'{{"retry": "{refused.retry}"}} and what should change'
        if field:
            example = f'{{"retry": "{refused.retry}", "{field}": "..."}}'
        text += f"\nThe call is kept for 10 minutes: call Agent again with only {example}."
    if refused.code in _NOT_FOUND:
        others = [child for child in children if child.id not in text]
        listed = list(map(list_line, sorted(others, key=lambda child: not child.live)[:_MAX_LISTED_AGENTS]))
        if listed:
            text += "\n" + "\n".join(["Agents you started:", *listed])
        elif not children:
            text += "\nYou have started no agents."
    return text


def _tokens(child: ActiveRun) -> str:
    count = session_tokens(child.usage)
    return f"{format_count(count)} tokens" if count else ""


LINES = 20
MAX_PEEK_LINES = 200
MAX_PEEK_LINE_CHARACTERS = 4_000


class Peek(Struct, frozen=True):
    """The last `lines` lines or, with `after`, those behind that number; of those that match."""

    lines: int = LINES
    regex: str | None = None
    after: int | None = None


def read_peek(arguments: Arguments) -> Peek | None:
    """Return the `peek` of a call; `true` means the defaults."""
    value = arguments.find("peek")
    if isinstance(value, str) and value.strip().startswith("{"):
        try:
            value = json.loads(value)
        except ValueError:
            raise arguments.wrong("peek", "an object", value) from None
    if value is None or value is False or value == "":
        return None
    if value is True:
        return Peek()
    if not isinstance(value, Mapping):
        raise arguments.wrong("peek", "an object with lines, regex or after", value)
    inner = Arguments("peek", value)
    lines = inner.whole_number("lines", "limit") or LINES
    return Peek(min(lines, MAX_PEEK_LINES), inner.optional_text("regex", "pattern"), inner.whole_number("after"))


async def peek_text(peek: Peek, source: Sequence[str], kind: str, context: ToolContext) -> str:
    """Return the lines under a heading that says which they are. `kind` names the source."""
    numbers, matching = await _matches(peek, source, context)
    if peek.after is not None:
        matched = [number for number in numbers if number > peek.after]
        chosen, which = matched[:MAX_PEEK_LINES], f"after line number {peek.after}"
    else:
        chosen = matched = numbers[-peek.lines :]
        which = f"last {peek.lines} lines"
    shown = _fitting([(number, source[number - 1]) for number in chosen], newest=peek.after is None)
    bounds = _bounds(len(shown), len(chosen), len(matched))
    heading = (
        f"Showing {count_noun(len(shown), 'line')}, {which}{matching}{bounds}, "
        f"of {len(source)} total ({kind}). Line numbers index the full source."
    )
    parts = [heading, "(no such lines)"]
    if shown:
        parts = [heading, framed("\n".join(f"[{number}] {line}" for number, line in shown))]
    if peek.after is not None and shown and shown[-1][0] != matched[-1]:
        parts.append(f"Use peek.after: {shown[-1][0]} to continue.")
    return "\n".join(parts)


async def _matches(peek: Peek, source: Sequence[str], context: ToolContext) -> tuple[list[int], str]:
    """Return the numbers of the matching lines, and a text that describes the filter."""
    if peek.regex is None:
        return list(range(1, len(source) + 1)), ""
    shown = one_line(peek.regex, 120)
    try:
        return await _search(peek.regex, source, context), f", matching /{shown}/"
    # A model that meant plain text gets its lines instead of an error.
    except (ToolError, OSError, ValueError):
        literal = peek.regex
        numbers = [number for number, line in enumerate(source, 1) if literal in line]
        return numbers, f', containing "{shown}" (it cannot be used as a regular expression)'


async def _search(pattern: str, source: Sequence[str], context: ToolContext) -> list[int]:
    if not source:
        return []
    # ripgrep takes its pattern as an argument, which the system would cut there.
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
    # A line can match several times, but its number is returned once.
    numbers: dict[int, None] = {}
    for line in filter(None, printed.splitlines()):
        numbers[int(line.partition(b":")[0])] = None
    return list(numbers)


def _fitting(lines: list[tuple[int, str]], *, newest: bool) -> list[tuple[int, str]]:
    """Return at least one line and as many as fit the limit of characters: the last ones if `newest`, else the
    first."""
    fitting: list[tuple[int, str]] = []
    room = MAX_PARENT_CHARACTERS
    if newest:
        lines = lines[::-1]
    for number, line in lines:
        if len(line) > MAX_PEEK_LINE_CHARACTERS:
            line = f"{line[:MAX_PEEK_LINE_CHARACTERS]}… [{len(line) - MAX_PEEK_LINE_CHARACTERS:,} more characters]"
        room -= len(line) + 10
        if room < 0 and fitting:
            break
        fitting.append((number, line))
    return fitting[::-1] if newest else fitting


def _bounds(shown: int, chosen: int, matching: int) -> str:
    if shown < chosen:
        return f", limited to {MAX_PARENT_CHARACTERS} characters"
    if chosen < matching:
        return f", limited to {MAX_PEEK_LINES} lines"
    return ""
