"""Every screen of the app in one table: where it lives, and how a person gets there.

A screen is loaded when it is first opened. Its class is made with the app's crew nowhere in
sight: it takes the words after its command, if any, and finds the rest at `self.app`.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any

from textual.screen import Screen


@dataclass(frozen=True, slots=True)
class Door:
    """`place` is `module:Class` below `screens`. `command` is the slash command that opens it and
    `key` the key that does; a screen without either is opened by others, as
    `await app.visit(name, …)`."""

    name: str
    place: str
    help: str
    command: str = ""
    key: str = ""
    arguments: str = ""

    def screen(self, *arguments: Any) -> Screen[Any]:
        module, _, name = self.place.partition(":")
        made: Screen[Any] = getattr(importlib.import_module(f"retinue.faces.tui.screens.{module}"), name)(*arguments)
        return made


DOORS: dict[str, Door] = {
    door.name: door
    for door in (
        Door("help", "help:HelpScreen", "keys and commands", command="help", key="f1"),
        Door("sessions", "sessions:SessionsScreen", "earlier conversations, to go on with one", command="sessions"),
        Door("confirm", "confirm:ConfirmScreen", "a question with a few answers"),
        Door("viewer", "viewer:ViewerScreen", "a run as it works"),
        Door("inbox", "inbox:InboxScreen", "what waits for an answer", command="inbox", key="f2"),
        Door("agents", "agents:AgentsScreen", "agents: running, types, create, edit", command="agents", key="f3"),
        Door("settings", "settings:SettingsScreen", "see and change settings", command="settings"),
        Door("schedules", "schedules:SchedulesScreen", "agents that start at a time", command="schedules"),
        Door(
            "toolkit",
            "toolkit:ToolkitScreen",
            "doctor, agents, logs, activity, lsp, help",
            command="toolkit",
            arguments="[REPORT]",
        ),
    )
}
