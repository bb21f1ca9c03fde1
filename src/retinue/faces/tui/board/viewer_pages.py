"""The transcript of a run as lines. What is drawn once stays drawn until the width changes, so
that following a long run costs only what is new.

The other views of a run: the prompt it was given, what it really did, its output, its facts.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rich.cells import cell_len
from rich.text import Text

from retinue.capabilities.audit.report import CallEffect, TurnEffects, effects_of
from retinue.core.format import format_cost, format_duration, format_tokens
from retinue.core.messages import ToolCall
from retinue.faces.tui.board.cards import Window
from retinue.faces.tui.board.marks import STYLES
from retinue.faces.tui.board.story import Entry, RunStory
from retinue.faces.tui.board.text import Row, diff_of, fit, one_line, wrap

RESULT_CHARACTERS = 500
MOST_CHARACTERS = 40_000
"""Of one block: more is in the log and in the transcript file."""
ARGUMENT_CHARACTERS = 300
SLICE_ENTRIES = 50
SLICE_CHARACTERS = 20_000
"""What is drawn in one go: a few milliseconds, so that keys are heard meanwhile."""
RULE = "───"
_SUBJECT = ("file_path", "path", "command", "pattern", "query", "url", "description", "task", "prompt")


@dataclass(slots=True)
class Transcript:
    """Lines of one story at one width."""

    width: int = 0
    themed: tuple[str, ...] = ()
    lines: list[Row] = field(default_factory=list)
    drawn: int = 0
    """How many entries are among the lines."""
    behind: bool = False
    """Whether there are entries that are not: a long run is drawn slice by slice."""

    def update(self, story: RunStory, width: int) -> list[Row]:
        """The lines so far, with those of an unfinished answer at the end. They are not to be
        changed."""
        themed = tuple(STYLES.values())
        if width != self.width or themed != self.themed or self.drawn > len(story.entries):
            self.width, self.themed, self.lines, self.drawn = width, themed, [], 0
        left = SLICE_CHARACTERS
        for entry in story.entries[self.drawn : self.drawn + SLICE_ENTRIES]:
            if left <= 0:
                break
            self.lines += entry_lines(entry, width, first=not self.lines)
            self.drawn += 1
            left -= len(entry.text)
        self.behind = self.drawn < len(story.entries)
        return self.lines + ([] if self.behind else _live(story, width, first=not self.lines))


def entry_lines(entry: Entry, width: int, *, first: bool = False) -> list[Row]:
    """A rule, who it is, and what they said."""
    lines: list[Row] = [] if first else [(RULE, STYLES["dim"])]
    match entry.kind:
        case "user":
            return [*lines, _title("User", entry.note, "accent"), *_text(entry.text, width)]
        case "assistant":
            return [*lines, _title("Assistant", entry.note, "success"), *_text(entry.text, width)]
        case "thinking":
            return [*lines, _title("Thinking", "", "dim"), *_text(entry.text, width, "dim")]
        case "tool":
            return [*lines, *_tool_call(entry.call, width)] if entry.call is not None else lines
        case "result":
            style = "error" if entry.bad else "dim"
            return [*lines, _title("Result", entry.note, style), *_result(entry, width)]
        case "notice":
            return _notice(entry, width)


def _notice(entry: Entry, width: int) -> list[Row]:
    style = STYLES["error" if entry.bad else "warning"]
    return [(("  " if at else "! ") + line, style) for at, line in enumerate(wrap(entry.text, width - 2))]


def _live(story: RunStory, width: int, *, first: bool) -> list[Row]:
    """What it says or does just now."""
    if not story.card.at_work:
        return []
    lines: list[Row] = []
    if story.saying.strip():
        lines = entry_lines(Entry("assistant", story.saying.strip("\n")), width, first=first)
    elif story.thinking.strip():
        lines = entry_lines(Entry("thinking", story.thinking.strip()), width, first=first)
    for text in story.progress.values():
        newest = next((line for line in reversed(text.splitlines()) if line.strip()), "")
        if newest:
            lines.append(Text(f"  {fit(one_line(newest), width - 2)}", STYLES["dim"]))
    return [*lines, Text(f"▍ {fit(one_line(story.card.activity()), width - 2)}", STYLES["accent"])]


def _title(word: str, note: str, style: str) -> Text:
    line = Text.assemble((f"[{word}]", f"bold {STYLES[style]}"))
    return line.append(f" {one_line(note)}", STYLES["dim"]) if note else line


def _text(text: str, width: int, style: str = "") -> list[Row]:
    more = len(text) - MOST_CHARACTERS
    lines: list[Row] = [(line, STYLES[style]) for line in wrap(text[:MOST_CHARACTERS], width)]
    return [*lines, (f"… {more:,} more characters", STYLES["dim"])] if more > 0 else lines


def _result(entry: Entry, width: int) -> list[Row]:
    text = entry.text.strip("\n")
    style = STYLES["error" if entry.bad else "dim"]
    lines: list[Row] = [(line, style) for line in wrap(text[:RESULT_CHARACTERS], width)]
    more = len(text) - RESULT_CHARACTERS
    return [*lines, (f"… {more:,} more characters", STYLES["dim"])] if more > 0 else lines


def _tool_call(call: ToolCall, width: int) -> list[Row]:
    line = Text.assemble((f"[Tool: {one_line(call.name)}]", f"bold {STYLES['accent']}"))
    if call.broken is not None:
        return [line, *((each, STYLES["error"]) for each in wrap(call.broken[:ARGUMENT_CHARACTERS], width))]
    subject = next((key for key in _SUBJECT if isinstance(call.arguments.get(key), str)), None)
    if subject is not None:
        line.append(f" {one_line(call.arguments[subject][:ARGUMENT_CHARACTERS])}")
    changes = diff_of(call)
    if changes is not None:
        return [line, *_diff(changes, width)]
    rest = {key: value for key, value in call.arguments.items() if key != subject}
    return [line, *((each, STYLES["dim"]) for key in rest for each in wrap(_argument(key, rest[key]), width))]


def _diff(changes: Text, width: int) -> list[Text]:
    lines = []
    for line in changes.split("\n"):
        style = next((span.style for span in line.spans), "")
        lines += [Text(piece, style) for piece in wrap(line.plain, width)]
    return lines


def _argument(key: str, value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    short = text if len(text) <= ARGUMENT_CHARACTERS else text[:ARGUMENT_CHARACTERS] + "…"
    return f"{key}: {short}"


_SIGNS = {"created": "+", "changed": "~", "deleted": "-", "unchanged": "="}
_MOST_READS = 10
LABEL = 12


def prompt_lines(story: RunStory, width: int) -> list[Text]:
    """The task, then the instructions of its file. What the harness adds to every run (folder,
    date, tools) is not repeated here."""
    first = story.created
    if first is None:
        return [_dim("Not known yet.")]
    prompt = str(first.spec.get("prompt") or "")
    how = "added to the main prompt" if first.spec.get("prompt_mode") == "append" else "its whole prompt"
    about = f"{len(prompt):,} characters, {how}" if prompt.strip() else "none"
    lines = [_head("Task", f"{len(first.task):,} characters"), *_plain(first.task, width)]
    return [*lines, Text(), _head("Instructions", about), *_plain(prompt, width)]


def output_lines(story: RunStory, width: int) -> list[Text]:
    """The result; while there is none, what it says."""
    outcome = story.card.outcome
    if outcome is None:
        said = story.saying or next((each.text for each in reversed(story.entries) if each.kind == "assistant"), "")
        head = _head("So far", "the run has not ended" if story.card.live else "the run was interrupted")
        return [head, *_plain(said, width)] if said else [head]
    lines = [_head("Result", "partial: it did not succeed" if outcome.partial or not outcome.ok else "")]
    lines += _plain(outcome.text, width) if outcome.text.strip() else [_dim("No output.")]
    if outcome.value is not None:
        shown = json.dumps(outcome.value, ensure_ascii=False, indent=2, default=str)
        lines += [Text(), _head("Value", "as its schema asks"), *_plain(shown, width)]
    if outcome.failure is not None:
        lines += [Text(), _head("Why", outcome.failure.kind)]
        lines += _plain(f"{outcome.failure.message} {outcome.failure.remedy}".strip(), width, "error")
    return lines


def effects_lines(story: RunStory, width: int) -> list[Text]:
    """What its tools read, wrote, ran and reached, turn by turn, and who let them."""
    cwd = story.started.cwd if story.started else story.created.cwd if story.created else ""
    effects = effects_of(story.effects, story.card.id, story.card.agent, live=story.card.live)
    lines: list[Text] = []
    for turn in effects.turns:
        lines += [_head(f"Turn {turn.turn}", ""), *_turn(turn, cwd, width)]
    for undone in effects.undone:
        count = len(undone.restored) + len(undone.removed)
        lines += _plain(f"undone by {undone.by}: {count} files put back, {len(undone.kept)} kept", width, "warning")
    return lines or [_dim("No tool calls.")]


def _turn(turn: TurnEffects, cwd: str, width: int) -> list[Text]:
    reads = [path for call in turn.calls for path in call.reads]
    lines: list[Text] = []
    if reads:
        more = f" and {len(reads) - _MOST_READS} more" if len(reads) > _MOST_READS else ""
        lines += _fact("read", ", ".join(_short(path, cwd) for path in reads[:_MOST_READS]) + more, width)
    for call in turn.calls:
        lines += _call(call, cwd, width)
    return lines


def _call(call: CallEffect, cwd: str, width: int) -> list[Text]:
    what = one_line(call.command or "")
    lines: list[Text] = []
    match call.status:
        case "denied":
            lines += _fact(call.tool, f"DENIED {what}: {call.denied}", width, "error")
        case "unknown":
            lines += _fact(call.tool, f"UNKNOWN EFFECT {what}: it started and never reported back", width, "error")
        case "running":
            lines += _fact(call.tool, f"{what} (running)".strip(), width, "accent")
        case "failed":
            code = "failed" if call.exit_code is None else f"exit {call.exit_code}"
            lines += _fact(call.tool, f"{what} → {code}".strip(), width, "error")
        case "finished":
            if what or not (call.reads or call.writes):
                code = "" if call.exit_code is None else f" → exit {call.exit_code}"
                lines += _fact(call.tool, f"{what}{code}" or "done", width)
    for each in call.writes:
        lines += _fact("write", f"{_SIGNS[each.status]} {_short(each.path, cwd)}", width, "success")
    notes = {"hosts": ", ".join(call.hosts), "answered": call.approval or ""}
    notes["allowed"] = call.allowed or "" if call.writes or call.command else ""
    return lines + [line for name, text in notes.items() if text for line in _fact(f"  {name}", text, width, "dim")]


def info_lines(story: RunStory, width: int, now: float, window: Window) -> list[Text]:
    """Everything that is known of the run, one fact per row."""
    card = story.card
    facts: dict[str, str] = {
        "run": card.id,
        "agent": f"{card.agent}{f' @{card.handle}' if card.handle else ''}",
        "status": card.status,
        "parent": card.parent_id or "",
        "depth": str(card.depth),
        "model": card.model,
        "folder": story.started.cwd if story.started else "",
        "asked with": ", ".join(card.tags),
        "tools": ", ".join(story.started.tools) if story.started else "",
        "queued": _clock(card.queued_at),
        "began": _clock(card.began),
        "ended": _clock(card.ended_at),
        "took": format_duration(card.elapsed_ms(now)) if card.began is not None else "",
        **_used(story, window),
        **_origin(story.created.spec if story.created else {}),
        "transcript": (story.started.transcript or "") if story.started else "",
    }
    if card.outcome is not None:
        facts["branch"] = card.outcome.branch or ""
        facts["limit"] = card.outcome.limit or ""
        facts |= {f"note {at}": note for at, note in enumerate(card.outcome.notes, 1)}
    return [line for name, value in facts.items() if value for line in _fact(name, value, width)]


def _used(story: RunStory, window: Window) -> dict[str, str]:
    card, usage = story.card, story.card.usage
    turns = f"{card.turns}" + (f" of at most {card.max_turns}" if card.max_turns else "")
    parts = {"in": usage.input, "out": usage.output, "from cache": usage.cache_read, "to cache": usage.cache_write}
    tree = card.outcome.tree_usage if card.outcome is not None else None
    return {
        "turns": turns,
        "tool uses": str(card.tool_uses),
        "tokens": format_tokens(usage.total_tokens, card.context_percent(window), card.compactions),
        "in detail": " · ".join(f"{count:,} {name}" for name, count in parts.items() if count),
        "cost": format_cost(usage.cost_usd) or ("not known" if usage.cost_usd is None else ""),
        "with agents": format_tokens(tree.total_tokens) if tree is not None else "",
    }


def _origin(spec: Mapping[str, Any]) -> dict[str, str]:
    return {
        "defined in": str(spec.get("path") or spec.get("source") or ""),
        "dialect": str(spec.get("dialect") or ""),
    }


def _clock(at: float | None) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at)) if at else ""


def _short(path: str, cwd: str) -> str:
    if not cwd:
        return path
    return "." if path == cwd else path.removeprefix(cwd.rstrip("/") + "/")


def _head(word: str, note: str) -> Text:
    line = Text.assemble((f"[{word}]", f"bold {STYLES['accent']}"))
    return line.append(f" {one_line(note)}", STYLES["dim"]) if note else line


def _dim(text: str) -> Text:
    return Text(text, STYLES["dim"])


def _plain(text: str, width: int, style: str = "") -> list[Text]:
    return [Text(line, STYLES[style]) for line in wrap(text.strip("\n"), width)] if text.strip() else []


def _fact(name: str, value: str, width: int, style: str = "") -> list[Text]:
    label = fit(one_line(name) if name.strip() == name else f"  {one_line(name)}", LABEL)
    pieces = wrap(value, max(width - LABEL - 1, 8))
    return [
        Text.assemble(
            ((label if not at else "") + " " * (LABEL + 1 - (cell_len(label) if not at else 0)), STYLES["dim"]),
            (piece, STYLES[style]),
        )
        for at, piece in enumerate(pieces)
    ]
