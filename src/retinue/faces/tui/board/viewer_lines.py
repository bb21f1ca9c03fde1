"""The viewer as rows of a box: every row exactly as wide as the box, whatever is in it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from rich.cells import cell_len
from rich.text import Text

from retinue.faces.text import optional
from retinue.faces.tui.board.cards import RunCard, Window
from retinue.faces.tui.board.marks import STYLES, icon, stats
from retinue.faces.tui.board.panel_lines import NARROWEST, description_of, name_of
from retinue.faces.tui.board.story import RunStory
from retinue.faces.tui.board.text import Row, exact, fit, fit_line, one_line, text_of
from retinue.faces.tui.board.viewer import VIEWS, Viewer
from retinue.faces.tui.board.viewer_pages import Transcript, effects_lines, info_lines, output_lines, prompt_lines

# The fewest lines of content that a box shows.
LEAST_ROWS = 3
# Borders, header, the row of views, the row of keys.
FRAME_ROWS = 6


@dataclass(frozen=True, slots=True)
class Moment:
    """When a box is drawn, and for whom."""

    now: float
    frame: int = 0
    show_cost: bool = False
    motion: bool = True
    window: Window = field(default=lambda model: None)


class Pages:
    """The lines of the view that is open. Those of other views cost nothing; those of this one
    are made again only when the run, the width or the theme changed."""

    def __init__(self) -> None:
        self._transcript = Transcript()
        self._made: tuple[object, ...] = ()
        self._lines: Sequence[Row] = []

    def lines(self, story: RunStory, viewer: Viewer, width: int, moment: Moment) -> Sequence[Row]:
        made = (viewer.view, width, self._state(story, viewer, moment), *STYLES.values())
        if made != self._made or self.behind:
            self._made, self._lines = made, self._make(story, viewer, width, moment)
        return self._lines

    @property
    def behind(self) -> bool:
        """Return whether there is more to draw of what is already known: then ask again soon."""
        return bool(self._made) and self._made[0] == "transcript" and self._transcript.behind

    def _state(self, story: RunStory, viewer: Viewer, moment: Moment) -> tuple[object, ...]:
        """Return what the lines of the open view depend on."""
        match viewer.view:
            case "transcript" | "output":
                return (story.version,)
            case "prompt":
                return (story.created is not None,)
            case "effects":
                return (len(story.effects), story.card.live)
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
    return max(height - FRAME_ROWS - bool(card.tags), LEAST_ROWS)


def box_rows(
    card: RunCard, viewer: Viewer, lines: Sequence[Row], width: int, moment: Moment, note: str = ""
) -> list[Text]:
    """Return the whole box; nothing where it could not be read anyway."""
    if width < NARROWEST:
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
    if card.twin:
        line.append(" (twin)", STYLES["dim"])
    ending = Text()
    if not card.live and card.status != "completed":
        ending.append(f" · {card.status}", STYLES[style])
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
    """Return a line with the words one searched for marked: a copy, for what is drawn stays."""
    shown = text_of(line)
    if viewer.query and viewer.matches:
        for found in re.finditer(re.escape(viewer.query), shown.plain, re.IGNORECASE):
            shown.stylize("reverse", *found.span())
    return shown


def _footer(card: RunCard, viewer: Viewer, width: int, note: str) -> Text:
    place = fit(_place(viewer), width)
    room = max(width - cell_len(place) - 2, 0)
    if viewer.armed:
        left = Text("press x again to stop it, any other key to let it go on", STYLES["error"])
    elif note:
        left = Text(one_line(note), STYLES["warning"])
    else:
        hints = "/ search · 1-5 views · Esc close · z size"
        if card.live:
            hints = f"Enter steer · x stop · {hints}"
        left = Text(hints, STYLES["dim"])
    exact(left, room)
    return left.append(f"  {place}", STYLES["dim"])


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


def _edge(left: str, right: str, width: int) -> Text:
    return Text(left + "─" * (width - 2) + right, STYLES["dim"])


def _side(line: Text, width: int) -> Text:
    return Text.assemble(("│ ", STYLES["dim"]), exact(line, width - 4), (" │", STYLES["dim"]))
