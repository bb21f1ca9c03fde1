"""The /toolkit panel: reports about the installation and its work, to scroll through."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from rich.text import Text
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.widgets import OptionList, Static

from retinue.faces.tui.board.marks import STYLES
from retinue.faces.tui.screens.sheet import Sheet
from retinue.faces.tui.screens.toolkit_reports import REPORTS, Report, chosen, made


class ToolkitScreen(Sheet[None]):
    """`text` is what stood after the command: a report and words for it."""

    DEFAULT_CSS = """
    ToolkitScreen #report { height: 1fr; padding: 0 1; scrollbar-size-vertical: 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("r", "again", "look again"),
        Binding("right,tab,l", "turn(1)", "next report"),
        Binding("left,shift+tab,h", "turn(-1)", "report before"),
        Binding("j", "scroll(1)", show=False),
        Binding("k", "scroll(-1)", show=False),
        Binding("space", "page", show=False),
        *(Binding(str(n), f"open('{name}')", show=False) for n, name in enumerate(REPORTS, 1)),
    ]
    heading = "Toolkit"
    keys_line = "  ".join(f"{number} {name}" for number, name in enumerate(REPORTS, 1)) + (
        "\n←/→ report · ↑↓ PgUp PgDn Home End read · r look again · Esc back"
    )

    def __init__(self, text: str = "doctor") -> None:
        super().__init__()
        self._report, self._words = chosen(text)

    def body(self) -> Iterable[Static | OptionList]:
        with VerticalScroll(id="report"):
            yield Static()

    def on_mount(self) -> None:
        self.query_one("#report").focus()
        self.action_again()

    def action_again(self) -> None:
        self.head(f"Toolkit · {' '.join([self._report.name, *self._words])} · looking…")
        self.do(self._look(self._report, self._words))

    def action_open(self, name: str) -> None:
        self._report, self._words = REPORTS[name], []
        self.query_one("#report Static", Static).update("")
        self.action_again()

    def action_turn(self, step: int) -> None:
        names = list(REPORTS)
        at = names.index(self._report.name) if self._report.name in names else -1
        self.action_open(names[(at + step) % len(names)])

    def action_scroll(self, lines: int) -> None:
        self.query_one("#report").scroll_relative(y=lines, animate=False)

    def action_page(self) -> None:
        self.query_one("#report").scroll_page_down(animate=False)

    async def _look(self, report: Report, words: list[str]) -> None:
        lines = await made(report, self.host.crew.supervisor.world, words)
        if not self.is_mounted or (report, words) != (self._report, self._words):
            return  # another one was chosen meanwhile
        text = Text("\n").join(Text(line, STYLES.get(meaning, "")) for line, meaning in lines)
        self.query_one("#report Static", Static).update(text)
        self.head(f"Toolkit · {' '.join([report.name, *words])}")
