"""What may come next on a command line: one value a line, with its description behind a tab.

`:files` and `:folders` are for the shell, which completes paths itself. A person waits for this at every Tab: commands
and options come from a cached table, so that no command need be imported.
"""

from __future__ import annotations

import sys

from retinue.app.completion import cached, values_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any


def answer(words: Sequence[str]) -> int:
    """Print what may stand in the place of the last of `words`. Print nothing where that is not known."""
    table = cached("completion-table", _table)
    typed = words[-1] if words else ""
    lines = []
    for value, about in _candidates(table, words[:-1], typed):
        if value.startswith((":", typed)):
            lines.append(f"{value}\t{about}" if about else value)
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    return 0


def _table() -> tuple[dict[str, Any], list[str]]:
    from retinue.faces.cli.completion_table import completion_table

    return completion_table()


def _candidates(table: Mapping[str, Any], before: Sequence[str], typed: str) -> Iterator[tuple[str, str]]:
    path, rest = _command(table, before)
    command = table.get(path)
    if not rest:
        # Of a group, such as `retinue runs`.
        yield from table["groups"].get(path, {}).items()
    if command is None:
        return
    wanted, place = _read(command, rest)
    if wanted is not None:
        yield from _values(wanted, typed)
        return
    option, equals, value = typed.partition("=")
    if equals and option in command["options"]:
        for found, about in _values(command["options"][option]["value"], value):
            yield found if found.startswith(":") else f"{option}={found}", about
        return
    if typed.startswith("-"):
        for name, each in command["options"].items():
            yield name, each["help"]
        return
    arguments = command["arguments"]
    if arguments:
        kind = arguments[min(place, len(arguments) - 1)]
        if place < len(arguments) or command["many"]:
            yield from _values(kind, typed)


def _command(table: Mapping[str, Any], words: Sequence[str]) -> tuple[str, Sequence[str]]:
    """Return the command that the words begin with, and the words behind it."""
    if words and words[0] == "help":
        words = words[1:]
    path, number = "", 0
    while number < len(words) and words[number] in table["groups"].get(path, {}):
        path = f"{path} {words[number]}".strip()
        number += 1
    return path, words[number:]


def _read(command: Mapping[str, Any], words: Sequence[str]) -> tuple[Any, int]:
    """Return what the option before the cursor takes, if it takes something, and the number of arguments so far."""
    place, waiting, many = 0, None, False
    for word in words:
        option = command["options"].get(word)
        if option is not None:
            waiting, many = option["value"], option["many"]
        elif waiting is not None and not word.startswith("-"):
            # The value of an option. One that takes several goes on taking.
            if not many:
                waiting = None
        elif not word.startswith("-"):
            place += 1
    if many and waiting is not None and words and words[-1] not in command["options"]:
        return None, place
    return waiting, place


def _values(kind: Any, typed: str) -> Iterator[tuple[str, str]]:
    if isinstance(kind, list):
        for word in kind:
            yield word, ""
    elif kind == "file":
        # `@path`, as tasks and prompts are given, is for the program and not for the shell.
        if not typed.startswith("@"):
            yield ":files", ""
    elif kind == "folder":
        yield ":folders", ""
    elif kind:
        yield from values_of(kind)
