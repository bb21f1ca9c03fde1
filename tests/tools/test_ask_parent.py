"""ask_parent: the question that goes out, and what the model reads of each way it can end."""

import pytest

from retinue.core.tool import Reply
from retinue.tools.base import companion_tools


class Above:
    """Someone who answers, without a run."""

    def __init__(self, reply):
        self.reply = reply
        self.asked = []

    def write_todos(self, todos):
        raise AssertionError("nobody writes here")

    async def ask(self, question, options, call_id):
        self.asked.append((question, options, call_id))
        return self.reply


async def ask(context, reply, **arguments):
    context.companion = Above(reply)
    output = await companion_tools()["ask_parent"].run("c", arguments, context)
    return output, context.companion.asked


async def test_the_answer_is_the_result(context):
    reply = Reply("answered", "the second", "main")
    output, asked = await ask(context, reply, question=" Which? ", options=["the first", "the second", "the first"])
    assert asked == [("Which?", ("the first", "the second"), "c")]
    assert output.text == "Answer of main: the second"


async def test_options_may_be_objects_with_labels(context):
    asked = (await ask(context, Reply("passed-on"), question="Which?", options=[{"label": "a"}]))[1]
    assert asked[0][1] == ("a",)


async def test_the_two_ways_without_an_answer_say_how_to_go_on(context):
    later, _ = await ask(context, Reply("passed-on"), question="Which?")
    assert "the answer comes as a message" in later.text
    nobody, _ = await ask(context, Reply("nobody", "nobody is there."), question="Which?")
    assert "say in your answer what you assumed" in nobody.text
    assert not nobody.is_error


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({}, 'needs "question"'),
        ({"question": "  "}, "is empty"),
        ({"question": 5}, "must be a string"),
        ({"question": "x" * 4001}, "too long"),
        ({"question": "a?", "options": [1]}, "a list of texts"),
        ({"question": "a?", "options": ["x"] * 11}, "at most 10"),
    ],
)
async def test_what_cannot_be_asked_is_not_asked(context, arguments, says):
    output, asked = await ask(context, Reply("passed-on"), **arguments)
    assert output.is_error
    assert says in output.text
    assert asked == []


async def test_without_a_run_it_says_how_to_go_on(context):
    output = await companion_tools()["ask_parent"].run("c", {"question": "Which?"}, context)
    assert output.is_error
    assert "Go on" in output.text
