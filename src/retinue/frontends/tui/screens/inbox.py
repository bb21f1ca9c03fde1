"""The inbox: all requests to the person from every run of the project. The person answers them by keys.

Keys typed before an item was on the screen do not answer it: for a moment after the displayed item has changed, keys
that answer do nothing.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable
from typing import ClassVar

from rich.text import Text
from textual import events
from textual.binding import Binding, BindingType
from textual.widget import Widget
from textual.widgets import Static

from retinue.app.approvals import (
    ALLOWING,
    APPROVAL_CHOICES,
    ApprovalChoice,
    asking_agent,
    closed_text,
    exact_line,
    interrupted_text,
    item_lines,
    kind_text,
    when_text,
)
from retinue.app.markdown import plain_text
from retinue.app.rich_text import DIFF_STYLES, STYLES, clean
from retinue.app.text import INBOX_MARKS, optional
from retinue.core.controls import in_line
from retinue.core.format import format_wait
from retinue.core.permission import InboxItem, InboxRow
from retinue.errors import AnsweredError
from retinue.frontends.tui.screens.dialogs import Ask, ConfirmScreen, Pick
from retinue.frontends.tui.screens.sheet import LongText, Rows, Sheet, columns

MESSAGE = "deny-message"
_CHOICES = {**APPROVAL_CHOICES, MESSAGE: ApprovalChoice("m", "deny and say why", "Deny, with a message to the agent")}
_RISKS = {"low": "dim", "medium": "warning", "high": "error"}


def answers(item: InboxItem) -> dict[str, ApprovalChoice]:
    """Return the answers that the item accepts. A question has no keys, because it accepts text."""
    if item.kind == "question" or item.state != "waiting":
        return {}
    taken = set(item.options)
    if "deny" in taken:
        taken.add(MESSAGE)
    return {option: choice for option, choice in _CHOICES.items() if option in taken}


def takes_several(item: InboxItem) -> bool:
    """Return whether more than one option of a question may be chosen."""
    return bool(item.options) and item.payload.get("several") is True


def keys_line(item: InboxItem | None, was_read: bool = True) -> str:
    """Return the keys that work now. A call can be allowed after all of it `was_read`."""
    always = "PgDn read on · v watch run · h all · Esc back"
    if item is None:
        return "h also what was answered · Esc back"
    if item.state != "waiting":
        return always
    if item.kind == "question" and takes_several(item):
        return f"1–{min(len(item.options), 9)} mark · Enter send what is marked, or answer in words\n{always}"
    if item.kind == "question":
        numbers = optional("1–{} choose · ", min(len(item.options), 9))
        return f"{numbers}Enter answer in words\n{always}"
    offered = []
    for option, choice in answers(item).items():
        if was_read or option not in ALLOWING:
            offered.append(f"{choice.key} {choice.short}")
    if not was_read:
        offered.insert(0, "PgDn shows the rest, then it can be allowed")
    return " · ".join(offered) + f"\n{always}"


def row(entry: InboxRow, now: float, room: int) -> Text:
    """Return `? edit src/a.py · Explore · high · 12s`."""
    item = entry.item
    kind, meaning = str(item.kind), "accent"
    if item.kind == "approval":
        kind, meaning = item.risk, _RISKS[item.risk]
    age = format_wait(max(now - item.created_at, 0.0))
    mark = "!" if entry.interrupted else INBOX_MARKS[item.state]
    cells = [(mark, 1, meaning), (kind, 8, meaning), (age, 7, "dim"), (item.agent, 16, "")]
    return columns([*cells, (_title(item), 0, "bold")], room)


def _title(item: InboxItem, most: int = 300) -> str:
    """Return the title of an item. A call is shown completely, a question without the signs of Markdown."""
    if item.kind != "question":
        return exact_line(item.title, most)
    return exact_line(plain_text(clean(item.title)), most)


def about(entry: InboxRow, now: float) -> Text:
    """Return the asking agent, its request, the time and the reason."""
    item = entry.item
    text = Text()
    text.append(_title(item, 1_000), "bold")
    run = f"run {item.run_id[:8]} · {kind_text(item)} · {when_text(item, now)}"
    text.append(f"\n{exact_line(asking_agent(item), 130)} · {run}", STYLES["dim"])
    if item.state != "waiting":
        text.append(f"\n{closed_text(item)}", STYLES["dim"])
    elif entry.interrupted:
        note = interrupted_text(item)
        text.append(f"\n{note[0].upper()}{note[1:]}", STYLES["warning"])
    if item.reason:
        text.append(f"\n{exact_line(item.reason, 1_000)}", STYLES["warning"])
    return text


def detail(item: InboxItem, marked: Collection[str] = ()) -> list[Text]:
    """Return the exact call with its diff, the options of a question, and the rights that an answer beyond this call
    would grant."""
    lines = _color_diff(item_lines(item, reason=False))
    if item.kind == "question":
        lines += _option_lines(item, marked)
    if item.rule:
        lines += [Text(), Text(f"r, a and A allow: {in_line(item.rule)}", STYLES["dim"])]
    return lines


def _option_lines(item: InboxItem, marked: Collection[str]) -> list[Text]:
    notes = item.payload.get("notes")
    if not isinstance(notes, list):
        notes = []
    lines = []
    for number, option in enumerate(item.options, 1):
        line = Text(f"{number}. ")
        if takes_several(item):
            line.append("☑ " if option in marked else "☐ ", STYLES["accent"])
        line.append(exact_line(option), "bold")
        if number <= len(notes) and notes[number - 1]:
            line.append(f"  {exact_line(str(notes[number - 1]))}", STYLES["dim"])
        lines.append(line)
    return lines


def _color_diff(lines: list[str]) -> list[Text]:
    """Return the lines of a call, with colours for a diff. The signs stay for people who see no colours."""
    is_diff = any(line.startswith(("@@", "+++ ", "--- ")) for line in lines)
    drawn = []
    for line in lines:
        style = ""
        if is_diff:
            style = _style(line)
        drawn.append(Text(line.expandtabs(4), style))
    return drawn


def _style(line: str) -> str:
    if line.startswith(("+++", "---", "@@")):
        return STYLES["accent"]
    return STYLES[DIFF_STYLES.get(line[:1], "")]


BY = "terminal app"
OTHER_WORDS = "other"
# The interval for reading the facts of an item's run again, if nothing else changes.
READ_SECONDS = 5.0
# From this height on the conversation stays visible above the inbox, which then takes half of the rows at most.
# `OTHER_ROWS` of them are for its list, the asking agent, its heading and its keys.
BOX_MIN_HEIGHT = 32
OTHER_ROWS = 9
# Items in the list. Further ones follow when these are answered.
MAX_LISTED_ITEMS = 60


class InboxScreen(Sheet[None]):
    """The waiting items. The screen closes when the last one is answered. If it `opened_itself` for a new item, it also
    closes when that item is settled in another way."""

    DEFAULT_CSS = """
    InboxScreen #items { height: auto; max-height: 7; min-height: 1; }
    InboxScreen #about { height: auto; max-height: 6; padding: 0 1; border-top: solid $panel; }
    InboxScreen #reading { height: 1fr; padding: 0 1; margin: 1 0 0 0; scrollbar-size-vertical: 1; }
    InboxScreen.box { background: $background 0%; align: left bottom; }
    InboxScreen.box > * { background: $surface; }
    InboxScreen.box > #heading, InboxScreen.box > #keys { background: $panel; }
    InboxScreen.box #items { background: $surface; max-height: 4; }
    InboxScreen.box #reading { margin: 0; }
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
        self._answered = False
        self._marked: set[str] = set()
        self._lines: list[Text] = []

    def body(self) -> Iterable[Widget]:
        yield Rows(id="items")
        yield Static(id="about")
        yield LongText(id="reading")

    def on_mount(self) -> None:
        self.rows.focus()
        self._look()
        self._leave = self.retinue.inbox.listen(self._look)
        self.host.beat.subscribe(self, self._beat)

    def on_unmount(self) -> None:
        self._leave()

    def _beat(self, now: float) -> None:
        """Update the ages of items, and remove expired ones."""
        if int(time.monotonic()) != self._second:
            self._look()

    def on_resize(self) -> None:
        self._draw()
        self._fit()

    def on_option_list_option_highlighted(self) -> None:
        self._read()

    def on_long_text_drawn(self) -> None:
        self._read()

    def on_option_list_option_selected(self) -> None:
        self.action_answer()

    def on_key(self, event: events.Key) -> None:
        item = self._item
        if item is None or event.character is None:
            return
        choices = {choice.key: option for option, choice in answers(item).items()}
        if item.kind == "question":
            choices = dict(zip("123456789", item.options, strict=False))
        choice = choices.get(event.character)
        if choice is not None and item.state == "waiting":
            event.stop()
            if self._settled and takes_several(item):
                self._mark(item, choice)
            elif self._settled and self._may_choose(choice):
                self.do(self._give(item, choice))
        elif event.is_printable and event.character not in "hv ":
            # The person types text, so no letter is an answer.
            self._shown_at = time.monotonic()

    def action_answer(self) -> None:
        """Send the marked options, or else show all answers, or ask for text."""
        item = self._item
        if item is None or item.state != "waiting" or not self._settled:
            return
        if self._marked:
            # The answer has the order of the options.
            chosen = [option for option in item.options if option in self._marked]
            self.do(self._give(item, ", ".join(chosen)))
        else:
            self.do(self._choose(item))

    def _mark(self, item: InboxItem, option: str) -> None:
        self._marked ^= {option}
        self.query_one(LongText).show(detail(item, self._marked))

    def action_read(self, pages: int) -> None:
        reading = self.query_one(LongText)
        reading.scroll_relative(y=pages * max(reading.size.height - 1, 1), animate=False)

    def action_history(self) -> None:
        self._everything = not self._everything
        self._ids = None
        self._look()

    def action_watch(self) -> None:
        if self._item is not None:
            self.host.watch_run(self._item.run_id)

    # Display

    @property
    def _item(self) -> InboxItem | None:
        entry = self._listed.get(self.chosen)
        if entry is None:
            return None
        return entry.item

    @property
    def _settled(self) -> bool:
        """Return whether the item was visible long enough for a key to be an answer to it."""
        return not self._answering and time.monotonic() - self._shown_at >= self.settle_seconds

    def _may_choose(self, choice: str) -> bool:
        """Return whether a choice can be made now. A call cannot be allowed before all of it was on the screen."""
        return choice not in ALLOWING or self.query_one(LongText).was_read

    def _look(self) -> None:
        """Show changes of the inbox, which any process may have written to the log."""
        inbox = self.retinue.inbox
        ids, second = inbox.waiting_ids(), int(time.monotonic())
        if ids == self._ids and second == self._second:
            return
        self._second = second
        if ids != self._ids or time.monotonic() - self._read_at >= READ_SECONDS:
            self._ids, self._read_at = ids, time.monotonic()
            entries = inbox.rows(MAX_LISTED_ITEMS, everything=self._everything)
            self._listed = {entry.item.id: entry for entry in entries}
        waiting = len(ids)
        # No item is left. The next keys belong to the conversation.
        is_done = (self._opened_itself or self._answered) and not self._everything
        if is_done and not waiting and not self._answering and self.is_current:
            self.dismiss()
            return
        count = optional("{} waiting", waiting) or "nothing waits for an answer"
        self.head(f"Inbox · {count}")
        self._draw()

    def _draw(self) -> None:
        now = self.now()
        self.rows.fill([(key, row(entry, now, self.room)) for key, entry in self._listed.items()])
        self._read()

    def _read(self) -> None:
        entry = self._listed.get(self.chosen)
        if entry is None:
            self.query_one("#about", Static).update("")
            self._show(None)
        else:
            self.query_one("#about", Static).update(about(entry, self.now()))
            self._show(entry.item)

    def _show(self, item: InboxItem | None) -> None:
        self.keys(keys_line(item, not self.query_one(LongText).goes_on))
        key = item.id if item is not None else None
        if key == self._shown:
            return
        self._shown, self._shown_at = key, time.monotonic()
        self._marked = set()
        self._lines = detail(item) if item is not None else []
        self.query_one(LongText).show(self._lines)
        self._fit()

    def _fit(self) -> None:
        """Give the text only the rows that it needs, so that a high terminal also shows the conversation."""
        height, reading = self.app.size.height, self.query_one(LongText)
        self.set_class(height >= BOX_MIN_HEIGHT, "box")
        if height < BOX_MIN_HEIGHT:
            reading.styles.height = "1fr"
            return
        width = max(self.app.size.width - 3, 10)
        rows = sum(max(-(-line.cell_len // width), 1) for line in self._lines)
        reading.styles.height = min(max(rows, 1), height // 2 - OTHER_ROWS)

    # Answering

    async def _choose(self, item: InboxItem) -> None:
        if item.kind != "question":
            offered = answers(item).items()
            choices = [(option, choice.key, choice.label) for option, choice in offered if self._may_choose(option)]
            chosen = await self.ask(ConfirmScreen(item.title, choices))
        elif item.options:
            rows = [(option, f"{number}. {option}") for number, option in enumerate(item.options, 1)]
            chosen = await self.ask(Pick(item.title, [*rows, (OTHER_WORDS, "Other words…")]))
            if chosen == OTHER_WORDS and OTHER_WORDS not in item.options:
                chosen = await self._ask_for_words(item)
        else:
            chosen = await self._ask_for_words(item)
        if chosen is not None:
            await self._give(item, chosen)

    async def _ask_for_words(self, item: InboxItem) -> str | None:
        return await self.ask(Ask(item.title, detail="Your answer goes to the agent as it is."))

    async def _give(self, item: InboxItem, choice: str) -> None:
        self._answering = True
        try:
            message = ""
            if choice == MESSAGE:
                words = await self.ask(Ask("Deny, and tell the agent", detail=item.title))
                if words is None:
                    return
                choice, message = "deny", words
            answer = choice
            if choice not in item.options:
                answer = self.project.redactor(choice)
            try:
                await self.retinue.inbox.answer(item.id, answer, message, by=BY)
                self._answered = True
                self.say(f"{choice}: {item.title}", "success")
            except AnsweredError as error:
                self.say(error.message, "warning")
        finally:
            self._answering = False
            self._ids = None
            if self.is_mounted:
                self._look()
