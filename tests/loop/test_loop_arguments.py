"""The light check of arguments: never wrong about what a schema allows."""

import jsonschema_rs
from hypothesis import given
from hypothesis import strategies as st

from retinue.loop.schema_check import problem

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.floats(-3, 3) | st.sampled_from(["", "a", "b"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)
TYPES = st.sampled_from(["string", "boolean", "integer", "number", "object", "array", "null"])


def schemas(inner):
    return st.fixed_dictionaries(
        {},
        optional={
            "type": TYPES | st.lists(TYPES, min_size=1, max_size=3, unique=True),
            "enum": st.lists(VALUES, min_size=1, max_size=3),
            "properties": st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
            "required": st.lists(st.sampled_from("abc"), max_size=2, unique=True),
            "additionalProperties": st.booleans(),
            "items": inner,
        },
    )


SCHEMAS = st.recursive(st.just({}), schemas, max_leaves=6)


@given(value=VALUES, schema=SCHEMAS)
def test_it_agrees_with_a_full_validator_on_the_parts_it_knows(value, schema):
    try:
        valid = jsonschema_rs.is_valid(schema, value)
    except ValueError:
        return
    assert (problem(value, schema) is None) == valid, problem(value, schema)


@given(value=VALUES, schema=SCHEMAS, other=SCHEMAS)
def test_it_refuses_nothing_that_parts_it_does_not_know_may_allow(value, schema, other):
    mixed = {**schema, "anyOf": [other, {}], "pattern": "a", "minimum": 0}
    if jsonschema_rs.is_valid(mixed, value):
        assert problem(value, mixed) is None


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=10,
)


@given(value=ANYTHING, schema=ANYTHING | SCHEMAS)
def test_it_survives_schemas_that_are_none(value, schema):
    assert problem(value, schema) is None or isinstance(problem(value, schema), str)


def test_it_says_where_and_what():
    schema = {
        "type": "object",
        "properties": {
            "edits": {"type": "array", "items": {"type": "object", "required": ["old"], "properties": {}}},
            "n": {"type": ["integer", "null"]},
        },
    }
    said = problem({"edits": [{"old": 1}, {}], "n": "x"}, schema)
    assert said == "edits[1].old is required and missing; n must be an integer or null, not a string"
    assert problem([], {"type": "object"}) == "the arguments must be an object, not an array"


def test_many_problems_are_counted_not_listed():
    said = problem({}, {"type": "object", "required": [f"p{n}" for n in range(30)]})
    assert said.count("missing") == 8 and said.endswith("… and 22 more")
