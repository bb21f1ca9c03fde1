"""The updates for an editor, one function for each kind."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from msgspec import Struct

from retinue.core.format import as_sentence
from retinue.core.outcome import Outcome
from retinue.core.tool import Todo

MODELS_METHOD = "models"
"""The authentication method that every client is offered: the model that is set up."""
Update = dict[str, Any]
Speaker = Literal["user_message_chunk", "agent_message_chunk", "agent_thought_chunk"]
StopWord = Literal["end_turn", "max_tokens", "max_turn_requests", "refusal", "cancelled"]


class ClientFeatures(Struct, frozen=True):
    """The optional features that the client supports."""

    subagents: bool = False
    notices: bool = False
    compactions: bool = False
    forms: bool = False
    """Questions as forms (`elicitation/create`)."""
    terminal_login: bool = False

    @classmethod
    def read(cls, capabilities: Mapping[str, Any]) -> ClientFeatures:
        """Read `clientCapabilities`. Invalid values count as unsupported."""
        session, questions = _object(capabilities.get("session")), _object(capabilities.get("elicitation"))
        return cls(
            subagents=isinstance(capabilities.get("subagents"), dict),
            notices=isinstance(session.get("notices"), dict),
            compactions=isinstance(session.get("compaction"), dict),
            forms=isinstance(questions.get("form"), dict),
            terminal_login=_object(capabilities.get("auth")).get("terminal") is True,
        )


def _object(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def text_block(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def text_content(text: str) -> dict[str, Any]:
    """Return text as a part of a tool call."""
    return {"type": "content", "content": text_block(text)}


def message_chunk(speaker: Speaker, text: str, message_id: str | None = None) -> Update:
    update: Update = {"sessionUpdate": speaker, "content": text_block(text)}
    if message_id is not None:
        update["messageId"] = message_id
    return update


def call_changed(call_id: str, **changes: Any) -> Update:
    return {"sessionUpdate": "tool_call_update", "toolCallId": call_id, **changes}


def plan(todos: Iterable[Todo]) -> Update:
    entries = [{"content": todo.content, "priority": "medium", "status": todo.status} for todo in todos]
    return {"sessionUpdate": "plan", "entries": entries}


def usage(used: int, size: int, cost: float | None) -> Update:
    """`cost` is None if part of it is unknown."""
    update: Update = {"sessionUpdate": "usage_update", "used": used, "size": size}
    if cost is not None:
        update["cost"] = {"amount": round(cost, 6), "currency": "USD"}
    return update


def notice(severity: Literal["info", "warning", "error"], title: str) -> Update:
    return {"sessionUpdate": "notice", "severity": severity, "title": title}


def compacted(compaction_id: str) -> Update:
    return {"sessionUpdate": "compaction_update", "compactionId": compaction_id, "status": "completed"}


def subagent(child_id: str, state: Mapping[str, Any], **facts: Any) -> Update:
    """Describe a child to its parent session. Omitted fields keep their values."""
    return {"sessionUpdate": "subagent_update", "sessionId": child_id, "state": dict(state), **facts}


def mode_changed(mode: str) -> Update:
    return {"sessionUpdate": "current_mode_update", "currentModeId": mode}


def options_changed(options: Sequence[Mapping[str, Any]]) -> Update:
    return {"sessionUpdate": "config_option_update", "configOptions": list(options)}


def commands_changed(commands: Sequence[Mapping[str, Any]]) -> Update:
    return {"sessionUpdate": "available_commands_update", "availableCommands": list(commands)}


def session_info(title: str, updated_at: str) -> Update:
    return {"sessionUpdate": "session_info_update", "title": title, "updatedAt": updated_at}


def stop_word(outcome: Outcome) -> StopWord | None:
    """Return the protocol's reason why a run stopped; None if it failed."""
    if outcome.failure is not None and outcome.failure.kind == "refused":
        return "refusal"
    if outcome.ok:
        return "max_tokens" if outcome.truncated else "end_turn"
    if outcome.ended == "stopped":
        return "cancelled"
    if outcome.ended in ("aborted", "timeout", "over-budget"):
        return "max_turn_requests"
    return None


def failure_text(outcome: Outcome) -> str:
    """Return the failure of a run and its remedy."""
    message, remedy = f"The run ended as {outcome.ended}.", ""
    if outcome.failure is not None:
        message, remedy = outcome.failure.message or message, outcome.failure.remedy
    return f"{as_sentence(message)} {remedy}".strip()
