"""Forks in the app: a conversation from one of its messages on, or any run from one of its moments on.

The old run stays as it is. A conversation is opened with the words of its message in the editor; a run goes on at once
with what is said to it, and its viewer opens.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from retinue.core.events import AssistantEnded, Event, MessageAdded, TurnEnded
from retinue.errors import RetinueError
from retinue.evidence.fork import Fork, fork_run
from retinue.faces.tui.board.text import fit, one_line
from retinue.faces.tui.frame import sentence
from retinue.faces.tui.rewind import RewindPoint, name_files, report_files
from retinue.faces.tui.screens.dialogs import Ask, Choice, ConfirmScreen, Pick
from retinue.log.open_calls import describe_call
from retinue.log.replay import current_branch

if TYPE_CHECKING:
    from retinue.faces.tui.app import RetinueApp

_LONGEST = 64


async def fork_conversation(app: RetinueApp, point: RewindPoint) -> None:
    """Open a new conversation that begins like this one, up to before the words of `point`."""
    run_id = app.talk.main_id or ""
    if point.is_beginning:
        await app.new_conversation()
        app.put_words(point.text)
        return
    keep = await _keeps_files(app, point.files)
    if keep is None:
        return
    try:
        fork = await fork_run(app.project, run_id, point.to, keep_files=keep)
    except RetinueError as error:
        app.tell(sentence(error), "error")
        return
    await app.open_session(fork.run_id)
    app.tell(_report(app, fork))
    if not point.is_left:
        app.put_words(point.text)


async def fork_watched_run(app: RetinueApp, run_id: str) -> None:
    """Ask for a moment of a run and for words, go on from there as a new run, and watch it."""
    await app.project.log.flush()
    rows = find_moments(app.project.log.reader.events(run_id))
    if not rows:
        app.tell("Nothing was said in this run yet.", "warning")
        return
    start = rows[-1][0]
    chosen = await app.push_screen_wait(Pick("Fork after which moment?", rows, start=start))
    if chosen is None:
        return
    detail = "At a message they take its place. Nothing: it goes on by itself."
    words = await app.push_screen_wait(Ask("What is said there?", detail=detail))
    if words is None:
        return
    try:
        fork = await fork_run(app.project, run_id, int(chosen), edit=words.strip() or None)
        await app.retinue.resume(fork.run_id, fork.prompt)
    except RetinueError as error:
        app.tell(sentence(error), "error")
        return
    app.tell(_report(app, fork))
    app.watch_run(fork.run_id)


def find_moments(events: Sequence[Event]) -> list[tuple[str, str]]:
    """Return the moments from which a run can be forked, each as the number of its event and words for it."""
    rows: list[tuple[str, str]] = []
    said = ""
    for event in current_branch(events):
        match event.body:
            case MessageAdded(message):
                rows.append((str(event.seq), f"{event.seq:>4}  [{message.origin}] {_short(message.text)}"))
            case AssistantEnded(_, answer):
                calls = [describe_call(call) for call in answer.tool_calls]
                said = ", ".join(calls) or answer.text
            case TurnEnded(turn):
                rows.append((str(event.seq), f"{event.seq:>4}  turn {turn}: {_short(said)}"))
            case _:
                pass
    return rows


async def _keeps_files(app: RetinueApp, files: Sequence[str]) -> bool | None:
    """Ask whether files stay as they are; None for Esc. Ask nothing where none was changed."""
    if not files:
        return True
    choices: list[Choice] = [
        ("back", "b", "with the files as they were then"),
        ("stay", "s", "leave the files as they are now"),
    ]
    detail = f"Changed since: {name_files(files, str(app.project.cwd))}"
    chosen = await app.push_screen_wait(ConfirmScreen("Fork the conversation?", choices, detail))
    return None if chosen is None else chosen == "stay"


def _report(app: RetinueApp, fork: Fork) -> str:
    text = f"Forked from {fork.source[:8]}, which stays as it is: /sessions"
    if fork.files:
        text += f". {report_files(fork.files, str(app.project.cwd))}"
    return text


def _short(text: str) -> str:
    return fit(one_line(text), _LONGEST)
