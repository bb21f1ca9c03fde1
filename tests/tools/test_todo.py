"""todo: whatever a model sends, the list is whole, bounded and clear, or an error says what to send."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retinue.core.tool import Reply, Todo
from retinue.testing import ToolBench


class Notebook:
    """What a run keeps, without a run."""

    def __init__(self):
        self.todos = None

    def write_todos(self, todos):
        self.todos = todos

    async def ask(self, question, options, call_id):
        return Reply("nobody")


async def call(bench, **arguments):
    bench.context.dialogue = Notebook()
    output = await bench.tool("todo").run("c", arguments, bench.context)
    return output, bench.context.dialogue.todos


async def test_the_whole_list_is_written_and_the_answer_says_how_it_stands(bench):
    entries = [
        {"content": "Read the code", "status": "completed", "activeForm": "Reading the code"},
        {"content": "Fix it", "status": "in_progress"},
        {"content": "Test it", "status": "pending"},
    ]
    output, todos = await call(bench, todos=entries)
    assert todos == (
        Todo("Read the code", "completed", "Reading the code"),
        Todo("Fix it", "in_progress"),
        Todo("Test it", "pending"),
    )
    assert output.text == "Noted: 1 of 3 done. In progress: Fix it"


async def test_an_empty_list_clears_it(bench):
    output, todos = await call(bench, todos=[])
    assert todos == ()
    assert not output.is_error


@pytest.mark.parametrize(
    ("entry", "todo"),
    [
        ("Just a text", Todo("Just a text")),
        ({"title": "of kimi", "status": "done"}, Todo("of kimi", "completed")),
        ({"content": "two\nlines", "status": "in-progress"}, Todo("two lines", "in_progress")),
        ({"content": "x" * 900, "status": "pending"}, Todo("x" * 500)),
    ],
)
async def test_other_spellings_are_taken(bench, entry, todo):
    assert (await call(bench, todos=[entry]))[1] == (todo,)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({}, "the whole list"),
        ({"todos": 5}, "must be a list"),
        ({"todos": [7]}, "entry 1 must be an object"),
        ({"todos": [{"status": "pending"}]}, 'entry 1 needs "content"'),
        ({"todos": [{"content": "a", "status": "maybe"}]}, "one of pending, in_progress, completed"),
        ({"todos": [{"content": " ", "status": "pending"}]}, "says nothing"),
        ({"todos": ["x"] * 101}, "at most 100"),
    ],
)
async def test_what_cannot_be_understood_changes_nothing_and_says_what_to_send(bench, arguments, says):
    output, todos = await call(bench, **arguments)
    assert output.is_error
    assert says in output.text
    assert todos is None


async def test_without_a_run_it_says_so(bench):
    output = await bench.tool("todo").run("c", {"todos": []}, bench.context)
    assert output.is_error


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


@given(value=json_values)
async def test_no_input_breaks_it(value, tmp_path_factory):

    folder = tmp_path_factory.getbasetemp()
    output, todos = await call(ToolBench(folder), todos=value)
    assert output.is_error == (todos is None)
