"""Questions of runs, and about trust, on the terminal.

One question at a time is asked while the program runs in the foreground. Text that was typed before a question appears
does not answer it. If the item is answered elsewhere, by any process, the question disappears. An approval is shown
completely, a page at a time, and can be allowed only after the last page.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from pathlib import Path
from typing import TextIO

from retinue.app.approvals import ALLOWING, APPROVAL_CHOICES, headline, item_lines
from retinue.app.text import indent, optional
from retinue.core.controls import in_line
from retinue.core.permission import InboxAnswer, InboxItem

TERMINAL_NAME = "terminal"
_FOREGROUND_POLL_SECONDS = 0.5
_PAGE_ROWS = 60
_MIN_COLUMNS = 20
_OPTION_OF_KEY = {choice.key: option for option, choice in APPROVAL_CHOICES.items()}
_OPTION_OF_WORD = {"yes": "allow", "no": "deny"}


def terminal() -> Terminal | None:
    """Return the terminal of this process; None where nobody sits at it, such as in a pipe."""
    if sys.stdin is None or sys.stderr is None or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return None
    return Terminal(sys.stdin, sys.stderr)


class Terminal:
    """A person at a terminal. Called with an item of the inbox it asks, and returns the answer."""

    def __init__(self, source: TextIO, out: TextIO) -> None:
        self._source = source
        self._out = out
        self._free = asyncio.Lock()
        self._rest = b""

    async def __call__(self, item: InboxItem) -> InboxAnswer | None:
        async with self._free:
            await self._in_foreground()
            self._forget_typed()
            pages = PagedText([f"? {headline(item)}", *indent(item_lines(item), "  ")], _choices(item))
            self._say(f"\n{pages.turn()}")
            try:
                return await self._answer(item, pages)
            except asyncio.CancelledError:
                self._say("  (answered elsewhere, or not needed any more)")
                raise

    async def _answer(self, item: InboxItem, pages: PagedText) -> InboxAnswer:
        while True:
            self._out.write("> ")
            self._out.flush()
            line = await self._line()
            if line is None:
                return InboxAnswer(item.default, "The terminal was closed.", TERMINAL_NAME)
            choice = understood(item, line.strip())
            if pages.more and (choice is None or choice.choice in ALLOWING):
                self._forget_typed()
                self._say(pages.turn())
            elif choice is not None:
                return choice

    def _say(self, text: str) -> None:
        print(text, file=self._out, flush=True)

    async def _in_foreground(self) -> None:
        """Wait until the shell runs this program in the foreground, because reading in the background would stop it."""
        if not hasattr(os, "tcgetpgrp"):
            return
        while os.tcgetpgrp(self._source.fileno()) != os.getpgrp():  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(_FOREGROUND_POLL_SECONDS)

    def _forget_typed(self) -> None:
        """Discard text that was typed before the question appeared."""
        self._rest = b""
        try:
            import termios
        except ImportError:
            return
        termios.tcflush(self._source.fileno(), termios.TCIFLUSH)

    async def _line(self) -> str | None:
        """Return the next line that is typed; None at the end of input."""
        loop, descriptor = asyncio.get_running_loop(), self._source.fileno()
        while b"\n" not in self._rest:
            readable = asyncio.Event()
            try:
                loop.add_reader(descriptor, readable.set)
            except NotImplementedError:
                # Windows: a thread waits instead, which cannot be cancelled.
                return await asyncio.to_thread(self._source.readline) or None
            try:
                await readable.wait()
            finally:
                loop.remove_reader(descriptor)
            data = os.read(descriptor, 65_536)
            if not data:
                return None
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\n")
        return line.decode("utf-8", "replace")


class PagedText:
    """Lines for a person, a page at a time. `end` follows the last page."""

    def __init__(self, lines: list[str], end: list[str]) -> None:
        width = max(shutil.get_terminal_size().columns, _MIN_COLUMNS)
        self._rows = [line[at : at + width] for line in lines for at in range(0, max(len(line), 1), width)]
        self._end = end

    @property
    def more(self) -> bool:
        """Whether there are rows that were not shown."""
        return bool(self._rows)

    def turn(self) -> str:
        """Return the next page."""
        page, self._rows = self._rows[:_PAGE_ROWS], self._rows[_PAGE_ROWS:]
        if self._rows:
            prompt_line = f"  … {len(self._rows)} more lines of this question: Enter shows them."
            return "\n".join([*page, prompt_line])
        return "\n".join([*page, *self._end])


def understood(item: InboxItem, line: str) -> InboxAnswer | None:
    """Return the meaning of a typed line; None for an empty one. For an approval, any text that is not a key denies and
    is sent to the agent."""
    if not line:
        return None
    if item.kind == "question":
        if line.isascii() and line.isdigit() and 0 < int(line) <= len(item.options):
            return InboxAnswer(item.options[int(line) - 1], by=TERMINAL_NAME)
        return InboxAnswer(line, by=TERMINAL_NAME)
    # `A` and `a` differ. Other letters are accepted in either case.
    choice = (
        _OPTION_OF_KEY.get(line) or _OPTION_OF_KEY.get(line.lower()) or _OPTION_OF_WORD.get(line.lower(), line.lower())
    )
    if choice in item.options:
        return InboxAnswer(choice, by=TERMINAL_NAME)
    is_key = line in _OPTION_OF_KEY or line.lower() in _OPTION_OF_KEY
    return InboxAnswer("deny", "" if is_key else line, TERMINAL_NAME)


def _choices(item: InboxItem) -> list[str]:
    if item.kind == "question":
        numbered = [f"  {number}. {in_line(option)}" for number, option in enumerate(item.options, 1)]
        return [*numbered, f"  [{item.id}]"]
    choices = [APPROVAL_CHOICES[option] for option in item.options if option in APPROVAL_CHOICES]
    words = " · ".join(f"{choice.key} {choice.short}" for choice in choices) + ", or say why not"
    rule = optional("\n  as a rule: {}", in_line(item.rule or ""))
    return [f"  {words}   [{item.id}]{rule}"]


def ask_for_trust(cwd: Path, source: TextIO | None = None, out: TextIO | None = None) -> bool:
    """List the files without a decision, ask for consent, and store the decision for their content. Return True if
    everything was allowed for this process only. Without a terminal nothing is asked, and untrusted files have no
    effect."""
    source, out = source or sys.stdin, out or sys.stderr
    if source is None or out is None or not (source.isatty() and out.isatty()):
        return False
    from retinue.app.trust import PendingConsent

    consent = PendingConsent(cwd)
    if not consent.files:
        return False
    lines = ["", "The files of this project bring these along:"]
    for file in consent.files:
        lines += [f"  {in_line(file.path)}", *indent(file.brings, "      ")]
    question = "Let them take effect? y yes, and remember it / o only this time / n no, and remember it"
    pages = PagedText(lines, [question])
    out.write(f"{pages.turn()}\n")
    while True:
        out.write("> ")
        out.flush()
        answer = source.readline()
        word = answer.strip().lower()
        if answer and pages.more and word not in ("n", "no"):
            out.write(f"{pages.turn()}\n")
            continue
        if word in ("y", "yes", "n", "no"):
            consent.decide(allow=word in ("y", "yes"))
            return False
        if word in ("o", "once"):
            return True
        if not answer:
            # End of input is neither consent nor refusal.
            return False
