"""Learning what a server does not accept.

Models and compatible servers differ in the optional parameters they take, and new ones appear
faster than any table. When a request is refused and the refusal names an optional parameter of
it, the parameter is left out (or put the way the server wants it) and never sent again to that
model. A refusal that names nothing optional stays a failure.
"""

from __future__ import annotations

from typing import Any

_OPTIONAL = (
    "stream_options",
    "parallel_tool_calls",
    "temperature",
    "reasoning_effort",
    "reasoning",
    "include",
    "output_config",
    "thinking",
    "tool_choice",
    "thinkingConfig",
    "toolConfig",
)
_ALSO_CALLED = {
    "include": ("encrypted content", "encrypted_content"),
    "output_config": ("effort",),
    "thinkingConfig": ("thinking_config", "thinking level", "thinking_level", "thinking budget", "thinking is not"),
    "toolConfig": ("tool_config", "function_calling_config", "function calling config"),
    "tool_choice": ("tool choice",),
}


class Repairs:
    """Grows with each lesson; at most one per parameter, so repairing ends."""

    __slots__ = ("_left_out", "_renamed")

    def __init__(self) -> None:
        self._left_out: set[str] = set()
        self._renamed: dict[str, str] = {}

    def learn(self, body: dict[str, Any], refusal: str) -> bool:
        """True if the next attempt will differ."""
        said = refusal.lower()
        if "max_tokens" in body and "max_completion_tokens" in said and not self._renamed:
            self._renamed["max_tokens"] = "max_completion_tokens"
            return True
        if "max_completion_tokens" in body and "max_completion_tokens" in said and not self._renamed:
            self._renamed["max_completion_tokens"] = "max_tokens"
            return True
        for name in _OPTIONAL:
            present = name in body or name in (body.get("generationConfig") or {})
            if present and name not in self._left_out and _named(name, said):
                self._left_out.add(name)
                return True
        return False

    def apply(self, body: dict[str, Any]) -> dict[str, Any]:
        for name in self._left_out:
            body.pop(name, None)
            if "generationConfig" in body:
                body["generationConfig"].pop(name, None)
        for old, new in self._renamed.items():
            if old in body:
                body[new] = body.pop(old)
        return body


def _named(name: str, said: str) -> bool:
    plainly = name.lower() in said and name != "include"  # an English word first of all
    return plainly or any(other in said for other in _ALSO_CALLED.get(name, ()))
