"""What `retinue[providers]` promises: every provider of it is built without a network, and one exchange with a
tool goes over its own SDK to a loopback server that answers as the provider documents."""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import struct
import sys
import warnings
from binascii import crc32
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from retinue.core.messages import ToolCall
from retinue.models.bridge import PydanticAIModel
from retinue.models.known import describe_bridged
from tests.models.scripts import (
    anthropic_events,
    chat_call,
    chat_events,
    collect,
    gemini_events,
    request,
    responses_call,
    responses_events,
)
from tests.models.servers import Reply, Server, failing, sse

pytest.importorskip("pydantic_ai")

KEYS = {
    "ANTHROPIC_API_KEY": "k",
    "OPENAI_API_KEY": "k",
    "GOOGLE_API_KEY": "k",
    "CO_API_KEY": "k",
    "HF_TOKEN": "k",
    "AWS_ACCESS_KEY_ID": "k",
    "AWS_SECRET_ACCESS_KEY": "s",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AZURE_OPENAI_API_KEY": "k",
    "OPENAI_API_VERSION": "2025-04-01-preview",
}
ARGUMENTS = {"path": "a.txt"}
CLAUDE_ON_BEDROCK = "bedrock:us.anthropic.claude-sonnet-5-5-20261001-v1:0"


def event(kind: str, payload: dict[str, Any]) -> bytes:
    """One message of application/vnd.amazon.eventstream: lengths and their checksum, headers, payload, checksum."""
    headers = b""
    for name, value in ((":event-type", kind), (":content-type", "application/json"), (":message-type", "event")):
        headers += bytes([len(name)]) + name.encode() + b"\x07" + struct.pack(">H", len(value)) + value.encode()
    data = json.dumps(payload).encode()
    prelude = struct.pack(">II", 16 + len(headers) + len(data), len(headers))
    whole = prelude + struct.pack(">I", crc32(prelude)) + headers + data
    return whole + struct.pack(">I", crc32(whole))


def bedrock() -> Reply:
    """docs.aws.amazon.com bedrock ConverseStream."""
    steps = [
        event("messageStart", {"role": "assistant"}),
        event("contentBlockStart", {"contentBlockIndex": 0, "start": {"toolUse": {"toolUseId": "t1", "name": "read"}}}),
        event("contentBlockDelta", {"contentBlockIndex": 0, "delta": {"toolUse": {"input": json.dumps(ARGUMENTS)}}}),
        event("contentBlockStop", {"contentBlockIndex": 0}),
        event("messageStop", {"stopReason": "tool_use"}),
        event(
            "metadata", {"usage": {"inputTokens": 7, "outputTokens": 3, "totalTokens": 10}, "metrics": {"latencyMs": 1}}
        ),
    ]
    return Reply(steps, headers={"content-type": "application/vnd.amazon.eventstream"})


def cohere() -> Reply:
    """docs.cohere.com/v2/docs/streaming."""
    called = {"id": "t1", "type": "function", "function": {"name": "read", "arguments": ""}}
    more = {"function": {"arguments": json.dumps(ARGUMENTS)}}
    usage = {"tokens": {"input_tokens": 7, "output_tokens": 3}, "billed_units": {"input_tokens": 7, "output_tokens": 3}}
    return Reply(
        sse(
            {"type": "message-start", "id": "c", "delta": {"message": {"role": "assistant"}}},
            {"type": "tool-call-start", "index": 0, "delta": {"message": {"tool_calls": called}}},
            {"type": "tool-call-delta", "index": 0, "delta": {"message": {"tool_calls": more}}},
            {"type": "tool-call-end", "index": 0},
            {"type": "message-end", "delta": {"finish_reason": "TOOL_CALL", "usage": usage}},
        )
    )


def chat() -> Reply:
    """Hugging Face's router and OpenAI: Chat Completions."""
    events = chat_events(*chat_call(0, "t1", "read", ARGUMENTS), stop="tool_calls")
    whole = [{"id": "c", "created": 1, "model": "m", "object": "chat.completion.chunk", **each} for each in events]
    return Reply(sse(*whole, done=True))


def responses() -> Reply:
    return Reply(sse(*responses_events(responses_call("t1", "read", ARGUMENTS))))


def claude() -> Reply:
    block = {"type": "tool_use", "id": "t1", "name": "read", "input": ARGUMENTS}
    return Reply(sse(*anthropic_events(block, stop="tool_use")))


def gemini() -> Reply:
    return Reply(sse(*gemini_events({"functionCall": {"name": "read", "args": ARGUMENTS}})))


ADDRESSES: dict[str, tuple[str, Callable[[], Reply], str]] = {
    CLAUDE_ON_BEDROCK: ("AWS_ENDPOINT_URL_BEDROCK_RUNTIME", bedrock, "/converse-stream"),
    "cohere:command-a-03-2025": ("CO_BASE_URL", cohere, "/v2/chat"),
    "google:gemini-4-argon": ("GOOGLE_GEMINI_BASE_URL", gemini, ":streamGenerateContent"),
    "anthropic:claude-sonnet-5-5": ("ANTHROPIC_BASE_URL", claude, "/v1/messages"),
    "openai:gpt-6.1-sol": ("OPENAI_BASE_URL", responses, "/responses"),
    "openai-chat:gpt-4.1": ("OPENAI_BASE_URL", chat, "/chat/completions"),
    "azure:gpt-4.1": ("AZURE_OPENAI_ENDPOINT", chat, "/chat/completions"),
}
"""The variable with which each SDK is sent elsewhere, the provider's answer, and how the path of the request looks."""
PROMISED = [
    *ADDRESSES,
    "huggingface:Qwen/Qwen3-235B-A22B",
    "google-cloud:gemini-4-argon",
    "openai-responses:gpt-6.1-sol",
    "bedrock-mantle:openai.gpt-oss-120b",
]


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AZURE_OPENAI_ENDPOINT", "https://mine.openai.azure.com")


@pytest.mark.parametrize("name", PROMISED)
def test_every_provider_of_the_extra_is_built_without_a_network(name: str) -> None:
    made = PydanticAIModel(describe_bridged("pydantic-ai", name), name)
    assert made.info.full_name == f"pydantic-ai/{name}"


async def check_exchange(made: PydanticAIModel, server: Server, path: str) -> None:
    message, _ = await collect(made, request("Read a.txt."))
    assert message.failure is None, (message.failure, server.seen)
    (called,) = message.tool_calls
    assert isinstance(called, ToolCall) and (called.name, dict(called.arguments)) == ("read", ARGUMENTS)
    assert message.stop == "tool_use"
    (seen,) = server.seen
    assert path in seen.target
    assert "Read a.txt." in seen.raw.decode() and "Read a file." in seen.raw.decode()


@pytest.mark.parametrize("name", ADDRESSES)
async def test_one_exchange_over_the_sdk_of_each_provider(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    variable, answer, path = ADDRESSES[name]
    async with Server(answer()) as server:
        prefix = "/v1" if variable == "OPENAI_BASE_URL" else ""
        monkeypatch.setenv(variable, server.url + prefix)
        made = PydanticAIModel(describe_bridged("pydantic-ai", name), name)
        await check_exchange(made, server, path)


async def test_one_exchange_over_hugging_faces_own_client() -> None:
    """Its address is set in code only."""
    models = importlib.import_module("pydantic_ai.models.huggingface")
    providers = importlib.import_module("pydantic_ai.providers.huggingface")
    async with Server(chat()) as server:
        provider = providers.HuggingFaceProvider(base_url=server.url, api_key="k")
        model = models.HuggingFaceModel("Qwen/Qwen3-235B-A22B", provider=provider)
        made = PydanticAIModel(describe_bridged("pydantic-ai", "huggingface:Qwen/Qwen3-235B-A22B"), model)
        await check_exchange(made, server, "/chat/completions")


async def test_a_refusal_of_bedrock_names_the_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    """botocore: an unknown key is an UnrecognizedClientException with status 403."""
    said = {"message": "The security token included in the request is invalid."}
    refusal = failing(403, said, x_amzn_errortype="UnrecognizedClientException")
    async with Server(refusal) as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL_BEDROCK_RUNTIME", server.url)
        made = PydanticAIModel(describe_bridged("pydantic-ai", CLAUDE_ON_BEDROCK), CLAUDE_ON_BEDROCK)
        message, _ = await collect(made)
    assert message.failure is not None and message.failure.kind == "authentication"
    assert "security token included in the request is invalid" in message.failure.message
    assert "AWS_PROFILE" in message.failure.remedy


async def test_no_setting_is_sent_that_the_sdk_of_a_provider_does_not_know(monkeypatch: pytest.MonkeyPatch) -> None:
    """pydantic-ai warns of such a setting on the user's terminal."""
    async with Server(bedrock()) as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL_BEDROCK_RUNTIME", server.url)
        made = PydanticAIModel(describe_bridged("pydantic-ai", CLAUDE_ON_BEDROCK), CLAUDE_ON_BEDROCK)
        # Only here: sockets that SDKs of earlier tests left are closed, with a warning, at any time.
        with warnings.catch_warnings():
            warnings.simplefilter("error", UserWarning)
            message, _ = await collect(made)
    assert message.failure is None


async def test_the_program_runs_an_agent_on_bedrock_with_the_keys_of_the_environment(tmp_path: Path) -> None:
    said = [
        event("messageStart", {"role": "assistant"}),
        event("contentBlockDelta", {"contentBlockIndex": 0, "delta": {"text": "From Bedrock."}}),
        event("contentBlockStop", {"contentBlockIndex": 0}),
        event("messageStop", {"stopReason": "end_turn"}),
    ]
    reply = Reply(said, headers={"content-type": "application/vnd.amazon.eventstream"})
    async with Server(reply) as server:
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(tmp_path),
            "RETINUE_HOME": str(tmp_path / "home"),
            "RETINUE_MODEL": f"pydantic-ai/{CLAUDE_ON_BEDROCK}",
            "AWS_ENDPOINT_URL_BEDROCK_RUNTIME": server.url,
            **{name: value for name, value in KEYS.items() if name.startswith("AWS")},
        }
        program = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "retinue", "-p", "hello"),
            cwd=tmp_path,
            env=environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, complaints = await program.communicate()
    assert (program.returncode, out.decode().strip()) == (0, "From Bedrock."), complaints.decode()
    assert "Warning" not in complaints.decode()
    assert server.seen[0].headers["authorization"].startswith("AWS4-HMAC-SHA256 Credential=k/")
