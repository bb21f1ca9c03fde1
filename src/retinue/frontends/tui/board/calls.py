"""Tool calls in words for people: a heading of one line, arguments without JSON, the lines of an agent that works for
the conversation, and the to-do list."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from rich.text import Text

from retinue.app import call_text
from retinue.app.rich_text import STYLES, clean, cut_lines, fit, one_line
from retinue.app.text import clip, optional
from retinue.core.messages import ToolCall
from retinue.core.outcome import CUT_OFF
from retinue.core.tool import Todo
from retinue.frontends.tui.board.cards import RunCard, Window
from retinue.frontends.tui.board.marks import icon, stats
from retinue.runs.notifications import STATUS_LABELS

ARGUMENT_LINES = 200
ARGUMENT_CHARACTERS = 20_000
MAX_TODOS = 12
# Arguments that the heading contains, or that only the harness needs.
_IN_HEADING: Mapping[str, tuple[str, ...]] = {
    "read": ("offset", "limit"),
    "grep": ("path", "glob"),
    "find": ("path",),
    "Agent": ("subagent_type", "agent", "run_in_background"),
}


def heading(call: ToolCall) -> str:
    """Return the tool and the subject of its call, as in `grep login in src`."""
    return fit(one_line(call_text.heading(call)), call_text.SUBJECT_CHARACTERS + 20)


def arguments(call: ToolCall) -> Text:
    """Return the arguments that the heading does not contain; a command is shown as a person would type it."""
    if call.broken is not None:
        return Text(clean(call.broken)[:ARGUMENT_CHARACTERS], STYLES["error"])
    tool, values = call_text.tool_of(call), dict(call.arguments)
    lines = []
    command = values.pop("command", None) if tool == "bash" else None
    if isinstance(command, str):
        lines.append(f"$ {command}")
    else:
        key = call_text.subject_key(tool, values)
        # The heading contains a short command completely.
        if key is not None and len(one_line(str(values[key]))) <= call_text.SUBJECT_CHARACTERS:
            del values[key]
    for key in _IN_HEADING.get(tool, ()):
        values.pop(key, None)
    for key, value in values.items():
        lines += _argument(key.replace("_", " "), value)
    shown, missing = cut_lines(clean("\n".join(lines)), ARGUMENT_LINES, ARGUMENT_CHARACTERS)
    return Text(f"{shown}{optional(chr(10) + '… {:,} more lines', max(missing, 0))}")


def _argument(name: str, value: Any, margin: str = "") -> list[str]:
    """Return an argument as `name: value`, with longer values below their name."""
    if value is None or value in ("", [], {}):
        return []
    if isinstance(value, bool):
        value = "yes" if value else "no"
    if isinstance(value, Mapping):
        lines = [f"{margin}{name}:"]
        for key, inner in value.items():
            lines += _argument(str(key), inner, f"{margin}  ")
        return lines
    if isinstance(value, Sequence) and not isinstance(value, str):
        if all(isinstance(item, str | int | float) for item in value):
            return [f"{margin}{name}: {', '.join(map(str, value))}"]
        lines = [f"{margin}{name}:"]
        for number, item in enumerate(value, 1):
            lines += _argument(str(number), item, f"{margin}  ")
        return lines
    text = str(value)
    if "\n" not in text:
        return [f"{margin}{name}: {text}"]
    return [f"{margin}{name}:", *(f"{margin}  {row}" for row in text.split("\n"))]


# Agents


_FRAME = re.compile(r"\A(?:Agent [^\n]*|Agent: [^\n]*)\n.*?\n\n", re.DOTALL)
_CLOSINGS = (
    "Everything it produced is above",
    "What it produced is above",
    "Its result is above",
    "You will be notified",
)


def agent_lines(card: RunCard, now: float, window: Window, *, frame: int = 0, motion: bool = True) -> list[Text]:
    """Return an agent's numbers, and its activity or ending: `⠹ ↻3≤30 · 3 tool uses` and `⎿ reading…`."""
    mark, style = icon(card, frame, motion=motion)
    numbers = stats(card, now, window, time=card.succeeded)
    state = Text.assemble((mark, STYLES[style]), " ", numbers)
    if card.status == "queued":
        return [Text(f"{mark} queued: it starts when another agent has ended", STYLES["dim"])]
    return [state, Text(f"⎿ {ending(card)}", STYLES["dim"])]


def ending(card: RunCard) -> str:
    """Return an agent's current activity, or how it ended."""
    if card.live:
        return one_line(card.activity())
    label = STATUS_LABELS.get(card.status, card.status.capitalize())
    if card.status == "error":
        failure = card.outcome.failure if card.outcome is not None else None
        label = f"Error: {one_line(failure.message)}" if failure is not None else "Error"
    if card.outcome is not None and card.outcome.truncated:
        label += f" ({CUT_OFF})"
    return label


def result_for_people(text: str) -> str:
    """Return the result of an agent without the lines that tell the model how to continue."""
    frame = _FRAME.match(text)
    body = text[frame.end() :] if frame is not None else text
    before, _, last = body.rstrip().rpartition("\n\n")
    if last.startswith(_CLOSINGS):
        return before
    return body


# To-do lists


def todo_lines(todos: Sequence[Todo], width: int) -> list[Text]:
    """Return the list with a sign for each entry. In a long list, a number replaces the entries completed first."""
    done = sum(todo.status == "completed" for todo in todos)
    lines = [Text.assemble(("To do", "bold"), (f" · {done} of {len(todos)} done", STYLES["dim"]))]
    shown = list(todos)
    hidden = 0
    while len(shown) > MAX_TODOS and shown[0].status == "completed":
        del shown[0]
        hidden += 1
    if hidden:
        lines.append(Text(f"  ☑ {hidden} done before", STYLES["dim"]))
    for todo in shown[:MAX_TODOS]:
        lines.append(_todo_line(todo, width))
    if len(shown) > MAX_TODOS:
        lines.append(Text(f"  … {len(shown) - MAX_TODOS} more", STYLES["dim"]))
    return lines


def _todo_line(todo: Todo, width: int) -> Text:
    words = clip(one_line(todo.content), 500)
    match todo.status:
        case "completed":
            return Text.assemble(("  ☑ ", STYLES["success"]), (fit(words, width - 4), STYLES["dim"]))
        case "in_progress":
            doing = clip(one_line(todo.active_form), 500) or words
            return Text.assemble(("  ▶ ", STYLES["accent"]), (fit(doing, width - 4), "bold"))
        case "pending":
            return Text(f"  ☐ {fit(words, width - 4)}")
