"""A message about ended agents, as people see it, read back from the frames that the harness wrote.

Only the harness can write them: everything an agent said is escaped in them. `known_windows` returns
the context sizes of models, from the table of known models and the user's settings.

Ended agents in the conversation, as a box that opens, and messages that still wait to be delivered.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

from rich.console import Group
from rich.text import Text
from textual.widgets import Static

from retinue.core.delegation import Status
from retinue.core.format import format_count, format_duration
from retinue.core.outcome import CUT_OFF
from retinue.faces.tui.board.cards import RunCard, Window
from retinue.faces.tui.board.marks import SEPARATOR, STYLES, stats, status_icon
from retinue.faces.tui.board.text import clean_lines, fit, one_line
from retinue.faces.tui.chat.folded import Folded

if TYPE_CHECKING:
    from retinue.faces.tui.app import RetinueApp


def known_windows(overrides: Mapping[str, Mapping[str, Any]] | None = None) -> Window:
    """None for a model that neither knows: a share of a guess would be a guess. `overrides` is
    the setting `models`."""
    found: dict[str, int | None] = {}

    def window(model: str) -> int | None:
        if model not in found:
            found[model] = _window(model, overrides or {})
        return found[model]

    return window


def _window(model: str, overrides: Mapping[str, Mapping[str, Any]]) -> int | None:
    from retinue.models.known import known_model

    provider, _, name = model.partition("/")
    said = (overrides.get(model) or overrides.get(name) or {}).get("window")
    if isinstance(said, int) and said > 0:
        return said
    info = known_model(provider, name) if name else None
    return info.window if info is not None else None


PREVIEW = 80
EXPANDED_LINES = 30

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
    "Interrupted": "interrupted",
}


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


@dataclass(frozen=True, slots=True)
class Announcement:
    """`partial`: others of the group are still at work."""

    endings: tuple[Ending, ...]
    group: bool = False
    partial: bool = False


@lru_cache(maxsize=64)
def announcement(text: str) -> Announcement | None:
    """None for a message that is about something else."""
    endings = tuple(_ending(match[1]) for match in _FRAME.finditer(text))
    if not endings:
        return None
    head = text[: text.index("<task-notification>")]
    group = "Background agent group" in head or len(endings) > 1
    return Announcement(endings, group, "(partial" in head)


def announcement_lines(
    told: Announcement, cards: dict[str, RunCard] | None = None, *, expanded: bool = False, cost: bool = False
) -> list[Text]:
    """Each agent with its numbers and the beginning of its result; `expanded` with more of it,
    which the card of a run knows better than the message."""
    lines: list[Text] = []
    if told.group:
        count = len(told.endings)
        more = " · others are still at work" if told.partial else ""
        lines.append(Text(f"{count} agent{'s' if count != 1 else ''} finished{more}", "bold"))
    for ending in told.endings:
        lines += _ending_lines(ending, (cards or {}).get(ending.id), expanded=expanded, cost=cost)
    return lines


def _ending_lines(ending: Ending, card: RunCard | None, *, expanded: bool, cost: bool) -> list[Text]:
    mark, style = status_icon(ending.status) or ("●", "accent")
    lines = [
        Text.assemble(
            (mark, STYLES[style]), " ", (one_line(ending.description), "bold"), (f" {_word(ending)}", STYLES[style])
        )
    ]
    numbers = _numbers(ending, card, cost)
    if numbers:
        lines.append(Text("  ").append_text(numbers))
    lines += _result_lines(_whole(ending, card), expanded)
    for name, value in (("branch", ending.branch), ("transcript", ending.transcript)):
        if value:
            lines.append(Text(f"  {name}: {one_line(value)}", STYLES["dim"]))
    if expanded:
        lines += [Text(f"  note: {one_line(note)}", STYLES["warning"]) for note in ending.notes]
    return lines


def _result_lines(text: str, expanded: bool) -> list[Text]:
    rows = [line for line in clean_lines(text.strip("\n")) if expanded or line.strip()]
    if not rows:
        return [Text("  ⎿ No output.", STYLES["dim"])]
    if not expanded:
        first = one_line(rows[0])
        cut = fit(first, PREVIEW)
        return [Text(f"  ⎿ {cut}{' …' if cut == first and len(rows) > 1 else ''}", STYLES["dim"])]
    lines = [Text(("  ⎿ " if not at else "    ") + row) for at, row in enumerate(rows[:EXPANDED_LINES])]
    more = len(rows) - EXPANDED_LINES
    return [*lines, Text(f"    … {more:,} more lines", STYLES["dim"])] if more > 0 else lines


def _whole(ending: Ending, card: RunCard | None) -> str:
    """The result itself where this process has it: the message has only its beginning."""
    if card is not None and card.outcome is not None and card.outcome.ended == ending.status:
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
    if card is not None and not card.live:
        return stats(card, card.ended_at or 0.0, lambda model: None, cost=cost)
    known = dict(ending.numbers)
    uses = int(known.get("tool_uses", 0))
    parts = [f"{uses} tool use{'s' if uses != 1 else ''}"] if uses else []
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
            notes.append(_plain(match[2]))
        else:
            fields.setdefault(match[1], match[2])
    label = _plain(fields.get("status", ""))
    about = _plain(fields.get("summary", "")).removeprefix('Agent "')
    return Ending(
        id=_plain(fields.get("task-id", "")),
        status=_STATUS.get(label.removesuffix(f" ({CUT_OFF})"), "error"),
        label=label,
        description=about[: about.rfind(f'" {label}')] or "agent",
        result=_plain(fields.get("result", "")),
        transcript=_plain(fields.get("output-file", "")),
        branch=_plain(fields.get("branch", "")),
        notes=tuple(notes),
        numbers=tuple((name, float(value)) for name, value in _NUMBER.findall(fields.get("usage", ""))),
    )


def _plain(text: str) -> str:
    return text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")


class NotificationBox(Folded):
    """`made` gives one for a message that tells of ended agents, None for any other."""

    DEFAULT_CSS = """
    NotificationBox { border: round $secondary; padding: 0 1; margin: 1 0 0 0; height: auto; }
    NotificationBox:focus { border: round $primary; }
    """

    def __init__(self, told: Announcement) -> None:
        super().__init__("notification")
        self._told = told

    @classmethod
    def made(cls, text: str) -> NotificationBox | None:
        told = announcement(text)
        return None if told is None else cls(told)

    def head(self) -> Text:
        return self._lines(expanded=False)[0]

    def body(self) -> Group:
        return Group(*self._lines(expanded=True)[1:])

    def redraw(self) -> None:
        """Folded it is not one line but the beginning of each result."""
        if self.is_attached:
            self.update(Group(*self._lines(expanded=self.unfolded)))

    def _lines(self, *, expanded: bool) -> list[Text]:
        app = cast("RetinueApp", self.app)
        cost = app.retinue.supervisor.settings.show_cost
        lines = announcement_lines(self._told, app.board.cards, expanded=expanded, cost=cost)
        for line in lines:
            line.no_wrap, line.overflow = not expanded, "fold" if expanded else "ellipsis"
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
    rows = [Text(fit(f"◦ {one_line(text)}", width), STYLES["dim"]) for text in queue[:MOST]]
    more = f"+{len(queue) - MOST} more · " if len(queue) > MOST else ""
    hint = f"  {more}sent after this turn · ↑ to edit · {resend_key.upper()} to send now"
    return [*rows, Text(fit(hint, width), STYLES["dim"])]
