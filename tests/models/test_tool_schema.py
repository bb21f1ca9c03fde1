"""Schemas of foreign tools: what every provider refuses is gone from the bytes, and what is lost is said."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retinue.capabilities.mcp.tool_list import listing, safe_keys
from retinue.core.messages import AssistantMessage, Image, Text, ToolCall, ToolMessage, ToolResult, user
from retinue.core.tool import ToolSpec
from retinue.models.tool_schema import gemini_parameters, portable_schema
from tests.models.scripts import FORMATS, RELAXED, answer, model, request, said
from tests.models.servers import Reply, Server

# What mcp.notion.com/mcp sent from 2026-08-05 on (langchain-ai/langchain#39271).
NOTION = {
    "type": "object",
    "anyOf": [
        {"type": "object", "properties": {"content": {"type": "string"}}, "required": ["content"]},
        {"type": "object", "properties": {"source_url": {"type": "string"}}, "required": ["source_url"]},
    ],
}
# gitnexus_api_impact (anomalyco/opencode#35516) and Higgsfield (MoonshotAI/kimi-code#2328).
EITHER = {
    "type": "object",
    "properties": {"route": {"type": "string"}, "file": {"type": "string"}},
    "oneOf": [{"required": ["route"]}, {"required": ["file"]}],
}


def declared(provider: str, schema: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """The parameters and the description of one tool in a request body."""
    tool = ToolSpec("attach", "Attach a file.", schema)
    body = json.loads(json.dumps(model(provider, "http://x").body(request("Go", tools=(tool,)))))
    (sent,) = body["tools"]
    if provider == "anthropic":
        return sent["input_schema"], sent["description"]
    if provider == "gemini":
        (sent,) = sent["functionDeclarations"]
        return sent["parametersJsonSchema"], sent["description"]
    sent = sent.get("function", sent)
    return sent["parameters"], sent["description"]


@pytest.mark.parametrize("provider", FORMATS)
@pytest.mark.parametrize("schema", [NOTION, EITHER], ids=["notion", "gitnexus"])
def test_alternatives_at_the_top_are_folded_and_the_model_is_told_the_condition(
    provider: str, schema: dict[str, Any]
) -> None:
    """ "input_schema does not support oneOf, allOf, or anyOf at the top level" (claude-code#40075)."""
    parameters, description = declared(provider, schema)
    assert not {"anyOf", "oneOf", "allOf"} & parameters.keys()
    assert parameters["type"] == "object"
    assert len(parameters["properties"]) == 2, "every argument of every alternative is offered"
    assert "required" not in parameters, "what only one alternative needs is not needed"
    assert "one of these sets of arguments" in description


def test_the_parts_of_all_of_are_one_object_with_all_that_they_require() -> None:
    schema = {
        "$defs": {"base": {"properties": {"id": {"type": "integer"}}, "required": ["id"]}},
        "allOf": [{"$ref": "#/$defs/base"}, {"properties": {"name": {"type": "string"}}, "required": ["name"]}],
    }
    made = portable_schema(schema)
    assert made.parameters["properties"] == {"id": {"type": "integer"}, "name": {"type": "string"}}
    assert made.parameters["required"] == ["id", "name"]
    assert made.lost == "", "nothing is lost, so nothing is said"


def test_an_argument_that_alternatives_describe_differently_may_be_either() -> None:
    schema = {"oneOf": [{"properties": {"x": {"type": "string"}}}, {"properties": {"x": {"type": "integer"}}}]}
    assert portable_schema(schema).parameters["properties"]["x"] == {"anyOf": [{"type": "string"}, {"type": "integer"}]}


def test_a_reference_at_the_top_is_followed() -> None:
    schema = {"$ref": "#/$defs/in", "$defs": {"in": {"type": "object", "properties": {"a": {"$ref": "#/$defs/in"}}}}}
    made = portable_schema(schema).parameters
    assert made["properties"] == {"a": {"$ref": "#/$defs/in"}} and "$ref" not in made and "$defs" in made


def test_forms_of_older_drafts_are_written_in_the_new_one() -> None:
    """OpenAI: "array schema missing items"; Anthropic: "must match JSON Schema draft 2020-12"."""
    schema = {
        "type": "object",
        "properties": {
            "list": {"type": "array"},
            "pair": {"type": "array", "items": [{"type": "string"}, {"type": "number"}]},
            "positive": {"type": "number", "minimum": 0, "exclusiveMinimum": True},
            "named": {"type": "string", "required": True},
        },
    }
    made = portable_schema(schema).parameters["properties"]
    assert made["list"] == {"type": "array", "items": {}}
    assert made["pair"] == {"type": "array", "prefixItems": [{"type": "string"}, {"type": "number"}], "items": {}}
    assert made["positive"] == {"type": "number", "exclusiveMinimum": 0}
    assert made["named"] == {"type": "string"}


def test_gemini_gets_json_schema_without_the_words_it_does_not_know() -> None:
    """As pydantic-ai's GoogleJsonSchemaTransformer, which was verified against the API."""
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "mode": {"const": "fast"},
            "level": {"enum": [1, 2], "type": "integer"},
            "mail": {"type": "string", "format": "email", "description": "Whom?"},
            "count": {"type": "integer", "exclusiveMinimum": 0, "examples": [1]},
        },
        "required": ["mode", "missing"],
    }
    made = gemini_parameters(schema)
    assert made == {
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "mode": {"enum": ["fast"], "type": "string"},
            "level": {"enum": [1, 2], "type": "integer"},
            "mail": {"type": "string", "description": "Whom? Format: email."},
            "count": {"type": "integer"},
        },
        "required": ["mode"],
    }
    assert gemini_parameters({"type": "object", "properties": {}}) is None


def test_references_that_multiply_come_to_an_end() -> None:
    again = {"type": "object", "properties": {"a": {"type": "string"}}, "allOf": [{"$ref": "#"}] * 6}
    assert portable_schema(again).parameters["properties"] == {"a": {"type": "string"}}


values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
WORDS = ["type", "properties", "items", "anyOf", "oneOf", "allOf", "$ref", "enum", "const", "required", "$defs"]
schemas = st.recursive(
    st.dictionaries(st.sampled_from(WORDS), values, max_size=4),
    lambda inner: st.fixed_dictionaries(
        {"type": st.sampled_from(["object", "array", "string"])},
        optional={
            "properties": st.dictionaries(st.text(max_size=4), inner, max_size=3),
            "items": inner,
            "anyOf": st.lists(inner, max_size=3),
            "allOf": st.lists(inner, max_size=3),
            "$ref": st.sampled_from(["#", "#/properties/a", "#/$defs/x", "http://x", ""]),
        },
    ),
    max_leaves=10,
)


@RELAXED
@given(schemas)
def test_any_schema_becomes_an_object_that_no_provider_refuses(schema: dict[str, Any]) -> None:
    made = portable_schema(schema).parameters
    assert made["type"] == "object" and isinstance(made["properties"], dict)
    assert not {"anyOf", "oneOf", "allOf", "not", "enum", "const", "$ref"} & made.keys()
    json.dumps(made)
    gemini_parameters(schema)
    offered, renamed, _ = safe_keys(schema)
    assert not renamed or renamed.keys() <= offered["properties"].keys()


# ------------------------------------------------------------------ MCP
ODATA = {
    "type": "object",
    "properties": {"$top": {"type": "integer"}, "_top": {"type": "integer"}, "x" * 70: {}, "plain": {}},
    "required": ["$top"],
}


def test_argument_names_that_providers_refuse_are_renamed_and_said() -> None:
    """ "Property keys should match pattern '^[a-zA-Z0-9_.-]{1,64}$'" (claude-code#79418)."""
    offered, renamed, _ = safe_keys(ODATA)
    assert renamed == {"_top_2": "$top", "x" * 56: "x" * 70}
    assert list(offered["properties"]) == ["_top_2", "_top", "x" * 56, "plain"]
    assert offered["required"] == ["_top_2"]
    tool = SimpleNamespace(name="query", description="", title="", input_schema=ODATA, annotations=None)
    (said,) = listing([tool]).problems
    assert "'$top' as '_top_2'" in said


def test_a_server_with_alternatives_at_the_top_of_its_parameters_is_named() -> None:
    tool = SimpleNamespace(name="attach", description="", title="", input_schema=NOTION, annotations=None)
    found = listing([tool])
    assert "anyOf at the top" in found.problems[0]
    assert found.tools[0].parameters["anyOf"] == NOTION["anyOf"], "our own check keeps the condition"


def test_a_condition_at_the_top_that_is_not_sent_is_told_to_the_model_and_noted() -> None:
    two = {"a": {"type": "string"}, "b": {"type": "string"}}
    schema = {"type": "object", "properties": two, "not": {"required": ["a", "b"]}}
    tool = SimpleNamespace(name="either", description="", title="", input_schema=schema, annotations=None)
    found = listing([tool])
    assert "model providers refuse not at the top of its parameters" in found.problems[0]
    assert portable_schema(schema).lost == "Do not give all of these arguments at once: a, b."
    within = {"type": "object", "properties": two, "allOf": [{"not": {"properties": {"a": {"const": "x"}}}}]}
    assert portable_schema(within).lost.startswith("The arguments as a whole must not match {")
    one = {"required": ["a"], "not": {"required": ["b"]}}
    other = {"required": ["b"], "not": {"required": ["a"]}}
    assert "Do not give" not in portable_schema({"properties": two, "oneOf": [one, other]}).lost


def test_a_reference_at_the_top_of_a_servers_tool_is_followed() -> None:
    """zod-to-json-schema writes a named schema so; MCP wants `type` beside it."""
    node = {"type": "object", "properties": {"name": {"type": "string"}, "more": {"$ref": "#/definitions/Node"}}}
    schema = {"type": "object", "$ref": "#/definitions/Node", "definitions": {"Node": node}}
    tool = SimpleNamespace(name="tree", description="", title="", input_schema=schema, annotations=None)
    offered = portable_schema(listing([tool]).tools[0].parameters).parameters
    assert offered["properties"] == node["properties"]


async def test_an_error_with_a_picture_goes_to_anthropic_as_text_and_the_picture_follows() -> None:
    """ "all content must be type 'text' if 'is_error' is true" (vellum-ai/vellum-assistant#18387)."""
    shot = (Text("The page did not load."), Image("image/png", "aGk="))
    calls = AssistantMessage((ToolCall("a", "shot", {}), ToolCall("b", "read", {})), "tool_use", model="anthropic/m")
    results = ToolMessage((ToolResult("a", "shot", shot, is_error=True), ToolResult("b", "read", (Text("fine"),))))
    async with Server(Reply(said("anthropic", "I see."))) as server:
        await answer("anthropic", server.url, request(user("Go"), calls, results))
    blocks = server.bodies[0]["messages"][-1]["content"]
    assert [block["type"] for block in blocks] == ["tool_result", "tool_result", "text", "image"]
    assert blocks[0]["content"] == "The page did not load." and blocks[0]["is_error"] is True
