"""The transcript of a run as lines. What is drawn once stays drawn until the width changes, so
that following a long run costs only what is new."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from rich.text import Text

from retinue.core.messages import ToolCall
from retinue.faces.tui.board.marks import STYLES
from retinue.faces.tui.board.story import Entry, RunStory
from retinue.faces.tui.board.text import Row, fit, one_line, wrap
from retinue.faces.tui.chat.text import diff_of

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
            return [*lines, *_call(entry.call, width)] if entry.call is not None else lines
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


def _call(call: ToolCall, width: int) -> list[Row]:
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
