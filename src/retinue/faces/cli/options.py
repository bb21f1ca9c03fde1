"""argparse as this program uses it: help texts as written, numbers checked, errors that name the help."""

from __future__ import annotations

import argparse
from typing import Any, NoReturn


class Parser(argparse.ArgumentParser):
    def __init__(self, **options: Any) -> None:
        super().__init__(formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False, **options)

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"retinue: {message}\n  Try: {self.prog} --help\n")


def count(value: str) -> int:
    """A whole number, 0 or more."""
    if not value.isascii() or not value.isdigit():
        raise argparse.ArgumentTypeError(f"must be a whole number, 0 or more, not '{value}'")
    return int(value)


def amount(value: str) -> float:
    """A number, 0 or more."""
    number = _number(value)
    if not 0 <= number < float("inf"):
        raise argparse.ArgumentTypeError(f"must be a number, 0 or more, not '{value}'")
    return number


def positive(value: str) -> float:
    """A number above 0."""
    number = _number(value)
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"must be a number above 0, not '{value}'")
    return number


def _number(value: str) -> float:
    try:
        return float(value)
    except ValueError:
        return float("nan")
