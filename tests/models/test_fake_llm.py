"""All four formats against the project's shared scripted server, where it is present."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from retinue.core.events import Retrying as RetryingEvent
from retinue.core.messages import AssistantMessage, Message, Text, ToolMessage, ToolResult, user
from retinue.http.transport import Transport
from retinue.models.retry import RetryingModel
from retinue.testing import Finished, Model, Part
from tests.models.scripts import FORMATS, collect, request, shared_model

SERVER = Path(__file__).parents[3] / "shared" / "bench" / "fake_llm.py"
pytestmark = [
    pytest.mark.skipif(not SERVER.is_file(), reason="the shared benchmark server is not here"),
    pytest.mark.parametrize("provider", FORMATS),
]


@pytest.fixture
async def url() -> AsyncIterator[str]:
    process = await asyncio.create_subprocess_exec(sys.executable, str(SERVER), stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    line = await asyncio.wait_for(process.stdout.readline(), 30)
    try:
        yield f"http://127.0.0.1:{int(line.split()[1])}"
    finally:
        process.kill()
        await process.wait()


async def work(made: Model, task: str) -> tuple[list[AssistantMessage], list[Part]]:
    """A loop as small as it can be: every call is answered, until there is none."""
    messages: list[Message] = [user(task)]
    answers: list[AssistantMessage] = []
    parts: list[Part] = []
    while not answers or answers[-1].tool_calls:
        parts += [part async for part in made.stream(request(*messages))]
        assert isinstance(parts[-1], Finished)
        answers.append(parts[-1].message)
        calls = answers[-1].tool_calls
        messages += [answers[-1], ToolMessage(tuple(ToolResult(c.id, c.name, (Text("content"),)) for c in calls))]
    return answers, parts


async def test_five_turns_of_tool_use(provider: str, url: str) -> None:
    transport = Transport()
    answers, _ = await work(shared_model(provider, url, transport), "SCENARIO loop T=5 CHUNKS=20")
    await transport.close()
    assert len(answers) == 6 and answers[-1].text.endswith("BENCH-DONE loop 5")
    assert all(answer.failure is None and answer.usage.input > 0 for answer in answers)
    assert [answer.tool_calls[0].name for answer in answers[:-1]] == ["read"] * 5
    assert answers[0].text.startswith("tok0 tok1 ")


@pytest.mark.parametrize("fault", ["529:2:2", "500:1:1", "429:0:1", "drop:2:1", "rst:0:2"])
async def test_faults_are_survived(provider: str, url: str, fault: str) -> None:
    async def no_sleep(_: float) -> None:
        return None

    transport = Transport()
    made = RetryingModel(shared_model(provider, url, transport), sleep=no_sleep)
    answers, parts = await work(made, f"SCENARIO loop T=3 MFAULT={fault}")
    await transport.close()
    assert answers[-1].text.endswith("BENCH-DONE loop 3") and len(answers) == 4
    assert all(answer.failure is None for answer in answers)
    retried = [part for part in parts if isinstance(part, RetryingEvent)]
    assert len(retried) == int(fault.rpartition(":")[2])


@pytest.mark.parametrize("fault", ["badjson", "empty"])
async def test_answers_that_are_wrong_are_data(provider: str, url: str, fault: str) -> None:
    transport = Transport()
    asked = request(f"SCENARIO loop T=3 MFAULT={fault}:0:1")
    message, _ = await collect(shared_model(provider, url, transport), asked)
    await transport.close()
    if fault == "empty":
        assert (message.content, message.stop) == ((), "end")
    elif provider != "gemini":  # whose arguments are objects, never text
        assert message.tool_calls[0].broken == '{"file_path": "/us'
