"""Every key of the app in one table: what it does by which name, and how settings change it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from retinue.faces.tui.board.viewer import KEYS as VIEWER_KEYS


class Key(NamedTuple):
    """`name` is what the setting `keys` calls it; `action` is Textual's name for what happens.
    Keys without an action belong to the editor or a list, and are here for the help."""

    name: str
    key: str
    action: str
    help: str
    always: bool = False
    """Also while something else has the keys."""


KEYS: tuple[Key, ...] = (
    Key("interrupt", "escape", "interrupt", "stop what the main agent does; background agents go on"),
    Key("resend", "f9", "resend", "stop it and send the waiting messages now"),
    Key("background", "ctrl+b", "background", "move the agents it waits for to the background"),
    Key("fold", "ctrl+o", "fold", "open or fold all tool calls and thoughts"),
    Key("redraw", "ctrl+l", "redraw", "draw the screen again"),
    Key("leave", "ctrl+c", "leave", "clear the line; twice: quit", always=True),
    Key("quit", "ctrl+q", "quit", "quit", always=True),
)

EDITOR: tuple[tuple[str, str], ...] = (
    ("enter", "send"),
    ("shift+enter, ctrl+j", "a new line"),
    ("tab", "complete a /command, an @agent or a @file"),
    ("up, down", "what was said before; in an empty prompt: take waiting messages back, go to the agents"),
    ("pageup, pagedown", "scroll the conversation"),
    ("shift+tab", "into the conversation, to open tool calls with enter"),
)


def chosen(settings: Mapping[str, str], abort_resend_key: str = "f9") -> tuple[tuple[Key, ...], list[str]]:
    """The table with the user's keys in it, and what was wrong with those. A name with a dot in
    it is of a screen, which looks after its own."""
    unknown = [name for name in settings if "." not in name and name not in _names()]
    problems = [f"keys.{name}: there is no action of that name" for name in unknown]
    wanted = {"resend": abort_resend_key, **settings}
    table: list[Key] = []
    taken: dict[str, str] = {}
    for each in KEYS:
        key = wanted.get(each.name, each.key).strip().lower() or each.key
        if key in taken:
            problems.append(f"keys.{each.name}: {key} is already the key for {taken[key]}")
            key = each.key
        taken[key] = each.name
        table.append(each._replace(key=key))
    return tuple(table), problems


def _names() -> set[str]:
    return {each.name for each in KEYS} | {f"viewer.{move}" for move in VIEWER_KEYS}
