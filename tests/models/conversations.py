"""Conversations of every kind that a run can send, for checking request bodies."""

from __future__ import annotations

from retinue.core.messages import (
    AssistantMessage,
    Document,
    Image,
    Text,
    Thinking,
    ToolCall,
    ToolMessage,
    ToolResult,
    UserMessage,
    user,
)
from retinue.core.tool import ToolSpec
from retinue.testing import ModelRequest
from tests.models.scripts import GREP, IDS, READ, request

PICTURE = Image("image/png", "iVBORw0KGgo=")
PAPER = Document("application/pdf", "JVBERi0xLjQ=", "paper.pdf", 1)
SIGNATURES = {
    "anthropic": "EqQBCkYIAR==",
    "openai-responses": '{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"gAAA"}',
}
PLAIN = ToolSpec("now", "The time.", {"type": "object", "properties": {}})
NESTED = ToolSpec(
    "plan",
    "Make a plan.",
    {
        "type": "object",
        "properties": {
            "steps": {"type": "array", "items": {"$ref": "#/$defs/step"}, "minItems": 1},
            "mode": {"enum": ["fast", "slow"], "default": "fast"},
            "limit": {"type": ["integer", "null"], "minimum": 0},
        },
        "required": ["steps"],
        "$defs": {"step": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}},
        "additionalProperties": False,
    },
)


def conversations(provider: str) -> dict[str, ModelRequest]:
    """By name; the assistant's messages are this provider's own, with its signatures."""
    name = f"{provider}/{IDS[provider]}"
    signature = SIGNATURES.get(provider)
    thinking = Thinking("Let me think.", signature, provider=provider)
    calls = (
        ToolCall("call_1", "read", {"path": "ä.py"}, signature="U0lH" if provider == "gemini" else None),
        ToolCall("call_2", "grep", {"pattern": "x", "deep": {"list": [1, None, True]}}),
    )
    worked = AssistantMessage((thinking, Text("Looking."), *calls), "tool_use", model=name)
    results = ToolMessage(
        (
            ToolResult("call_1", "read", (Text("content"),)),
            ToolResult("call_2", "grep", (Text("No such file."),), is_error=True),
        )
    )
    pictures = ToolMessage(
        (ToolResult("call_1", "read", (Text("a picture"), PICTURE)), ToolResult("call_2", "grep", ()))
    )
    papers = ToolMessage(
        (
            ToolResult("call_1", "read", (Text("a paper"), PAPER)),
            ToolResult("call_2", "grep", (Text("failed"), PAPER), is_error=True),
        )
    )
    answered = AssistantMessage(
        (Text("Done.", "final_answer" if provider == "openai-responses" else None),), model=name
    )
    redacted = AssistantMessage(
        (Thinking("", None, "OPAQUE", provider), thinking, ToolCall("call_1", "read", {})), model=name
    )
    foreign = AssistantMessage(
        (Thinking("x", "sig", provider="other"), Text("Hm."), ToolCall("call 1:☃", "read", {}, broken="{")),
        model="other/m",
    )
    one = ToolMessage((ToolResult("call_1", "read", (Text("r"),)),))
    return {
        "hello": request("Hello"),
        "bare": request("Hello", system="", tools=()),
        "images": request(UserMessage((Text("What is this?"), PICTURE, PICTURE))),
        "tools": request("Go", tools=(READ, GREP, PLAIN, NESTED), tool_choice="required"),
        "no tools now": request("Go", tool_choice="none"),
        "limits": request("Go", max_output=1000, temperature=0.5),
        **{f"thinking {level}": request("Go", thinking=level) for level in ("off", "minimal", "low", "high", "max")},
        "parallel results": request(user("Go"), worked, results, thinking="high"),
        "documents": request(UserMessage((Text("Read this."), PAPER)), worked, papers),
        "pictures from tools": request(user("Go"), worked, pictures),
        "steered": request(user("Go"), worked, results, user("Only src/", "steer"), user("And hurry", "steer")),
        "redacted": request(user("Go"), redacted, one, thinking="medium"),
        "follow-up": request(user("Go"), worked, results, answered, user("More", "follow-up")),
        "another model's work": request(
            user("Go"), foreign, ToolMessage((ToolResult("call 1:☃", "read", (Text("r"),)),)), thinking="low"
        ),
        "after a failure": request(
            user("Go"), AssistantMessage((Text("Half"), thinking), "error", model=name), user("Go on", "correction")
        ),
    }
