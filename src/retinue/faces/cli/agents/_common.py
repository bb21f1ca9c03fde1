"""What the commands on agent files share: their options, and how they speak."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from retinue.core.spec import DialectName
from retinue.errors import UsageError
from retinue.faces.cli.task import folder as chosen_folder

WRITABLE: tuple[DialectName, ...] = (
    "retinue",
    "claude",
    "pi",
    "devkit",
    "codingcode",
    "opencode",
    "gemini",
    "copilot",
    "cursor",
)


def add_common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--cwd", metavar="DIR", help="the folder to look from (default: here)")
    parser.add_argument("--json", action="store_true", help="print one JSON document on stdout")


def add_place(parser: argparse.ArgumentParser) -> None:
    """Where a written file goes."""
    parser.add_argument("--user", action="store_true", help="in your own folder instead of the project's")
    parser.add_argument(
        "--dialect", choices=WRITABLE, default="retinue", help="whose format and folder (default: retinue)"
    )
    parser.add_argument("--force", action="store_true", help="replace a file that exists")


def folder(args: argparse.Namespace) -> Path:
    """The folder of --cwd, absolute. UsageError when it is none."""
    return chosen_folder(args.cwd)


def plugins(cwd: Path, *, own: bool = True) -> tuple[tuple[str, Path], ...]:
    """Folders of agents that plugins bring; without `own` only those of the project. Nothing of a
    plugin is run for it."""
    from retinue.capabilities.plugins.visible import agent_folders, visible_plugins
    from retinue.settings.load import load_settings

    found = visible_plugins(cwd, os.environ, load_settings(cwd))
    return agent_folders(found if own else found.brought)


def say(text: str) -> None:
    """For people: stderr, so that stdout stays what a program asked for."""
    print(text, file=sys.stderr)


def put(text: str) -> None:
    """A result on stdout, byte for byte: a path may hold bytes that are no characters."""
    sys.stdout.flush()
    sys.stdout.buffer.write(text.encode("utf-8", "surrogateescape"))
    sys.stdout.buffer.flush()


def read_text(argument: str) -> str:
    """TEXT as it is, `-` for stdin, `@file` for a file's text."""
    if argument == "-":
        return sys.stdin.read()
    if argument.startswith("@") and len(argument) > 1:
        try:
            return Path(argument[1:]).expanduser().read_text(encoding="utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"{argument[1:]} cannot be read: {error}.", remedy="Check the path after '@'.") from error
    return argument
