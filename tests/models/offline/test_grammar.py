"""Calls in plain text: described, constrained, and read back from any stream."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retinue.core.messages import AssistantMessage, Text, ToolCall, ToolMessage, ToolResult, user
from retinue.core.tool import ToolSpec
from retinue.errors import ConfigurationError
from retinue.models.offline.engine import CallReader, call_schema, conversation, describe, grammar
from retinue.models.offline.local import read_header

PARAMETERS = {"type": "object", "properties": {"path": {"type": "string"}, "limit": {"type": "integer"}}}
TOOL = ToolSpec("read", "Reads a file.\nMore.", {**PARAMETERS, "required": ["path"]})


def stream(text: str, cuts: list[int]) -> tuple[str, Any]:
    reader, shown, last = CallReader(), "", 0
    for cut in [*sorted(min(cut, len(text)) for cut in cuts), len(text)]:
        shown += reader.feed(text[last:cut])
        last = cut
    return shown, reader.end(["read"])


@given(st.text(), st.lists(st.integers(0, 50)))
def test_no_text_is_lost_however_it_is_cut(text: str, cuts: list[int]) -> None:
    shown, rest = stream(text, cuts)
    if isinstance(rest, str):
        assert (shown + rest).strip() == text.strip()


@given(
    st.dictionaries(st.text(max_size=5), st.integers() | st.text(max_size=5), max_size=3), st.lists(st.integers(0, 80))
)
def test_a_call_is_read_back_however_it_is_cut(arguments: dict[str, Any], cuts: list[int]) -> None:
    import orjson

    text = orjson.dumps({"tool": "read", "arguments": _utf8(arguments)}).decode()
    shown, rest = stream(f"  {text}", cuts)
    assert shown == ""
    assert (rest[0], orjson.loads(rest[1])) == ("read", _utf8(arguments))


def _utf8(arguments: dict[str, Any]) -> dict[str, Any]:
    def clean(value: Any) -> Any:
        if isinstance(value, int):
            return max(-(2**53), min(2**53, value))
        return value.encode("utf-8", "replace").decode()

    return {clean(key): clean(value) for key, value in arguments.items()}


def test_an_object_that_is_no_call_is_text() -> None:
    assert stream('{"a": 1}', [])[1] == '{"a": 1}'
    assert stream('{"tool": "rm", "arguments": {}}', [])[1] == '{"tool": "rm", "arguments": {}}'


def test_tools_are_described_in_a_line_each() -> None:
    assert '- read {"path": string, "limit"?: integer}: Reads a file.' in describe([TOOL]).splitlines()


def test_a_schema_is_closed_and_names_the_tool() -> None:
    (one,) = call_schema([TOOL])["anyOf"]
    assert one["properties"]["tool"] == {"const": "read"}
    assert one["properties"]["arguments"]["additionalProperties"] is False
    assert call_schema([ToolSpec("x", "", {})])["anyOf"][0]["properties"]["arguments"]["type"] == "object"


def test_both_dialects_of_grammars_get_the_alternative_of_text() -> None:
    assert "start: call | text" in grammar([TOOL], "auto", lambda schema: "%llguidance {}\nstart: %json {}")
    assert "root ::= call | text" in grammar([TOOL], "auto", lambda schema: 'x ::= "a"\nroot ::= x')
    assert grammar([TOOL], "required", lambda schema: "root ::= x") == "root ::= x"


def test_a_conversation_has_two_speakers_in_turn() -> None:
    turns = conversation(
        "system",
        [
            user("a"),
            user("b", "steer"),
            AssistantMessage((Text("c"), ToolCall("1", "read", {"path": "x"}))),
            ToolMessage((ToolResult("1", "read", (Text("no"),), True),)),
            user("d", "wrap-up"),
            AssistantMessage(()),
        ],
    )
    assert [turn["role"] for turn in turns] == ["system", "user", "assistant", "user"]
    assert turns[2]["content"] == 'c\n{"tool":"read","arguments":{"path":"x"}}'
    assert turns[3]["content"] == "Result of read (failed):\nno\n\nd"


@given(st.binary(max_size=200))
def test_any_bytes_are_a_header_or_a_clear_refusal(data: bytes) -> None:
    import tempfile

    with tempfile.NamedTemporaryFile() as file:
        file.write(b"GGUF" + struct.pack("<I", 3) + data)
        file.flush()
        try:
            read_header(Path(file.name))
        except ConfigurationError as error:
            assert error.remedy


def test_a_header_is_read_past_its_vocabulary(tmp_path: Path) -> None:
    def text(value: str) -> bytes:
        return struct.pack("<Q", len(value.encode())) + value.encode()

    entries = [
        text("general.architecture") + struct.pack("<I", 8) + text("llama"),
        text("llama.context_length") + struct.pack("<II", 4, 4096),
        text("tokenizer.ggml.tokens") + struct.pack("<IIQ", 9, 8, 2) + text("a") + text("ß"),
        text("tokenizer.ggml.scores") + struct.pack("<IIQ", 9, 6, 2) + struct.pack("<ff", 0, 1),
        text("tokenizer.chat_template") + struct.pack("<I", 8) + text("{% if tools %}"),
    ]
    path = tmp_path / "x.gguf"
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, len(entries)) + b"".join(entries))
    header = read_header(path)
    assert (header.window, header.knows_tools) == (4096, True)
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(ConfigurationError, match="damaged"):
        read_header(path)
