"""Questions of runs on the terminal, one at a time, while the program runs in its foreground.

What was typed before a question appears does not answer it. Someone else may answer the same
item meanwhile, from any process: then the question goes away.
"""

from __future__ import annotations

import asyncio
import os
import sys
from typing import TextIO

from retinue.core.inbox import InboxAnswer, InboxItem

BY = "terminal"
_LOOK_SECONDS = 0.5
_KEYS = {"y": "allow", "r": "allow-run", "a": "allow-agent", "A": "always", "n": "deny"}
_WORDS = {
    "allow": "y once",
    "allow-run": "r for this run",
    "allow-agent": "a for this agent",
    "always": "A always",
    "deny": "n deny, or say why not",
}


def terminal() -> Terminal | None:
    """The terminal of this process; None where nobody sits at it, such as in a pipe."""
    if sys.stdin is None or sys.stderr is None or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return None
    return Terminal(sys.stdin, sys.stderr)


class Terminal:
    def __init__(self, source: TextIO, out: TextIO) -> None:
        self._source = source
        self._out = out
        self._free = asyncio.Lock()
        self._rest = b""

    async def __call__(self, item: InboxItem) -> InboxAnswer | None:
        from retinue.faces.cli.inbox._show import body, headline

        async with self._free:
            await self._in_foreground()
            self._forget_typed()
            self._say("\n".join(["", f"? {headline(item)}", *(f"  {line}" for line in body(item)), *_choices(item)]))
            try:
                return await self._answer(item)
            except asyncio.CancelledError:
                self._say("  (answered elsewhere, or not needed any more)")
                raise

    async def _answer(self, item: InboxItem) -> InboxAnswer:
        while True:
            self._out.write("> ")
            self._out.flush()
            line = await self._line()
            if line is None:
                return InboxAnswer(item.default, "The terminal was closed.", BY)
            given = understood(item, line.strip())
            if given is not None:
                return given

    def _say(self, text: str) -> None:
        print(text, file=self._out, flush=True)

    async def _in_foreground(self) -> None:
        """A program that the shell runs in the background would be stopped if it read."""
        if not hasattr(os, "tcgetpgrp"):
            return
        while os.tcgetpgrp(self._source.fileno()) != os.getpgrp():  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(_LOOK_SECONDS)

    def _forget_typed(self) -> None:
        self._rest = b""
        try:
            import termios
        except ImportError:
            return
        termios.tcflush(self._source.fileno(), termios.TCIFLUSH)

    async def _line(self) -> str | None:
        """The next line that is typed; None at the end of input."""
        loop, descriptor = asyncio.get_running_loop(), self._source.fileno()
        while b"\n" not in self._rest:
            readable = asyncio.Event()
            try:
                loop.add_reader(descriptor, readable.set)
            except NotImplementedError:  # Windows: a thread waits instead, and cannot be called off
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


def understood(item: InboxItem, line: str) -> InboxAnswer | None:
    """What a typed line means; None for an empty one. Where approval is asked, any text that is
    no key denies, and is told to the agent."""
    if not line:
        return None
    if item.kind == "question":
        chosen = int(line) - 1 if line.isascii() and line.isdigit() else -1
        return InboxAnswer(item.options[chosen] if 0 <= chosen < len(item.options) else line, by=BY)
    key = _KEYS.get(line, _KEYS.get(line.lower()) if len(line) == 1 else None)
    word = {"yes": "allow", "no": "deny"}.get(line.lower(), line.lower())
    choice = key or (word if word in item.options else None)
    if choice in item.options and choice is not None:
        return InboxAnswer(choice, by=BY)
    return InboxAnswer("deny", "" if key is not None else line, BY)


def _choices(item: InboxItem) -> list[str]:
    if item.kind == "question":
        numbered = [f"  {number}. {option}" for number, option in enumerate(item.options, 1)]
        return [*numbered, f"  [{item.id}]"]
    words = " · ".join(_WORDS[option] for option in item.options if option in _WORDS)
    rule = f"\n  as a rule: {item.rule}" if item.rule else ""
    return [f"  {words}   [{item.id}]{rule}"]
