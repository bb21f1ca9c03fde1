"""The app on a terminal, from its first frame until the person leaves it.

Besides drawing, the app reports its state to the terminal: in the title, in the progress bar and the list of programs
(OSC 7501) of terminals that have one, and with a bell and a notification when it waits for the person or has ended a
long task.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Literal, Protocol

from retinue.app.output import (
    BELL,
    KEEP_TITLE,
    NO_SEQUENCE,
    RESTORE_TITLE,
    STRING_TERMINATOR,
    ControlSequence,
    operating_system_command,
    send_control,
)
from retinue.app.retinue import Retinue
from retinue.app.rich_text import fit, one_line
from retinue.errors import StateError
from retinue.frontends.tui.app import RetinueApp
from retinue.frontends.tui.frame import Leaving, leaving_on_signals

Standing = Literal["idle", "working", "waiting"]
# A shorter task ends before the person looks away.
LONG_SECONDS = 10.0
TITLE_WIDTH = 60
_WORDS: dict[Standing, str] = {"idle": "done", "working": "working", "waiting": "waits for you"}
# Other terminals would show the sequence of a progress bar as a notification.
_WITH_PROGRESS = frozenset({"ghostty", "WezTerm"})
_PROGRESS: dict[Standing, str] = {"idle": "0", "working": "3", "waiting": "4"}
# Terminals that show the status of the program in them (OSC 7501); RETINUE_PROGRAM_STATUS=1 or 0 decides for others.
_WITH_STATUS = frozenset({"ghostty", "rex"})
_STATUS: dict[Standing, str] = {"idle": "done", "working": "working", "waiting": "blocked"}


class TerminalSignals:
    """The escape sequences that report the app's state to the terminal; empty while nothing changes."""

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
        self._main_id: str | None = None
        self._task = ""

    def tell(self, app: RetinueApp) -> None:
        """Write the changes to the terminal."""
        driver = app._driver
        if driver is None or not app.is_running:
            return
        if app.talk.main_id != self._main_id:
            self._main_id = app.talk.main_id
            self._task = app.project.log.reader.run(self._main_id).task if self._main_id else ""
        standing: Standing = "idle"
        if app.facts.get("inbox"):
            standing = "waiting"
        elif app.talk.state != "idle":
            standing = "working"
        notify = app.project.environment.get("RETINUE_NOTIFICATIONS") != "off"
        driver.write(self.update(standing, self._task, time.monotonic(), seen=app.app_focus, notify=notify))

    def update(self, standing: Standing, task: str, now: float, *, seen: bool, notify: bool) -> ControlSequence:
        """Return the sequences to write now. `seen`: the terminal has the focus; `notify`: the person wants
        notifications."""
        parts = ["retinue"]
        if task:
            parts = [fit(one_line(task), TITLE_WIDTH), _WORDS[standing], "retinue"]
        title = " · ".join(parts)
        sequence = NO_SEQUENCE
        if title != self._title:
            self._title = title
            sequence += operating_system_command("2", title)
        before, self._standing = self._standing, standing
        if standing == before:
            return sequence
        if self._has_progress:
            sequence += operating_system_command("9", "4", _PROGRESS[standing])
        if self._shows_status:
            sequence += _status(_STATUS[standing])
        if before == "idle":
            self._began = now
        if standing == "working" or not notify:
            return sequence
        if not seen or now - self._began >= LONG_SECONDS:
            sequence += self._notification(title)
        return sequence

    def _notification(self, text: str) -> ControlSequence:
        if self._takes_777:
            return operating_system_command("777", "notify", "Retinue", text) + BELL
        if self._takes_9:
            return operating_system_command("9", text) + BELL
        return BELL

    def close(self) -> ControlSequence:
        """Return the sequences that restore the terminal."""
        sequence = NO_SEQUENCE
        if self._has_progress:
            sequence += operating_system_command("9", "4", "0")
        if self._shows_status:
            sequence += _status("clear")
        return sequence + RESTORE_TITLE


def _status(state: str) -> ControlSequence:
    """Return a report of the program's status. It omits the task, because other programs can read it."""
    return operating_system_command("7501", f"state={state}:app=retinue", end=STRING_TERMINATOR)


class TerminalHost(Protocol):
    """The part of the waiting process that the app uses."""

    def watch(self, gone: Callable[[], None]) -> None: ...


async def run_app(retinue: Retinue, *, host: TerminalHost | None = None, **options: Any) -> tuple[Leaving, str | None]:
    """Show the app until the person leaves it, or a SIGTERM or SIGHUP arrives. Return whether runs should continue,
    which requires a host, and the run of the open conversation. The terminal is restored in any case. Raise StateError
    if the app itself failed."""
    app = RetinueApp(retinue, may_keep=host is not None, **options)
    if host is not None:
        host.watch(lambda: app.exit("quit"))
    signals, terminal = TerminalSignals(os.environ), sys.stdout
    send_control(terminal, KEEP_TITLE)
    app.on_beat = partial(signals.tell, app)
    try:
        with leaving_on_signals(lambda: app.exit("quit")):
            leaving = await app.run_async(mouse=retinue.supervisor.settings.mouse)
    finally:
        send_control(terminal, signals.close())
    if app.return_code:
        raise StateError(
            "The terminal app failed; what happened is above.",
            remedy="The conversation is in the log: retinue --continue. Please report this.",
        )
    return leaving or "quit", app.talk.main_id
