"""The list of completions above the prompt."""

from __future__ import annotations

from rich.console import Group
from rich.text import Text
from textual.widgets import Static

from retinue.faces.tui.board.marks import STYLES
from retinue.faces.tui.board.text import fit, one_line
from retinue.faces.tui.editor.completion import Choices


class Popup(Static):
    """Takes no room while it is closed."""

    def __init__(self) -> None:
        super().__init__(id="popup")
        self.display = False

    def paint(self, choices: Choices) -> None:
        self.display = choices.open
        if choices.open:
            self.update(Group(*lines(choices, max(self.app.size.width - 4, 1))))


def lines(choices: Choices, width: int) -> list[Text]:
    column = min(max((len(each.text) for each in choices.found), default=0), max(width - 20, width // 2))
    drawn = []
    for number, each in enumerate(choices.found):
        chosen = number == choices.at
        line = Text(no_wrap=True)
        line.append("❯ " if chosen else "  ", STYLES["accent"])
        line.append(f"{fit(one_line(each.text), column):<{column}}", "bold" if chosen else "")
        if each.note:
            line.append(f"  {one_line(each.note)}", STYLES["dim"])
        line.truncate(width, overflow="ellipsis")
        drawn.append(line)
    return drawn
