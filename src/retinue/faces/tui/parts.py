"""What works in the background of the app without a place on the screen, one line each.

A part is made with the app, hears every event of the feed, and is closed with the app.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Protocol

from retinue.core.events import Event

if TYPE_CHECKING:
    from retinue.faces.tui.app import RetinueApp

PLACES: tuple[str, ...] = ("screens.inbox_watch:InboxWatch",)
"""`module:Class` below `retinue.faces.tui`, such as `screens.inbox_watch:InboxWatch`."""


class Part(Protocol):
    """Made as `Class(app)` once the app is on the screen."""

    def take(self, event: Event) -> None:
        """Every event, in order. Must be quick."""

    async def close(self) -> None: ...


def made(app: RetinueApp) -> list[Part]:
    found: list[Part] = []
    for place in PLACES:
        module, _, name = place.partition(":")
        found.append(getattr(importlib.import_module(f"retinue.faces.tui.{module}"), name)(app))
    return found
