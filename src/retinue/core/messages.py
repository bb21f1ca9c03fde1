"""The conversation of a run, and the facts behind the notifications that a model receives.

Every class has a tag, so that its JSON names its type and is read back as the same class. Content is always a tuple:
messages are values. The text of a notification is for the model and for people; the program only reads its `notice`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType

from retinue.core.delegation import Status
from retinue.core.outcome import Failure
from retinue.core.spec import PermissionMode
from retinue.core.usage import NOTHING, Usage
from retinue.core.value import Tagged


class ChildEnding(Struct, frozen=True, omit_defaults=True):
    """The end of a background run in a notification. `result` is the beginning of its answer, `label` its status in
    words. `tokens` is None if the number is not known."""

    id: str
    status: Status
    label: str
    description: str
    result: str = ""
    truncated: bool = False
    stopped_by_person: bool = False
    transcript: str = ""
    branch: str = ""
    notes: tuple[str, ...] = ()
    tool_uses: int = 0
    tokens: int | None = None
    duration_ms: int = 0


class ChildrenEnded(Tagged, frozen=True, tag="children_ended"):
    """Background runs have ended. `partial`: other runs of the group are still running."""

    endings: tuple[ChildEnding, ...]
    group: bool = False
    partial: bool = False


class ChildAsked(Tagged, frozen=True, tag="child_asked"):
    """The run `run_id` asks its parent a question. `agent` is its name and task in a few words."""

    run_id: str
    agent: str
    question: str
    options: tuple[str, ...] = ()


class ModeNotice(Tagged, frozen=True, tag="mode"):
    """A person has switched plan mode on or off."""

    mode: PermissionMode


Notice = ChildrenEnded | ChildAsked | ModeNotice


StopReason = Literal["end", "tool_use", "length", "refusal", "error", "aborted"]
Origin = Literal["task", "steer", "follow-up", "wrap-up", "correction", "summary", "notification", "context"]


class Text(Tagged, frozen=True, tag="text"):
    """A text. `signature` is data of the provider that goes back with it unchanged (Gemini's thought signature, the
    phase of an OpenAI message)."""

    text: str
    signature: str | None = None


class Image(Tagged, frozen=True, tag="image"):
    """An image. `data` is base64 text, as all wire formats require."""

    media_type: str
    data: str


class Document(Tagged, frozen=True, tag="document"):
    """A PDF, for models that accept such files. `data` is base64 text, `name` the file's name. `pages` is 0 if the file
    does not state the number."""

    media_type: str
    data: str
    name: str
    pages: int = 0


Content = Text | Image | Document
"""The content of messages from people and tools."""


class Thinking(Tagged, frozen=True, tag="thinking"):
    """A block of reasoning. `signature` (or `redacted` data) goes back unchanged, and only to the provider that made
    it."""

    text: str
    signature: str | None = None
    redacted: str | None = None
    provider: str = ""


class ToolCall(Tagged, frozen=True, tag="tool_call"):
    """A call of a tool. `broken` is the raw text of arguments that are not a JSON object; such a call is not run, and
    the model is told so. `signature` is data of the provider that must be returned."""

    id: str
    name: str
    arguments: Mapping[str, Any]
    broken: str | None = None
    signature: str | None = None


def text_of(content: Iterable[object]) -> str:
    """Return the texts in the content of a message, one a line."""
    return "\n".join(block.text for block in content if isinstance(block, Text))


class ToolResult(Tagged, frozen=True, tag="tool_result"):
    call_id: str
    name: str
    content: tuple[Content, ...]
    is_error: bool = False

    @property
    def text(self) -> str:
        return text_of(self.content)


class UserMessage(Tagged, frozen=True, tag="user"):
    """A message to the model. `origin` is its source; compaction keeps the task."""

    content: tuple[Content, ...]
    origin: Origin = "task"
    notice: Notice | UnsetType = UNSET
    """The facts of a notification that the program reads again."""

    @property
    def text(self) -> str:
        return text_of(self.content)


class AssistantMessage(Tagged, frozen=True, tag="assistant"):
    content: tuple[Text | Thinking | ToolCall, ...]
    stop: StopReason = "end"
    usage: Usage = NOTHING
    model: str = ""
    failure: Failure | None = None

    @property
    def text(self) -> str:
        return text_of(self.content)

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        return tuple(block for block in self.content if isinstance(block, ToolCall))


class ToolMessage(Tagged, frozen=True, tag="tool"):
    """The results of one assistant message, complete and in call order."""

    results: tuple[ToolResult, ...]


Message = UserMessage | AssistantMessage | ToolMessage


def user(text: str, origin: Origin = "task", images: Sequence[Image] = ()) -> UserMessage:
    return UserMessage((Text(text), *images), origin)


def notification(text: str, notice: Notice) -> UserMessage:
    """Return a message of Retinue itself, with its facts."""
    return UserMessage((Text(text),), "notification", notice)
