"""Structured output: validated, corrected at most five times, never invalid."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retinue.core.events import MessageAdded
from retinue.core.tool import ToolOutput, ToolSpec, ok
from retinue.core.usage import Limits
from retinue.errors import UsageError
from retinue.loop import Controls, check_schema
from retinue.loop.submission import Submission
from retinue.testing import Call, Expect, Fail, FakeTool, ScriptedModel, Turn, check_prefix, drive

SCHEMA = {
    "type": "object",
    "properties": {"file": {"type": "string"}, "line": {"type": "integer", "minimum": 1}},
    "required": ["file", "line"],
    "additionalProperties": False,
}
GOOD = {"file": "a.py", "line": 3}


def submit(value):
    return Turn("here", Call("submit_result", value))


async def test_the_submitted_value_is_the_outcome():
    with ScriptedModel(Turn(Call("look")), submit(GOOD)) as model:
        run = await drive(model, tools=[FakeTool("look", lambda: "x")], schema=SCHEMA)
    assert run.outcome.ended == "completed"
    assert run.outcome.value == GOOD and json.loads(run.outcome.text) == GOOD
    assert [tool.name for tool in model.requests[0].tools] == ["look", "submit_result"]
    assert model.requests[0].tools[1].parameters == SCHEMA
    check_prefix(model.requests)


async def test_an_invalid_result_goes_back_to_the_agent_with_the_exact_problem():
    with ScriptedModel(
        submit({"file": "a.py", "line": 0}), Turn(Expect("line: 0 is less than the minimum of 1"), *submit(GOOD).steps)
    ) as model:
        run = await drive(model, schema=SCHEMA)
    assert run.outcome.value == GOOD


async def test_five_refused_results_are_a_failure_with_the_last_error():
    with ScriptedModel(*[submit({"file": "a.py", "line": -n}) for n in range(5)]) as model:
        run = await drive(model, schema=SCHEMA)
    outcome = run.outcome
    assert (outcome.ended, outcome.failure.kind, outcome.value) == ("error", "validation", None)
    assert "-4 is less than" in outcome.failure.message and "5 attempts" in outcome.failure.message
    assert outcome.limit is None, "not the guard against repeated calls"


async def test_garbage_for_arguments_counts_as_an_attempt():
    with ScriptedModel(*[Turn(Call("submit_result", broken="{" * n)) for n in range(1, 6)]) as model:
        run = await drive(model, schema=SCHEMA)
    assert run.outcome.failure.kind == "validation"


async def test_several_refused_results_in_one_turn_all_count():
    bad = [Call("submit_result", {"file": 1}) for _ in range(5)]
    with ScriptedModel(Turn(*bad)) as model:
        run = await drive(model, schema=SCHEMA)
    assert run.outcome.failure.kind == "validation"


async def test_an_answer_in_text_is_corrected_with_the_reason():
    with ScriptedModel(
        "the answer is a.py",
        Turn(Expect("it is text, not JSON"), Expect("submit_result"), '{"file": "a.py", "line": "5"}'),
        Turn(Expect('line: "5" is not of type "integer"'), *submit(GOOD).steps),
    ) as model:
        run = await drive(model, schema=SCHEMA)
    assert run.outcome.value == GOOD
    assert [added.message.origin for added in run.of(MessageAdded)] == ["task", "correction", "correction"]


@pytest.mark.parametrize(("text", "problem"), [("no", "not JSON"), ('{"file": 7}', '7 is not of type "string"')])
async def test_five_answers_in_text_that_do_not_match_are_a_failure(text: str, problem: str):
    with ScriptedModel(*[text] * 5) as model:
        run = await drive(model, schema=SCHEMA)
    assert (run.outcome.ended, run.outcome.failure.kind) == ("error", "validation")
    assert "5 attempts" in run.outcome.failure.message and problem in run.outcome.failure.message
    assert (run.outcome.text, run.outcome.partial) == (text, True)


@pytest.mark.parametrize("text", ['{"file": "a.py", "line": 3}', '```json\n{"file": "a.py", "line": 3}\n```\n'])
async def test_valid_json_given_as_text_is_the_result(text: str):
    with ScriptedModel(text) as model:
        run = await drive(model, schema=SCHEMA)
    assert (run.outcome.ended, run.outcome.value) == ("completed", GOOD)


async def test_json_that_does_not_match_is_no_result():
    with ScriptedModel('{"file": 7}', submit(GOOD)) as model:
        run = await drive(model, schema=SCHEMA)
    assert run.outcome.value == GOOD
    assert [added.message.origin for added in run.of(MessageAdded)] == ["task", "correction"]


async def test_calls_and_answers_in_text_are_counted_together():
    turns = [submit({"file": 1})] * 3 + [Turn("forgot"), submit({"file": 2})]
    with ScriptedModel(*turns) as model:
        run = await drive(model, schema=SCHEMA)
    assert run.outcome.failure.kind == "validation" and "5 attempts" in run.outcome.failure.message


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"type": "array", "items": {"type": "string"}}, ["a", "b"]),
        ({"type": "string"}, "text"),
        ({"type": ["object", "null"]}, None),
        ({"enum": [1, 2]}, 2),
        ({"$ref": "#/$defs/n", "$defs": {"n": {"type": "integer"}}}, 7),
        ({"type": "object", "anyOf": [{"required": ["a"]}, {"required": ["b"]}]}, {"b": 1}),
        ({}, False),
        (True, 0),
        ({"type": "array", "items": {"$ref": "#/definitions/x"}, "definitions": {"x": {"type": "boolean"}}}, [True]),
    ],
)
async def test_a_schema_that_is_no_plain_object_is_offered_as_one_value(schema, value):
    with ScriptedModel(submit({"value": value})) as model:
        run = await drive(model, schema=schema)
    assert run.outcome.ended == "completed"
    assert run.outcome.value == value and json.loads(run.outcome.text) == value
    [tool] = model.requests[0].tools
    assert tool.parameters["type"] == "object" and list(tool.parameters["properties"]) == ["value"]


async def test_a_wrapped_value_that_is_missing_or_wrong_is_refused():
    with ScriptedModel(submit({}), submit({"value": 3}), submit({"value": ["x"]})) as model:
        run = await drive(model, schema={"type": "array", "items": {"type": "string"}})
    assert run.outcome.value == ["x"]


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "nonsense"},
        {"$ref": "http://example.invalid/schema.json"},
        {"$ref": "file:///etc/passwd"},
        {"$ref": "#/nowhere"},
        {"properties": 3},
        {"pattern": "("},
        [],
        "text",
        7,
    ],
)
async def test_a_schema_that_is_none_is_refused_before_the_run(schema):
    with pytest.raises(UsageError, match="schema"):
        check_schema(schema)
    with pytest.raises(UsageError):
        await drive(ScriptedModel(), schema=schema)


async def test_calls_beside_an_accepted_result_are_answered_but_not_run():
    ran = []
    tool = FakeTool("look", lambda n: ran.append(n) or "x")
    model = ScriptedModel(Turn(Call("look", {"n": 1}), Call("submit_result", GOOD), Call("look", {"n": 2})))
    run = await drive(model, tools=[tool], schema=SCHEMA)
    assert run.outcome.value == GOOD and ran == [1]
    assert "already been handed in" in run.messages[-1].results[2].text


async def test_the_result_may_be_handed_in_when_tool_calls_and_turns_are_used_up():
    model = ScriptedModel(Turn(Call("look")), Turn(Call("look")), submit(GOOD))
    run = await drive(
        model, tools=[FakeTool("look", lambda: "x")], schema=SCHEMA, limits=Limits(max_tool_calls=1, max_turns=2)
    )
    assert (run.outcome.ended, run.outcome.value, run.outcome.tool_uses) == ("steered", GOOD, 2)


async def test_a_provider_failure_is_not_a_validation_failure():
    run = await drive(ScriptedModel(submit({"file": 1}), Turn(Fail("server", "down"))), schema=SCHEMA)
    assert run.outcome.failure.kind == "server" and run.outcome.value is None


async def test_follow_ups_come_before_the_reminder():
    controls = Controls()
    controls.follow_up("one more")
    with ScriptedModel("hm", Turn(Expect("one more"), *submit(GOOD).steps)) as model:
        run = await drive(model, schema=SCHEMA, controls=controls)
    assert run.outcome.value == GOOD


async def test_any_tool_may_end_a_run_with_its_answer():
    class Done:
        spec = ToolSpec("done", "done", {"type": "object"}, ends_run=True)

        async def run(self, call_id, arguments, context):
            return ok("the end") if not arguments else ToolOutput((), value={"n": 1})

    run = await drive(ScriptedModel(Turn(Call("done"))), tools=[Done()])
    assert (run.outcome.ended, run.outcome.text, run.outcome.value) == ("completed", "the end", None)
    run = await drive(ScriptedModel(Turn(Call("done", {"x": 1}))), tools=[Done()])
    assert (run.outcome.text, run.outcome.value) == ('{"n":1}', {"n": 1})


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@given(value=JSON, kind=st.sampled_from(["object", "array", "string", "integer", "null", "boolean"]))
async def test_no_invalid_value_is_ever_accepted(value, kind):
    types = {"object": dict, "array": list, "string": str, "null": type(None), "boolean": bool}
    submission = Submission({"type": kind})
    arguments = value if kind == "object" and isinstance(value, dict) else {"value": value}
    if kind == "object" and not isinstance(value, dict):
        return
    output = await submission.run("c", arguments, None)
    if kind == "integer":
        valid = not isinstance(value, bool) and isinstance(value, (int, float)) and value == int(value)
    else:
        valid = isinstance(value, types[kind])
    assert output.is_error is not valid
    if valid:
        assert output.value == value
