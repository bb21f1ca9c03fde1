"""Slash commands without their own screen, including those that copy answers and undo changes."""

from __future__ import annotations

from functools import partial

from retinue.app.conversation import AttachedConversation, answers, code_blocks
from retinue.app.model_choice import choose_model
from retinue.app.settings import save_setting
from retinue.app.text import plural
from retinue.errors import RetinueError
from retinue.frontends.tui.clipboard import copy_text
from retinue.frontends.tui.frame import Frame, command, live_runs


@command("clear", "begin a new conversation; the old one stays in the log")
async def clear(app: Frame, words: str) -> None:
    if not app.is_busy():
        await app.new_conversation()


@command("model", "choose a model from a list, by its name, or set one up", "[NAME|add]")
async def model(app: Frame, words: str) -> None:
    if words == "add":
        await app.open_screen("first_model")
    elif words:
        await use_model(app, words)
    else:
        await app.open_screen("models")


async def use_model(app: Frame, name: str, *, always: bool = False) -> bool:
    """Use a model from the next message on; `always`: also write it to the user's settings. Show the result, and
    return False if the model cannot be used."""
    if isinstance(app.talk, AttachedConversation):
        app.tell("This conversation belongs to another process: its model cannot be changed from here.", "warning")
        return False
    try:
        chosen = await choose_model(app.project, name, always=always)
        if always:
            app.retinue.supervisor.reload_settings()
    except RetinueError as error:
        app.tell(f"{error.message}\n{error.remedy}".strip(), "error")
        return False
    app.session.model = chosen.info.full_name
    note = " It is your default now." if always else ""
    app.tell(f"From your next message on: {chosen.info.full_name}.{note}")
    return True


@command("plan", "plan mode: nothing is changed until you approve a plan", "[TASK]")
async def plan(app: Frame, words: str) -> None:
    if app.talk is not app.session:
        app.tell("This conversation belongs to another process: its mode cannot be changed from here.", "warning")
        return
    await app.session.change_mode("plan")
    if words:
        await app.session.say(words)
        app.board.main_id = app.session.main_id
    else:
        app.tell("Plan mode: say what to plan. Shift+Tab leaves it.")


@command("theme", "light or dark colours", "[light|dark|auto]")
async def choose_theme(app: Frame, words: str) -> None:
    if words not in ("light", "dark", "auto", ""):
        app.tell(f"There is no theme '{words}': light, dark or auto.", "warning")
        return
    if not words:
        words = "light" if app.current_theme.dark else "dark"
    saved = save_setting(app.project, "theme", words, "user")
    app.retinue.supervisor.reload_settings(persisted=saved.persisted)
    app.use_theme(words)


@command("stop", "stop a run of this conversation, by its @name; without one all agents", "[@NAME]")
async def stop(app: Frame, words: str) -> None:
    if isinstance(app.talk, AttachedConversation):
        app.tell(await app.talk.stop())
        return
    supervisor = app.retinue.supervisor
    name = words.removeprefix("@").lower()
    count = 0
    for node in live_runs(supervisor):
        # A run of the list may have been stopped together with an earlier one.
        if node.live and node.id != app.talk.main_id and name in ("", node.state.name):
            count += supervisor.stop_tree(node, "Stopped by the user.")
    if count:
        app.tell(f"{count} stopping.")
    elif name:
        app.tell("No agent of that name runs.")
    else:
        app.tell("No agent runs.")


@command("statusline", "let an agent set up the status line; say what it should show", "[WISH]")
async def statusline(app: Frame, words: str) -> None:
    wish = words or "Show what is useful; follow my shell's prompt (PS1) if I have one."
    run = await app.retinue.spawn("statusline-setup", wish)
    app.tell(f"The agent {run.agent} works on it; you will see it in the list of agents.")
    outcome = await run.wait()
    app.retinue.supervisor.reload_settings()
    kind = "info" if outcome.ok else "error"
    app.tell(outcome.text or "It said nothing.", kind)


@command("quit", "leave")
async def leave(app: Frame, words: str) -> None:
    await app.leave()


command("exit", "leave")(leave)


async def edit_draft(app: Frame, text: str) -> str:
    """Return a draft edited in $EDITOR. If it cannot be edited, show the reason and return it unchanged."""
    from retinue.frontends.tui.screens.external_editor import NoEditorError, edit_text

    try:
        return (await edit_text(app, text)).rstrip("\n")
    except NoEditorError as error:
        app.tell(str(error), "warning")
        return text


@command("copy", "the last answer to the clipboard, the one N before it, or its last code block", "[N|code]")
async def copy(app: Frame, words: str) -> None:
    if words and words != "code" and not words.isdecimal():
        app.tell("Say /copy, /copy 2 for the answer before the last one, or /copy code.", "warning")
        return
    await app.project.log.flush()
    number = int(words) if words.isdecimal() else 1
    texts: list[str] = []
    if app.talk.main_id is not None:
        texts = await app.project.log.read(partial(answers, run_id=app.talk.main_id, most=number))
    if not 1 <= number <= len(texts):
        app.tell(f"There are {plural(len(texts), 'answer')} to copy.", "warning")
        return
    text = texts[number - 1]
    if words == "code":
        blocks = code_blocks(text)
        if not blocks:
            app.tell("The last answer has no code block. /copy copies all of it.", "warning")
            return
        text = blocks[-1]
    app.tell(copy_text(app, text))


@command("undo", "put back the files that were changed since your last message")
async def undo(app: Frame, words: str) -> None:
    from retinue.app.rewind import Rewinder
    from retinue.frontends.tui.screens.rewind import go_back, why_not

    refusal = why_not(app)
    if refusal:
        app.tell(refusal, "warning")
        return
    points = [point for point in await Rewinder(app.project, app.talk.main_id or "").points() if not point.is_left]
    changed = [point for point in points if point.files]
    if not changed:
        app.tell("No file was changed in this conversation.")
    elif not points[-1].files:
        app.tell("No file was changed since your last message. To go back further: /rewind")
    else:
        await go_back(app, points[-1], "files")
