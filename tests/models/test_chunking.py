"""However the network cuts an answer, the message is the same."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retinue.core.messages import AssistantMessage
from retinue.http.transport import Events, Transport
from retinue.models.draft import MessageDraft
from retinue.models.wire import absorb, absorb_rest
from tests.http.test_sse import cut
from tests.models.scripts import (
    FORMATS,
    anthropic_events,
    chat_call,
    chat_events,
    gemini_events,
    info,
    responses_call,
    responses_events,
    responses_reasoning,
    responses_text,
    shared_model,
)
from tests.models.servers import sse

WORDS = "Grüße aus Köln 🎉 — 日本語 \u202e e\u0301"
ANSWERS: dict[str, list[bytes]] = {
    "anthropic": sse(
        *anthropic_events(
            {"type": "thinking", "thinking": WORDS, "signature": "SIG"},
            {"type": "text", "text": WORDS},
            {"type": "tool_use", "id": "t", "name": "read", "input": {"path": WORDS}},
            stop="tool_use",
        )
    ),
    "openai": sse(
        *chat_events({"reasoning_content": WORDS}, {"content": WORDS}, *chat_call(0, "c", "read", {"path": WORDS})),
        done=True,
    ),
    "openai-responses": sse(
        *responses_events(
            responses_reasoning(WORDS, "ENC"), responses_text(WORDS), responses_call("c", "read", {"path": WORDS})
        )
    ),
    "gemini": sse(
        *gemini_events(
            {"text": WORDS, "thought": True},
            {"text": WORDS},
            {"functionCall": {"name": "read", "args": {"path": WORDS}, "id": "f"}, "thoughtSignature": "S"},
        )
    ),
}


def read(provider: str, pieces: list[bytes]) -> AssistantMessage:
    """The same steps as over the network, without it."""
    draft = MessageDraft(info(provider))
    reader, events = shared_model(provider, "http://x", Transport()).reader(draft), Events()
    for piece in pieces:
        if absorb(events.feed(piece), reader, draft):
            break
        draft.shown()
    else:
        absorb_rest(events, reader, draft)
    return draft.finished().message


@pytest.mark.parametrize("provider", FORMATS)
@pytest.mark.parametrize("crlf", [False, True])
@settings(max_examples=40, deadline=None)
@given(places=st.lists(st.integers(0, 6000), max_size=60))
def test_cutting_the_bytes_never_changes_the_message(provider: str, crlf: bool, places: list[int]) -> None:
    data = b"".join(ANSWERS[provider])
    if crlf:
        data = data.replace(b"\n", b"\r\n")
    whole = read(provider, [data])
    assert whole.text == WORDS and whole.tool_calls[0].arguments == {"path": WORDS}
    assert read(provider, cut(data, places)) == whole


@pytest.mark.parametrize("provider", FORMATS)
@settings(max_examples=60, deadline=None)
@given(length=st.integers(0, 6000))
def test_an_answer_that_ends_early_is_never_taken_for_a_whole_one(provider: str, length: int) -> None:
    """Cut anywhere before its end mark, the message fails and keeps a prefix of the text."""
    data = b"".join(ANSWERS[provider])
    message = read(provider, [data[:length]])
    whole: Any = read(provider, [data])
    if message.stop == "error":
        assert message.failure is not None and message.failure.kind == "dropped"
        assert whole.text.startswith(message.text) and not message.tool_calls
    else:
        assert message.content == whole.content
