"""Text in a conversation: the person's messages, the streamed answers of the model, and notices of the app.

A growing answer is drawn piece by piece. Parsing all of it again with every word would take seconds for a megabyte.
Therefore the lines of finished blocks are cached, only the last block is drawn again, and a block that grows too long
is finished early. The cost of a step does not depend on the length of the answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from markdown_it.token import Token
from rich.console import Console
from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual.geometry import Region, Size
from textual.selection import Selection
from textual.strip import Strip
from textual.widget import Widget
from textual.widgets import Static

from retinue.app.markdown import parse, token_lines
from retinue.app.rich_text import STYLES, clean, cut_lines, one_line
from retinue.app.text import optional
from retinue.core.format import format_bytes
from retinue.core.person_prompt import describe_blocks, words_of

# Characters that one step draws in a few milliseconds, so that the app keeps responding to keys.
STEP_CHARACTERS = 1_000
# Characters of the longest block that is drawn again while it grows.
MAX_OPEN_CHARACTERS = 3_000
# The columns of a table depend on all its rows, so it may be longer.
MAX_TABLE_CHARACTERS = 6_000


@dataclass(slots=True)
class Draft:
    """The lines of one answer at one width. `parsed` is the number of characters parsed so far, repetitions
    included."""

    width: int
    lines: list[Text] = field(default_factory=list)
    """Lines of finished blocks, which no longer change."""
    last: list[Text] = field(default_factory=list)
    """Lines of the block that may still grow."""
    parsed: int = 0
    _open: str = ""
    _waiting: str = ""
    _joined: bool = True
    """Whether the next block follows without a blank line: it is the first, or it continues a block that was cut."""

    def write(self, text: str) -> None:
        """Add a piece of the answer; the next steps draw it."""
        self._waiting += text

    @property
    def behind(self) -> bool:
        return bool(self._waiting)

    @property
    def height(self) -> int:
        return len(self.lines) + len(self.last)

    def line(self, at: int) -> Text:
        """Return the line of a row; an empty one below the end."""
        if at < len(self.lines):
            return self.lines[at]
        at -= len(self.lines)
        return self.last[at] if at < len(self.last) else Text()

    def step(self) -> None:
        """Draw a part of the waiting text."""
        self._open += self._waiting[:STEP_CHARACTERS]
        self._waiting = self._waiting[STEP_CHARACTERS:]
        tokens = parse(self._open)
        self.parsed += len(self._open)
        at, line = _last_block(tokens, self._open)
        if line:
            self._keep(tokens[:at])
            self._open = _from_line(self._open, line)
            tokens = tokens[at:]
        if tokens and len(self._open) > _longest(tokens[0]):
            self._cut(tokens[0])
        else:
            self.last = self._spaced(token_lines(tokens, self.width))

    def _keep(self, tokens: Sequence[Token]) -> None:
        self.lines += self._spaced(token_lines(tokens, self.width))
        self._joined = not self.lines

    def _spaced(self, lines: list[Text]) -> list[Text]:
        if self._joined or not lines:
            return lines
        return [Text(), *lines]

    def _cut(self, first: Token) -> None:
        """Finish a block that is too long at the end of a line. The text after it continues as the same kind of
        block."""
        end = _cut_place(self._open)
        done, following = self._open[:end], self._open[end:]
        again = ""
        if first.type == "fence":
            again = f"{first.markup}{first.info}\n"
        elif first.type == "table_open":
            again = "".join(done.splitlines(keepends=True)[:2])
        self._keep(parse(done))
        self.parsed += len(done)
        self._joined = not done.endswith("\n\n") or first.type == "fence"
        self._open, self.last = again + following, []
        if following:
            self.last = self._spaced(token_lines(parse(self._open), self.width))


def _last_block(tokens: Sequence[Token], text: str) -> tuple[int, int]:
    """Return the first token of the last block, and its line. A block in an unfinished line is ignored: `1` may become
    `1. an item` of the list before it."""
    unfinished = text.count("\n")
    at = line = 0
    for number, token in enumerate(tokens):
        if token.level == 0 and token.map is not None and token.nesting >= 0 and token.map[0] < unfinished:
            at, line = number, token.map[0]
    return at, line


def _from_line(text: str, line: int) -> str:
    at = 0
    for _ in range(line):
        at = text.index("\n", at) + 1
    return text[at:]


def _longest(first: Token) -> int:
    return MAX_TABLE_CHARACTERS if first.type == "table_open" else MAX_OPEN_CHARACTERS


def _cut_place(text: str) -> int:
    """Return where to cut: before the last line that is not indented, after a line, a word, or anywhere."""
    lines = text.splitlines(keepends=True)
    end = len(text)
    for line in reversed(lines[1:]):
        end -= len(line)
        if not line.startswith((" ", "\t", "\n")):
            return end
    for sign in ("\n", " "):
        last = text.rfind(sign) + 1
        if last > 0:
            return last
    return len(text)


SAID_LINES = 40
SAID_CHARACTERS = 8_000
FLUSH_SECONDS = 0.05
# Drawing streamed text may take one part in this many of the time; keys and other runs get the others.
DRAWING_SHARE = 4
MIN_PAUSE_SECONDS = 0.005
# Characters of one answer on the screen, about 1,500 lines. The log has all of it.
MAX_ANSWER_CHARACTERS = 100_000
# Lines of one answer that are cached in Textual's form.
MAX_CACHED_STRIPS = 300
# Characters that are drawn immediately. Most answers are shorter.
MAX_IMMEDIATE_CHARACTERS = 4_000


class Said(Static):
    """A person's message. Of a long one the beginning is shown."""

    def __init__(self, text: str) -> None:
        shown, missing = cut_lines(clean(words_of(text)), SAID_LINES, SAID_CHARACTERS)
        below = optional("\n  … {:,} more lines", max(missing, 0))
        for line in describe_blocks(text):
            below += f"\n  ⎿ {one_line(line)}"
        super().__init__(Text(f"❯ {shown}{below}"), classes="said")
        self.text = text


class Notice(Static):
    """A notice for the person: `kind` is `warning`, `error` or `info`."""

    def __init__(self, text: str, kind: str = "info") -> None:
        super().__init__(Text(clean(text)), classes=f"notice {kind}")


class Answer(Widget):
    """The streamed text of the model. Pieces are collected and drawn together; the longer drawing takes, the less often
    it happens, so that neither keys nor other runs wait for it. The text is one widget, however long it is; of a very
    long text the beginning is shown."""

    DEFAULT_CSS = "Answer { height: auto; }"

    def __init__(self, text: str = "") -> None:
        super().__init__(classes="answer")
        self.source = ""
        # Characters that are not shown.
        self.hidden = 0
        self._draft: Draft | None = None
        # The draft of an earlier width or theme, shown until its replacement is drawn.
        self._shown: Draft | None = None
        self._strips: dict[int, Strip] = {}
        self._drawing: asyncio.Task[None] | None = None
        self._hurry = asyncio.Event()
        # The text before the output limit cut the answer off, if the model continues it.
        self._before = ""
        self._keep(text)

    def on_unmount(self) -> None:
        if self._drawing is not None:
            self._drawing.cancel()

    def write(self, piece: str) -> None:
        height, hidden = self._height, self._rest
        shown = self._keep(piece)
        if self._draft is not None and shown:
            self._draft.write(shown)
            self._draw_later()
        elif self._height != height:
            self.refresh(layout=True)
        elif self._rest != hidden:
            self.refresh(Region(0, height - 1, self.size.width, 1))

    def go_on(self) -> None:
        """Expect the rest of an answer that was cut off."""
        self._before = self.source
        self._hurry.clear()

    async def finish(self, text: str | None = None) -> None:
        """Draw everything: `text` where it differs from what was streamed."""
        self._hurry.set()
        if text is not None:
            # Compare only the displayed part of a very long text.
            shown = clean(text[:MAX_ANSWER_CHARACTERS])
            if (self._before + shown)[:MAX_ANSWER_CHARACTERS] != self.source:
                self.source, self.hidden = self._before, 0
                self._keep(text)
                self.redraw()
        if self._drawing is not None:
            await asyncio.gather(self._drawing, return_exceptions=True)

    def redraw(self) -> None:
        """Draw all of it again, for another width, theme or text."""
        if self._draft is not None:
            self._begin(self._draft.width)
            self.refresh(layout=True)

    def _keep(self, text: str) -> str:
        """Add to the text, and return the part that is shown."""
        room = MAX_ANSWER_CHARACTERS - len(self.source)
        shown = clean(text[:room])[:room]
        self.source += shown
        self.hidden += max(len(text) - room, 0)
        return shown

    def _begin(self, width: int) -> None:
        if self._shown is None:
            self._shown = self._draft
        self._strips.clear()
        self._draft = Draft(width)
        self._draft.write(self.source)
        if len(self.source) <= MAX_IMMEDIATE_CHARACTERS:
            while self._draft.behind:
                self._draft.step()
            self._shown = None
        else:
            self._draw_later()

    def _draw_later(self) -> None:
        if self._drawing is None or self._drawing.done():
            self._drawing = asyncio.create_task(self._draw(), name="streamed text")

    async def _draw(self) -> None:
        while self._draft is not None and self._draft.behind and self.is_attached:
            began, height = time.perf_counter(), self._height
            self._draft.step()
            if self._shown is not None and not self._draft.behind:
                self._shown = None
                self._strips.clear()
            self.refresh(layout=self._height != height)
            # The longer drawing takes, the longer the pause: neither keys nor other runs wait for it.
            spent = time.perf_counter() - began
            pause = max(FLUSH_SECONDS, spent * (DRAWING_SHARE - 1))
            if self._hurry.is_set():
                # A key passes through several tasks before it takes effect: let each of them run.
                await asyncio.sleep(max(spent, MIN_PAUSE_SECONDS))
                continue
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._hurry.wait()

    # Called by Textual

    @property
    def _height(self) -> int:
        draft = self._shown or self._draft
        if draft is None:
            return 0
        return draft.height + bool(self.hidden)

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        if width > 0 and (self._draft is None or self._draft.width != width):
            self._begin(width)
        return self._height

    def render_line(self, y: int) -> Strip:
        draft, selection = self._shown or self._draft, self.text_selection
        # Lines of finished blocks do not change, so they are cached for scrolling.
        is_finished = draft is not None and y < len(draft.lines) and selection is None
        if is_finished and y in self._strips:
            return self._strips[y]
        line = self._line(y)
        span = selection.get_span(y) if selection is not None else None
        if span is not None:
            start, end = span
            line = line.copy()
            style = self.screen.get_component_rich_style("screen--selection")
            line.stylize(style, start, len(line) if end == -1 else end)
        strip = strip_of(line, self.app.console, self.content_size.width, self.rich_style).apply_offsets(0, y)
        if is_finished:
            if len(self._strips) >= MAX_CACHED_STRIPS:
                self._strips.clear()
            self._strips[y] = strip
        return strip

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        text = "\n".join(self._line(at).plain for at in range(self._height))
        return selection.extract(text), "\n"

    def _line(self, at: int) -> Text:
        draft = self._shown or self._draft
        if draft is None:
            return Text()
        if self.hidden and at >= draft.height:
            return Text(self._rest, STYLES["dim"])
        return draft.line(at)

    @property
    def _rest(self) -> str:
        return f"… {format_bytes(self.hidden)} more: /copy or retinue runs show"


def strip_of(line: Text, console: Console, width: int, style: Style) -> Strip:
    """Return a line as Textual draws it, filled up to `width`."""
    # `render` omits the style of the whole line if the line has no other style.
    own = console.get_style(line.style, default="")
    drawn = Strip(Segment.apply_style(line.render(console), own), line.cell_len)
    return drawn.adjust_cell_length(width, style).apply_style(style)
