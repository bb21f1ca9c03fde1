"""What counts as an answer, and what never may (cases L and AA08)."""

import pytest

from retinue.core.events import AssistantEnded
from retinue.core.messages import AssistantMessage, Text, user
from retinue.core.outcome import Outcome
from retinue.core.usage import Limits, Usage
from retinue.log.replay import Conversation
from retinue.loop.result import result_document
from retinue.testing import (
    SCRIPTED,
    Call,
    Expect,
    Fail,
    FakeTool,
    Finished,
    Retry,
    Say,
    ScriptedModel,
    Spend,
    Stop,
    Think,
    Turn,
    drive,
)

TOOL = FakeTool("look", lambda: "seen")


async def test_text_that_was_not_streamed_is_the_answer():
    run = await drive(ScriptedModel(Turn(Say("Here it is.", chunks=0))))
    assert (run.outcome.ended, run.outcome.text) == ("completed", "Here it is.")


async def test_an_empty_final_message_leaves_the_last_text_of_this_run():
    run = await drive(ScriptedModel(Turn("The answer is 4.", Call("look")), Turn()), tools=[TOOL])
    assert (run.outcome.ended, run.outcome.text) == ("completed", "The answer is 4.")


async def test_a_length_stop_is_a_failure_only_without_text():
    run = await drive(ScriptedModel(Turn(Think("long thoughts"), Stop("length"))))
    assert (run.outcome.ended, run.outcome.failure.kind, run.outcome.text) == ("error", "length", "")
    run = await drive(ScriptedModel(Turn("cut off but", Stop("length"))))
    assert (run.outcome.ended, run.outcome.text) == ("completed", "cut off but")


async def test_a_clean_empty_final_is_success():
    run = await drive(ScriptedModel(Turn()))
    assert (run.outcome.ended, run.outcome.text, run.outcome.partial) == ("completed", "", False)


async def test_a_resume_that_fails_empty_does_not_return_the_previous_answer():
    history = (user("first"), AssistantMessage((Text("The earlier answer."),)))
    run = await drive(
        ScriptedModel(Turn(Fail("server", "broken"))),
        past=Conversation(messages=history, usage=Usage(10, 5), turn=1, tool_uses=3, compactions=1),
        messages=(user("go on"),),
    )
    outcome = run.outcome
    assert (outcome.ended, outcome.text, outcome.partial) == ("error", "", False)
    assert (outcome.turns, outcome.tool_uses, outcome.compactions) == (2, 3, 1)
    assert run.of(AssistantEnded)[0].turn == 2
    run = await drive(
        ScriptedModel(Turn("This time…", Fail("server", "broken"))),
        past=Conversation(messages=history),
        messages=(user("go on"),),
    )
    assert (run.outcome.text, run.outcome.partial) == ("This time…", True)


async def test_tool_results_do_not_reset_the_text():
    run = await drive(ScriptedModel(Turn("Found it.", Call("look")), Turn(Fail("overloaded", "busy"))), tools=[TOOL])
    assert (run.outcome.ended, run.outcome.text, run.outcome.partial) == ("error", "Found it.", True)


async def test_a_run_that_is_only_an_error_has_no_partial_output():
    run = await drive(ScriptedModel(Turn(Fail("authentication", "no key"))))
    assert (run.outcome.text, run.outcome.partial) == ("", False)
    assert run.outcome.failure.kind == "authentication"
    assert not run.outcome.ok and run.outcome.exit_code == 1


async def test_thinking_is_not_text_and_usage_is_flattened():
    usage = Usage(10, 5, 2, 1, 0.123)
    run = await drive(ScriptedModel(Turn(Think("secret"), Say("final"), Spend(usage))))
    assert (run.outcome.text, run.outcome.usage, run.outcome.turns) == ("final", usage, 1)


async def test_partial_text_and_a_later_error_is_an_error_with_partial_output():
    run = await drive(ScriptedModel(Turn("Let me check…", Call("look")), Turn(Fail("dropped", "cut"))), tools=[TOOL])
    assert (run.outcome.ended, run.outcome.text, run.outcome.partial) == ("error", "Let me check…", True)


@pytest.mark.parametrize(
    "text",
    [
        'API Error: 529 {"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}',
        '{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"},"request_id":"r"}',
        '{"error": {"type": "server_error", "message": "Internal"}}',
        "Error code: 429 - rate limited",
    ],
)
async def test_a_providers_error_in_place_of_an_answer_is_never_a_result(text):
    run = await drive(ScriptedModel(Turn(text)))
    assert run.outcome.ended == "error"
    assert run.outcome.text == "" and text[:40] in run.outcome.failure.message
    assert len(run.messages) == 1, "the error is not part of the conversation"


@pytest.mark.parametrize(
    "text",
    [
        "The client retries on rate limit and timeout; a server error is raised as ApiError.",
        'The endpoint answers {"error": {"type": "server_error"}} when it fails.',
        '{"error": "none", "type": "report"}',
        '{"result": {"error": null}}',
        '{"error": {"type": "x"}',
        "Error codes are listed in errors.py: 404, 429.",
    ],
)
async def test_an_answer_about_errors_is_an_answer(text):
    run = await drive(ScriptedModel(Turn(text)))
    assert (run.outcome.ended, run.outcome.text) == ("completed", text)


async def test_a_refusal_is_a_failure_with_its_own_kind():
    run = await drive(ScriptedModel(Turn("I will not", Call("look"), Stop("refusal"))), tools=[TOOL])
    assert (run.outcome.ended, run.outcome.failure.kind) == ("error", "refused")
    assert (run.outcome.text, run.outcome.partial) == ("I will not", True)
    assert run.outcome.tool_uses == 0


async def test_text_shown_before_the_retries_ran_out_is_not_lost():
    run = await drive(ScriptedModel(Turn("Half of it", Retry(), Fail("overloaded", "gave up"))))
    assert (run.outcome.ended, run.outcome.text, run.outcome.partial) == ("error", "Half of it", True)


class Raw:
    """A model that yields exactly what it is given."""

    info = SCRIPTED

    def __init__(self, *parts):
        self.parts = parts

    async def stream(self, request):
        for part in self.parts:
            if isinstance(part, BaseException):
                raise part
            yield part

    async def close(self): ...


async def test_a_stream_without_an_end_is_a_dropped_request():
    from retinue.core.events import TextDelta

    run = await drive(Raw(TextDelta("so far")))
    assert (run.outcome.ended, run.outcome.failure.kind, run.outcome.text) == ("error", "dropped", "so far")


async def test_a_model_that_raises_is_a_failed_request():
    run = await drive(Raw(RuntimeError("boom")))
    assert (run.outcome.ended, run.outcome.failure.kind) == ("error", "internal")
    assert "RuntimeError: boom" in run.outcome.failure.message


async def test_a_failed_message_gets_back_the_text_it_forgot():
    from retinue.core.events import TextDelta
    from retinue.core.outcome import Failure

    end = Finished(AssistantMessage((), "error", failure=Failure("dropped", "x")))
    run = await drive(Raw(TextDelta("seen "), TextDelta("text"), end))
    assert run.outcome.text == "seen text"
    assert run.of(AssistantEnded)[0].message.text == "seen text"


async def test_a_failure_without_a_reason_says_at_least_that():
    run = await drive(Raw(Finished(AssistantMessage((), "error"))))
    assert run.outcome.failure.kind == "server" and run.outcome.failure.message


async def test_tool_calls_of_a_failed_message_are_never_run():
    from retinue.core.messages import ToolCall
    from retinue.core.outcome import Failure

    call = ToolCall("c", "look", {})
    message = AssistantMessage((Text("x"), call), "error", failure=Failure("dropped", "cut"))
    run = await drive(Raw(Finished(message)), tools=[TOOL])
    assert run.outcome.tool_uses == 0
    assert run.messages[-1].content == (Text("x"),)


async def test_an_answer_that_is_cut_off_at_the_output_limit_is_asked_for_the_rest_once():
    with ScriptedModel(
        Turn("The first ha", Stop("length")), Turn(Expect("Go on exactly where"), "lf and the rest.")
    ) as model:
        run = await drive(model)
    assert (run.outcome.ended, run.outcome.text, run.outcome.truncated) == (
        "completed",
        "The first half and the rest.",
        False,
    )
    assert run.outcome.notes == ()


async def test_an_answer_that_is_cut_off_again_says_that_its_end_is_missing():
    with ScriptedModel(Turn("one ", Stop("length")), Turn("two", Stop("length"))) as model:
        run = await drive(model)
    assert (run.outcome.ended, run.outcome.text, run.outcome.truncated) == ("completed", "one two", True)
    assert run.outcome.notes == ("Its answer was cut off at the output limit: the end is missing.",)


async def test_a_rest_that_cannot_be_had_leaves_the_answer_as_it_was_cut_off():
    with ScriptedModel(Turn("one", Stop("length")), Turn(Fail("server", "broken"))) as model:
        run = await drive(model)
    assert (run.outcome.ended, run.outcome.text, run.outcome.truncated) == ("completed", "one", True)
    assert "The rest of its answer could not be had: broken" in run.outcome.notes


async def test_no_rest_is_asked_for_where_a_limit_allows_no_other_turn():
    with ScriptedModel(Turn("one", Stop("length"))) as model:
        run = await drive(model, limits=Limits(max_turns=1))
    assert (run.outcome.ended, run.outcome.truncated) == ("completed", True)


async def test_each_answer_of_a_run_may_be_asked_for_its_rest():
    cut = Turn("a", Stop("length"))
    with ScriptedModel(cut, Turn("b", Call("look")), cut, Turn("c")) as model:
        run = await drive(model, tools=[TOOL])
    assert (run.outcome.text, run.outcome.truncated) == ("ac", False)


def test_the_result_object_of_an_answer_that_was_cut_off_says_so():
    outcome = Outcome("completed", text="half", truncated=True)
    document = result_document(outcome, agent="a", task="t", run_id="r")
    assert document.details.error.code == "SUBAGENT_OUTPUT_TRUNCATED"
    assert "cut off at the output limit" in document.details.error.message
    assert "cut off at the output limit" in document.content[0].text
    assert document.details.results[0].truncated is True
    assert document.details.results[0].output == "half"
