"""The parts of a transcript that are text: what a person said, what an agent said, notices."""

from __future__ import annotations

import asyncio
import contextlib
import time

from rich.text import Text
from textual.widgets import Markdown, Static

from retinue.faces.tui.chat.clean import clean, clip
from retinue.faces.tui.chat.diffs import diff
from retinue.faces.tui.chat.folded import Thinking, ToolBlock, arguments, heading

__all__ = ["Answer", "Notice", "Said", "Thinking", "ToolBlock", "arguments", "diff", "heading"]

SAID_LINES = 40
SAID_CHARACTERS = 8_000
FLUSH_SECONDS = 0.05
SHARE = 4
"""Drawing streamed text may take one part of this many of the time: the rest is for the keys."""


class Said(Static):
    """A person's words. A long paste is shown by its beginning."""

    def __init__(self, text: str, *, queued: bool = False) -> None:
        shown, missing = clip(clean(text), SAID_LINES, SAID_CHARACTERS)
        more = f"\n  … {missing:,} more lines" if missing > 0 else ""
        super().__init__(Text(f"❯ {shown}{more}"), classes="said queued" if queued else "said")
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

    def on_unmount(self) -> None:
        if self._drawing is not None:
            self._drawing.cancel()

    def write(self, piece: str) -> None:
        self._pieces.append(piece)
        if self._drawing is None or self._drawing.done():
            self._drawing = asyncio.create_task(self._draw(), name="streamed text")

    async def finish(self, text: str | None = None) -> None:
        """Everything is drawn when this returns: `text` where it differs from what was streamed."""
        if self._drawing is not None:
            self._hurry.set()
            await asyncio.gather(self._drawing, return_exceptions=True)
        wanted = clean(text) if text is not None else None
        if wanted is not None and wanted != self.source and self.is_attached:
            await self.update(wanted)

    async def _draw(self) -> None:
        while self._pieces and self.is_attached:
            text, self._pieces = "".join(self._pieces), []
            began = time.perf_counter()
            await self.append(clean(text))
            pause = max(FLUSH_SECONDS, (time.perf_counter() - began) * (SHARE - 1))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._hurry.wait()
