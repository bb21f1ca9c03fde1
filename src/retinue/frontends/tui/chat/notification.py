"""Ended agents in the conversation, as a folded box, and messages that are not delivered yet."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from rich.console import Group
from rich.text import Text
from textual.widgets import Static

from retinue.app.markdown import markdown_lines, plain_text
from retinue.app.rich_text import STYLES, clean, fit, one_line
from retinue.app.text import STATUS_MARKS, optional, plural, status_word
from retinue.core.format import format_duration, format_tokens
from retinue.core.messages import ChildEnding, ChildrenEnded
from retinue.core.outcome import CUT_OFF
from retinue.frontends.tui.board.cards import RunCard
from retinue.frontends.tui.board.marks import SEPARATOR, stats
from retinue.frontends.tui.chat.folded import Folded

PREVIEW_CELLS = 80
EXPANDED_LINES = 30
# Characters of a result that are read for its preview, and for its expanded form.
PREVIEW_SOURCE = 2_000
EXPANDED_SOURCE = 8_000

EndKey = tuple[str, str, int | None]
"""One end of a run: its id, how it ended, and the tokens used by then. A resumed run ends again."""


def end_key(ending: ChildEnding) -> EndKey:
    return ending.id, ending.label, ending.tokens


def announcement_lines(
    notice: ChildrenEnded,
    cards: dict[str, RunCard] | None = None,
    *,
    expanded: bool = False,
    cost: bool = False,
    width: int = 100,
) -> list[Text]:
    """Return each agent with its numbers and the beginning of its result. `expanded` shows more of the result, from
    the card of the run where it is known, because the notice has only its beginning."""
    lines: list[Text] = []
    if notice.group:
        note = " · others are still at work" if notice.partial else ""
        lines.append(Text(f"{plural(len(notice.endings), 'agent')} finished{note}", "bold"))
    for ending in notice.endings:
        lines += _ending_lines(ending, _card_of(ending, cards or {}), expanded=expanded, cost=cost, width=width)
    return lines


def _card_of(ending: ChildEnding, cards: dict[str, RunCard]) -> RunCard | None:
    """Return the card of a run if it describes this end rather than a later one."""
    card = cards.get(ending.id)
    if card is None or card.status != ending.status or ending.tokens not in (None, card.usage.total_tokens):
        return None
    return card


def _ending_lines(ending: ChildEnding, card: RunCard | None, *, expanded: bool, cost: bool, width: int) -> list[Text]:
    mark, style, _ = STATUS_MARKS[ending.status]
    lines = [
        Text.assemble(
            (mark, STYLES[style]), " ", (one_line(ending.description), "bold"), (f" {_word(ending)}", STYLES[style])
        )
    ]
    numbers = _numbers(ending, card, cost)
    if numbers:
        lines.append(Text("  ").append_text(numbers))
    lines += _result_lines(clean(_whole(ending, card)), expanded, width)
    for name, value in (("branch", ending.branch), ("transcript", ending.transcript)):
        if value:
            lines.append(Text(f"  {name}: {one_line(value)}", STYLES["dim"]))
    if expanded:
        for note in ending.notes:
            lines.append(Text(f"  note: {one_line(note)}", STYLES["warning"]))
    return lines


def _result_lines(text: str, expanded: bool, width: int) -> list[Text]:
    if not text.strip():
        return [Text("  ⎿ No output.", STYLES["dim"])]
    if not expanded:
        source = text[:PREVIEW_SOURCE]
        # Text that is only a Markdown sign, such as a single dash, has no lines.
        first, *others = [line for line in plain_text(source).split("\n") if line.strip()] or [source]
        cut = fit(one_line(first), PREVIEW_CELLS)
        if others and cut == one_line(first):
            cut += " …"
        return [Text(f"  ⎿ {cut}", STYLES["dim"])]
    rows = markdown_lines(text[:EXPANDED_SOURCE].strip("\n"), width - 4) or [Text()]
    lines = [Text.assemble("  ⎿ ", rows[0])]
    lines += [Text.assemble("    ", row) for row in rows[1:EXPANDED_LINES]]
    missing = len(rows) - EXPANDED_LINES + text[EXPANDED_SOURCE:].count("\n")
    if missing > 0:
        lines.append(Text(f"    … {missing:,} more lines", STYLES["dim"]))
    return lines


def _whole(ending: ChildEnding, card: RunCard | None) -> str:
    """Return the full result if this process has it, otherwise its beginning from the notice."""
    if card is not None and card.outcome is not None:
        return card.outcome.text or ending.result
    return ending.result


def _word(ending: ChildEnding) -> str:
    if ending.status == "steered":
        return f"{status_word('completed')} ({status_word('steered')})"
    if ending.truncated:
        return f"{status_word(ending.status)} ({CUT_OFF})"
    if ending.status == "error" or ending.stopped_by_person:
        return one_line(ending.label.lower())
    return status_word(ending.status)


def _numbers(ending: ChildEnding, card: RunCard | None, cost: bool) -> Text:
    if card is not None:
        return stats(card, card.ended_at or 0.0, lambda model: None, cost=cost)
    parts = []
    if ending.tool_uses:
        parts.append(plural(ending.tool_uses, "tool use"))
    if ending.tokens:
        parts.append(format_tokens(ending.tokens))
    if ending.tokens or ending.tool_uses:
        parts.append(format_duration(ending.duration_ms))
    return Text(SEPARATOR.join(parts))


class NotificationBox(Folded):
    """A folded box that shows how agents ended."""

    DEFAULT_CSS = """
    NotificationBox { border: round $secondary; padding: 0 1; margin: 1 0 0 0; height: auto; }
    NotificationBox:focus { border: round $primary; }
    """

    def __init__(self, notice: ChildrenEnded, without: Collection[EndKey] = ()) -> None:
        """Show the ends in `notice` except those in `without`."""
        super().__init__("notification")
        endings = tuple(ending for ending in notice.endings if end_key(ending) not in without)
        if len(endings) < len(notice.endings):
            notice = ChildrenEnded(endings, len(endings) > 1, notice.partial)
        self._notice = notice
        self.ends = frozenset(map(end_key, endings))

    def head(self) -> Text:
        return self._lines(expanded=False)[0]

    def body(self) -> Group:
        return Group(*self._lines(expanded=True)[1:])

    def redraw(self) -> None:
        """Draw the open box, or the folded one, which shows the beginning of each result rather than one line."""
        if self.is_attached:
            self.update(Group(*self._lines(expanded=self.unfolded)))

    def _lines(self, *, expanded: bool) -> list[Text]:
        app: Any = self.app
        cost = app.retinue.supervisor.settings.show_cost
        width = max(self.content_size.width, 20)
        lines = announcement_lines(self._notice, app.board.cards, expanded=expanded, cost=cost, width=width)
        for line in lines:
            line.no_wrap = not expanded
            line.overflow = "fold" if expanded else "ellipsis"
        return lines


MAX_WAITING_ROWS = 3


class Waiting(Static):
    """The queued messages above the prompt, one line each; no rows when the queue is empty."""

    def __init__(self) -> None:
        super().__init__(id="waiting")
        self._shown: tuple[object, ...] = ()

    def paint(self, queue: Sequence[str], resend_key: str) -> None:
        width = max(self.app.size.width - 2, 0)
        shown = (tuple(queue), width)
        if shown == self._shown:
            return
        self._shown = shown
        self.display = bool(queue)
        if queue:
            self.update(Group(*lines(queue, resend_key, width)))


def lines(queue: Sequence[str], resend_key: str, width: int) -> list[Text]:
    rows = [Text(fit(f"◦ {one_line(words)}", width), STYLES["dim"]) for words in queue[:MAX_WAITING_ROWS]]
    others = optional("+{} more · ", max(len(queue) - MAX_WAITING_ROWS, 0))
    hint = f"  {others}sent after this turn · ↑ to edit · {resend_key.upper()} to send now"
    return [*rows, Text(fit(hint, width), STYLES["dim"])]
