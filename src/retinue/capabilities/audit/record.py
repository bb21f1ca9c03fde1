"""The line of record that every result carries: what a run did, as its tool calls reported it.

A reader of the answer sees beside it which files changed, which commands ran and how they exited,
which of them were checks, and what was denied. The line says nothing about the answer's words:
whether they fit is for the reader to judge.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import filterfalse

from retinue.core.outcome import RECORD
from retinue.core.permission import ToolEffect
from retinue.runs.notification_text import is_check

MOST_FILES = 8
MOST_COMMANDS = 4
_LONGEST_COMMAND = 80


def record_line(
    effects: Sequence[ToolEffect], files: Sequence[str], *, below: Sequence[int] = (), complete: bool = True
) -> str:
    """Return the line for a run with these `effects` that changed `files`, also by agents below it.

    `below` has the number of commands of each of those agents. `complete` is False when changes
    made by commands were not recorded.
    """
    if not effects and not files and not below:
        return f"{RECORD}no tool calls."
    ran = [effect for effect in effects if effect.command is not None and effect.denied is None]
    checks = list(filter(is_check, ran))
    others = list(filterfalse(is_check, ran))
    parts = [_describe_files(files)]
    if others or not checks:
        parts.append(_describe_commands("commands", others))
    else:
        parts.append("no other commands")
    if files or ran:
        parts.append(_describe_commands("checks", checks))
    if below:
        parts.append(f"{counted(len(below), 'agent')} started, with {counted(sum(below), 'command')}")
    denied = sum(effect.denied is not None for effect in effects)
    if denied:
        parts.append(f"{counted(denied, 'call')} denied")
    unknown = sum(effect.status in ("unknown", "started") for effect in effects)
    if unknown:
        parts.append(f"{counted(unknown, 'call')} with unknown effect")
    if ran and not complete:
        parts.append("files changed by commands are not recorded")
    return f"{RECORD}{'; '.join(parts)}."


def counted(number: int, noun: str) -> str:
    """Return `number` with its noun: `1 file`, `2 files`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def name_first(names: Sequence[str], most: int) -> str:
    """Return the first names, and how many more there are."""
    shown = ", ".join(map(show_on_one_line, names[:most]))
    if len(names) > most:
        shown += f" and {len(names) - most} more"
    return shown


def show_on_one_line(text: str) -> str:
    """Return `text` without line breaks and control characters: a name must not look like a line of ours."""
    printable = "".join(each if each.isprintable() else " " for each in text)
    return " ".join(printable.split())


def _describe_files(files: Sequence[str]) -> str:
    if not files:
        return "no files changed"
    return f"{counted(len(files), 'file')} changed ({name_first(files, MOST_FILES)})"


def _describe_commands(title: str, effects: Sequence[ToolEffect]) -> str:
    """Name the last commands: how a run ended matters more than how it began."""
    last = list(_last_of_each(effects))
    if not last:
        return f"no {title}"
    earlier = len(last) - MOST_COMMANDS
    before = f"{earlier} earlier, " if earlier > 0 else ""
    return f"{title}: {before}{', '.join(last[-MOST_COMMANDS:])}"


def _last_of_each(effects: Sequence[ToolEffect]) -> Iterable[str]:
    """Each command once, in the order and with the exit code of its last use."""
    last: dict[str, int | None] = {}
    for effect in effects:
        command = show_on_one_line(effect.command or "")
        last.pop(command, None)
        last[command] = effect.exit_code
    for command, code in last.items():
        shown = command
        if len(command) > _LONGEST_COMMAND:
            shown = f"{command[: _LONGEST_COMMAND - 1]}…"
        exited = "no exit code" if code is None else f"exit {code}"
        yield f"`{shown}` {exited}"
