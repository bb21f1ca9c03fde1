"""The table of all commands and their options that shell completion reads.

Building it imports every command, so `app/completion.py` keeps it in a file of the cache folder.
"""

from __future__ import annotations

import argparse
import importlib
from pathlib import Path
from typing import Any

from retinue.faces.cli.main import APP, COMMANDS, HEADLESS, Command, Group
from retinue.faces.cli.project import Parser

_METAVARS = {"DIR": "folder", "FILE": "file", "M": "model", "AGENT": "agent", "TASK": "file", "PROMPT": "file"}
_OF_RUNS = ("runs", "attach", "open", "replay")
_BY_PLACE = {
    ("agents show", "name"): "agent",
    ("agents convert", "name"): "agent",
    ("agents disable", "name"): "agent",
    ("agents eject", "name"): "agent",
    ("agents enable", "name"): "agent",
    ("agents lint", "paths"): "file",
    ("models default", "name"): "model",
    ("models resolve", "name"): "model",
    ("models test", "name"): "model",
    ("settings get", "name"): "setting",
    ("settings set", "name"): "setting",
    ("settings unset", "name"): "setting",
}


def completion_table() -> tuple[dict[str, Any], list[str]]:
    """Return the table and the source files that it depends on.

    The table has the commands of each group, and the arguments and options of each command.
    """
    groups: dict[str, dict[str, str]] = {"": {name: entry.help for name, entry in COMMANDS.items()}}
    table: dict[str, Any] = {"groups": groups, "": _app()}
    for name, entry in COMMANDS.items():
        if isinstance(entry, Command):
            table[name] = _describe(name, entry)
            continue
        assert isinstance(entry, Group)
        groups[name] = {verb: command.help for verb, command in entry.commands.items()}
        if entry.alone is not None:
            table[name] = _describe(name, entry.alone)
        for verb, command in entry.commands.items():
            table[f"{name} {verb}"] = _describe(f"{name} {verb}", command)
    return table, [str(path) for path in sorted(Path(__file__).parent.glob("*.py"))]


def _app() -> dict[str, Any]:
    """Return what may follow `retinue` itself: options of the app and of `-p`, which share their place."""
    app, headless = _describe("", APP), _describe("", HEADLESS)
    options = {**headless["options"], **app["options"]}
    options["--version"] = {"help": "the installed version", "value": None, "many": False}
    return {"arguments": [], "many": False, "options": options}


def _describe(path: str, command: Command) -> dict[str, Any]:
    home, _, name = command.home.partition(":")
    module = importlib.import_module(f"retinue.faces.cli.{home}")
    parser = Parser(prog=f"retinue {path}")
    getattr(module, f"configure{'_' + name if name else ''}")(parser)
    options: dict[str, Any] = {}
    arguments: list[Any] = []
    many = False
    for action in parser._actions:
        if action.help == argparse.SUPPRESS:
            continue
        takes = action.nargs != 0
        kind = _kind(path, action) if takes else None
        repeats = action.nargs in ("+", "*")
        if not action.option_strings:
            arguments.append(kind)
            many = many or repeats
        for option in action.option_strings:
            text = " ".join((action.help or "").split())
            options[option] = {"help": text, "value": kind, "many": repeats}
    return {"arguments": arguments, "many": many, "options": options}


def _kind(path: str, action: argparse.Action) -> Any:
    """Return what a person may write there: a list of words, or the name of a kind of values."""
    if action.choices is not None:
        return [str(choice) for choice in action.choices]
    if (path, action.dest) in _BY_PLACE:
        return _BY_PLACE[path, action.dest]
    metavar = action.metavar if isinstance(action.metavar, str) else ""
    if "--agent" in action.option_strings:
        return "agent"
    if metavar == "ID" and (path.split(" ")[0] in ("", *_OF_RUNS) or action.dest in ("run", "resume")):
        return "run"
    return _METAVARS.get(metavar, "")
