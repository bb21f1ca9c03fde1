"""A message about ended agents, as people see it, read back from the frames that the harness wrote.

Only the harness can write them: everything an agent said is escaped in them. `known_windows` returns
the context sizes of models, from the table of known models and the user's settings.

Ended agents in the conversation, as a box that opens, and messages that still wait to be delivered.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from rich.console import Group
from rich.text import Text
from textual.widgets import Static

from retinue.core.delegation import Status
from retinue.core.format import format_count, format_duration
from retinue.core.outcome import CUT_OFF
from retinue.faces.text import optional, plural
from retinue.faces.tui.board.cards import RunCard
from retinue.faces.tui.board.markdown import markdown_lines, plain_text
from retinue.faces.tui.board.marks import SEPARATOR, STYLES, stats, status_icon
from retinue.faces.tui.board.questions import unescape
from retinue.faces.tui.board.text import clean, fit, one_line
from retinue.faces.tui.chat.folded import Folded

PREVIEW = 80
EXPANDED_LINES = 30
# Characters of a result that are looked at for its preview, and for all that is shown of it.
PREVIEW_SOURCE = 2_000
EXPANDED_SOURCE = 8_000

_FRAME = re.compile(r"^<task-notification>\n(.*?)^</task-notification>$", re.MULTILINE | re.DOTALL)
_FIELD = re.compile(r"^<([a-z-]+)>(.*?)</\1>$", re.MULTILINE | re.DOTALL)
_NUMBER = re.compile(r"<([a-z_]+)>([\d.]+)</\1>")
_STATUS: dict[str, Status] = {
    "Done": "completed",
    "Wrapped up (turn limit)": "steered",
    "Aborted (max turns exceeded)": "aborted",
    "Stopped": "stopped",
    "Stopped by the user": "stopped",
    "Timed out": "timeout",
    "Stopped (budget spent)": "over-budget",
    "Refused (no language model)": "refused",
    "Interrupted": "interrupted",
}


EndKey = tuple[str, str, int | None]
"""One end of a run: a run that goes on ends again. Its id, how it ended, and what it had used by then."""


@dataclass(frozen=True, slots=True)
class Ending:
    """How one agent ended. `numbers` are those of its usage, by name."""

    id: str
    status: Status
    label: str
    description: str
    result: str
    transcript: str = ""
    branch: str = ""
    notes: tuple[str, ...] = ()
    numbers: tuple[tuple[str, float], ...] = ()

    @property
    def tokens(self) -> int | None:
        """Return what the run had used by then: another end of the same run has used more."""
        used = dict(self.numbers).get("total_tokens")
        return None if used is None else int(used)

    @property
    def key(self) -> EndKey:
        return self.id, self.label, self.tokens


@dataclass(frozen=True, slots=True)
class Announcement:
    """`partial`: others of the group are still at work."""

    endings: tuple[Ending, ...]
    group: bool = False
    partial: bool = False


@lru_cache(maxsize=64)
def announcement(text: str) -> Announcement | None:
    """Return what a message tells of ended agents; None for one that is about something else."""
    frames = _FRAME.findall(text)
    if not frames:
        return None
    head = text[: text.index("<task-notification>")]
    group = "Background agent group" in head or len(frames) > 1
    return Announcement(tuple(map(_ending, frames)), group, "(partial" in head)


def announcement_lines(
    told: Announcement,
    cards: dict[str, RunCard] | None = None,
    *,
    expanded: bool = False,
    cost: bool = False,
    width: int = 100,
) -> list[Text]:
    """Return each agent with its numbers and the beginning of its result; `expanded` with more of it,
    which the card of a run knows better than the message."""
    lines: list[Text] = []
    if told.group:
        more = " · others are still at work" if told.partial else ""
        lines.append(Text(f"{plural(len(told.endings), 'agent')} finished{more}", "bold"))
    for ending in told.endings:
        lines += _ending_lines(ending, _card_of(ending, cards or {}), expanded=expanded, cost=cost, width=width)
    return lines


def _card_of(ending: Ending, cards: dict[str, RunCard]) -> RunCard | None:
    """Return the card of a run where it is about this end, and not about a later one."""
    card = cards.get(ending.id)
    if card is None or card.status != ending.status or ending.tokens not in (None, card.usage.total_tokens):
        return None
    return card


def _ending_lines(ending: Ending, card: RunCard | None, *, expanded: bool, cost: bool, width: int) -> list[Text]:
    mark, style = status_icon(ending.status) or ("●", "accent")
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
        # Nothing is left of text that is only a sign of Markdown, such as a lone dash.
        first, *others = [line for line in plain_text(source).split("\n") if line.strip()] or [source]
        cut = fit(one_line(first), PREVIEW)
        if others and cut == one_line(first):
            cut += " …"
        return [Text(f"  ⎿ {cut}", STYLES["dim"])]
    rows = markdown_lines(text[:EXPANDED_SOURCE].strip("\n"), width - 4)
    lines = [Text.assemble("  ⎿ ", rows[0])]
    lines += [Text.assemble("    ", row) for row in rows[1:EXPANDED_LINES]]
    missing = len(rows) - EXPANDED_LINES + text[EXPANDED_SOURCE:].count("\n")
    if missing > 0:
        lines.append(Text(f"    … {missing:,} more lines", STYLES["dim"]))
    return lines


def _whole(ending: Ending, card: RunCard | None) -> str:
    """Return the result itself where this process has it: the message has only its beginning."""
    if card is not None and card.outcome is not None:
        return card.outcome.text or ending.result
    return ending.result


def _word(ending: Ending) -> str:
    if ending.status == "steered":
        return "completed (steered)"
    if ending.label.endswith(f"({CUT_OFF})"):
        return f"{ending.status} ({CUT_OFF})"
    if ending.status == "error" or ending.label == "Stopped by the user":
        return one_line(ending.label.lower())
    return ending.status


def _numbers(ending: Ending, card: RunCard | None, cost: bool) -> Text:
    if card is not None:
        return stats(card, card.ended_at or 0.0, lambda model: None, cost=cost)
    known = dict(ending.numbers)
    parts = []
    if known.get("tool_uses"):
        parts.append(plural(int(known["tool_uses"]), "tool use"))
    if known.get("total_tokens"):
        parts.append(f"{format_count(int(known['total_tokens']))} token")
    if "duration_ms" in known:
        parts.append(format_duration(known["duration_ms"]))
    return Text(SEPARATOR.join(parts))


def _ending(frame: str) -> Ending:
    fields: dict[str, str] = {}
    notes: list[str] = []
    for match in _FIELD.finditer(frame):
        if match[1] == "note":
            notes.append(unescape(match[2]))
        else:
            fields.setdefault(match[1], match[2])
    label = unescape(fields.get("status", ""))
    about = unescape(fields.get("summary", "")).removeprefix('Agent "')
    return Ending(
        id=unescape(fields.get("task-id", "")),
        status=_STATUS.get(label.removesuffix(f" ({CUT_OFF})"), "error"),
        label=label,
        description=about[: about.rfind(f'" {label}')] or "agent",
        result=unescape(fields.get("result", "")),
        transcript=unescape(fields.get("output-file", "")),
        branch=unescape(fields.get("branch", "")),
        notes=tuple(notes),
        numbers=tuple((name, float(value)) for name, value in _NUMBER.findall(fields.get("usage", ""))),
    )


class NotificationBox(Folded):
    """How agents have ended, as a box that opens."""

    DEFAULT_CSS = """
    NotificationBox { border: round $secondary; padding: 0 1; margin: 1 0 0 0; height: auto; }
    NotificationBox:focus { border: round $primary; }
    """

    def __init__(self, told: Announcement) -> None:
        super().__init__("notification")
        self._told = told
        self.ends = frozenset(ending.key for ending in told.endings)

    @classmethod
    def from_text(cls, text: str, without: Collection[EndKey] = ()) -> NotificationBox | None:
        """Return a box for a message that tells of ended agents, without the ends that were told before; None
        for any other message."""
        told = announcement(text)
        if told is None:
            return None
        endings = tuple(ending for ending in told.endings if ending.key not in without)
        if len(endings) < len(told.endings):
            told = Announcement(endings, len(endings) > 1, told.partial)
        return cls(told)

    def head(self) -> Text:
        return self._lines(expanded=False)[0]

    def body(self) -> Group:
        return Group(*self._lines(expanded=True)[1:])

    def redraw(self) -> None:
        """Draw all of it, or folded the beginning of each result: not only one line."""
        if self.is_attached:
            self.update(Group(*self._lines(expanded=self.unfolded)))

    def _lines(self, *, expanded: bool) -> list[Text]:
        app: Any = self.app
        cost = app.retinue.supervisor.settings.show_cost
        width = max(self.content_size.width, 20)
        lines = announcement_lines(self._told, app.board.cards, expanded=expanded, cost=cost, width=width)
        for line in lines:
            line.no_wrap = not expanded
            line.overflow = "fold" if expanded else "ellipsis"
        return lines


MOST = 3


class Waiting(Static):
    """One line for each, above the prompt; no room when nothing waits."""

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
    rows = [Text(fit(f"◦ {one_line(words)}", width), STYLES["dim"]) for words in queue[:MOST]]
    more = optional("+{} more · ", max(len(queue) - MOST, 0))
    hint = f"  {more}sent after this turn · ↑ to edit · {resend_key.upper()} to send now"
    return [*rows, Text(fit(hint, width), STYLES["dim"])]
