"""Leaving the app while runs live: they stop, they go on without it, or one stays."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Literal

from retinue.faces.tui.board.text import fit, one_line

if TYPE_CHECKING:
    from retinue.faces.tui.app import RetinueApp
    from retinue.runs.crew import Supervisor
    from retinue.runs.member import Member

Leaving = Literal["quit", "keep"]
SHOWN = 8


@contextlib.contextmanager
def leaving_on_signals(leave: Callable[[], None]) -> Iterator[None]:
    """The first SIGTERM or SIGHUP leaves in order; a second one does what it always does."""
    loop = asyncio.get_running_loop()
    numbers = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]

    def once() -> None:
        for number in numbers:
            loop.remove_signal_handler(number)
        leave()

    try:
        for number in numbers:
            loop.add_signal_handler(number, once)
    except (NotImplementedError, RuntimeError):  # Windows, or not the main thread
        numbers = []
    try:
        yield
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)


def live_runs(supervisor: Supervisor) -> list[Member]:
    """Everything of this process that would end with it."""
    return [member for member in supervisor.members.values() if member.live]


async def way_out(app: RetinueApp, live: Sequence[Member], *, may_keep: bool) -> Leaving | None:
    """None when the person stays. Asks nothing when nothing runs."""
    if not live:
        return "quit"
    count = f"{len(live)} run{'s' if len(live) != 1 else ''} still at work."
    rows = [fit(one_line(f"{each.name or each.handle.agent}: {each.description}"), 60) for each in live[:SHOWN]]
    rows += [f"… and {len(live) - SHOWN} more"] if len(live) > SHOWN else []
    choices = [("keep", "k", "let them go on without the app")] if may_keep else []
    choices += [("quit", "s", "stop them and quit"), ("stay", "c", "stay here")]
    chosen = await app.visit("confirm", count, choices, "\n".join(rows))
    return chosen if chosen in ("quit", "keep") else None
