"""Edits a file in the person's own editor, and checks agent files afterwards.

The app leaves the terminal to the editor. Agents continue meanwhile.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import signal
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar, NamedTuple, cast

from rich.text import Text
from textual import work
from textual.app import ComposeResult, SuspendNotSupported
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.widgets import Static, TextArea

from retinue.app.agent_files import lint_paths, write_atomically
from retinue.app.text import optional
from retinue.core.files import read_file
from retinue.core.programs import prepare, run
from retinue.errors import ConfigurationError
from retinue.frontends.tui.frame import Frame
from retinue.frontends.tui.screens.dialogs import Dialog, blinks
from retinue.frontends.tui.screens.sheet import near


class NoEditorError(Exception):
    """A text cannot be edited outside of the app. The message has the reason and a remedy."""


def editor_command(environment: Mapping[str, str]) -> list[str]:
    """Return the command line of $VISUAL or $EDITOR, otherwise of an editor that most machines have. Raise
    NoEditorError if there is none."""
    for name in ("VISUAL", "EDITOR"):
        text = environment.get(name, "").strip()
        if text:
            try:
                words = shlex.split(text)
            except ValueError:
                words = []
            if not words or shutil.which(words[0], path=environment.get("PATH")) is None:
                raise NoEditorError(f"${name} is '{text}', which cannot be started. Set it to a program on your PATH.")
            return words
    for word in ("nano", "vim", "vi", "notepad"):
        if shutil.which(word, path=environment.get("PATH")) is not None:
            return [word]
    raise NoEditorError("No editor was found. Set EDITOR to one, such as: export EDITOR=vim")


async def edit_file(app: Frame, path: Path) -> str:
    """Open a file in the editor, wait for its end, and return its failure; empty if there was none. Raise NoEditorError
    if there is no editor, or if the terminal cannot be left to it."""
    words = editor_command({**os.environ, **app.project.environment})
    failure = ""
    try:
        with app.batch_update(), _deaf(), app.suspend():
            # `_run` never raises, because the terminal would then stay with the editor.
            failure = await _run([*words, str(path)])
    except SuspendNotSupported:
        raise NoEditorError(f"This terminal cannot be left to {words[0]}.") from None
    app.refresh(layout=True)
    return failure


async def edit_text(app: Frame, text: str, suffix: str = ".md") -> str:
    """Return the text after editing. Raise NoEditorError if it cannot be edited."""
    with tempfile.TemporaryDirectory(prefix="retinue-edit-") as folder:
        path = Path(folder) / f"text{suffix}"
        path.write_text(text, encoding="utf-8")
        failure = await edit_file(app, path)
        if failure:
            raise NoEditorError(failure)
        return path.read_text(encoding="utf-8", errors="replace")


class Write(Dialog):
    """A question for several lines of text: Ctrl+S accepts them, Ctrl+E continues in $EDITOR."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss(None)", "cancel", priority=True),
        Binding("ctrl+s", "take", "save", priority=True),
        Binding("ctrl+e", "edit", "editor", priority=True),
    ]

    def __init__(self, question: str, text: str = "", *, detail: str = "") -> None:
        super().__init__(question, detail)
        self._text = text

    def compose(self) -> ComposeResult:
        with Vertical():
            yield from self._top()
            yield TextArea(self._text, soft_wrap=True, show_line_numbers=False, tab_behavior="focus")
            yield Static(classes="wrong")
            yield Static(Text("Ctrl+S save · Ctrl+E in $EDITOR · Esc cancel"), classes="detail")

    def on_mount(self) -> None:
        area = self.query_one(TextArea)
        area.cursor_blink = blinks(self)
        area.focus()

    def action_take(self) -> None:
        self.dismiss(self.query_one(TextArea).text)

    @work(exclusive=True)
    async def action_edit(self) -> None:
        area = self.query_one(TextArea)
        try:
            area.text = await edit_text(cast("Frame", self.app), area.text)
        except NoEditorError as error:
            self._wrong(str(error))


async def _run(command: list[str]) -> str:
    """Run a command and return its failure; empty if there was none."""
    try:
        program = prepare(command, clearance="person", environment=os.environ)
        done = await asyncio.to_thread(run, program, output="inherited")
    except OSError as error:
        return f"{command[0]} could not be started: {error.strerror or error}."
    except asyncio.CancelledError:
        return "The editor was left."
    return optional(f"{command[0]} ended with exit code {{}}.", done.returncode)


@contextmanager
def _deaf() -> Iterator[None]:
    """Leave Ctrl+C to the editor."""
    try:
        # The handler does nothing. It is not SIG_IGN, which the editor would inherit.
        before = signal.signal(signal.SIGINT, lambda *_: None)
    except ValueError:
        # Only the main thread can set handlers.
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


class Feedback(NamedTuple):
    """A sentence for the person, and its kind: `success`, `warning`, `error` or nothing."""

    text: str
    kind: str = ""


async def edit_agent(app: Frame, path: Path) -> Feedback:
    """Edit an agent file in $EDITOR, or in a dialog if the terminal cannot be left to it. Call this from a worker
    only."""
    before = _content(path)
    try:
        complaint = await edit_file(app, path)
    except NoEditorError as error:
        if not await _edit_here(app, path, before, str(error)):
            return Feedback("Nothing was changed.")
        complaint = ""
    if complaint:
        return Feedback(complaint, "warning")
    if _content(path) == before:
        return Feedback("Nothing was changed.")
    return await asyncio.to_thread(check_file, path, app.project.cwd)


def check_file(path: Path, cwd: Path, what: str = "Saved") -> Feedback:
    """Return the lint findings for the file in one or two lines."""
    name = near(path, cwd)
    findings = [finding for finding in lint_paths([path]).findings if finding.severity != "info"]
    if not findings:
        return Feedback(f"{what}: {name}", "success")
    worst = findings[0]
    text = f"{what}: {name}\n{optional('line {}: ', worst.line)}{worst.reason} {worst.remedy}"
    if len(findings) > 1:
        text += f" And {len(findings) - 1} more: retinue agents lint {name}"
    kind = "error" if any(finding.severity == "error" for finding in findings) else "warning"
    return Feedback(text, kind)


async def _edit_here(app: Frame, path: Path, before: bytes, why: str) -> bool:
    try:
        text = before.decode("utf-8")
    except UnicodeDecodeError:
        raise ConfigurationError(f"{path} is not UTF-8 text.", remedy=why) from None
    # The editor of the app knows one line ending only, so the original line ending of the file is restored.
    ends = "\r\n" if "\r\n" in text else "\n"
    edited = await app.push_screen_wait(Write(f"Edit {path.name}", text, detail=why))
    if edited is None:
        return False
    data = edited.replace("\r\n", "\n").replace("\n", ends).encode("utf-8")
    if data == before:
        return False
    try:
        await asyncio.to_thread(write_atomically, path, data)
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be written: {error.strerror or error}.") from error
    return True


def _content(path: Path) -> bytes:
    try:
        return read_file(path)
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror or error}.", remedy="Look again.") from error
