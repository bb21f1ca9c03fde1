"""How a viewer behaves, without a screen: where it looks, what a key does.

It follows the end of the transcript until someone scrolls up; End, or scrolling down to the end,
follows again. Stopping takes the key twice in a row: any other key in between disarms it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, assert_never, cast, get_args

from retinue.faces.tui.board.text import Row, plain_of

View = Literal["transcript", "prompt", "effects", "output", "info"]
VIEWS: tuple[View, ...] = get_args(View)
Action = Literal["close", "stop", "compose", "search"]
Mode = Literal["reading", "composing", "searching"]

Scroll = Literal["up", "down", "page_up", "page_down", "top", "bottom"]
Turn = Literal["next", "previous", "next_view", "previous_view", "whole"]
Move = Scroll | Turn | Action

# What a person may change. A change that leaves nothing for a move keeps its default.
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
    "next": "the next match",
    "previous": "the match before",
    "next_view": "the next view; 1 to 5 choose one",
    "previous_view": "the view before",
    "whole": "use the whole screen, or not",
}

# Keys that mean the same whatever was changed.
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
    """Return which move each key makes. `settings` has keys by `viewer.` and the move, several with
    commas between; they win over defaults, and `ALWAYS` over both."""
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
    """`measure` before drawing says how much there is to see; `press` what a key wants."""

    keys: Mapping[str, Move] = field(default_factory=bindings)
    view: View = "transcript"
    mode: Mode = "reading"
    follow: bool = True
    armed: bool = False
    whole: bool = False
    """Whether it takes the whole screen."""
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
        """Return what the screen has to do about a key, if anything. Nothing moves while someone types."""
        if self.mode != "reading":
            return None
        armed, self.armed = self.armed, False
        move = self.keys.get(key)
        if move is None:
            if key in _DIRECT:
                self.show(_DIRECT[key])
            return None
        if move in ("close", "stop", "compose", "search"):
            return self._act(move, can_stop=can_stop, can_steer=can_steer, armed=armed)
        self._move(cast("Scroll | Turn", move))
        return None

    def _act(self, action: Action, *, can_stop: bool, can_steer: bool, armed: bool) -> Action | None:
        """Return the action where it is possible now; the first press of stop only arms it."""
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
                self._jump(_STEPS[move])
            case "next_view" | "previous_view":
                self.show(VIEWS[(VIEWS.index(self.view) + _STEPS[move]) % len(VIEWS)])
            case "whole":
                self.whole = not self.whole
            case "up" | "down" | "page_up" | "page_down" | "top" | "bottom":
                self._scroll(move)
            case _:
                assert_never(move)

    def scroll(self, rows: int) -> None:
        """By a wheel. Up pauses following; reaching the end takes it up again."""
        if self.mode == "reading" and rows:
            self._go(self.top + rows)
            if self.view == "transcript":
                self.follow = rows > 0 and self.top >= self._last

    def show(self, view: View) -> None:
        self.view, self.query, self.matches, self.match = view, "", (), None

    def read(self) -> None:
        """Back from typing."""
        self.mode = "reading"

    def search(self, query: str, lines: Sequence[Row]) -> None:
        """Go to the first match from here on; an empty query forgets the search."""
        self.query = query.strip()
        self.read()
        self.find(lines)
        if self.matches:
            after = bisect_left(self.matches, self.top)
            self._look_at(after % len(self.matches))

    def find(self, lines: Sequence[Row]) -> None:
        """Where the query is in the lines as they are now."""
        wanted = self.query.casefold()
        found = []
        for at, line in enumerate(lines):
            if wanted and wanted in plain_of(line).casefold():
                found.append(at)
        self.matches, last = tuple(found), self.match or 0
        self.match = min(last, len(found) - 1) if found else None

    @property
    def _last(self) -> int:
        return max(self.total - self.height, 0)

    def _go(self, top: int) -> None:
        self._tops[self.view] = min(max(top, 0), self._last)

    def _scroll(self, move: Scroll) -> None:
        page = max(self.height - 1, 1)
        whole = max(self.total, 1)
        steps = {"up": -1, "down": 1, "page_up": -page, "page_down": page, "top": -whole, "bottom": whole}
        self.scroll(steps[move])

    def _jump(self, step: int) -> None:
        if self.matches:
            last = self.match if self.match is not None else -step
            self._look_at((last + step) % len(self.matches))

    def _look_at(self, match: int) -> None:
        """The match a third from the top: one sees what surrounds it."""
        self.match, self.follow = match, False
        line = self.matches[match]
        if not self.top <= line < self.top + self.height:
            self._go(line - self.height // 3)
