"""What each provider wants that the others do not, on the bytes that reach its server.

Every test names its source. The servers are loopback; their refusals are the texts that users of
the real ones reported.
"""

from __future__ import annotations

from typing import Any

import pytest

from retinue.core.messages import (
    AssistantMessage,
    Image,
    Message,
    Text,
    Thinking,
    ToolCall,
    ToolMessage,
    ToolResult,
    user,
)
from retinue.http.transport import Transport
from retinue.models.build import build_model
from retinue.models.presets import BUILT_IN, PRESETS
from retinue.models.providers import Providers
from retinue.models.select import ModelSelection
from retinue.settings.table import Settings
from retinue.testing import Model, ModelRequest, Noted
from tests.models.scripts import (
    chat_events,
    collect,
    info,
    known_model,
    request,
    responses_events,
    responses_reasoning,
    responses_text,
)
from tests.models.servers import Reply, Server, failing, sse

CALLED = AssistantMessage((Text("Looking."), ToolCall("call_0", "read", {"path": "a"})), "tool_use", model="other/m")
READ = ToolMessage((ToolResult("call_0", "read", (Text("content"),)),))
OK = Reply(sse(*chat_events({"content": "ok"}), done=True))


def preset_model(provider: str, id: str, url: str, transport: Transport, **changes: Any) -> Model:
    """A model as `retinue` builds it from a preset, but for its address."""
    preset = BUILT_IN.get(provider) or PRESETS[provider]
    environment = dict.fromkeys(preset.keys, "key-1234567")
    if preset.urls:
        environment[preset.urls[0]] = url
    entry = {} if preset.urls else {"baseUrl": url}
    found = Providers(Settings({"providers": {provider: entry}}), environment).get(provider)
    assert found is not None and found.problem is None
    found = found._replace(base_url=f"{url}/v1", api_by_model=changes.pop("api_by_model", False))
    return build_model(ModelSelection(info(provider, id=id, **changes), found, "call", "", attempts=1), transport)


async def ask(provider: str, id: str, server: Server, *asked: ModelRequest, **changes: Any) -> list[AssistantMessage]:
    """The answers to requests of one run."""
    async with known_model(provider, id, server.url, **changes) as made:
        return [(await collect(made, each))[0] for each in asked]


def refusal(message: str, **more: Any) -> Reply:
    return failing(400, {"error": {"message": message, "type": "invalid_request_error", **more}})


# ------------------------------------------------------------------ values and parameters
async def test_a_refused_effort_steps_to_the_nearest_supported_one_and_is_said() -> None:
    """gpt-6.1-sol refuses `none` (openai/codex#6647 has the text and the param)."""
    said = (
        "Unsupported value: 'none' is not supported with the 'new-model' model. "
        "Supported values are: 'low', 'medium', 'high', and 'xhigh'."
    )
    replies = [refusal(said, param="reasoning.effort", code="unsupported_value")]
    replies += [Reply(sse(*responses_events(responses_text("ok"))))] * 2
    async with Server(*replies) as server:
        made = known_model("openai-responses", "gpt-9-new", server.url)
        message, parts = await collect(made, request(thinking="off"))
        again, later = await collect(made, request(thinking="off"))
        await made.close()
    assert (message.text, again.text) == ("ok", "ok")
    assert [body["reasoning"]["effort"] for body in server.bodies] == ["none", "low", "low"]
    notes = [part.text for part in parts if isinstance(part, Noted)]
    assert notes == ["openai-responses/gpt-9-new does not take the thinking effort 'none': 'low' is used."]
    assert not [part for part in later if isinstance(part, Noted)], "it is said once"


async def test_a_value_that_one_run_may_not_have_stays_for_the_others() -> None:
    """One run's `off` must not cost the next run its `high` (M15)."""
    said = "Invalid reasoning_effort 'none': must be one of low, high, max"
    transport = Transport()
    async with Server(refusal(said), OK, OK) as server:
        for level in ("off", "high"):
            made = preset_model("together", "kimi-k9", server.url, transport)
            assert (await collect(made, request(thinking=level)))[0].text == "ok"
        await transport.close()
    assert [body.get("reasoning_effort") for body in server.bodies] == ["none", "low", "high"]


async def test_a_parameter_written_in_camel_case_is_understood() -> None:
    """xAI: "Model grok-build-0.1 does not support parameter reasoningEffort." (pi#8381)."""
    said = "Model grok-new does not support parameter reasoningEffort."
    async with Server(refusal(said), OK) as server:
        (message,) = await ask("together", "grok-new", server, request(thinking="high"))
    assert message.text == "ok"
    assert ["reasoning_effort" in body for body in server.bodies] == [True, False]


@pytest.mark.parametrize("words", ["The reasoning in your prompt is not allowed.", "thinking about temperature is bad"])
async def test_words_that_are_no_parameter_cost_nothing(words: str) -> None:
    async with Server(refusal(words)) as server:
        (message,) = await ask("together", "m", server, request(thinking="high", temperature=0.5))
    assert message.failure is not None and message.failure.kind == "invalid_request"
    assert len(server.seen) == 1, "nothing optional was named, so nothing is dropped"


@pytest.mark.parametrize("model", ["grok-build-0.1", "grok-code-fast-1"])
async def test_grok_code_models_get_no_effort(model: str) -> None:
    async with Server(OK) as server:
        await ask("xai", model, server, request(thinking="high"))
    assert "reasoning_effort" not in server.bodies[0]


@pytest.mark.parametrize(
    ("provider", "id", "level", "fields"),
    [
        # api-docs.deepseek.com/guides/thinking_mode
        ("deepseek", "deepseek-v4-pro", "off", {"thinking": {"type": "disabled"}}),
        ("deepseek", "deepseek-v4-pro", "max", {"thinking": {"type": "enabled"}, "reasoning_effort": "max"}),
        # platform.kimi.ai/docs/guide/use-thinking-models
        ("moonshot", "kimi-k2.6", "off", {"thinking": {"type": "disabled"}}),
        ("moonshot", "kimi-k3", "off", {"reasoning_effort": "low"}),
        # docs.z.ai/guides/capabilities/thinking-mode
        ("zai", "glm-4.7", "off", {"thinking": {"type": "disabled", "clear_thinking": False}}),
        (
            "zai",
            "glm-5.3",
            "off",
            {"thinking": {"type": "enabled", "clear_thinking": False}, "reasoning_effort": "low"},
        ),
        # the same page, "Preserved thinking": the thoughts of earlier turns are kept on request only
        ("zai", "glm-4.7", None, {"thinking": {"clear_thinking": False}}),
        # docs.mistral.ai/capabilities/reasoning
        ("mistral", "mistral-medium-latest", "low", {"reasoning_effort": "high"}),
        ("mistral", "mistral-medium-latest", "off", {"reasoning_effort": "none"}),
        # console.groq.com/docs/reasoning
        ("groq", "qwen/qwen3-32b", "low", {"reasoning_effort": "default"}),
        # help.aliyun.com model-studio deep thinking
        ("qwen", "qwen3.8-max", "off", {"enable_thinking": False}),
        # openrouter.ai/docs reasoning tokens
        ("openrouter", "openai/gpt-5.2", "off", {"reasoning": {"effort": "none"}}),
        ("openrouter", "z-ai/glm-5.3", "off", {"reasoning": {"effort": "low"}}),
        ("minimax", "MiniMax-M3", "off", {"thinking": {"type": "disabled"}}),
        ("ollama", "qwen3:8b", "off", {"reasoning_effort": "none"}),
        ("llama.cpp", "m", "off", {"chat_template_kwargs": {"enable_thinking": False}}),
    ],
)
async def test_thinking_is_asked_for_in_each_providers_words(
    provider: str, id: str, level: str | None, fields: dict[str, Any]
) -> None:
    async with Server(OK) as server:
        await ask(provider, id, server, request(thinking=level))
    names = ("thinking", "reasoning_effort", "reasoning", "enable_thinking", "chat_template_kwargs")
    assert {name: server.bodies[0][name] for name in names if name in server.bodies[0]} == fields


# ------------------------------------------------------------------ conversations
@pytest.mark.parametrize("provider", ["deepseek", "moonshot"])
async def test_a_turn_of_another_model_carries_an_empty_reasoning_field(provider: str) -> None:
    """DeepSeek: "The `reasoning_content` in the thinking mode must be passed back to the API."
    (Zoo-Code#201, openclaw#73417); pydantic-ai sends it empty where nothing was thought."""
    own = AssistantMessage(
        (Thinking("Hm.", provider=provider), ToolCall("call_1", "read", {})), "tool_use", model=f"{provider}/m"
    )
    results = ToolMessage((ToolResult("call_1", "read", (Text("x"),)),))
    async with Server(OK) as server:
        await ask(provider, "m", server, request(user("Go"), CALLED, READ, own, results))
    turns = [message for message in server.bodies[0]["messages"] if message["role"] == "assistant"]
    assert [turn["reasoning_content"] for turn in turns] == ["", "Hm."]


async def test_a_server_that_misses_the_reasoning_gets_it_and_one_that_does_not_want_it_is_spared() -> None:
    missing = "thinking is enabled but reasoning_content is missing in assistant tool call message at index 2"
    async with Server(refusal(missing), OK) as server:
        (message,) = await ask("together", "kimi", server, request(user("Go"), CALLED, READ))
    assert message.text == "ok" and server.bodies[1]["messages"][2]["reasoning_content"] == ""


async def test_mistral_gets_a_turn_between_a_tool_and_the_user_and_short_ids() -> None:
    """ "Unexpected role 'user' after role 'tool'" (code 3230; avante.nvim#2695); ids of exactly nine
    letters or digits (pydantic-ai#9096)."""
    shot = ToolMessage((ToolResult("call_0", "read", (Image("image/png", "aGk="),)),))
    asked = request(user("Go"), CALLED, shot, user("Only src/", "steer"))
    async with Server(OK) as server:
        await ask("mistral", "mistral-large-4", server, asked)
    messages = server.bodies[0]["messages"]
    assert [message["role"] for message in messages] == [
        "system", "user", "assistant", "tool", "assistant", "user", "user",
    ]  # fmt: skip
    (id,) = {messages[2]["tool_calls"][0]["id"], messages[3]["tool_call_id"]}
    assert len(id) == 9 and id.isalnum()


async def test_the_role_order_of_mistral_is_learned_where_its_models_stand_behind_a_gateway() -> None:
    asked = request(user("Go"), CALLED, READ, user("Only src/", "steer"))
    async with Server(refusal("Unexpected role 'user' after role 'tool'", code="3230"), OK, OK) as server:
        first, second = await ask("together", "mistral-large-4", server, asked, asked)
    assert first.text == second.text == "ok"
    ordered = ["system", "user", "assistant", "tool", "assistant", "user"]
    assert [message["role"] for message in server.bodies[1]["messages"]] == ordered
    assert [message["role"] for message in server.bodies[2]["messages"]] == ordered, "learned once"


async def test_claude_through_openrouter_is_marked_for_its_cache() -> None:
    """openrouter.ai/docs prompt caching: Anthropic caches only what is marked (vscode#312939)."""
    async with Server(OK) as server:
        await ask("openrouter", "anthropic/claude-sonnet-5.5", server, request(user("Go"), CALLED, READ))
    body = server.bodies[0]
    mark = {"type": "ephemeral"}
    assert body["tools"][-1]["cache_control"] == mark
    marked = [
        m["role"] for m in body["messages"] if isinstance(m["content"], list) and m["content"][-1].get("cache_control")
    ]
    assert marked == ["system", "user", "tool"]
    async with Server(OK) as server:
        await ask("openrouter", "openai/gpt-5.2", server, request(user("Go"), CALLED, READ))
    assert "cache_control" not in str(server.bodies[0]), "others cache by themselves"


async def test_requests_of_one_conversation_share_a_cache_key_and_other_conversations_do_not() -> None:
    """platform.openai.com prompt-caching: `prompt_cache_key` raises hit rates; pi sends its session."""
    first: tuple[Message, ...] = (user("Go"),)
    fine = Reply(sse(*responses_events(responses_text("ok"))))
    async with Server(fine, fine, fine) as server:
        asked = [request(*first), request(*first, CALLED, READ), request(user("Something else"))]
        await ask("openai-responses", "gpt-5.2", server, *asked)
    one, two, other = [body["prompt_cache_key"] for body in server.bodies]
    assert one == two != other and len(one) <= 64
    async with Server(OK) as server:
        await ask("groq", "m", server, request())
    assert "prompt_cache_key" not in server.bodies[0]


# ------------------------------------------------------------------ Responses
async def test_reasoning_that_another_key_encrypted_is_dropped_and_the_run_goes_on() -> None:
    """`invalid_encrypted_content` after a change of key or organisation (codex#8119)."""
    thought = '{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"gAAA"}'
    turn = AssistantMessage(
        (Thinking("", thought, provider="openai-responses"), ToolCall("call_0", "read", {})),
        "tool_use",
        model="openai-responses/gpt-5.2",
    )
    said = "The encrypted content gAAA could not be verified. Reason: Encrypted content organization_id did not match."
    fine = Reply(sse(*responses_events(responses_reasoning("Hm.", "NEW"), responses_text("ok"))))
    async with Server(refusal(said, code="invalid_encrypted_content"), fine) as server:
        made = known_model("openai-responses", "gpt-5.2", server.url)
        message, parts = await collect(made, request(user("Go"), turn, READ))
        await made.close()
    assert message.text == "ok"
    (note,) = [part.text for part in parts if isinstance(part, Noted)]
    assert note == "openai-responses/gpt-5.2 cannot read its earlier reasoning any more: it goes on without it."
    kinds = [[item.get("type", item.get("role")) for item in body["input"]] for body in server.bodies]
    assert kinds[0] == ["user", "reasoning", "function_call", "function_call_output"]
    assert kinds[1] == ["user", "function_call", "function_call_output"]
    assert all(body["include"] == ["reasoning.encrypted_content"] for body in server.bodies), "new thinking is kept"


async def test_reasoning_without_its_ciphertext_is_never_sent_back() -> None:
    """ "Item 'rs_…' not found. Items are not persisted when `store` is set to false." (opencode#7724)."""
    item = {"type": "reasoning", "id": "rs_2", "summary": []}
    fine = Reply(sse(*responses_events(responses_text("ok"))))
    async with Server(Reply(sse(*responses_events(item, responses_text("first")))), fine) as server:
        (message,) = await ask("openai-responses", "gpt-5.2", server, request("Go"))
        await ask("openai-responses", "gpt-5.2", server, request(user("Go"), message, user("More")))
    assert "rs_2" not in str(server.bodies[1])


@pytest.mark.parametrize("provider", ["openai", "azure"])
async def test_openais_thinking_models_are_asked_through_the_responses_api(provider: str) -> None:
    """Chat Completions refuses tools from gpt-5.6 on (litellm#34569)."""
    fine = Reply(sse(*responses_events(responses_text("ok"))))
    async with Server(fine) as server:
        (message,) = await ask(provider, "gpt-5.6-sol", server, request(thinking="high"), api_by_model=True)
    assert message.text == "ok" and message.model == f"{provider}/gpt-5.6-sol"
    assert server.seen[0].target == "/v1/responses"


async def test_a_chat_server_that_points_to_the_responses_api_is_asked_there() -> None:
    """Text of pipecat#4043 and crush#2913."""
    said = (
        "Function tools with reasoning_effort are not supported for gpt-5.4 in /v1/chat/completions. "
        "Please use /v1/responses instead."
    )
    fine = Reply(sse(*responses_events(responses_text("ok"))))
    async with Server(refusal(said, param="reasoning_effort"), fine, fine) as server:
        made = known_model("openai", "gpt-5.4", server.url)
        message, parts = await collect(made, request(thinking="high"))
        await collect(made, request(thinking="high"))
        await made.close()
    assert message.text == "ok"
    assert [seen.target for seen in server.seen] == ["/v1/chat/completions", "/v1/responses", "/v1/responses"]
    assert server.bodies[1]["reasoning"]["effort"] == "high", "the effort is not lost"
    assert [part.code for part in parts if isinstance(part, Noted)] == ["model-api"]


# ------------------------------------------------------------------ streams
@pytest.mark.parametrize("size", [1, 3, 100])
async def test_thoughts_in_tags_are_thinking_and_not_the_answer(size: int) -> None:
    """MiniMax without reasoning_split, vLLM and llama.cpp without a reasoning parser."""
    whole = "\n<think>Is it <b>? Yes.</think>\n\nThe <think> tag is a word here."
    deltas = [{"content": whole[i : i + size]} for i in range(0, len(whole), size)]
    async with Server(Reply(sse(*chat_events(*deltas), done=True))) as server:
        (message,) = await ask("vllm", "m", server, request())
    assert message.text == "The <think> tag is a word here."
    assert [part.text for part in message.content if isinstance(part, Thinking)] == ["Is it <b>? Yes."]


async def test_an_answer_that_begins_like_a_tag_is_whole() -> None:
    for text in ("<th", "<think", "< think>", "<thinking>x"):
        async with Server(Reply(sse(*chat_events({"content": text}), done=True))) as server:
            (message,) = await ask("vllm", "m", server, request())
        assert message.text == text


async def test_minimax_is_asked_to_split_its_thoughts_off_and_gets_them_back() -> None:
    """platform.minimax.io, OpenAI-compatible API: reasoning_split and reasoning_details."""
    details = [{"type": "reasoning.text", "index": 0, "text": "First I look."}]
    longer = [{"type": "reasoning.text", "index": 0, "text": "First I look. Then I speak."}]
    deltas = [{"reasoning_details": details}, {"reasoning_details": longer}, {"content": "ok"}]
    async with Server(Reply(sse(*chat_events(*deltas), done=True)), OK) as server:
        (message,) = await ask("minimax", "MiniMax-M3", server, request("Go"))
        await ask("minimax", "MiniMax-M3", server, request(user("Go"), message, user("More")))
    assert server.bodies[0]["reasoning_split"] is True
    assert server.bodies[1]["messages"][2]["reasoning_details"] == longer


@pytest.mark.parametrize(
    ("reason", "kind"), [("model_context_window_exceeded", "context_overflow"), ("network_error", "server")]
)
async def test_ends_of_zai_that_are_no_good_ends(reason: str, kind: str) -> None:
    """docs.z.ai finish reasons; pi's overflow.ts names the first."""
    async with Server(Reply(sse(*chat_events({"content": "Half of"}, stop=reason), done=True))) as server:
        (message,) = await ask("zai", "glm-5.3", server, request())
    assert message.failure is not None and message.failure.kind == kind and message.text == "Half of"
