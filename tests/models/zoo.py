"""Loopback servers that answer as providers document: they refuse what the real ones refuse, in their
words, and play an agent of twenty turns whose way is not smooth.

A keeper checks every request. What it refuses is in `REFUSED`, so that a test can say what was learned.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from tests.models.scripts import (
    anthropic_events,
    chat_call,
    chat_events,
    gemini_events,
    responses_call,
    responses_events,
    responses_reasoning,
    responses_text,
)
from tests.models.servers import Reply, Server, failing, sse

Check = Callable[[dict[str, Any]], str | None]
TURNS = 20
BUSY_AT, CUT_AT, FULL_AT = 4, 9, 13
"""Turns at which the server is overloaded once, cuts its stream once, and says once that its window is full."""
SUMMARY = "What happened so far: files were looked at."


@dataclass(frozen=True)
class Animal:
    """One provider: its format, a model, what it refuses, and its words for a full window."""

    provider: str
    model: str
    format: str
    checks: tuple[Check, ...] = ()
    overflow: str = "This model's maximum context length is 128000 tokens. However, you requested 130000 tokens."
    thinks: bool = False
    """Its answers begin with thinking in `reasoning_content`."""


class Keeper(Server):
    """The server of one animal. `turn` counts the good answers."""

    def __init__(self, animal: Animal) -> None:
        super().__init__()
        self.animal = animal
        self.turn = 0
        self.refused: list[str] = []
        self._done_once: set[int] = set()

    async def _answer(self, reply: Reply, reader: Any, writer: Any) -> bool:
        return await super()._answer(self._decide(), reader, writer)

    def _decide(self) -> Reply:
        if self.seen[-1].method == "GET" or self.seen[-1].target.startswith("/api/"):
            return failing(200, {"models": [{"name": self.animal.model, "context_length": 65536}]})
        body = self.seen[-1].body
        for check in (*COMMON[self.animal.format], *self.animal.checks):
            why = check(body)
            if why is not None:
                self.refused.append(why)
                return failing(400, {"error": {"message": why, "type": "invalid_request_error"}})
        if not tools_of(body):
            return Reply(spoken(self.animal, SUMMARY))
        return self._hurdle() or self._turn()

    def _hurdle(self) -> Reply | None:
        if self.turn in self._done_once or self.turn not in (BUSY_AT, CUT_AT, FULL_AT):
            return None
        self._done_once.add(self.turn)
        if self.turn == BUSY_AT:
            return failing(529, {"error": {"type": "overloaded_error", "message": "Overloaded"}}, retry_after="0")
        if self.turn == FULL_AT:
            return failing(400, {"error": {"message": self.animal.overflow, "type": "invalid_request_error"}})
        whole = spoken(self.animal, "An answer that is cut off somewhere in its middle.")
        return Reply([*whole[: len(whole) // 2], "cut"])

    def _turn(self) -> Reply:
        self.turn += 1
        if self.turn > TURNS:
            return Reply(spoken(self.animal, "All twenty are done."))
        name = {3: "shot", 6: "broken_shot"}.get(self.turn, "attach")
        arguments = {"content": f"step {self.turn}"} if name == "attach" else {}
        return Reply(called(self.animal, name, arguments))


# ------------------------------------------------------------------ answers
def spoken(animal: Animal, text: str) -> list[bytes]:
    match animal.format:
        case "anthropic":
            return sse(*anthropic_events({"type": "text", "text": text}))
        case "openai-responses":
            return sse(*responses_events(responses_text(text)))
        case "gemini":
            return sse(
                *gemini_events({"text": text[: len(text) // 2]}, stop=None),
                *gemini_events({"text": text[len(text) // 2 :]}),
            )
    return sse(*chat_events(*thoughts(animal), {"content": text}), done=True)


def called(animal: Animal, name: str, arguments: dict[str, Any]) -> list[bytes]:
    """One call. Its id is the same every turn, as Bedrock Mantle and some local servers do."""
    match animal.format:
        case "anthropic":
            thought = {"type": "thinking", "thinking": "Next.", "signature": f"sig-{animal.provider}"}
            block = {"type": "tool_use", "id": "call_0", "name": name, "input": arguments}
            return sse(*anthropic_events(thought, block, stop="tool_use"))
        case "openai-responses":
            reasoning = responses_reasoning("Next.", f"cipher-{animal.provider}")
            return sse(*responses_events(reasoning, responses_call("call_0", name, arguments)))
        case "gemini":
            part = {"functionCall": {"name": name, "args": arguments}, "thoughtSignature": f"sig-{animal.provider}"}
            return sse(*gemini_events(part))
    return sse(*chat_events(*thoughts(animal), *chat_call(0, "call_0", name, arguments), stop="tool_calls"), done=True)


def thoughts(animal: Animal) -> list[dict[str, Any]]:
    return [{"reasoning_content": "Next."}] if animal.thinks else []


# ------------------------------------------------------------------ what is refused
def tools_of(body: dict[str, Any]) -> list[dict[str, Any]]:
    """The tools of a request in any format, each with `parameters`."""
    found: list[dict[str, Any]] = []
    for tool in body.get("tools", ()):
        if "functionDeclarations" in tool:
            found += [{"parameters": each.get("parametersJsonSchema", {})} for each in tool["functionDeclarations"]]
        elif "input_schema" in tool:
            found.append({"parameters": tool["input_schema"]})
        else:
            found.append({"parameters": tool.get("function", tool).get("parameters", {})})
    return found


def no_choice_at_the_top(body: dict[str, Any]) -> str | None:
    """claude-code#40075; OpenAI says nearly the same."""
    for number, tool in enumerate(tools_of(body)):
        if {"oneOf", "anyOf", "allOf", "not", "enum"} & tool["parameters"].keys():
            place = f"tools.{number}.custom.input_schema"
            return f"{place}: input_schema does not support oneOf, allOf, or anyOf at the top level"
    return None


def plain_keys(body: dict[str, Any]) -> str | None:
    """claude-code#79418."""
    for number, tool in enumerate(tools_of(body)):
        if not all(re.fullmatch(r"[a-zA-Z0-9_.-]{1,64}", name) for name in tool["parameters"].get("properties", {})):
            place = f"tools.{number}.custom.input_schema.properties"
            return f"{place}: Property keys should match pattern '^[a-zA-Z0-9_.-]{{1,64}}$'"
    return None


def arrays_have_items(body: dict[str, Any]) -> str | None:
    """OpenAI: "array schema missing items"."""
    for tool in tools_of(body):
        for name, schema in tool["parameters"].get("properties", {}).items():
            if schema.get("type") == "array" and not isinstance(schema.get("items"), dict):
                return f"Invalid schema for function: In context=('properties', '{name}'), array schema missing items."
    return None


def errors_are_text(body: dict[str, Any]) -> str | None:
    """vellum-assistant#18387."""
    for message in body["messages"]:
        for block in message["content"] if isinstance(message["content"], list) else ():
            parts = block["content"] if block.get("is_error") and isinstance(block["content"], list) else ()
            if any(part["type"] != "text" for part in parts):
                return "messages: all content must be type `text` if `is_error` is true"
    return None


def only_own_signatures(mark: str) -> Check:
    """A signature of another maker is refused by everyone."""

    def check(body: dict[str, Any]) -> str | None:
        for found in re.findall(r"(?:sig|cipher)-([\w.-]+?)[\"'\\\\]", json.dumps(body)):
            if found != mark:
                return f"Invalid `signature` in `thinking` block: it is {found}'s"
        return None

    return check


def every_call_is_answered(body: dict[str, Any]) -> str | None:
    """Every server: a result for every call, an own id for every call."""
    calls = [call["id"] for message in body["messages"] for call in message.get("tool_calls") or ()]
    results = [message["tool_call_id"] for message in body["messages"] if message["role"] == "tool"]
    if calls != results:
        return "An assistant message with 'tool_calls' must be followed by tool messages for each 'tool_call_id'."
    return "Duplicate tool_call_id" if len(calls) != len(set(calls)) else None


def reasoning_is_passed_back(body: dict[str, Any]) -> str | None:
    """api-docs.deepseek.com thinking_mode; Kimi in other words."""
    turns = [message for message in body["messages"] if message.get("tool_calls")]
    if all("reasoning_content" in turn for turn in turns):
        return None
    return "The `reasoning_content` in the thinking mode must be passed back to the API."


def no_user_after_tool(body: dict[str, Any]) -> str | None:
    """Mistral, code 3230 (avante.nvim#2695)."""
    roles = [message["role"] for message in body["messages"]]
    if any(pair == ("tool", "user") for pair in pairwise(roles)):
        return "Unexpected role 'user' after role 'tool'"
    return None


def ids_of_nine(body: dict[str, Any]) -> str | None:
    """pydantic-ai#9096."""
    calls = [call["id"] for message in body["messages"] for call in message.get("tool_calls") or ()]
    bad = [id for id in calls if not re.fullmatch(r"[a-zA-Z0-9]{9}", id)]
    return f"Tool call id was {bad[0]} but must be a-z, A-Z, 0-9, with a length of 9." if bad else None


def efforts(*allowed: str) -> Check:
    def check(body: dict[str, Any]) -> str | None:
        value = body.get("reasoning_effort") or (body.get("reasoning") or {}).get("effort")
        if value is None or value in allowed:
            return None
        listed = ", ".join(f"'{each}'" for each in allowed)
        said = f"Unsupported value: 'reasoning_effort' does not support '{value}' with this model."
        return f"{said} Supported values are: {listed}."

    return check


def no_effort(body: dict[str, Any]) -> str | None:
    """xAI (pi#8381)."""
    return "Model grok-build-0.1 does not support parameter reasoningEffort." if "reasoning_effort" in body else None


def no_disabled_thinking(body: dict[str, Any]) -> str | None:
    """docs.z.ai for GLM-5.3."""
    disabled = (body.get("thinking") or {}).get("type") == "disabled"
    return "thinking.type disabled is not supported, please use low, high, or max" if disabled else None


def first_call_is_signed(body: dict[str, Any]) -> str | None:
    """ai.google.dev thought signatures: required on the first call of a turn since Gemini 3."""
    for content in body["contents"]:
        calls = [part for part in content["parts"] if "functionCall" in part]
        if calls and "thoughtSignature" not in calls[0]:
            return "Function call is missing a thought_signature in functionCall parts."
    return None


def gemini_words(body: dict[str, Any]) -> str | None:
    text = json.dumps([tool["parameters"] for tool in tools_of(body)])
    for word in ("$schema", "const", "exclusiveMinimum"):
        if f'"{word}":' in text:
            return f'Invalid JSON payload received. Unknown name "{word}"'
    return None


def reasoning_comes_with_its_item(body: dict[str, Any]) -> str | None:
    """OpenAI: "Item 'rs_1' of type 'reasoning' was provided without its required following item."."""
    items = body["input"]
    for item, following in zip(items, [*items[1:], {}], strict=True):
        if item.get("type") == "reasoning":
            if not item.get("encrypted_content"):
                return "Item 'rs_1' not found. Items are not persisted when `store` is set to false."
            if following.get("type") not in ("function_call", "message") and following.get("role") != "assistant":
                return "Item 'rs_1' of type 'reasoning' was provided without its required following item."
    calls = [item["call_id"] for item in items if item.get("type") == "function_call"]
    results = [item["call_id"] for item in items if item.get("type") == "function_call_output"]
    return None if calls == results else "No tool output found for function call."


COMMON: dict[str, tuple[Check, ...]] = {
    "anthropic": (no_choice_at_the_top, plain_keys, errors_are_text),
    "openai": (no_choice_at_the_top, arrays_have_items, every_call_is_answered),
    "openai-responses": (no_choice_at_the_top, arrays_have_items, reasoning_comes_with_its_item),
    "gemini": (gemini_words, first_call_is_signed),
}

_STEPS = efforts("low", "high", "max")
_FULL_GEMINI = "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576)."
_FULL_KIMI = "Invalid request: Your request exceeded model token limit: 262144 (requested: 269030)"

ZOO: tuple[Animal, ...] = (
    Animal("anthropic", "claude-sonnet-5-5", "anthropic", (only_own_signatures("anthropic"),), "prompt is too long: 9"),
    Animal("openai", "gpt-4.1", "openai"),
    Animal("openai-responses", "gpt-6.1-sol", "openai-responses", (efforts("low", "medium", "high", "xhigh", "max"),)),
    Animal("azure", "gpt-5.6-sol", "openai-responses", (only_own_signatures("azure"),)),
    Animal("gemini", "gemini-4-argon", "gemini", (), _FULL_GEMINI),
    Animal("deepseek", "deepseek-v4-pro", "openai", (reasoning_is_passed_back, _STEPS), thinks=True),
    Animal("mistral", "mistral-large-4", "openai", (no_user_after_tool, ids_of_nine, efforts("none", "high"))),
    Animal("xai", "grok-build-0.1", "openai", (no_effort,), "This model's maximum prompt length is 131072"),
    Animal("moonshot", "kimi-k3", "openai", (reasoning_is_passed_back, _STEPS), _FULL_KIMI, thinks=True),
    Animal("zai", "glm-5.3", "openai", (no_disabled_thinking, _STEPS), "Prompt exceeds max length", thinks=True),
    Animal("minimax", "MiniMax-M3", "openai"),
    Animal("qwen", "qwen3.8-max", "openai", (), "Range of input length should be [1, 204800]"),
    Animal("openrouter", "anthropic/claude-sonnet-5.5", "openai", (efforts("none", "low", "medium", "high", "max"),)),
    Animal("groq", "qwen/qwen3-32b", "openai", (efforts("none", "default"),)),
    Animal("ollama", "qwen3", "openai", (), "the request exceeds the available context size"),
    Animal("vllm", "m", "openai"),
)


def neighbours() -> Iterator[tuple[Animal, Animal]]:
    """Each animal, and the next one, to whom its work is handed over."""
    yield from zip(ZOO, (*ZOO[1:], ZOO[0]), strict=True)
