"""Our request bodies against the parameter types of the makers' own SDKs."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from tests.models.conforms import problems
from tests.models.conversations import conversations
from tests.models.scripts import model
from tests.models.test_anthropic import unmarked

NAMES = list(conversations("openai"))
ANTHROPIC_IDS = ["claude-sonnet-4-5", "claude-opus-4-6", "claude-opus-4-8", "claude-sonnet-5", "claude-sonnet-5-5"]


def body(provider: str, name: str, **changes: Any) -> Any:
    made = model(provider, "http://x", documents=True, **changes).body(conversations(provider)[name])
    return orjson.loads(orjson.dumps(made))


@pytest.mark.parametrize("id", ANTHROPIC_IDS)
@pytest.mark.parametrize("name", NAMES)
def test_anthropic(name: str, id: str) -> None:
    types = pytest.importorskip("anthropic.types.message_create_params")
    sent = body("anthropic", name, id=id)
    if "temperature" not in types.MessageCreateParamsStreaming.__annotations__:
        # Version 2 of the SDK has dropped it, with the models that refuse it; older models take it.
        assert sent.pop("temperature", None) is None or id in ("claude-sonnet-4-5", "claude-opus-4-6")
    assert problems(sent, types.MessageCreateParamsStreaming) == []


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("id", ["gpt-5", "gpt-4.1", "gpt-5.6-sol"])
def test_openai_chat(name: str, id: str) -> None:
    types = pytest.importorskip("openai.types.chat.completion_create_params")
    sent = body("openai", name, id=id, thinking=id != "gpt-4.1")
    assert problems(sent, types.CompletionCreateParamsStreaming) == []


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("id", ["gpt-5", "gpt-4.1", "gpt-5.6-sol"])
def test_openai_responses(name: str, id: str) -> None:
    types = pytest.importorskip("openai.types.responses.response_create_params")
    sent = body("openai-responses", name, id=id, thinking=id != "gpt-4.1")
    assert problems(sent, types.ResponseCreateParamsStreaming) == []


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("id", ["gemini-3-pro-preview", "gemini-2.5-flash"])
def test_gemini(name: str, id: str) -> None:
    """Google's types are models that refuse unknown fields; each part of the body is one."""
    types = pytest.importorskip("google.genai.types")
    sent = body("gemini", name, id=id)
    parts = {
        "systemInstruction": types.Content,
        "toolConfig": types.ToolConfig,
        "generationConfig": types.GenerationConfig,
    }
    lists = {"contents": types.Content, "tools": types.Tool}
    assert sent.keys() <= parts.keys() | lists.keys()
    for key, kind in parts.items():
        if key in sent:
            kind.model_validate(sent[key])
    for key, kind in lists.items():
        for item in sent.get(key, []):
            kind.model_validate(item)
    for content in sent["contents"]:
        assert content["role"] in ("user", "model") and content["parts"]


def test_the_check_itself_finds_mistakes() -> None:
    types = pytest.importorskip("anthropic.types.message_create_params")
    good = body("anthropic", "parallel results")
    for spoil in (
        lambda b: b.update(unknown=1),
        lambda b: b.pop("max_tokens"),
        lambda b: b.update(max_tokens="5"),
        lambda b: b["messages"][0].update(role="tool"),
        lambda b: b["messages"][1]["content"][0].pop("signature"),
        lambda b: b["messages"][1]["content"][2].update(arguments="{}"),
        lambda b: b["messages"][2]["content"][0].update(type="tool_results"),
        lambda b: b["tools"][0].update(parameters={}),
    ):
        spoiled = orjson.loads(orjson.dumps(good))
        spoil(spoiled)
        assert problems(spoiled, types.MessageCreateParamsStreaming)


@pytest.mark.parametrize("provider", ["anthropic", "openai", "openai-responses", "gemini"])
def test_every_turn_extends_the_prefix_of_the_turn_before(provider: str) -> None:
    """Caches hit only if nothing before the newest turn changes."""
    known = conversations(provider)
    earlier, later = known["parallel results"], known["follow-up"]
    made = model(provider, "http://x")
    key = {"openai-responses": "input", "gemini": "contents"}.get(provider, "messages")
    first, second = unmarked(made.body(earlier)), unmarked(made.body(later))
    assert second[key][: len(first[key])] == first[key]
    for name in ("system", "tools", "instructions", "systemInstruction"):
        assert first.get(name) == second.get(name)
