"""The inbox: everything that waits for a person, of every run of the project, answered by a key.

What was typed before an item was on the screen does not answer it: for a moment after the item
that is shown has changed, keys that answer do nothing.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import ClassVar

from msgspec.structs import replace
from rich.text import Text
from textual import events
from textual.binding import Binding, BindingType
from textual.widget import Widget
from textual.widgets import Static

from retinue.core.format import format_wait
from retinue.core.permission import InboxItem
from retinue.errors import AnsweredError
from retinue.faces.cli.inbox import body, who
from retinue.faces.cli.inbox import shown as one_line
from retinue.faces.tui.board.marks import STYLES
from retinue.faces.tui.screens.dialogs import Ask, ConfirmScreen, Pick
from retinue.faces.tui.screens.help import Reading
from retinue.faces.tui.screens.sheet import Rows, Sheet, columns
from retinue.log.inbox import InboxRow, how_closed, items, waiting_ids

LINES = 1_000
"""Of one item; more than that nobody reads before answering."""

Answer = tuple[str, str, str]
"""The choice, the key that gives it, and the words for it."""
MESSAGE = "deny-message"

_ANSWERS: tuple[Answer, ...] = (
    ("allow", "y", "once"),
    ("allow-run", "r", "this run"),
    ("allow-agent", "a", "this agent"),
    ("always", "A", "always"),
    ("deny", "n", "deny"),
    (MESSAGE, "m", "deny and say why"),
)
_LONG = {
    "allow": "Allow this call, once",
    "allow-run": "Allow calls like it in this run and below it",
    "allow-agent": "Allow calls like it in every run of this agent",
    "always": "Allow calls like it always, by a rule in the settings",
    "deny": "Deny",
    MESSAGE: "Deny, with a message to the agent",
}
_MARKS = {"waiting": "?", "answered": "✓", "expired": "⏱", "withdrawn": "–"}
_RISKS = {"low": "dim", "medium": "warning", "high": "error"}


def answers(item: InboxItem) -> list[Answer]:
    """Those that the item takes. None for a question: it takes words."""
    if item.kind == "question" or item.state != "waiting":
        return []
    return [each for each in _ANSWERS if each[0] in item.options or (each[0] == MESSAGE and "deny" in item.options)]


def spelt_out(item: InboxItem) -> list[Answer]:
    """The same, in whole words, for a dialog."""
    return [(choice, key, _LONG[choice]) for choice, key, _ in answers(item)]


def keys_line(item: InboxItem | None) -> str:
    """The keys that work now."""
    rest = "PgDn read on · v watch run · h all · Esc back"
    if item is None:
        return "h also what was answered · Esc back"
    if item.state != "waiting":
        return rest
    if item.kind == "question":
        numbers = f"1–{min(len(item.options), 9)} choose · " if item.options else ""
        return f"{numbers}Enter answer in words\n{rest}"
    return " · ".join(f"{key} {words}" for _, key, words in answers(item)) + f"\n{rest}"


def row(each: InboxRow, now: float, room: int) -> Text:
    """`? edit src/a.py · Explore · high · 12s`."""
    item = each.item
    kind = item.risk if item.kind == "approval" else item.kind
    meaning = _RISKS[item.risk] if item.kind == "approval" else "accent"
    age = format_wait(max(now - item.created_at, 0.0))
    mark = "!" if each.interrupted else _MARKS[item.state]
    cells = [(mark, 1, meaning), (kind, 8, meaning), (age, 7, "dim"), (item.agent, 16, "")]
    return columns([*cells, (one_line(item.title), 0, "bold")], room)


def about(each: InboxRow, now: float) -> Text:
    """Who asks what, since when, and why it is asked."""
    item = each.item
    text = Text()
    text.append(one_line(item.title, 1_000), "bold")
    text.append(f"\n{one_line(who(item), 130)} · run {item.run_id[:8]} · {_when(item, now)}", STYLES["dim"])
    if item.state != "waiting":
        text.append(f"\n{how_closed(item)}", STYLES["dim"])
        if item.answer is not None and item.answer.message:
            text.append(f": {one_line(item.answer.message)}", STYLES["dim"])
    elif each.interrupted:
        text.append(
            f"\nIts run is interrupted; it takes the answer when resumed: retinue runs resume {item.run_id[:8]}",
            STYLES["warning"],
        )
    if item.reason:
        text.append(f"\n{one_line(item.reason, 1_000)}", STYLES["warning"])
    return text


def detail(item: InboxItem) -> list[Text]:
    """The exact call with its diff, the options of a question, and what an answer beyond this
    call would allow."""
    lines = body(replace(item, reason=""), LINES)
    shown = _exact(lines)
    if item.kind == "question":
        shown += [Text(f"{number}. {one_line(option)}") for number, option in enumerate(item.options, 1)]
    if item.rule:
        shown += [Text(), Text(f"r, a and A allow: {one_line(item.rule)}", STYLES["dim"])]
    return shown


def _when(item: InboxItem, now: float) -> str:
    parts = [f"{item.risk} risk" if item.kind == "approval" else item.kind]
    parts.append(f"asked {format_wait(max(now - item.created_at, 0.0))} ago")
    if item.expires_at is not None and item.state == "waiting":
        parts.append(f"'{one_line(item.default) or 'no answer'}' in {format_wait(max(item.expires_at - now, 0.0))}")
    return " · ".join(parts)


def _exact(lines: list[str]) -> list[Text]:
    """The call; a diff in the colours of one, its signs kept for those who see none."""
    is_diff = any(line.startswith(("@@", "+++ ", "--- ")) for line in lines)
    return [Text(line.expandtabs(4), _colour(line) if is_diff else "") for line in lines]


def _colour(line: str) -> str:
    if line.startswith(("+++", "---", "@@")):
        return STYLES["accent"]
    return STYLES["success"] if line.startswith("+") else STYLES["error"] if line.startswith("-") else ""


BY = "terminal app"
LOOK_SECONDS = 0.25
OTHER = "other"
READ_SECONDS = 5.0
"""How often what an item says of its run is read again, if nothing else changes."""
MOST = 60
"""Items that are listed; others follow as these are answered."""


class InboxScreen(Sheet[None]):
    """`opened_itself`: it came up because something arrived, and goes when nothing waits."""

    DEFAULT_CSS = """
    InboxScreen #items { height: auto; max-height: 7; min-height: 1; }
    InboxScreen #about { height: auto; max-height: 6; padding: 0 1; border-top: solid $panel; }
    InboxScreen #reading { height: 1fr; padding: 0 1; margin: 1 0 0 0; scrollbar-size-vertical: 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("f2", "close", show=False),
        Binding("pageup", "read(-1)", "back", priority=True),
        Binding("pagedown,space", "read(1)", "on", priority=True),
        Binding("h", "history", "also what was answered"),
        Binding("v", "watch", "watch the run"),
    ]
    heading = "Inbox"
    keys_line = keys_line(None)
    settle_seconds: ClassVar[float] = 0.35

    def __init__(self, opened_itself: bool = False) -> None:
        super().__init__()
        self._opened_itself = opened_itself is True
        self._everything = False
        self._listed: dict[str, InboxRow] = {}
        self._ids: tuple[str, ...] | None = None
        self._second = 0
        self._read_at = 0.0
        self._shown: str | None = None
        self._shown_at = 0.0
        self._answering = False

    def body(self) -> Iterable[Widget]:
        yield Rows(id="items")
        yield Static(id="about")
        yield Reading(id="reading")

    def on_mount(self) -> None:
        self.query_one(Rows).focus()
        self._look()
        self.set_interval(LOOK_SECONDS, self._look)

    def on_resize(self) -> None:
        self._draw()

    def on_option_list_option_highlighted(self) -> None:
        self._read()

    def on_option_list_option_selected(self) -> None:
        self.action_answer()

    def on_key(self, event: events.Key) -> None:
        item = self._item
        if item is None or event.character is None:
            return
        choice = next((choice for choice, key, _ in answers(item) if key == event.character), None)
        number = int(event.character) if event.character in "123456789" else 0
        if choice is None and item.kind == "question" and 0 < number <= len(item.options):
            choice = item.options[number - 1]
        if choice is not None and item.state == "waiting":
            event.stop()
            if self._settled:
                self.do(self._give(item, choice))
        elif event.is_printable and event.character not in "hv ":
            self._shown_at = time.monotonic()  # someone types words, and means none of them as an answer

    def action_answer(self) -> None:
        """Enter: all answers, to choose one, or words."""
        item = self._item
        if item is not None and item.state == "waiting" and self._settled:
            self.do(self._choose(item))

    def action_read(self, pages: int) -> None:
        reading = self.query_one(Reading)
        reading.scroll_relative(y=pages * max(reading.size.height - 1, 1), animate=False)

    def action_history(self) -> None:
        self._everything = not self._everything
        self._ids = None
        self._look()

    def action_watch(self) -> None:
        if self._item is not None:
            self.host.watch_run(self._item.run_id)

    # What is shown

    @property
    def _item(self) -> InboxItem | None:
        each = self._listed.get(self.query_one(Rows).chosen or "")
        return each.item if each is not None else None

    @property
    def _settled(self) -> bool:
        """Whether whoever pressed the key has seen what it answers."""
        return not self._answering and time.monotonic() - self._shown_at >= self.settle_seconds

    def _look(self) -> None:
        """Shows what has changed in the inbox of the log, by whichever process."""
        reader = self.host.retinue.supervisor.project.log.reader
        ids, second = waiting_ids(reader), int(time.monotonic())
        if ids == self._ids and second == self._second:
            return
        self._second = second
        if ids != self._ids or time.monotonic() - self._read_at >= READ_SECONDS:
            self._ids, self._read_at = ids, time.monotonic()
            found = items(reader, everything=self._everything, limit=MOST)
            self._listed = {each.item.id: each for each in found}
        waiting = len(ids)
        if self._opened_itself and not waiting and not self._answering and self.is_current:
            self.dismiss()
            return
        self.head(f"Inbox · {waiting} waiting" if waiting else "Inbox · nothing waits for an answer")
        self._draw()

    def _draw(self) -> None:
        now = self.now()
        self.query_one(Rows).fill([(key, row(each, now, self.room)) for key, each in self._listed.items()])
        self._read()

    def _read(self) -> None:
        each = self._listed.get(self.query_one(Rows).chosen or "")
        key = each.item.id if each is not None else None
        item = each.item if each is not None else None
        self.query_one("#about", Static).update(about(each, self.now()) if each is not None else "")
        self.keys(keys_line(item))
        if key != self._shown:
            self._shown, self._shown_at = key, time.monotonic()
            self.query_one(Reading).show(detail(item) if item is not None else ())

    # Answering

    async def _choose(self, item: InboxItem) -> None:
        if item.kind != "question":
            chosen = await self.app.push_screen_wait(ConfirmScreen(item.title, spelt_out(item)))
        elif item.options:
            rows = [*((option, f"{n}. {option}") for n, option in enumerate(item.options, 1)), (OTHER, "Other words…")]
            chosen = await self.app.push_screen_wait(Pick(item.title, rows))
            chosen = await self._words(item) if chosen == OTHER and OTHER not in item.options else chosen
        else:
            chosen = await self._words(item)
        if chosen is not None:
            await self._give(item, chosen)

    async def _words(self, item: InboxItem) -> str | None:
        return await self.app.push_screen_wait(Ask(item.title, detail="Your answer goes to the agent as it is."))

    async def _give(self, item: InboxItem, choice: str) -> None:
        self._answering = True
        try:
            message = ""
            if choice == MESSAGE:
                said = await self.app.push_screen_wait(Ask("Deny, and tell the agent", detail=item.title))
                if said is None:
                    return
                choice, message = "deny", said
            inbox, redact = self.host.retinue.inbox, self.host.retinue.supervisor.project.redactor
            given = choice if choice in item.options else redact(choice)
            try:
                await inbox.answer(item.id, given, message, by=BY)
                self.say(f"{choice}: {item.title}", "success")
            except AnsweredError as error:
                self.say(error.message, "warning")
        finally:
            self._answering = False
            self._ids = None
            if self.is_mounted:
                self._look()
