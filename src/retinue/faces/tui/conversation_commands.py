"""Commands on what was said and done in this conversation: take it back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from retinue.faces.tui.frame import command

if TYPE_CHECKING:
    from retinue.faces.tui.app import RetinueApp


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
