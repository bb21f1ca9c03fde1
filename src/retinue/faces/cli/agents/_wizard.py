"""The questions of `retinue agents new`, asked where options do not answer them.

Plain lines on the terminal. End of input or Ctrl-C at any point leaves nothing behind: the file
is written after the last answer.
"""

from __future__ import annotations

import argparse
import sys

from retinue.agents.create import check_name
from retinue.errors import UsageError

_MODELS = ("inherit", "haiku", "sonnet", "opus")
_LEVELS = ("inherit", "off", "minimal", "low", "medium", "high", "xhigh", "max")


def ask(args: argparse.Namespace) -> None:
    """Fills in what `args` leave open. Raises KeyboardInterrupt when the user goes away."""
    if args.name is None:
        args.name = _name()
    if not args.user:
        args.user = _choose("Where", ("project", "user")) == "user"
    args.description = _required("When should it be used")
    if args.tools is None and not args.readonly:
        args.tools = _free("Tools (all, none, read-only, or names)", "all")
    if args.model is None:
        args.model = _free(f"Model ({', '.join(_MODELS)}, or provider/model)", "inherit")
    if args.thinking is None:
        args.thinking = _choose("Thinking", _LEVELS)
    if args.prompt is None:
        args.body = _lines("Instructions, ended by a line with only a dot (empty: a short default)")


def _name() -> str:
    while True:
        try:
            return check_name(_required("Name"))
        except UsageError as error:
            _show(f"{error}\n")


def _required(question: str) -> str:
    while True:
        answer = _line(f"{question}: ")
        if answer:
            return answer
        _show("An answer is needed.\n")


def _choose(question: str, options: tuple[str, ...]) -> str:
    while True:
        answer = _free(f"{question} ({', '.join(options)})", options[0])
        if answer in options:
            return answer
        _show(f"Please choose one of {', '.join(options)}.\n")


def _free(question: str, default: str) -> str:
    return _line(f"{question} [{default}]: ") or default


def _lines(question: str) -> str:
    _show(f"{question}:\n")
    lines: list[str] = []
    while (line := _line("", strip=False)).strip() != ".":
        lines.append(line)
        if not line and len(lines) == 1:
            break
    return "\n".join(lines)


def _line(question: str, *, strip: bool = True) -> str:
    _show(question)
    try:
        answer = input()
    except EOFError:
        raise KeyboardInterrupt from None
    return answer.strip() if strip else answer


def _show(text: str) -> None:
    """Questions go to stderr: stdout is for the path of the new file."""
    print(text, end="", file=sys.stderr, flush=True)
