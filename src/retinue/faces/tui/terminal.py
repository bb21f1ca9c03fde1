"""The app on a terminal, from its first frame until the person leaves it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from retinue.errors import StateError
from retinue.faces.api import Retinue
from retinue.faces.tui.app import RetinueApp
from retinue.faces.tui.frame import Leaving, leaving_on_signals


class TerminalHost(Protocol):
    """The process that waits for the app, as far as the app needs it."""

    def watch(self, gone: Callable[[], None]) -> None: ...


async def run_app(retinue: Retinue, *, host: TerminalHost | None = None, **options: Any) -> tuple[Leaving, str | None]:
    """Show the app until the person leaves it. Return whether runs are to go on, which only a host can let them, and
    the run of the conversation that was open. SIGTERM and SIGHUP leave it as well. The terminal is restored however
    it ends. Raise StateError when the app itself failed."""
    app = RetinueApp(retinue, may_keep=host is not None, **options)
    if host is not None:
        host.watch(lambda: app.exit("quit"))
    with leaving_on_signals(lambda: app.exit("quit")):
        left = await app.run_async(mouse=retinue.supervisor.settings.mouse)
    if app.return_code:
        raise StateError(
            "The terminal app failed; what happened is above.",
            remedy="The conversation is in the log: retinue --continue. Please report this.",
        )
    return left or "quit", app.talk.main_id
