"""The app on a terminal, from its first frame until the person leaves it.

Outside of what is drawn, the terminal is told how it stands: in its title, in its progress bar and its list of programs
(OSC 7501) where it has one, and with a bell and a notification when the app waits for its person or has ended
something long.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Mapping
from typing import Any, Literal, Protocol

from retinue.errors import StateError
from retinue.faces.api import Retinue
from retinue.faces.tui.app import RetinueApp
from retinue.faces.tui.board.text import fit, one_line
from retinue.faces.tui.frame import Leaving, leaving_on_signals

Standing = Literal["idle", "working", "waiting"]
LOOK_SECONDS = 0.5
# Something shorter has ended before its person looked away.
LONG_SECONDS = 10.0
TITLE_WIDTH = 60
# The title that the shell had is kept by the terminal meanwhile.
KEEP_TITLE, RESTORE_TITLE = "\x1b[22;2t", "\x1b[23;2t"
_WORDS: dict[Standing, str] = {"idle": "done", "working": "working", "waiting": "waits for you"}
# Others would show a progress bar's sequence as a notification.
_WITH_PROGRESS = frozenset({"ghostty", "WezTerm"})
_PROGRESS: dict[Standing, str] = {"idle": "0", "working": "3", "waiting": "4"}
# Terminals that show the status of the program in them (OSC 7501); RETINUE_PROGRAM_STATUS=1 or 0 decides for others.
_WITH_STATUS = frozenset({"ghostty", "rex"})
_STATUS: dict[Standing, str] = {"idle": "done", "working": "working", "waiting": "blocked"}


class TerminalSignals:
    """What to tell the terminal beside the screen, as escape sequences; empty while nothing changes."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        program = environment.get("TERM_PROGRAM", "")
        name = environment.get("TERM", "")
        self._has_progress = program in _WITH_PROGRESS or "WT_SESSION" in environment or "ConEmuANSI" in environment
        self._takes_777 = program in _WITH_PROGRESS or name.startswith(("foot", "rxvt"))
        self._shows_status = environment.get("RETINUE_PROGRAM_STATUS", str(int(program in _WITH_STATUS))) == "1"
        self._takes_9 = program == "iTerm.app" or "KITTY_WINDOW_ID" in environment
        self._standing: Standing = "idle"
        self._title = ""
        self._began = 0.0

    def update(self, standing: Standing, task: str, now: float, *, seen: bool, notify: bool) -> str:
        """Return what to write now. `seen`: the person looks at the terminal; `notify`: they want to hear of it."""
        parts = ["retinue"]
        if task:
            parts = [fit(one_line(task), TITLE_WIDTH), _WORDS[standing], "retinue"]
        title = " · ".join(parts)
        text = ""
        if title != self._title:
            self._title = title
            text += f"\x1b]2;{title}\x07"
        before, self._standing = self._standing, standing
        if standing == before:
            return text
        if self._has_progress:
            text += f"\x1b]9;4;{_PROGRESS[standing]}\x07"
        if self._shows_status:
            text += _status(_STATUS[standing])
        if before == "idle":
            self._began = now
        if standing == "working" or not notify:
            return text
        if not seen or now - self._began >= LONG_SECONDS:
            text += self._notification(title)
        return text

    def _notification(self, text: str) -> str:
        # In OSC 777 a semicolon ends a field.
        plain = text.replace(";", ",")
        if self._takes_777:
            return f"\x1b]777;notify;Retinue;{plain}\x07\x07"
        if self._takes_9:
            return f"\x1b]9;{plain}\x07\x07"
        return "\x07"

    def close(self) -> str:
        """Return what leaves the terminal as it was."""
        text = ""
        if self._has_progress:
            text += "\x1b]9;4;0\x07"
        if self._shows_status:
            text += _status("clear")
        return text + RESTORE_TITLE


def _status(state: str) -> str:
    """Return a report of the program's status. It has no words of the task: other programs read it."""
    return f"\x1b]7501;state={state}:app=retinue\x1b\\"


async def _follow(app: RetinueApp, signals: TerminalSignals) -> None:
    """Tell the terminal of changes until the app is left."""
    main_id, task = None, ""
    while True:
        await asyncio.sleep(LOOK_SECONDS)
        driver = app._driver
        if driver is None or not app.is_running:
            continue
        if app.talk.main_id != main_id:
            main_id = app.talk.main_id
            task = app.project.log.reader.run(main_id).task if main_id else ""
        standing: Standing = "idle"
        if app.facts.get("inbox"):
            standing = "waiting"
        elif app.talk.state != "idle":
            standing = "working"
        wanted = app.project.environment.get("RETINUE_NOTIFICATIONS") != "off"
        driver.write(signals.update(standing, task, time.monotonic(), seen=app.app_focus, notify=wanted))


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
    signals = TerminalSignals(os.environ)
    os.write(1, KEEP_TITLE.encode())
    following = asyncio.create_task(_follow(app, signals), name="terminal title")
    try:
        with leaving_on_signals(lambda: app.exit("quit")):
            left = await app.run_async(mouse=retinue.supervisor.settings.mouse)
    finally:
        following.cancel()
        os.write(1, signals.close().encode())
    if app.return_code:
        raise StateError(
            "The terminal app failed; what happened is above.",
            remedy="The conversation is in the log: retinue --continue. Please report this.",
        )
    return left or "quit", app.talk.main_id
