"""Commands on what was said and done in this conversation: copy it, take it back."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from retinue.faces.text import plural
from retinue.faces.tui.frame import command

if TYPE_CHECKING:
    from retinue.faces.tui.app import RetinueApp


async def edit_draft(app: RetinueApp, text: str) -> str:
    """Return a draft as it was left in $EDITOR; where it cannot be edited, say why and return it as it was."""
    from retinue.faces.tui.screens.external_editor import NoEditorError, edit_text

    try:
        return (await edit_text(app, text)).rstrip("\n")
    except NoEditorError as error:
        app.tell(str(error), "warning")
        return text


@command("copy", "the last answer to the clipboard, the one N before it, or its last code block", "[N|code]")
async def copy(app: RetinueApp, rest: str) -> None:
    from retinue.faces.tui.board.conversation import answers, code_blocks
    from retinue.faces.tui.clipboard import copy_text

    if rest and rest != "code" and not rest.isdecimal():
        app.tell("Say /copy, /copy 2 for the answer before the last one, or /copy code.", "warning")
        return
    await app.project.log.flush()
    number = int(rest) if rest.isdecimal() else 1
    found: list[str] = []
    if app.talk.main_id is not None:
        found = await app.project.log.read(partial(answers, run_id=app.talk.main_id, most=number))
    if not 1 <= number <= len(found):
        app.tell(f"There are {plural(len(found), 'answer')} to copy.", "warning")
        return
    text = found[number - 1]
    if rest == "code":
        blocks = code_blocks(text)
        if not blocks:
            app.tell("The last answer has no code block. /copy copies all of it.", "warning")
            return
        text = blocks[-1]
    app.tell(copy_text(app, text))


@command("undo", "put back the files that were changed since your last message")
async def undo(app: RetinueApp, rest: str) -> None:
    from retinue.faces.tui.rewind import Rewinder
    from retinue.faces.tui.screens.rewind import go_back, why_not

    refusal = why_not(app)
    if refusal:
        app.tell(refusal, "warning")
        return
    points = [each for each in await Rewinder(app.project, app.talk.main_id or "").points() if not each.is_left]
    changed = [each for each in points if each.files]
    if not changed:
        app.tell("No file was changed in this conversation.")
    elif not points[-1].files:
        app.tell("No file was changed since your last message. To go back further: /rewind")
    else:
        await go_back(app, points[-1], "files")
