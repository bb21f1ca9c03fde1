"""What was said in a conversation: a person's words, the model's text as it comes, notices of the app."""

from __future__ import annotations

import asyncio
import contextlib
import time

from rich.text import Text
from textual.widgets import Markdown, Static

from retinue.faces.text import optional
from retinue.faces.tui.board.text import clean, cut_lines

SAID_LINES = 40
SAID_CHARACTERS = 8_000
FLUSH_SECONDS = 0.05
# Drawing streamed text may take one part of this many of the time: the rest is for the keys.
SHARE = 4


class Said(Static):
    """A person's words. A long paste is shown by its beginning."""

    def __init__(self, text: str) -> None:
        shown, missing = cut_lines(clean(text), SAID_LINES, SAID_CHARACTERS)
        more = optional("\n  … {:,} more lines", max(missing, 0))
        super().__init__(Text(f"❯ {shown}{more}"), classes="said")
        self.text = text


class Notice(Static):
    """Something the person should know: `kind` is `warning`, `error` or `info`."""

    def __init__(self, text: str, kind: str = "info") -> None:
        super().__init__(Text(clean(text)), classes=f"notice {kind}")


class Answer(Markdown):
    """The model's text, as it comes: pieces gather and are drawn together, the less often the
    longer drawing takes, so that neither keys nor other runs wait for it."""

    def __init__(self, text: str = "") -> None:
        super().__init__(clean(text), classes="answer", open_links=False)
        self._pieces: list[str] = []
        self._drawing: asyncio.Task[None] | None = None
        self._hurry = asyncio.Event()
        # What it said before the output limit cut it off, where it goes on after that.
        self._before = ""

    def on_unmount(self) -> None:
        if self._drawing is not None:
            self._drawing.cancel()

    def write(self, piece: str) -> None:
        self._pieces.append(piece)
        if self._drawing is None or self._drawing.done():
            self._drawing = asyncio.create_task(self._draw(), name="streamed text")

    def go_on(self) -> None:
        """Expect the rest of an answer that was cut off."""
        self._before = self.source
        self._hurry.clear()

    async def finish(self, text: str | None = None) -> None:
        """Draw everything: `text` where it differs from what was streamed."""
        if self._drawing is not None:
            self._hurry.set()
            await asyncio.gather(self._drawing, return_exceptions=True)
        if text is None or not self.is_attached:
            return
        whole = self._before + clean(text)
        if whole != self.source:
            await self.update(whole)

    async def _draw(self) -> None:
        while self._pieces and self.is_attached:
            text, self._pieces = "".join(self._pieces), []
            began = time.perf_counter()
            await self.append(clean(text))
            # The longer drawing takes, the longer the pause: neither keys nor other runs wait for it.
            pause = max(FLUSH_SECONDS, (time.perf_counter() - began) * (SHARE - 1))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._hurry.wait()
