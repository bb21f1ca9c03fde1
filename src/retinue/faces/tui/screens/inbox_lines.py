"""What waits for a person, as lines; and which keys answer it. No terminal here."""

from __future__ import annotations

from dataclasses import replace

from rich.text import Text

from retinue.core.format import format_wait
from retinue.core.inbox import InboxItem
from retinue.faces.cli.inbox import body, one_line, who
from retinue.faces.tui.board.marks import STYLES
from retinue.faces.tui.screens.sheet import columns
from retinue.log.inbox import Listed, how_closed

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


def row(each: Listed, now: float, room: int) -> Text:
    """`? edit src/a.py · Explore · high · 12s`."""
    item = each.item
    kind = item.risk if item.kind == "approval" else item.kind
    meaning = _RISKS[item.risk] if item.kind == "approval" else "accent"
    age = format_wait(max(now - item.created_at, 0.0))
    mark = "!" if each.interrupted else _MARKS[item.state]
    cells = [(mark, 1, meaning), (kind, 8, meaning), (age, 7, "dim"), (item.agent, 16, "")]
    return columns([*cells, (one_line(item.title), 0, "bold")], room)


def about(each: Listed, now: float) -> Text:
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
