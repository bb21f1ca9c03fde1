"""Questions in the conversation, from agents and from calls of the main agent. The person answers them in the inbox."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text
from textual.widgets import Static

from retinue.app.rich_text import STYLES, clean, one_line
from retinue.app.text import CALL_MARKS
from retinue.core.story import Entry
from retinue.frontends.tui.board.cards import RunCard
from retinue.frontends.tui.board.questions import (
    AskedQuestion,
    answers_of,
    hint_line,
    question_lines,
    questions_of,
    settled_line,
)
from retinue.frontends.tui.chat.folded import ToolBlock


class QuestionBox(Static):
    """A question of an agent, and later its answer."""

    DEFAULT_CSS = """
    QuestionBox { border: round $warning; padding: 0 1; margin: 1 0 0 0; height: auto; }
    QuestionBox.settled { border: round $secondary; }
    """

    def __init__(self, asked: AskedQuestion) -> None:
        super().__init__("", classes="question-box")
        self.asked = asked
        self.is_settled = False
        self._waited = False
        self._answer = ""

    def on_mount(self) -> None:
        self.redraw()

    def paint(self, card: RunCard) -> None:
        """Update the box from the run that asks. A run that waited and no longer waits has its answer."""
        self._waited = self._waited or bool(card.asks)
        if self.is_settled or card.asks or (card.live and not self._waited):
            return
        self.is_settled = True
        self._answer = card.answer or ("answered by the main agent" if card.live else "no answer is needed any more")
        self.redraw()

    def redraw(self) -> None:
        self.set_class(self.is_settled, "settled")
        head = Text.assemble(("? ", STYLES["warning"]), (one_line(self.asked.agent), "bold"), " asks")
        last = settled_line(self._answer)
        if not self.is_settled:
            last = hint_line(["F2 to answer", "the main agent may answer as well"])
        self.update(Group(head, *question_lines(self.asked), last))


class QuestionBlock(ToolBlock):
    """A call by which the main agent asks the person: its questions, and below them the answer."""

    # The time is how long the person thought, which is not shown.
    shows_time = False

    def __init__(self, entry: Entry) -> None:
        super().__init__(entry)
        self._questions = questions_of(self.call)

    def head(self) -> Text:
        if self.result is not None and self.result.is_error:
            return super().head()
        sign, tone, _ = self._mark()
        count = f" · {len(self._questions)} questions" if len(self._questions) > 1 else ""
        cut = f" · {CALL_MARKS['cut'].word}" if self.entry.state == "cut" else ""
        return Text.assemble((f"{sign} ", STYLES[tone]), "question for you", (f"{count}{cut}", STYLES["dim"]))

    def preview(self) -> Sequence[Text]:
        if self.result is not None:
            return self._answers()
        lines: list[Text] = []
        for asked in self._questions:
            lines += question_lines(asked)
        if self.entry.asks:
            lines.append(hint_line(["F2 to answer"]))
        return lines

    def body(self) -> RenderableType:
        lines: list[Text] = []
        for asked in self._questions:
            lines += question_lines(asked)
        if self.result is not None:
            lines += self._answers()
        return Group(*lines)

    def _answers(self) -> list[Text]:
        if self.result is None or self.result.is_error:
            return []
        rows = clean(answers_of(self.result.text)).strip().split("\n")
        if len(self._questions) == 1 and not self.unfolded:
            return [*question_lines(self._questions[0])[:1], settled_line(rows[0])]
        return [settled_line(row) for row in rows if row]
