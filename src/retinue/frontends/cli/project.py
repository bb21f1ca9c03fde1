"""The parts that all commands share: the parser and its options, the folder and the run of a
command, and output.

Results go to stdout, everything else to stderr.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from retinue.app.lookup import locate_run, state_folder
from retinue.app.output import print_json
from retinue.core.encode import dump
from retinue.core.run_state import RunState
from retinue.errors import UsageError

# Options

CLAUDE_CODE_OPTIONS = {
    "--dangerously-skip-permissions": "--permission-mode bypassPermissions",
    "--system-prompt": "--agent NAME, the name of an agent file with that prompt",
}
"""Options of Claude Code that have another name here."""


class Parser(argparse.ArgumentParser):
    """argparse with unchanged help texts, full option names only, and errors that refer to the help."""

    def __init__(self, **options: Any) -> None:
        if sys.version_info >= (3, 14):
            # The writer shows escape sequences of others as text.
            options.setdefault("color", False)
        super().__init__(formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False, **options)

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        # argparse treats an optional argument as absent if an option comes before it:
        # `retinue --model sonnet "words"`.
        if any(action.nargs == "?" and not action.option_strings for action in self._actions):
            return self.parse_intermixed_args(args, namespace)
        return super().parse_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        raise UsageError(self._explain(message), remedy=f"Try: {self.prog} --help")

    def _explain(self, message: str) -> str:
        """Return argparse's message; for an unknown option, with the closest one."""
        _, separator, arguments = message.partition("unrecognized arguments: ")
        unknown = next((word for word in arguments.split() if word.startswith("-")), None)
        if not separator or unknown is None:
            return message
        from difflib import get_close_matches

        option = unknown.partition("=")[0]
        if option in CLAUDE_CODE_OPTIONS:
            return f"There is no option {option}. Here it is {CLAUDE_CODE_OPTIONS[option]}."
        near = get_close_matches(option.lower(), self._option_string_actions, n=2, cutoff=0.75)
        meant = f" Did you mean {' or '.join(near)}?" if near else ""
        return f"There is no option {option}.{meant}"


def count(value: str) -> int:
    """Return a whole number, 0 or more."""
    # Ten digits and more would not fit the numbers of SQLite.
    if not value.isascii() or not value.isdigit() or len(value) > 9:
        raise argparse.ArgumentTypeError(f"must be a whole number, 0 or more, not '{value}'")
    return int(value)


def amount(value: str) -> float:
    """Return a number, 0 or more."""
    number = _number(value)
    if not 0 <= number < float("inf"):
        raise argparse.ArgumentTypeError(f"must be a number, 0 or more, not '{value}'")
    return number


def positive(value: str) -> float:
    """Return a number above 0."""
    number = _number(value)
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"must be a number above 0, not '{value}'")
    return number


def _number(value: str) -> float:
    try:
        return float(value)
    except ValueError:
        # Outside every range, so the caller reports the accepted one.
        return float("nan")


def add_cwd(parser: argparse.ArgumentParser, help: str = "the project to look in (default: here)") -> None:
    parser.add_argument("--cwd", metavar="DIR", help=help)


def add_json(parser: argparse.ArgumentParser, help: str = "print one JSON document on stdout") -> None:
    parser.add_argument("--json", action="store_true", help=help)


def add_where(parser: argparse.ArgumentParser, help: str = "the project to look in (default: here)") -> None:
    """Add `--cwd`, described by `help`, and `--json`."""
    add_cwd(parser, help)
    add_json(parser)


def add_run(parser: argparse.ArgumentParser, help: str = "id of the run, a prefix of it, or @name") -> None:
    """Add the argument for a run, in the form that `locate` accepts."""
    parser.add_argument("run", metavar="ID", help=help)


# Folders and runs


def folder(value: str | None) -> Path:
    """Return the folder of --cwd, or the current one. Raise UsageError if it does not exist."""
    try:
        path = Path(value).expanduser() if value else Path.cwd()
    except FileNotFoundError:
        gone = "The folder this was started in does not exist any more."
        raise UsageError(gone, remedy="Change to another, or name one: --cwd DIR") from None
    # `Path.is_dir` raises for a name that is too long.
    if not os.path.isdir(path):  # noqa: PTH112
        raise UsageError(f"There is no folder {path}.", remedy="Choose another with --cwd.")
    return path.resolve()


def project(args: argparse.Namespace) -> Path:
    """Return the state folder of the project that `--cwd` names."""
    return state_folder(folder(args.cwd))


def locate(args: argparse.Namespace) -> tuple[Path, RunState]:
    """Find the run that `args.run` names: by its id or a prefix of it, in this project or any other, or by @name in
    this one. Return its state folder and the run."""
    return locate_run(args.run, folder(args.cwd))


# Output


def say(text: str) -> None:
    """Print a message on stderr, because stdout is for the result."""
    print(text, file=sys.stderr)


def warn(problems: Sequence[str]) -> None:
    for problem in problems:
        say(f"warning: {problem}")


def write_json(data: Any, indent: int | None = 2) -> None:
    """Print a struct or plain data as one JSON document with a newline on stdout, always in UTF-8."""
    from msgspec import to_builtins

    text = json.dumps(to_builtins(data, enc_hook=str), ensure_ascii=False, indent=indent)
    # A surrogate, which a file name may contain, remains an escape.
    print_json(text.encode("utf-8", "backslashreplace"))


def write_values(document: Any) -> None:
    """Print a document with values of the log, such as runs and events, on one line."""
    print_json(dump(document))
