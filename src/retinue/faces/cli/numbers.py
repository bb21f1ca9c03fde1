"""Numbers that people type: types for argparse, with errors that say what is wanted."""

from __future__ import annotations

import argparse


def count(value: str) -> int:
    """A whole number, 0 or more."""
    if not value.isascii() or not value.isdigit():
        raise argparse.ArgumentTypeError(f"must be a whole number, 0 or more, not '{value}'")
    return int(value)


def positive(value: str) -> float:
    """A number above 0."""
    try:
        number = float(value)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"must be a number above 0, not '{value}'")
    return number
