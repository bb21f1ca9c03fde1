"""A viewer of one run without its screen: its scroll position, its keys, and the rows of its box.

The viewer follows the end of the transcript until the person scrolls up. The End key, or scrolling down to the end,
resumes following. To stop a run, the person presses the key twice in a row; any other key in between disarms it. Every
row of the box is exactly as wide as the box.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, assert_never, cast, get_args

from rich.cells import cell_len
from rich.text import Text

from retinue.app.rich_text import STYLES, Row, exact, fit, fit_line, one_line, plain_of, text_of
from retinue.app.text import optional, status_word
from retinue.frontends.tui.board.cards import RunCard, Window
from retinue.frontends.tui.board.marks import icon, stats
from retinue.frontends.tui.board.panel_lines import MIN_WIDTH, description_of, name_of
from retinue.frontends.tui.board.story import RunStory
from retinue.frontends.tui.board.viewer_pages import Transcript, effects_lines, info_lines, output_lines, prompt_lines

View = Literal["transcript", "prompt", "effects", "output", "info"]
VIEWS: tuple[View, ...] = get_args(View)
Action = Literal["close", "stop", "compose", "search", "fork"]
Mode = Literal["reading", "composing", "searching"]

Scroll = Literal["up", "down", "page_up", "page_down", "top", "bottom"]
Turn = Literal["next", "previous", "next_view", "previous_view", "whole"]
Move = Scroll | Turn | Action

# The keys that a person may change. A move for which no key is left keeps its defaults.
KEYS: Mapping[Move, tuple[str, ...]] = {
    "up": ("up",),
    "down": ("down",),
    "page_up": ("pageup",),
    "page_down": ("pagedown", "space"),
    "top": ("home", "g"),
    "bottom": ("end", "G"),
    "close": ("escape", "q"),
    "stop": ("x",),
    "compose": ("enter",),
    "search": ("slash",),
    "fork": ("f",),
    "next": ("n",),
    "previous": ("N",),
    "next_view": ("tab", "right"),
    "previous_view": ("shift+tab", "left"),
    "whole": ("z",),
}

HELP: Mapping[Move, str] = {
    "up": "one line up",
    "down": "one line down",
    "page_up": "a page up; so does shift+up",
    "page_down": "a page down; so does shift+down",
    "top": "to the beginning",
    "bottom": "to the end, and follow it",
    "close": "close; the run goes on",
    "stop": "pressed twice: stop the run",
    "compose": "say something to the run",
    "search": "search",
    "fork": "go on from a moment of it as a new run",
    "next": "the next match",
    "previous": "the match before",
    "next_view": "the next view; 1 to 5 choose one",
    "previous_view": "the view before",
    "whole": "use the whole screen, or not",
}

# Keys that no setting changes.
ALWAYS: Mapping[str, Move] = {
    "j": "down",
    "k": "up",
    "shift+up": "page_up",
    "shift+down": "page_down",
}

_STEPS = {"next": 1, "previous": -1, "next_view": 1, "previous_view": -1}
_DIRECT: Mapping[str, View] = {
    **{str(number): view for number, view in enumerate(VIEWS, 1)},
    **{view[0]: view for view in VIEWS},
}


def bindings(settings: Mapping[str, str] | None = None) -> dict[str, Move]:
    """Return the move of each key. `settings` has keys for `viewer.MOVE`, separated by commas. They take precedence
    over defaults, and `ALWAYS` over both."""
    asked: dict[str, list[str]] = {}
    for name, value in (settings or {}).items():
        if name.startswith("viewer."):
            asked[name.removeprefix("viewer.")] = value.replace(",", " ").split()
    table: dict[str, Move] = {}
    for move, keys in KEYS.items():
        if not asked.get(move):
            table |= dict.fromkeys(keys, move)
    for move in KEYS:
        table |= dict.fromkeys(asked.get(move, ()), move)
    return {**table, **ALWAYS}


@dataclass(slots=True)
class Viewer:
    """The state of one viewer. Call `measure` with the size of the content before drawing, and `press` for a key."""

    keys: Mapping[str, Move] = field(default_factory=bindings)
    view: View = "transcript"
    mode: Mode = "reading"
    follow: bool = True
    armed: bool = False
    fullscreen: bool = False
    """Whether the viewer fills the screen."""
    query: str = ""
    matches: tuple[int, ...] = ()
    match: int | None = None
    total: int = 0
    height: int = 1
    _tops: dict[View, int] = field(default_factory=dict)

    @property
    def top(self) -> int:
        return self._tops.get(self.view, 0)

    @property
    def following(self) -> bool:
        return self.follow and self.view == "transcript"

    def measure(self, total: int, height: int) -> None:
        self.total, self.height = total, max(height, 1)
        top = self._last if self.following else self.top
        self._go(top)

    def press(self, key: str, *, can_stop: bool = False, can_steer: bool = False) -> Action | None:
        """Return the action that the screen must perform for a key, if any. Nothing moves while the person types."""
        if self.mode != "reading":
            return None
        armed, self.armed = self.armed, False
        move = self.keys.get(key)
        if move is None:
            if key in _DIRECT:
                self.show(_DIRECT[key])
            return None
        if move in ("close", "stop", "compose", "search", "fork"):
            return self._act(move, can_stop=can_stop, can_steer=can_steer, armed=armed)
        self._move(cast("Scroll | Turn", move))
        return None

    def _act(self, action: Action, *, can_stop: bool, can_steer: bool, armed: bool) -> Action | None:
        """Return the action if it is possible now; the first press of stop only arms it."""
        if action == "stop":
            self.armed = can_stop and not armed
            if self.armed or not can_stop:
                return None
        elif action == "compose":
            if not can_steer:
                return None
            self.mode = "composing"
        elif action == "search":
            self.mode = "searching"
        return action

    def _move(self, move: Scroll | Turn) -> None:
        match move:
            case "next" | "previous":
                step = _STEPS[move]
                if self.matches:
                    last = self.match if self.match is not None else -step
                    self._look_at((last + step) % len(self.matches))
            case "next_view" | "previous_view":
                self.show(VIEWS[(VIEWS.index(self.view) + _STEPS[move]) % len(VIEWS)])
            case "whole":
                self.fullscreen = not self.fullscreen
            case "up" | "down" | "page_up" | "page_down" | "top" | "bottom":
                page = max(self.height - 1, 1)
                total = max(self.total, 1)
                steps = {"up": -1, "down": 1, "page_up": -page, "page_down": page, "top": -total, "bottom": total}
                self.scroll(steps[move])
            case _:
                assert_never(move)

    def scroll(self, rows: int) -> None:
        """Scroll by the mouse wheel. Scrolling up pauses following; reaching the end resumes it."""
        if self.mode == "reading" and rows:
            self._go(self.top + rows)
            if self.view == "transcript":
                self.follow = rows > 0 and self.top >= self._last

    def show(self, view: View) -> None:
        self.view, self.query, self.matches, self.match = view, "", (), None

    def read(self) -> None:
        """Return from typing to reading."""
        self.mode = "reading"

    def search(self, query: str, lines: Sequence[Row]) -> None:
        """Go to the first match from the current line on; an empty query ends the search."""
        self.query = query.strip()
        self.read()
        self.find(lines)
        if self.matches:
            after = bisect_left(self.matches, self.top)
            self._look_at(after % len(self.matches))

    def find(self, lines: Sequence[Row]) -> None:
        """Find the query in the current lines."""
        words = self.query.casefold()
        matches = []
        for at, line in enumerate(lines):
            if words and words in plain_of(line).casefold():
                matches.append(at)
        self.matches, last = tuple(matches), self.match or 0
        self.match = min(last, len(matches) - 1) if matches else None

    @property
    def _last(self) -> int:
        return max(self.total - self.height, 0)

    def _go(self, top: int) -> None:
        self._tops[self.view] = min(max(top, 0), self._last)

    def _look_at(self, match: int) -> None:
        """Show a match a third below the top, with the lines around it."""
        self.match, self.follow = match, False
        line = self.matches[match]
        if not self.top <= line < self.top + self.height:
            self._go(line - self.height // 3)


# The fewest lines of content that a box shows.
MIN_CONTENT_ROWS = 3
# Borders, header, the row of views, the row of keys.
FRAME_ROWS = 6


@dataclass(frozen=True, slots=True)
class Moment:
    """The time and the display options of one drawing."""

    now: float
    frame: int = 0
    show_cost: bool = False
    motion: bool = True
    window: Window = field(default=lambda model: None)


class Pages:
    """The lines of the open view. They are drawn again only when the run, the width or the theme changed. Other views
    cost nothing."""

    def __init__(self) -> None:
        self._transcript = Transcript()
        self._made: tuple[object, ...] = ()
        self._lines: Sequence[Row] = []

    def lines(self, story: RunStory, viewer: Viewer, width: int, moment: Moment) -> Sequence[Row]:
        state = (viewer.view, width, self._state(story, viewer, moment), *STYLES.values())
        if state != self._made or self.behind:
            self._made, self._lines = state, self._make(story, viewer, width, moment)
        return self._lines

    @property
    def behind(self) -> bool:
        """Return whether some known steps are not drawn yet, so that the caller should draw again soon."""
        return bool(self._made) and self._made[0] == "transcript" and self._transcript.behind

    def _state(self, story: RunStory, viewer: Viewer, moment: Moment) -> tuple[object, ...]:
        """Return every value on which the lines of the open view depend."""
        match viewer.view:
            case "transcript" | "output":
                return (story.version,)
            case "prompt":
                return (story.created is not None,)
            case "effects":
                return (len(story.blocks), len(story.card.tools), story.card.live)
            case "info":
                if story.card.live:
                    return (story.version, int(moment.now * 10))
                return (story.version,)

    def _make(self, story: RunStory, viewer: Viewer, width: int, moment: Moment) -> Sequence[Row]:
        match viewer.view:
            case "transcript":
                return self._transcript.update(story, width) or [Text("Nothing was said yet.", STYLES["dim"])]
            case "prompt":
                return prompt_lines(story, width)
            case "effects":
                return effects_lines(story, width)
            case "output":
                return output_lines(story, width)
            case "info":
                return info_lines(story, width, moment.now, moment.window)


def content_width(width: int) -> int:
    return max(width - 4, 2)


def content_height(card: RunCard, height: int) -> int:
    return max(height - FRAME_ROWS - bool(card.tags), MIN_CONTENT_ROWS)


def box_rows(
    card: RunCard, viewer: Viewer, lines: Sequence[Row], width: int, moment: Moment, note: str = ""
) -> list[Text]:
    """Return all rows of the box; none where the terminal is too small to read it."""
    if width < MIN_WIDTH:
        return []
    inner = width - 4
    shown = [_content(line, viewer) for line in lines[viewer.top : viewer.top + viewer.height]]
    shown += [Text()] * (viewer.height - len(shown))
    head = [_header(card, inner, moment)]
    if card.tags:
        head.append(Text(f"↳ {one_line(' · '.join(card.tags))}", STYLES["dim"]))
    return [
        _edge("╭", "╮", width),
        *(_side(line, width) for line in head),
        _views(viewer, width),
        *(_side(line, width) for line in shown),
        _edge("├", "┤", width),
        _side(_footer(card, viewer, inner, note), width),
        _edge("╰", "╯", width),
    ]


def _header(card: RunCard, width: int, moment: Moment) -> Text:
    mark, style = icon(card, moment.frame, motion=moment.motion)
    line = Text.assemble((mark, STYLES[style]), " ", name_of(card))
    if card.inherits_prompt:
        line.append(" (twin)", STYLES["dim"])
    ending = Text()
    if not card.live and card.status != "completed":
        ending.append(f" · {status_word(card.status)}", STYLES[style])
    room = width - line.cell_len - ending.cell_len
    numbers = stats(card, moment.now, moment.window, cost=moment.show_cost, room=max(room - 16, 0))
    if numbers:
        numbers = Text.assemble((" · ", STYLES["dim"]), numbers)
    line.append(optional("  {}", fit(description_of(card), room - numbers.cell_len - 2)))
    return line.append_text(numbers).append_text(ending)


def _views(viewer: Viewer, width: int) -> Text:
    """Return the edge below the header, with the views in it."""
    line = Text("├─ ", STYLES["dim"])
    for number, view in enumerate(VIEWS, 1):
        style = "bold reverse" if view == viewer.view else STYLES["dim"]
        line.append(f"{number} {view}", style)
        line.append(" ")
    fit_line(line, width - 1)
    return line.append("─" * (width - 1 - line.cell_len) + "┤", STYLES["dim"])


def _content(line: Row, viewer: Viewer) -> Text:
    """Return a copy of a line with the matches marked. It must be a copy, because drawn lines are cached."""
    shown = text_of(line)
    if viewer.query and viewer.matches:
        for match in re.finditer(re.escape(viewer.query), shown.plain, re.IGNORECASE):
            shown.stylize("reverse", *match.span())
    return shown


def _footer(card: RunCard, viewer: Viewer, width: int, note: str) -> Text:
    position = fit(_place(viewer), width)
    room = max(width - cell_len(position) - 2, 0)
    if viewer.armed:
        line = Text("press x again to stop it, any other key to let it go on", STYLES["error"])
    elif note:
        line = Text(one_line(note), STYLES["warning"])
    else:
        hints = "/ search · 1-5 views · Esc close · z size"
        if card.live:
            hints = f"Enter steer · x stop · {hints}"
        line = Text(hints, STYLES["dim"])
    exact(line, room)
    return line.append(f"  {position}", STYLES["dim"])


def _place(viewer: Viewer) -> str:
    if viewer.query:
        if not viewer.matches:
            return f"no {fit(one_line(viewer.query), 20)}"
        return f"match {(viewer.match or 0) + 1}/{len(viewer.matches)}"
    last = min(viewer.top + viewer.height, viewer.total)
    where = f"{last}/{viewer.total}"
    if viewer.view != "transcript":
        return where
    state = "following" if viewer.follow else "paused"
    return f"{where} {state}"


def _edge(start: str, end: str, width: int) -> Text:
    return Text(start + "─" * (width - 2) + end, STYLES["dim"])


def _side(line: Text, width: int) -> Text:
    return Text.assemble(("│ ", STYLES["dim"]), exact(line, width - 4), (" │", STYLES["dim"]))
