"""The conversation of a run, and the facts behind the messages that the harness writes for a model.

Every class has a tag, so that its JSON names its type and is read back as the same class. Content is always a tuple:
messages are values. The text of a notification is for the model and for people; the program reads its `notice`, and
never the text.
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
    """How one background run ended, as its parent was told. `result` is the beginning of its answer, `label` its status
    in words. `tokens` is None where nobody counted them."""

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
    """`partial`: other runs of the group are still at work."""

    endings: tuple[ChildEnding, ...]
    group: bool = False
    partial: bool = False


class ChildAsked(Tagged, frozen=True, tag="child_asked"):
    """The run `run_id` asks its parent a question. `agent` is its name and what it works on."""

    run_id: str
    agent: str
    question: str
    options: tuple[str, ...] = ()


class ModeNotice(Tagged, frozen=True, tag="mode"):
    """A person has switched the run to plan mode or out of it."""

    mode: PermissionMode


Notice = ChildrenEnded | ChildAsked | ModeNotice


StopReason = Literal["end", "tool_use", "length", "refusal", "error", "aborted"]
Origin = Literal["task", "steer", "follow-up", "wrap-up", "correction", "summary", "notification", "context"]


class Text(Tagged, frozen=True, tag="text"):
    """`signature` is provider data that came with the text and goes back with it, unchanged
    (Gemini's thought signature, the phase of an OpenAI message); None for everyone else."""

    text: str
    signature: str | None = None


class Image(Tagged, frozen=True, tag="image"):
    """`data` is base64 text, as every wire format wants it."""

    media_type: str
    data: str


class Document(Tagged, frozen=True, tag="document"):
    """A PDF, for models that read such files themselves. `data` is base64 text, `name` the file's
    name; `pages` is 0 where the file does not tell."""

    media_type: str
    data: str
    name: str
    pages: int = 0


Content = Text | Image | Document
"""The content of messages from people and tools."""


class Thinking(Tagged, frozen=True, tag="thinking"):
    """A reasoning block. `signature` (or `redacted` data) goes back to the provider intact,
    and only to the provider that made it."""

    text: str
    signature: str | None = None
    redacted: str | None = None
    provider: str = ""


class ToolCall(Tagged, frozen=True, tag="tool_call"):
    """`broken` holds the raw text when the arguments were not a JSON object; such a call is
    never run, the model is told instead. `signature` is provider data that must be returned."""

    id: str
    name: str
    arguments: Mapping[str, Any]
    broken: str | None = None
    signature: str | None = None


def text_of(content: Iterable[object]) -> str:
    return "\n".join(part.text for part in content if isinstance(part, Text))


class ToolResult(Tagged, frozen=True, tag="tool_result"):
    call_id: str
    name: str
    content: tuple[Content, ...]
    is_error: bool = False

    @property
    def text(self) -> str:
        return text_of(self.content)


class UserMessage(Tagged, frozen=True, tag="user"):
    """`origin` says who spoke: compaction keeps the task, replays skip nothing else by it."""

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
        return tuple(part for part in self.content if isinstance(part, ToolCall))


class ToolMessage(Tagged, frozen=True, tag="tool"):
    """The results of one assistant message, complete and in call order."""

    results: tuple[ToolResult, ...]


Message = UserMessage | AssistantMessage | ToolMessage


def user(text: str, origin: Origin = "task", images: Sequence[Image] = ()) -> UserMessage:
    return UserMessage((Text(text), *images), origin)


def notification(text: str, notice: Notice) -> UserMessage:
    """Return a message of the harness with the facts that it tells."""
    return UserMessage((Text(text),), "notification", notice)
