"""How a server differs from the one whose format it speaks: the `quirks` of a provider entry."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, fields
from typing import Any, Self

from retinue.core.lean import dataclass
from retinue.errors import ConfigurationError


@dataclass(frozen=True, slots=True, kw_only=True)
class Quirks:
    """Nothing set means: as the format's maker does it. In settings the names may be written
    in camelCase."""

    auth: str | None = None
    """Which header carries the key: `bearer`, a header's name, or `none`."""
    stream_usage: bool = True
    """False: the server does not know `stream_options`."""
    parallel_tool_calls: bool | None = None
    """Sent when set; False asks for one call at a time."""
    max_tokens_key: str | None = None
    """`max_tokens` or `max_completion_tokens`."""
    system_role: str | None = None
    """`system`, `developer` or `user`."""
    reasoning_effort: bool | None = None
    """Whether the server takes a thinking effort; None: if the model is known to think."""
    reasoning_field: str | None = None
    """The field in which thinking is sent back, such as `reasoning_content` (DeepSeek) or
    `reasoning_details` (OpenRouter). None: thinking is not sent back."""
    reasoning_required: bool = False
    """Every turn with tool calls carries the reasoning field, empty where nothing was thought."""
    assistant_after_tools: bool = False
    """A turn of the assistant must stand between a tool's result and the user's words."""
    call_id_length: int = 0
    """Tool call ids have exactly so many letters and digits; 0: as they are."""
    thinking: str | None = None
    """Anthropic format: `budget`, `adaptive` or `none`."""
    temperature: bool = True
    """False: the server refuses sampling parameters."""
    cache_control: bool | None = None
    """Whether cache marks are sent. None: in the Anthropic format, and through OpenRouter to
    Claude and Gemini."""
    cache_ttl: str | None = None
    """How long what is marked stays in the cache: `5m` or `1h`, whose writing costs more. None: an
    hour for a run that has started agents and waits for them, else five minutes."""
    cache_key: bool | None = None
    """Whether `prompt_cache_key` is sent. None: to OpenAI and Azure."""
    documents: str | None = None
    """Chat format: how a PDF is sent, `file` (OpenAI, OpenRouter) or `document_url` (Mistral).
    None: as text. Other formats send it as their makers document."""
    extra_body: Mapping[str, Any] = field(default_factory=dict)
    """Merged into every request."""
    query: Mapping[str, str] = field(default_factory=dict)
    """Parameters of the URL, such as Azure's `api-version`."""

    @classmethod
    def of(cls, value: Quirks | Mapping[str, Any] | None) -> Quirks:
        """Raises ConfigurationError for a name or a value that means nothing."""
        if isinstance(value, Quirks):
            return value
        return cls._read(value) if value else cls()

    @classmethod
    def _read(cls, data: Mapping[str, Any]) -> Self:
        known = {f.name: f for f in fields(cls)}
        given: dict[str, Any] = {}
        for key, value in data.items():
            name = "".join(f"_{c.lower()}" if c.isupper() else c for c in str(key)).replace("-", "_")
            if name not in known:
                names = ", ".join(known)
                raise ConfigurationError(f"There is no quirk '{key}'.", remedy=f"Known: {names}.")
            if value is None:
                continue
            wanted = _wanted(str(known[name].type))
            if not isinstance(value, wanted):
                raise ConfigurationError(f"The quirk '{key}' cannot be {value!r}.", remedy=f"Use {_NAMES[wanted]}.")
            given[name] = value
        return cls(**given)


_NAMES: dict[type, str] = {bool: "true or false", str: "a text", int: "a whole number", Mapping: "an object"}


def _wanted(annotation: str) -> type:
    if annotation.startswith("Mapping"):
        return Mapping
    if annotation.startswith("int"):
        return int
    return bool if annotation.startswith("bool") else str
