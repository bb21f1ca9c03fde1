"""The views of a run as lines: transcript, prompt, effects, output and facts.

Drawn lines of the transcript are cached until the width changes, so that following a long run costs only the new steps.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from rich.cells import cell_len
from rich.text import Text

from retinue.app.call_text import subject
from retinue.app.rich_text import STYLES, Row, diff_of, fit, one_line, plain_of, wrap
from retinue.app.text import EFFECT_SIGNS, clip, effect_notes, local_time, optional, reads_text, short_path, status_word
from retinue.capabilities.audit.report import CallEffect, call_effects
from retinue.core.format import format_cost, format_duration, format_tokens
from retinue.core.messages import ToolCall, UserMessage
from retinue.core.outcome import CUT_OFF, Outcome
from retinue.core.story import StoryStep
from retinue.frontends.tui.board.calls import arguments
from retinue.frontends.tui.board.cards import Window
from retinue.frontends.tui.board.questions import without_frames
from retinue.frontends.tui.board.story import RunStory

# Characters of one block. The log and the transcript file have the full text.
MAX_BLOCK_CHARACTERS = 40_000
SHOWN_ARGUMENT_CHARACTERS = 2_000
SLICE_ENTRIES = 50
# The amount drawn at once takes a few milliseconds, so that the app keeps responding to keys.
SLICE_CHARACTERS = 20_000
RULE = "───"
LABEL_CELLS = 12


@dataclass(slots=True)
class Transcript:
    """The lines of one story at one width."""

    width: int = 0
    themed: tuple[str, ...] = ()
    lines: list[Row] = field(default_factory=list)
    drawn: int = 0
    """How many entries have been drawn."""
    behind: bool = False
    """Whether some entries are not drawn yet: a long run is drawn slice by slice."""

    def update(self, story: RunStory, width: int) -> list[Row]:
        """Return the lines so far, with an unfinished answer at the end. The caller must not change them."""
        themed = tuple(STYLES.values())
        # Everything is drawn again only for another width or theme, or after a run was restarted.
        if width != self.width or themed != self.themed or self.drawn > len(story.blocks):
            self.width, self.themed, self.lines, self.drawn = width, themed, [], 0
        budget = SLICE_CHARACTERS
        for step in story.blocks[self.drawn : self.drawn + SLICE_ENTRIES]:
            if budget <= 0:
                break
            self.lines += block_lines(step, width, first=not self.lines)
            self.drawn += 1
            budget -= len(step.entry.text)
        self.behind = self.drawn < len(story.blocks)
        if self.behind:
            return self.lines
        return self.lines + _live(story, width, first=not self.lines)


def block_lines(step: StoryStep, width: int, *, first: bool = False) -> list[Row]:
    """Return a rule, the speaker and the text."""
    entry = step.entry
    if entry.kind == "note":
        partial = optional(" What it had said: {}", entry.detail) if entry.topic == "retry" else ""
        return _notice(entry.text + partial, width, bad=entry.topic in ("retry", "failed"))
    if entry.outcome is not None:
        return _ending(entry.outcome, width)
    lines = _content(step, width)
    return lines if first else [(RULE, STYLES["dim"]), *lines]


def _content(step: StoryStep, width: int) -> list[Row]:
    entry = step.entry
    if entry.message is not None:
        return [head("User", _origin_note(entry.message)), *_text(_words(entry.message), width)]
    if entry.kind == "answer":
        return _said(entry.text, width)
    if entry.kind == "thinking":
        return _thought(entry.text, width)
    assert entry.call is not None, "only calls have nothing of this"
    if entry.result is None or step.change == "added":
        return _tool_call(entry.call, width)
    style = "error" if entry.result.is_error else "dim"
    lines = [head("Result", entry.call.name, style), *_text(entry.result.text, width, style)]
    if entry.detail:
        lines.append((entry.detail, STYLES["dim"]))
    return lines


def _origin_note(message: UserMessage) -> str:
    return "" if message.origin == "task" else message.origin


def _words(message: UserMessage) -> str:
    return without_frames(message.text) if message.origin == "notification" else message.text


def _said(text: str, width: int) -> list[Row]:
    return [head("Assistant", "", "success"), *_text(text.strip("\n"), width)]


def _thought(text: str, width: int) -> list[Row]:
    return [head("Thinking", "", "dim"), *_text(text.strip(), width, "dim")]


def _ending(outcome: Outcome, width: int) -> list[Row]:
    """Return how a run ended, unless it completed normally."""
    if outcome.truncated:
        return _notice(f"{status_word(outcome.ended)}, {CUT_OFF}: the end is missing", width, bad=True)
    if outcome.ok and outcome.ended == "completed":
        return []
    text = status_word(outcome.ended)
    if outcome.failure is not None:
        text += f": {outcome.failure.message} {outcome.failure.remedy}".rstrip()
    return _notice(text, width, bad=not outcome.ok)


def _notice(text: str, width: int, *, bad: bool) -> list[Row]:
    style = STYLES["error"] if bad else STYLES["warning"]
    lines: list[Row] = [(f"  {line}", style) for line in wrap(text, width - 2)]
    lines[0] = (f"! {plain_of(lines[0])[2:]}", style)
    return lines


def _live(story: RunStory, width: int, *, first: bool) -> list[Row]:
    """Return its unfinished answer or its current activity."""
    if not story.card.at_work:
        return []
    lines: list[Row] = []
    if story.saying.strip():
        lines = _said(story.saying, width)
    elif story.thinking.strip():
        lines = _thought(story.thinking, width)
    if lines and not first:
        lines.insert(0, (RULE, STYLES["dim"]))
    for text in story.progress.values():
        newest = text.rstrip().rpartition("\n")[2]
        if newest:
            lines.append(Text(f"  {fit(one_line(newest), width - 2)}", STYLES["dim"]))
    return [*lines, Text(f"▍ {fit(one_line(story.card.activity()), width - 2)}", STYLES["accent"])]


def head(word: str, note: str = "", style: str = "accent") -> Text:
    """Return the title of a block with its note."""
    line = Text.assemble((f"[{word}]", f"bold {STYLES[style]}"))
    if note:
        line.append(f" {one_line(note)}", STYLES["dim"])
    return line


def _text(text: str, width: int, style: str = "", most: int = MAX_BLOCK_CHARACTERS) -> list[Row]:
    lines: list[Row] = [(line, STYLES[style]) for line in wrap(text[:most], width)]
    if len(text) > most:
        lines.append((f"… {len(text) - most:,} more characters", STYLES["dim"]))
    return lines


def _tool_call(call: ToolCall, width: int) -> list[Row]:
    line = Text.assemble((f"[Tool: {one_line(call.name)}]", f"bold {STYLES['accent']}"))
    if call.broken is not None:
        return [line, *_text(call.broken[:SHOWN_ARGUMENT_CHARACTERS], width, "error")]
    line.append(f" {one_line(subject(call))}".rstrip())
    changes = diff_of(call)
    if changes is not None:
        return [line, *_diff(changes, width)]
    asked = clip(arguments(call).plain, SHOWN_ARGUMENT_CHARACTERS)
    if not asked:
        return [line]
    return [line, *_text(asked, width, "dim")]


def _diff(changes: Text, width: int) -> list[Text]:
    lines = []
    for line in changes.split("\n"):
        style = line.spans[0].style if line.spans else ""
        lines += [Text(piece, style) for piece in wrap(line.plain, width)]
    return lines


# The other views


def prompt_lines(story: RunStory, width: int) -> list[Text]:
    """Return the task, then the instructions of the agent file. The context that the harness adds to every run
    (folder, date, tools) is left out."""
    first = story.created
    if first is None:
        return [_dim("Not known yet.")]
    prompt = str(first.spec.get("prompt") or "")
    about = "none"
    if prompt.strip():
        how = "added to the main prompt" if first.spec.get("prompt_mode") == "append" else "its whole prompt"
        about = f"{len(prompt):,} characters, {how}"
    lines = [head("Task", f"{len(first.task):,} characters"), *_plain(first.task, width)]
    return [*lines, Text(), head("Instructions", about), *_plain(prompt, width)]


def output_lines(story: RunStory, width: int) -> list[Text]:
    """Return the result; before the run has one, its newest answer."""
    outcome = story.card.outcome
    if outcome is None:
        state = "the run has not ended" if story.card.live else "the run was interrupted"
        return [head("So far", state), *_plain(story.saying or _last_answer(story), width)]
    note = "partial: it did not succeed" if outcome.partial or not outcome.ok else ""
    lines = [head("Result", note), *(_plain(outcome.text, width) or [_dim("No output.")])]
    if outcome.value is not None:
        shown = json.dumps(outcome.value, ensure_ascii=False, indent=2, default=str)
        lines += [Text(), head("Value", "as its schema asks"), *_plain(shown, width)]
    if outcome.failure is not None:
        lines += [Text(), head("Why", outcome.failure.kind)]
        lines += _plain(f"{outcome.failure.message} {outcome.failure.remedy}".strip(), width, "error")
    return lines


def _last_answer(story: RunStory) -> str:
    return next((step.entry.text for step in reversed(story.blocks) if step.entry.kind == "answer"), "")


def effects_lines(story: RunStory, width: int) -> list[Text]:
    """Return what its tools read, wrote, ran and reached, turn by turn, and who allowed it."""
    first = story.started or story.created
    cwd = first.cwd if first is not None else ""
    turns = call_effects(story.calls, live=story.card.live)
    lines: list[Text] = []
    for turn in turns:
        lines.append(head(f"Turn {turn.turn}"))
        reads = reads_text(turn, cwd)
        if reads:
            lines += _fact("read", reads, width)
        for call in turn.calls:
            lines += _effect(call, cwd, width)
    for undone in story.undone:
        count = len(undone.restored) + len(undone.removed)
        lines += _plain(f"undone by {undone.by}: {count} files put back, {len(undone.kept)} kept", width, "warning")
    return lines or [_dim("No tool calls.")]


def _effect(call: CallEffect, cwd: str, width: int) -> list[Text]:
    what = one_line(call.command or "")
    code = ""
    if call.exit_code is not None:
        code = f" → exit {call.exit_code}"
    lines: list[Text] = []
    match call.status:
        case "denied":
            lines += _fact(call.tool, f"DENIED {what}: {call.denied}", width, "error")
        case "unknown":
            lines += _fact(call.tool, f"UNKNOWN EFFECT {what}: it started and never reported back", width, "error")
        case "running":
            lines += _fact(call.tool, f"{what} (running)".strip(), width, "accent")
        case "failed":
            lines += _fact(call.tool, f"{what}{code or ' → failed'}".strip(), width, "error")
        case "finished":
            if what or not (call.reads or call.writes):
                lines += _fact(call.tool, f"{what}{code}" or "done", width)
    for write in call.writes:
        lines += _fact("write", f"{EFFECT_SIGNS[write.status]} {short_path(write.path, cwd)}", width, "success")
    for name, text in effect_notes(call).items():
        lines += _fact(f"  {name}", text, width, "dim")
    return lines


def info_lines(story: RunStory, width: int, now: float, window: Window) -> list[Text]:
    """Return all known facts of the run, one per row."""
    facts = {**_stand(story, now), **_used(story, window), **_origin(story)}
    outcome = story.card.outcome
    if outcome is not None:
        facts["branch"] = outcome.branch or ""
        facts["limit"] = outcome.limit or ""
        for number, note in enumerate(outcome.notes, 1):
            facts[f"note {number}"] = note
    lines: list[Text] = []
    for name, value in facts.items():
        if value:
            lines += _fact(name, value, width)
    return lines


def _stand(story: RunStory, now: float) -> dict[str, str]:
    card, started = story.card, story.started
    facts = {
        "run": card.id,
        "agent": card.agent + optional(" @{}", card.name),
        "status": status_word(card.status),
        "parent": card.parent_id or "",
        "depth": str(card.depth),
        "model": card.model,
        "folder": "",
        "asked with": ", ".join(card.tags),
    }
    if started is not None:
        facts |= {"folder": started.cwd, "tools": ", ".join(started.tools)}
    for name, at in (("queued", card.created_at), ("began", card.began), ("ended", card.ended_at)):
        if at:
            facts[name] = local_time(at)
    if card.began is not None:
        facts["took"] = format_duration(card.elapsed_ms(now))
    return facts


def _used(story: RunStory, window: Window) -> dict[str, str]:
    card, usage = story.card, story.card.usage
    parts = {"in": usage.input, "out": usage.output, "from cache": usage.cache_read, "to cache": usage.cache_write}
    cost = format_cost(usage.cost_usd)
    if usage.cost_usd is None:
        cost = "not known"
    tokens = format_tokens(usage.total_tokens, card.context_percent(window), card.compactions)
    # A turn is counted when it has ended.
    if not usage.is_counted(card.turn - card.at_work, card.model):
        tokens = "unknown"
    facts = {
        "turns": f"{card.turn}{optional(' of at most {}', card.max_turns)}",
        "tool uses": str(card.tool_uses),
        "tokens": tokens,
        "in detail": " · ".join(f"{count:,} {name}" for name, count in parts.items() if count),
        "cost": cost,
    }
    tree = card.outcome.tree_usage if card.outcome is not None else None
    if tree is not None and tree.is_counted(card.turn, card.model):
        facts["with agents"] = format_tokens(tree.total_tokens)
    return facts


def _origin(story: RunStory) -> dict[str, str]:
    facts = {}
    if story.created is not None:
        spec = story.created.spec
        facts["defined in"] = str(spec.get("path") or spec.get("source") or "")
        facts["dialect"] = str(spec.get("dialect") or "")
    if story.started is not None:
        facts["transcript"] = story.started.transcript or ""
    return facts


def _dim(text: str) -> Text:
    return Text(text, STYLES["dim"])


def _plain(text: str, width: int, style: str = "") -> list[Text]:
    if not text.strip():
        return []
    return [Text(line, STYLES[style]) for line in wrap(text.strip("\n"), width)]


def _fact(name: str, value: str, width: int, style: str = "") -> list[Text]:
    """Return a name and its value; a long value continues below itself."""
    label = one_line(name)
    if name.startswith(" "):
        label = f"  {label}"
    label = fit(label, LABEL_CELLS)
    blank = " " * (LABEL_CELLS + 1)
    lines = []
    for piece in wrap(value, max(width - LABEL_CELLS - 1, 8)):
        lines.append(Text.assemble((label + blank[cell_len(label) :], STYLES["dim"]), (piece, STYLES[style])))
        label = ""
    return lines
