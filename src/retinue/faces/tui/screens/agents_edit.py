"""An agent's file in an editor, and what is wrong with it afterwards."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from retinue.agents.edit import write_atomically
from retinue.agents.lint.runner import lint_paths
from retinue.errors import ConfigurationError
from retinue.faces.tui.screens.dialogs import Write
from retinue.faces.tui.screens.external_editor import NoEditorError, edit_file
from retinue.faces.tui.screens.sheet import near

if TYPE_CHECKING:
    from retinue.faces.tui.app import RetinueApp


class Spoken(NamedTuple):
    """A sentence for the person, and what it means: `success`, `warning`, `error` or nothing."""

    text: str
    kind: str = ""


async def edit_agent(app: RetinueApp, path: Path) -> Spoken:
    """In $EDITOR, to which the terminal is left; in a dialog where that cannot be. From a worker."""
    before = _content(path)
    try:
        complaint = await edit_file(app, path)
    except NoEditorError as error:
        if not await _edit_here(app, path, before, str(error)):
            return Spoken("Nothing was changed.")
        complaint = ""
    if complaint:
        return Spoken(complaint, "warning")
    if _content(path) == before:
        return Spoken("Nothing was changed.")
    return await asyncio.to_thread(checked, path, app.crew.supervisor.world.cwd)


def checked(path: Path, cwd: Path, what: str = "Saved") -> Spoken:
    """What lint says about the file, in a line or two."""
    findings = [each for each in lint_paths([path]).findings if each.severity != "info"]
    if not findings:
        return Spoken(f"{what}: {near(path, cwd)}", "success")
    worst = findings[0]
    more = f" And {len(findings) - 1} more: retinue agents lint {near(path, cwd)}" if len(findings) > 1 else ""
    where = f"line {worst.line}: " if worst.line else ""
    kind = "error" if any(each.severity == "error" for each in findings) else "warning"
    return Spoken(f"{what}: {near(path, cwd)}\n{where}{worst.reason} {worst.remedy}{more}", kind)


async def _edit_here(app: RetinueApp, path: Path, before: bytes, why: str) -> bool:
    try:
        text = before.decode("utf-8")
    except UnicodeDecodeError:
        raise ConfigurationError(f"{path} is not UTF-8 text.", remedy=why) from None
    ends = "\r\n" if "\r\n" in text else "\n"
    said = await app.push_screen_wait(Write(f"Edit {path.name}", text, detail=why))
    if said is None:
        return False
    data = said.replace("\r\n", "\n").replace("\n", ends).encode("utf-8")
    if data == before:
        return False
    try:
        await asyncio.to_thread(write_atomically, path, data)
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be written: {error.strerror or error}.") from error
    return True


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror or error}.", remedy="Look again.") from error
