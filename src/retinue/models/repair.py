"""Learning what a server does not accept.

Models and compatible servers differ in the optional parameters they take and in their values, and
new ones appear faster than any table. When a request is refused and the refusal names an optional
parameter of it, a refused *value* steps to the nearest one that is supported, and a refused
*parameter* is left out. That holds for one run and model, and is said; only what concerns the
shape of requests, never their meaning, is shared by all runs. A refusal that names nothing
optional stays a failure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, NamedTuple

from retinue.models.draft import parse_event
from retinue.models.efforts import ORDER, nearest

_OPTIONAL = (
    "stream_options",
    "parallel_tool_calls",
    "prompt_cache_key",
    "temperature",
    "reasoning_effort",
    "reasoning",
    "include",
    "output_config",
    "thinking",
    "chat_template_kwargs",
    "enable_thinking",
    "tool_choice",
    "thinkingConfig",
    "toolConfig",
)
_STRUCTURAL = frozenset({"stream_options", "parallel_tool_calls", "prompt_cache_key", "max_tokens"})
"""What says nothing about the answer: one run may learn it for all."""
_ALSO_CALLED = {
    "include": ("reasoning.encrypted_content", "encrypted content is not supported"),
    "output_config": ("effort",),
    "thinkingConfig": ("thinking_config", "thinking level", "thinking_level", "thinking budget", "thinking is not"),
    "toolConfig": ("tool_config", "function_calling_config", "function calling config"),
    "tool_choice": ("tool choice",),
}
_OBJECTIONS = (
    r"not (?:be )?(?:\w+ )?(?:support|allow|permit|accept|recogni|valid|compatible)|unsupported|unknown|unrecogni"
    r"|invalid|unexpected|mandatory|does not|doesn't|cannot|can't|extra inputs|deprecated|must be|should be"
    r"|only .*support"
)
_EFFORTS = (("reasoning_effort",), ("reasoning", "effort"), ("output_config", "effort"))
_USUAL = frozenset({"low", "medium", "high"})
"""What is tried when a refusal does not say which values are supported."""
_GEMINI_LEVEL = ("generationConfig", "thinkingConfig", "thinkingLevel")


class RequestRefusal(NamedTuple):
    """`param` is the field that the server itself names, where it does."""

    message: str
    param: str = ""
    code: str = ""

    @property
    def said(self) -> str:
        return f"{self.message} {self.code}".rstrip().lower()


def read_refusal(body: bytes, message: str) -> RequestRefusal:
    """Return what an error body says. `message` stands in for a body that cannot be read."""
    try:
        data: Any = parse_event(body)
    except ValueError:
        return RequestRefusal(message)
    if isinstance(data, list) and data:
        data = data[0]
    error = None
    if isinstance(data, dict):
        error = data.get("error", data)
    if not isinstance(error, dict):
        return RequestRefusal(message)
    said = error.get("message") or error.get("detail") or message
    param, code = error.get("param"), error.get("code")
    return RequestRefusal(str(said), param if isinstance(param, str) else "", code if isinstance(code, str) else "")


class SharedLessons:
    """What all models over one transport learned of one server's requests."""

    __slots__ = ("left_out", "renamed")

    def __init__(self) -> None:
        self.left_out: set[str] = set()
        self.renamed: dict[str, str] = {}


class Repairs:
    """Grows with each lesson; each parameter and value teaches once, so repairing ends. `said`
    collects what people should know."""

    __slots__ = ("_left_out", "_refused", "_shared", "_steps", "said")

    def __init__(self, shared: SharedLessons | None = None) -> None:
        self._shared = shared or SharedLessons()
        self._left_out: set[str] = set()
        self._steps: dict[tuple[str, ...], dict[str, str]] = {}
        self._refused: dict[tuple[str, ...], set[str]] = {}
        self.said: list[str] = []

    def learn(self, body: dict[str, Any], refusal: RequestRefusal) -> bool:
        """Return whether the next attempt will differ."""
        return self._rename(body, refusal.said) or self._step(body, refusal) or self._leave_out(body, refusal)

    def apply(self, body: dict[str, Any]) -> dict[str, Any]:
        for place, steps in self._steps.items():
            holder = _holder(body, place)
            if holder is not None and str(holder[place[-1]]).lower() in steps:
                value = steps[str(holder[place[-1]]).lower()]
                holder[place[-1]] = value.upper() if place == _GEMINI_LEVEL else value
        for name in (*self._left_out, *self._shared.left_out):
            body.pop(name, None)
            if "generationConfig" in body:
                body["generationConfig"].pop(name, None)
        for old, new in self._shared.renamed.items():
            if old in body:
                body[new] = body.pop(old)
        return body

    def _rename(self, body: dict[str, Any], said: str) -> bool:
        if "max_completion_tokens" not in said or self._shared.renamed:
            return False
        for old, new in (("max_tokens", "max_completion_tokens"), ("max_completion_tokens", "max_tokens")):
            if old in body:
                self._shared.renamed[old] = new
                return True
        return False

    # ---------------------------------------------------------------- values
    def _step(self, body: dict[str, Any], refusal: RequestRefusal) -> bool:
        """Replace an effort that the model does not have by the nearest one it has."""
        for place in (*_EFFORTS, _GEMINI_LEVEL):
            holder = _holder(body, place)
            if holder is None or not _about_value(place, str(holder[place[-1]]), refusal):
                continue
            value = str(holder[place[-1]]).lower()
            refused = self._refused.setdefault(place, set())
            if value in refused:
                return False
            refused.add(value)
            offered = _list_supported(refusal.said) or _USUAL
            other = nearest(offered - refused, value)
            if other is None:
                return False
            steps = self._steps.setdefault(place, {})
            for before, after in steps.items():
                if after == value:
                    steps[before] = other
            steps[value] = other
            self.said.append(f"does not take the thinking effort '{value}': '{other}' is used")
            return True
        return False

    # ---------------------------------------------------------------- parameters
    def _leave_out(self, body: dict[str, Any], refusal: RequestRefusal) -> bool:
        for name in _OPTIONAL:
            present = name in body or name in (body.get("generationConfig") or {})
            if not present or name in self._left_out or not _objects_to(name, refusal):
                continue
            if name in _STRUCTURAL:
                self._shared.left_out.add(name)
            else:
                self.said.append(f"does not take '{name}': it is left out")
            self._left_out.add(name)
            return True
        return False


def _holder(body: dict[str, Any], place: Iterable[str]) -> dict[str, Any] | None:
    """Return the object that holds the last name of `place`, if it is there."""
    *path, last = place
    found: Any = body
    for name in path:
        found = found.get(name) if isinstance(found, dict) else None
    if isinstance(found, dict) and last in found:
        return found
    return None


def _about_value(place: tuple[str, ...], value: str, refusal: RequestRefusal) -> bool:
    """Return whether a refusal is about the value at `place`, not about the field as such. OpenAI:
    "Unsupported value: 'none' is not supported with the 'gpt-6.1-sol' model", `param`
    reasoning.effort (codex#6647); OpenRouter: "Reasoning is mandatory for this endpoint"."""
    said = refusal.said
    if refusal.param and _plain(refusal.param) == _plain(".".join(place)):
        return "value" in said or bool(_list_supported(said)) or _is_quoted(value.lower(), said)
    if value == "none" and "reasoning is mandatory" in said:
        return True
    words = ("effort", "reasoning", "thinking")
    return (
        any(word in said for word in words) and _is_quoted(value.lower(), said) and bool(re.search(_OBJECTIONS, said))
    )


def _is_quoted(value: str, said: str) -> bool:
    return re.search(rf"['\"`]{re.escape(value)}['\"`]", said) is not None


def _list_supported(said: str) -> frozenset[str]:
    """Return the values that a refusal lists: "Supported values are: 'low', 'medium', and 'high'."."""
    found = re.search(
        r"(?:supported values|supported efforts|one of|please use|expected|allowed values)(.{0,160})", said
    )
    if found is None:
        return frozenset()
    return frozenset(ORDER).intersection(re.findall(r"[a-z]+", found[1]))


def _objects_to(name: str, refusal: RequestRefusal) -> bool:
    """Return whether a refusal objects to a parameter. Words of plain English count only as the name of
    a field, or the talk of a model would cost it its thinking."""
    if refusal.param:
        first = re.split(r"[.\[]", refusal.param)[0]
        if _plain(first) == _plain(name):
            return True
    said = refusal.said
    if not re.search(_OBJECTIONS, said):
        return False
    if any(other in said for other in _ALSO_CALLED.get(name, ())):
        return True
    if name in ("include", "reasoning", "thinking"):
        field = rf"(?:['\"`]{name}[\w.\[\]]*['\"`]|\b{name}[.:\[]|parameters?:? {name}\b|\b{name} parameter|^{name}\b)"
        return re.search(field, said) is not None
    return _plain(name) in _plain(said)


def _plain(text: str) -> str:
    """`reasoning_effort`, `reasoningEffort` and `reasoning.effort` are one name."""
    return re.sub(r"[^a-z0-9 ]", "", text.lower())
