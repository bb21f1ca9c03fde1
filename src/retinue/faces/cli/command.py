"""How a command of the program is declared: a name, one line of help, and the module to load.

Modules are imported when their command is chosen and not before, so that `retinue --help`
costs what argparse costs. A command module offers two functions:

    configure(parser)   adds its arguments
    execute(args)       does the work and returns the exit code
"""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

EXIT_CODES = "exit codes: 0 success, 1 the run failed, 2 usage or configuration, 124 timeout, 130 interrupted"


@dataclass(frozen=True, slots=True)
class Command:
    """One leaf: `module` is imported on use."""

    help: str
    module: str


@dataclass(frozen=True, slots=True)
class Group:
    """Several commands under one word, such as `retinue agents list`."""

    help: str
    commands: Mapping[str, Command]


class Parser(argparse.ArgumentParser):
    """argparse, except that a mistake names the command whose help to read."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"retinue: {message}\nTry: {self.prog} --help\n")


def dispatch(path: str, entry: Command | Group, argv: Sequence[str]) -> int:
    """Runs `entry`, reached by the words of `path`, on the rest of the command line."""
    if isinstance(entry, Command):
        module = importlib.import_module(entry.module)
        parser = Parser(
            prog=path,
            description=module.__doc__,
            epilog=EXIT_CODES,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        module.configure(parser)
        code: int = module.execute(parser.parse_args(argv))
        return code
    word = argv[0] if argv else ""
    if word in entry.commands:
        return dispatch(f"{path} {word}", entry.commands[word], argv[1:])
    parser = Parser(prog=path, usage=f"{path} COMMAND ...", description=entry.help, add_help=True)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = "commands:\n" + listing(entry.commands)
    if word in ("", "-h", "--help"):
        print(parser.format_help(), end="")
        return 0 if word else 2
    parser.error(f"there is no '{word}' here; choose one of: {', '.join(entry.commands)}")


def listing(commands: Mapping[str, Command | Group]) -> str:
    width = max(len(name) for name in commands)
    return "\n".join(f"  {name:<{width}}  {entry.help}" for name, entry in commands.items())
