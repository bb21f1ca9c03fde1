"""/memory: the instruction files that agents of this project read, each to be opened in the editor."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, cast

from rich.text import Text
from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from retinue.app.instructions import instruction_files, note_files
from retinue.app.rich_text import one_line
from retinue.app.text import plural
from retinue.core.foreign import MAX_FILE_BYTES, read_head
from retinue.faces.tui.screens.external_editor import NoEditorError, edit_file

if TYPE_CHECKING:
    from retinue.faces.tui.app import RetinueApp

HINT = "Enter edits it · Esc closes · #words in the prompt adds a note"


class MemoryScreen(ModalScreen[None]):
    """Files that are read first, then those that could be."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss(None)", "close")]

    def __init__(self, *_: str) -> None:
        super().__init__(classes="page")
        self._paths: list[Path] = []

    def compose(self) -> ComposeResult:
        with Vertical(classes="box"):
            yield Static(Text("What agents are told of this project and of you", "bold"))
            yield OptionList()
            yield Static(Text(HINT, "dim"), classes="hint")

    def on_mount(self) -> None:
        self._fill()
        self.query_one(OptionList).focus()

    def _fill(self) -> None:
        project = cast("RetinueApp", self.app).project
        rows = memory_rows(project.cwd, project.environment)
        self._paths = [path for path, _ in rows]
        options = self.query_one(OptionList)
        options.clear_options()
        options.add_options(Option(Text(one_line(words), no_wrap=True)) for _, words in rows)
        options.highlighted = 0

    def on_option_list_option_selected(self, message: OptionList.OptionSelected) -> None:
        self._edit(self._paths[message.option_index])

    @work
    async def _edit(self, path: Path) -> None:
        app = cast("RetinueApp", self.app)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            failure = await edit_file(app, path)
        except NoEditorError as error:
            failure = str(error)
        except OSError as error:
            failure = f"{path}: {error.strerror or error}."
        if failure:
            self.dismiss(None)
            app.tell(failure, "error")
            return
        self._fill()


def memory_rows(cwd: Path, environment: Mapping[str, str]) -> list[tuple[Path, str]]:
    """Return the files that are read, with their sizes, then those that a note could begin."""
    rows = []
    read = instruction_files(cwd, environment)
    for path in read:
        lines = read_head(path, MAX_FILE_BYTES).count(b"\n")
        rows.append((path, f"read · {plural(lines, 'line')} · {path}"))
    for path, words in note_files(cwd, environment):
        if path not in read:
            rows.append((path, f"not there yet · {words}"))
    return rows
