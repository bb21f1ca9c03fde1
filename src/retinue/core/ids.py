"""Identifiers. A run id is the first 17 characters of a random UUID, as the pi family prints it.

(Made by hand: importing `uuid` takes as long as a dozen of our modules.)
"""

from __future__ import annotations

import os


def new_run_id() -> str:
    digits = os.urandom(7).hex()
    return f"{digits[:8]}-{digits[8:12]}-4{digits[12:]}"


def short_id(run_id: str) -> str:
    """The eight characters people type; unambiguous in practice, checked where it is used."""
    return run_id[:8]
