"""Identifiers. A run id is the first 17 characters of a UUID, as the pi family prints it."""

from __future__ import annotations

import uuid


def new_run_id() -> str:
    return str(uuid.uuid4())[:17]


def short_id(run_id: str) -> str:
    """The eight characters people type; unambiguous in practice, checked where it is used."""
    return run_id[:8]
