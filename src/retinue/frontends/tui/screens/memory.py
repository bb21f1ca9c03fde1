"""/memory: the instruction files of this project's agents. The person can open each of them in the editor."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from rich.text import Text
from textual import work
from textual.widgets.option_list import Option

from retinue.app.instructions import instruction_files, note_files
from retinue.app.rich_text import one_line
from retinue.app.text import plural
from retinue.core.files import MAX_PROJECT_FILE_BYTES, read_head
from retinue.frontends.tui.screens.external_editor import NoEditorError, edit_file
from retinue.frontends.tui.screens.sheet import ListPage


class MemoryScreen(ListPage[None]):
    """The files that agents read, then files that do not exist yet."""

    heading = "What agents are told of this project and of you"
    hint = "Enter edits it · Esc closes · #words in the prompt adds a note"

    def fill(self) -> None:
        rows = memory_rows(self.host.project.cwd, self.host.project.environment)
        self.options.set_options(Option(Text(one_line(words), no_wrap=True), id=str(path)) for path, words in rows)
        self.options.highlighted = 0

    def choose(self, key: str | None) -> None:
        self._edit(Path(key or ""))

    @work
    async def _edit(self, path: Path) -> None:
        app = self.host
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
        self.fill()


def memory_rows(cwd: Path, environment: Mapping[str, str]) -> list[tuple[Path, str]]:
    """Return the files that agents read, with their sizes, then files that a note could create."""
    rows = []
    read = instruction_files(cwd, environment)
    for path in read:
        lines = read_head(path, MAX_PROJECT_FILE_BYTES).count(b"\n")
        rows.append((path, f"read · {plural(lines, 'line')} · {path}"))
    for path, words in note_files(cwd, environment):
        if path not in read:
            rows.append((path, f"not there yet · {words}"))
    return rows
