"""ask_parent: the question that goes out, and what the model reads of each way it can end."""

import pytest

from retinue.core.tool import Reply


class Above:
    """Someone who answers, without a run."""

    def __init__(self, reply):
        self.reply = reply
        self.asked = []

    def write_todos(self, todos):
        raise AssertionError("nobody writes here")

    async def ask(self, question, call_id):
        self.asked.append((question.text, question.options, call_id))
        return self.reply


async def ask(bench, reply, **arguments):
    bench.context.dialogue = Above(reply)
    output = await bench.tool("ask_parent").run("c", arguments, bench.context)
    return output, bench.context.dialogue.asked


async def test_the_answer_is_the_result(bench):
    reply = Reply("answered", "the second", "main")
    output, asked = await ask(bench, reply, question=" Which? ", options=["the first", "the second", "the first"])
    assert asked == [("Which?", ("the first", "the second"), "c")]
    assert output.text == "Answer of main: the second"


async def test_options_may_be_objects_with_labels(bench):
    asked = (await ask(bench, Reply("passed-on"), question="Which?", options=[{"label": "a"}]))[1]
    assert asked[0][1] == ("a",)


async def test_the_two_ways_without_an_answer_say_how_to_go_on(bench):
    later, _ = await ask(bench, Reply("passed-on"), question="Which?")
    assert "the answer comes as a message" in later.text
    nobody, _ = await ask(bench, Reply("nobody", "nobody is there."), question="Which?")
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
async def test_what_cannot_be_asked_is_not_asked(bench, arguments, says):
    output, asked = await ask(bench, Reply("passed-on"), **arguments)
    assert output.is_error
    assert says in output.text
    assert asked == []


async def test_without_a_run_it_says_how_to_go_on(bench):
    output = await bench.tool("ask_parent").run("c", {"question": "Which?"}, bench.context)
    assert output.is_error
    assert "Go on" in output.text
