"""Markdown as lines, and answers that grow: what is drawn, how much is parsed for it, what is kept of a huge one."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retinue.app import rich_text
from retinue.app.markdown import markdown_lines, plain_text
from retinue.app.rich_text import clean
from retinue.core.events import AssistantEnded, MessageAdded, TextDelta
from retinue.core.messages import AssistantMessage, Text, user
from retinue.frontends.tui.chat.answer import (
    MAX_ANSWER_CHARACTERS,
    MAX_OPEN_CHARACTERS,
    MAX_TABLE_CHARACTERS,
    STEP_CHARACTERS,
    Answer,
    Draft,
)
from retinue.frontends.tui.chat.log import CUT_BLOCKS, MAX_BLOCKS
from tests.frontends.tui.test_chat import Page, answered, picture, until


def drawn(text: str, width: int = 60) -> list[str]:
    return [line.plain for line in markdown_lines(text, width)]


def colours(text: str, word: str) -> set[str]:
    """The styles that lie on a word."""
    found = set()
    for line in markdown_lines(text, 60):
        at = line.plain.find(word)
        if at >= 0:
            found |= {str(line.style), *(str(span.style) for span in line.spans if span.start <= at < span.end)}
    return found


def test_a_heading_is_left_with_one_blank_line_as_any_block() -> None:
    assert drawn("# Title\nText\n## More\n\n\n\nEnd") == ["Title", "", "Text", "", "More", "", "End"]


def test_task_lists_have_boxes() -> None:
    assert drawn("- [ ] write\n- [x] read\n  - deep\n- plain [x]") == ["☐ write", "☑ read", "  • deep", "• plain [x]"]
    assert drawn("3. three\n4. four\n\n   more") == ["3. three", "", "4. four", "", "   more"]


def test_diffs_and_code_are_coloured() -> None:
    text = "```diff\n-old\n+new\n same\n```\n\n```python\ndef f(): return 'x'\n```"
    assert rich_text.STYLES["error"] in colours(text, "-old") and rich_text.STYLES["success"] in colours(text, "+new")
    assert rich_text.STYLES["accent"] in colours(text, "def") and rich_text.STYLES["success"] in colours(text, "x'")
    assert drawn("```nosuch\na  b\n```") == ["  a  b"]


def test_tables_are_as_wide_as_they_need_and_never_wider_than_the_screen() -> None:
    table = "| a | b |\n|---|--:|\n| one | 2 |\n"
    assert drawn(table) == ["a   │ b", "────┼──", "one │ 2"]
    wide = f"| name | what |\n|---|---|\n| x | {'word ' * 40}|\n"
    lines = drawn(wide, 40)
    assert max(map(len, lines)) == 40 and lines[0].startswith("name │ what") and len(lines) > 6
    many = "|" + "long heading |" * 12 + "\n|" + "---|" * 12 + "\n|" + "value |" * 12
    assert drawn(many, 40)[0] == "long heading: value"


def test_links_have_their_address_and_html_is_text() -> None:
    assert drawn("[here](https://a.example/b) <b>x</b> <https://c.example>") == [
        "here (https://a.example/b) <b>x</b> https://c.example"
    ]
    assert drawn("![a picture](x.png)") == ["[image: a picture] (x.png)"]


def test_previews_have_no_signs_of_markdown() -> None:
    assert plain_text("Found **1** use of `MD5`: [see](x)") == "Found 1 use of MD5: see (x)"
    assert plain_text("# Title\n- *one*") == "Title\none"


BLOCKS = st.lists(
    st.sampled_from([
        "# Head\n", "Some *words* that `go` on and on until the line is full, and further.\n", "- a\n- b\n  - c\n",
        "1. x\n\n2. y\n", "```python\nx = 1\n\ny = 2\n```\n", "> quote\nlazy\n", "| a | b |\n|---|---|\n| 1 | 2 |\n",
        "***\n", "漢字 👩‍👧 " * 12 + "\n", "<div>\n", "x" * 90 + "\n", "    code\n", "- [ ] todo\n",
    ]),
    max_size=12,
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(BLOCKS, st.integers(12, 100))
def test_no_line_is_wider_than_the_screen(blocks: list[str], width: int) -> None:
    for line in markdown_lines(clean("\n".join(blocks)), width):
        assert line.cell_len <= width


@settings(max_examples=60, deadline=None)
@given(BLOCKS, st.integers(1, 40))
def test_an_answer_that_comes_in_pieces_is_drawn_as_the_whole(blocks: list[str], size: int) -> None:
    text = clean("\n".join(blocks))
    draft = Draft(50)
    for at in range(0, len(text), size):
        draft.write(text[at : at + size])
        draft.step()
    assert [draft.line(at).plain for at in range(draft.height)] == drawn(text, 50)


LONG = {
    "paragraphs": "Some *words* to read.\n\n" * 5_000,
    "one line": "word " * 24_000,
    "no blanks": "x" * 120_000,
    "code": "```python\n" + "value = 1  # why\n" * 7_000 + "```\n",
    "list": "- an item with `code`\n" * 5_000,
    "nested list": "- a\n  - b\n    continued\n" * 4_000,
    "table": "| a | b |\n|---|---|\n" + "| one | two |\n" * 8_000,
    "nothing but signs": "> " * 60_000,
}


@pytest.mark.parametrize("text", LONG.values(), ids=LONG.keys())
def test_a_long_answer_is_parsed_a_few_times_at_most_and_never_as_a_whole(text: str) -> None:
    draft = Draft(80)
    draft.write(text[:MAX_ANSWER_CHARACTERS])
    while draft.behind:
        before = draft.parsed
        draft.step()
        # What a step parses does not depend on how long the answer is already.
        assert draft.parsed - before <= 2 * (max(MAX_TABLE_CHARACTERS, MAX_OPEN_CHARACTERS) + STEP_CHARACTERS)
    assert draft.parsed <= 8 * len(text)


def test_code_that_is_finished_early_goes_on_without_a_gap() -> None:
    text = "```python\n" + "".join(f"v{number} = {number}\n" for number in range(1_000)) + "```\n"
    draft = Draft(80)
    draft.write(text)
    while draft.behind:
        draft.step()
    assert [draft.line(at).plain for at in range(draft.height)] == [
        f"  v{number} = {number}" for number in range(1_000)
    ]


async def test_of_an_answer_of_ten_megabytes_the_beginning_is_shown_and_the_rest_counted() -> None:
    app = Page()
    text = "A line of a *very* long answer.\n\n" * 320_000
    async with app.run_test(size=(80, 24)) as pilot:
        for at in range(0, len(text), 1_000_000):
            app.push(TextDelta(text[at : at + 1_000_000]))
        app.push(AssistantEnded(1, AssistantMessage((Text(text),))), MessageAdded(user("next")))
        await until(pilot, lambda: "❯ next" in picture(app))
        answer = app.query_one(Answer)
        assert len(answer.source) <= MAX_ANSWER_CHARACTERS and answer.hidden == len(text) - MAX_ANSWER_CHARACTERS
        assert len(app.chat.children) == 2 and not answer.children
        assert "… 10.0MB more: /copy or retinue runs show" in picture(app)
        assert answer._draft is not None and answer._draft.parsed <= 4 * MAX_ANSWER_CHARACTERS


async def test_a_conversation_of_two_thousand_turns_is_a_few_hundred_widgets() -> None:
    app = Page()
    async with app.run_test(size=(80, 24)) as pilot:
        bodies = []
        for number in range(2_000):
            bodies += [MessageAdded(user(f"question {number}")), answered(f"# Answer\n\n- {number}\n- more")]
        await app.chat.show([app.event(body) for body in bodies])
        await until(pilot, lambda: "• 1999" in picture(app))
        assert len(list(app.chat.walk_children())) <= MAX_BLOCKS * 3 + CUT_BLOCKS
        assert all(not answer.children for answer in app.query(Answer))


async def test_an_answer_is_drawn_again_for_another_width() -> None:
    app = Page()
    async with app.run_test(size=(80, 24)) as pilot:
        app.push(answered("word " * 30), answered("long " * 3_000))
        await until(pilot, lambda: "long long" in picture(app))
        await pilot.resize_terminal(40, 24)
        await until(pilot, lambda: all(answer._draft.width < 40 and not answer._shown for answer in app.query(Answer)))
        assert max(len(line) for line in picture(app).split("\n")) <= 40


async def test_what_is_selected_in_an_answer_can_be_copied() -> None:
    from textual.geometry import Offset
    from textual.selection import Selection

    app = Page()
    async with app.run_test(size=(80, 24)) as pilot:
        app.push(answered("First **line**.\n\nSecond line."))
        await until(pilot, lambda: "Second line." in picture(app))
        answer = app.query_one(Answer)
        assert answer.get_selection(Selection(Offset(6, 0), Offset(6, 2))) == ("line.\n\nSecond", "\n")
        app.screen.selections = {answer: Selection(None, None)}
        await pilot.pause()
        assert "First line." in picture(app)
