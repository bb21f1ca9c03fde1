"""A model encodes each message of a conversation once. The request is the same as that of a model that never saw the
conversation before."""

from __future__ import annotations

from typing import Any

import pytest

from retinue.core.messages import AssistantMessage, Text, ToolCall, ToolMessage, ToolResult, user
from tests.models.scripts import model, request

FIRST, SUMMARY = user("Read a.txt and b.txt."), user("Earlier: a.txt was read.", "summary")
CALL = AssistantMessage((Text("I look."), ToolCall("call_1", "read", {"path": "a.txt"})), "tool_use", model="x/y")
RESULT = ToolMessage((ToolResult("call_1", "read", (Text("alpha"),)),))
HINT = user("Also c.txt.", "steer")
ANSWER = AssistantMessage((Text("Done."),), model="x/y")
AGAIN = user("Once more.", "follow-up")
CONVERSATIONS = [
    (FIRST,),
    (FIRST, CALL, RESULT),
    (FIRST, CALL, RESULT, HINT),
    (FIRST, CALL, RESULT, HINT, ANSWER, AGAIN),
    (SUMMARY, HINT, ANSWER, AGAIN),
    (SUMMARY, HINT),
    (FIRST,),
]


@pytest.mark.parametrize("provider", ["anthropic", "gemini", "openai", "openai-responses"])
def test_requests_of_one_conversation_equal_those_of_new_models(provider: str) -> None:
    lasting: Any = model(provider, "http://x")
    for messages in CONVERSATIONS:
        fresh: Any = model(provider, "http://x")
        assert lasting.body(request(*messages)) == fresh.body(request(*messages))
