"""Tool calls in words for people: what a call is about on one line, its arguments without JSON, the lines of an agent
that works for the conversation, and the list of things to do."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.text import Text

from retinue.app.rich_text import STYLES, clean, cut_lines, fit, one_line
from retinue.app.text import clip, optional
from retinue.core.messages import ToolCall
from retinue.core.outcome import CUT_OFF
from retinue.core.tool import Todo
from retinue.core.tool_names import canonical
from retinue.faces.tui.board.cards import RunCard, Window
from retinue.faces.tui.board.marks import icon, stats
from retinue.runs.notifications import LABELS

LONGEST = 100
ARGUMENT_LINES = 200
ARGUMENT_CHARACTERS = 20_000
MOST_TODOS = 12

SPAWNING = frozenset({"Agent", "subagent", "dispatch_agent"})
_FILE = ("path", "file_path", "filePath", "file")
_AGENT = ("agent_id", "id", "name", "resume")
# What a call is about, by its tool: the first of these arguments that is there.
_SUBJECTS: Mapping[str, tuple[str, ...]] = {
    "read": _FILE,
    "write": _FILE,
    "edit": _FILE,
    "bash": ("command", "cmd"),
    "grep": ("pattern", "query", "regex"),
    "find": ("pattern", "glob", "name"),
    "get_subagent_result": _AGENT,
    "steer_subagent": _AGENT,
    "clear_subagents": _AGENT,
    "bash_output": ("id", "bash_id"),
    "ask_user": ("question",),
    "ask_parent": ("question",),
    "exit_plan": (),
    "todo": (),
    "lsp": ("action", "operation"),
}
_ANY_SUBJECT = (*_FILE, "command", "pattern", "query", "url", "description", "prompt", "task", "question", "name")
# Arguments that the heading says, or that only the harness needs.
_IN_HEADING: Mapping[str, tuple[str, ...]] = {
    "read": ("offset", "limit"),
    "grep": ("path", "glob"),
    "find": ("path",),
    "Agent": ("subagent_type", "agent", "run_in_background"),
}
# Tools whose names say little to people.
_WORDS = {
    "get_subagent_result": "result of agent",
    "steer_subagent": "message to agent",
    "list_subagents": "list of agents",
    "clear_subagents": "forget agents",
    "bash_output": "output of command",
    "ask_user": "question",
    "ask_parent": "question",
    "exit_plan": "plan",
    "fetch_content": "fetch",
    "web_search": "search the web for",
    "tool_search": "find tools for",
}


def tool_of(call: ToolCall) -> str:
    """Return the name under which this module knows a tool, whatever the model called it."""
    if call.name in SPAWNING:
        return "Agent"
    found = canonical(call.name)
    return found[0] if len(found) == 1 else call.name


def heading(call: ToolCall) -> str:
    """Return `grep login in src`: the tool and what the call is about."""
    tool = tool_of(call)
    if tool == "Agent":
        return _agent_heading(call.arguments)
    words = _WORDS.get(tool, one_line(call.name))
    return fit(f"{words} {subject(call)}".rstrip(), LONGEST + 20)


def subject(call: ToolCall) -> str:
    """Return what the call is about on one line: the file and its lines, the command, the pattern and where."""
    tool, given = tool_of(call), call.arguments
    key = _subject_key(tool, given)
    about = "" if key is None else fit(one_line(str(given[key])), LONGEST)
    match tool:
        case "grep" | "find":
            place = one_line(str(given.get("path") or given.get("folder") or ""))
            about += optional(" in {}", "" if place in (".", "./") else place)
            about += optional(" ({})", one_line(str(given.get("glob") or given.get("include") or "")))
        case "read":
            about += _range(given)
        case "lsp":
            about += optional(" {}", one_line(str(_first(given, (*_FILE, "query", "symbol")) or "")))
        case _:
            pass
    return about


def _agent_heading(given: Mapping[str, Any]) -> str:
    kind = one_line(str(_first(given, ("subagent_type", "agent", "agent_type")) or "Agent"))
    about = _first(given, ("description", "task", "prompt", "message"))
    if given.get("resume"):
        kind = f"{kind} (resumed)"
    return f"{kind} {fit(one_line(str(about or '')), LONGEST)}".rstrip()


def _subject_key(tool: str, given: Mapping[str, Any]) -> str | None:
    for key in _SUBJECTS.get(tool, _ANY_SUBJECT):
        if given.get(key):
            return key
    if tool in _SUBJECTS:
        return None
    # A tool of a server or a plugin: its first words say most.
    for key, value in given.items():
        if isinstance(value, str) and value.strip():
            return key
    return None


def _first(given: Mapping[str, Any], names: Iterable[str]) -> Any:
    for name in names:
        if given.get(name):
            return given[name]
    return None


def _range(given: Mapping[str, Any]) -> str:
    """Return `:10-59` for a part of a file."""
    first, count = given.get("offset"), given.get("limit")
    if not isinstance(first, int) and not isinstance(count, int):
        return ""
    start = first if isinstance(first, int) and first > 0 else 1
    if not isinstance(count, int):
        return f":{start}-"
    return f":{start}-{start + max(count, 1) - 1}"


# Arguments, opened


def arguments(call: ToolCall) -> Text:
    """Return what was asked beyond what the heading says; a command as it would be typed."""
    if call.broken is not None:
        return Text(clean(call.broken)[:ARGUMENT_CHARACTERS], STYLES["error"])
    tool, given = tool_of(call), dict(call.arguments)
    lines = []
    command = given.pop("command", None) if tool == "bash" else None
    if isinstance(command, str):
        lines.append(f"$ {command}")
    else:
        key = _subject_key(tool, given)
        # The heading has it whole where it is short.
        if key is not None and one_line(str(given[key])) == fit(one_line(str(given[key])), LONGEST):
            del given[key]
    for key in _IN_HEADING.get(tool, ()):
        given.pop(key, None)
    for key, value in given.items():
        lines += _argument(key.replace("_", " "), value)
    shown, missing = cut_lines(clean("\n".join(lines)), ARGUMENT_LINES, ARGUMENT_CHARACTERS)
    return Text(f"{shown}{optional(chr(10) + '… {:,} more lines', max(missing, 0))}")


def _argument(name: str, value: Any, margin: str = "") -> list[str]:
    """Return an argument as people would write it down: `name: value`, longer values below their name."""
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
        if all(isinstance(each, str | int | float) for each in value):
            return [f"{margin}{name}: {', '.join(map(str, value))}"]
        lines = [f"{margin}{name}:"]
        for number, each in enumerate(value, 1):
            lines += _argument(str(number), each, f"{margin}  ")
        return lines
    text = str(value)
    if "\n" not in text:
        return [f"{margin}{name}: {text}"]
    return [f"{margin}{name}:", *(f"{margin}  {row}" for row in text.split("\n"))]


# Agents


_STARTED = re.compile(r"Agent (?:started|queued|resumed|moved)[^\n]*background|goes on in the background as")
_FRAME = re.compile(r"\A(?:Agent [^\n]*|Agent: [^\n]*)\n.*?\n\n", re.DOTALL)
_CLOSINGS = (
    "Everything it produced is above",
    "What it produced is above",
    "Its result is above",
    "You will be notified",
)


def agent_lines(card: RunCard, now: float, window: Window, *, frame: int = 0, motion: bool = True) -> list[Text]:
    """Return how an agent stands, and what it does or how it ended: `⠹ ↻3≤30 · 3 tool uses` and `⎿ reading…`."""
    mark, style = icon(card, frame, motion=motion)
    numbers = stats(card, now, window, time=card.succeeded)
    state = Text.assemble((mark, STYLES[style]), " ", numbers)
    if card.status == "queued":
        return [Text(f"{mark} queued: it starts when another agent has ended", STYLES["dim"])]
    return [state, Text(f"⎿ {ending(card)}", STYLES["dim"])]


def ending(card: RunCard) -> str:
    """Return what an agent does, or how it ended."""
    if card.live:
        return one_line(card.activity())
    label = LABELS.get(card.status, card.status.capitalize())
    if card.status == "error":
        failure = card.outcome.failure if card.outcome is not None else None
        label = f"Error: {one_line(failure.message)}" if failure is not None else "Error"
    if card.outcome is not None and card.outcome.truncated:
        label += f" ({CUT_OFF})"
    return label


def is_in_background(text: str) -> bool:
    """Return whether the result of a call says that its agent goes on in the background."""
    return _STARTED.search(text[:200]) is not None


def result_for_people(text: str) -> str:
    """Return the result of an agent without the lines that tell the model how to go on."""
    found = _FRAME.match(text)
    body = text[found.end() :] if found is not None else text
    before, _, last = body.rstrip().rpartition("\n\n")
    if last.startswith(_CLOSINGS):
        return before
    return body


# What is to be done


def todo_lines(todos: Sequence[Todo], width: int) -> list[Text]:
    """Return the list with a sign for each entry; of a long one what was done long ago is a number."""
    done = sum(todo.status == "completed" for todo in todos)
    lines = [Text.assemble(("To do", "bold"), (f" · {done} of {len(todos)} done", STYLES["dim"]))]
    shown = list(todos)
    hidden = 0
    while len(shown) > MOST_TODOS and shown[0].status == "completed":
        del shown[0]
        hidden += 1
    if hidden:
        lines.append(Text(f"  ☑ {hidden} done before", STYLES["dim"]))
    for todo in shown[:MOST_TODOS]:
        lines.append(_todo_line(todo, width))
    if len(shown) > MOST_TODOS:
        lines.append(Text(f"  … {len(shown) - MOST_TODOS} more", STYLES["dim"]))
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
