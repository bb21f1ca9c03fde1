"""Model servers that need no description: their address, key variable, wire format and quirks.

`{"ollama": {}}` under `providers` in settings, or just a model named `ollama/…`, is enough. `Quirks`
say how a server differs from the one whose format it speaks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, Self

from msgspec import Struct, field

from retinue.errors import ConfigurationError


class Quirks(Struct, frozen=True, kw_only=True):
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
        """Raise ConfigurationError for a name or a value that means nothing."""
        if isinstance(value, Quirks):
            return value
        if value:
            return cls._read(value)
        return cls()

    @classmethod
    def _read(cls, data: Mapping[str, Any]) -> Self:
        known = cls.__annotations__
        given: dict[str, Any] = {}
        for key, value in data.items():
            name = "".join(f"_{c.lower()}" if c.isupper() else c for c in str(key)).replace("-", "_")
            if name not in known:
                names = ", ".join(known)
                raise ConfigurationError(f"There is no quirk '{key}'.", remedy=f"Known: {names}.")
            if value is None:
                continue
            wanted = _wanted_type(str(known[name]))
            if not isinstance(value, wanted):
                raise ConfigurationError(f"The quirk '{key}' cannot be {value!r}.", remedy=f"Use {_NAMES[wanted]}.")
            given[name] = value
        return cls(**given)


_NAMES: dict[type, str] = {bool: "true or false", str: "a text", int: "a whole number", Mapping: "an object"}


def _wanted_type(annotation: str) -> type:
    if annotation.startswith("Mapping"):
        return Mapping
    if annotation.startswith("int"):
        return int
    if annotation.startswith("bool"):
        return bool
    return str


Api = Literal["anthropic", "openai", "openai-responses", "gemini", "embedded"]


class Preset(NamedTuple):
    """`keys` and `urls` are environment variables, the first that is set counts. `needs_key` is
    False for servers that people run themselves."""

    api: Api
    url: str
    keys: tuple[str, ...] = ()
    urls: tuple[str, ...] = ()
    needs_key: bool = True
    quirks: Mapping[str, Any] = {}


BUILT_IN: dict[str, Preset] = {
    "anthropic": Preset(
        "anthropic",
        "https://api.anthropic.com",
        ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"),
        ("ANTHROPIC_BASE_URL",),
    ),
    "openai": Preset(
        "openai", "https://api.openai.com/v1", ("OPENAI_API_KEY",), ("OPENAI_BASE_URL",), quirks={"documents": "file"}
    ),
    "openai-responses": Preset(
        "openai-responses", "https://api.openai.com/v1", ("OPENAI_API_KEY",), ("OPENAI_BASE_URL",)
    ),
    "gemini": Preset(
        "gemini",
        "https://generativelanguage.googleapis.com",
        ("GEMINI_API_KEY", "GOOGLE_API_KEY"),
        ("GEMINI_BASE_URL", "GOOGLE_GEMINI_BASE_URL"),
    ),
}

# api-docs.deepseek.com/guides/thinking_mode: "The `reasoning_content` in the thinking mode must be passed back";
# Kimi: "thinking is enabled but reasoning_content is missing in assistant tool call message" (openclaw#73417).
_REQUIRED = {"reasoning_field": "reasoning_content", "reasoning_required": True}
# docs.z.ai preserved thinking: returned where there is any.
_CONTENT = {"reasoning_field": "reasoning_content"}
# openrouter.ai/docs reasoning tokens: the details go back as they came.
# openrouter.ai/docs "PDF inputs": a `file` part.
_DETAILS = {"reasoning_field": "reasoning_details", "documents": "file"}
# pydantic-ai models/mistral.py and #9096: a turn between tool and user, ids of nine letters or digits.
# docs.mistral.ai "Document QnA" and the same file: a PDF as `document_url`.
_MISTRAL = {"assistant_after_tools": True, "call_id_length": 9, "documents": "document_url"}
# platform.minimax.io "OpenAI API compatible": thoughts stand in the text unless they are split off.
_MINIMAX = {"reasoning_field": "reasoning_details", "extra_body": {"reasoning_split": True}}

PRESETS: dict[str, Preset] = {
    "ollama": Preset("openai", "http://localhost:11434/v1", (), ("OLLAMA_HOST",), needs_key=False),
    "vllm": Preset("openai", "http://localhost:8000/v1", ("VLLM_API_KEY",), ("VLLM_BASE_URL",), needs_key=False),
    "llama.cpp": Preset("openai", "http://localhost:8080/v1", ("LLAMA_API_KEY",), needs_key=False),
    "lmstudio": Preset("openai", "http://localhost:1234/v1", (), needs_key=False),
    "openrouter": Preset("openai", "https://openrouter.ai/api/v1", ("OPENROUTER_API_KEY",), quirks=_DETAILS),
    "deepseek": Preset("openai", "https://api.deepseek.com/v1", ("DEEPSEEK_API_KEY",), quirks=_REQUIRED),
    "azure": Preset("openai", "", ("AZURE_OPENAI_API_KEY",), ("AZURE_OPENAI_ENDPOINT",), quirks={"auth": "api-key"}),
    "groq": Preset("openai", "https://api.groq.com/openai/v1", ("GROQ_API_KEY",)),
    "mistral": Preset("openai", "https://api.mistral.ai/v1", ("MISTRAL_API_KEY",), quirks=_MISTRAL),
    "together": Preset("openai", "https://api.together.xyz/v1", ("TOGETHER_API_KEY",)),
    "xai": Preset("openai", "https://api.x.ai/v1", ("XAI_API_KEY",)),
    "moonshot": Preset("openai", "https://api.moonshot.ai/v1", ("MOONSHOT_API_KEY", "KIMI_API_KEY"), quirks=_REQUIRED),
    "zai": Preset("openai", "https://api.z.ai/api/paas/v4", ("ZAI_API_KEY", "Z_AI_API_KEY"), quirks=_CONTENT),
    "qwen": Preset("openai", "https://dashscope-intl.aliyuncs.com/compatible-mode/v1", ("DASHSCOPE_API_KEY",)),
    "minimax": Preset("openai", "https://api.minimax.io/v1", ("MINIMAX_API_KEY",), quirks=_MINIMAX),
    "fireworks": Preset("openai", "https://api.fireworks.ai/inference/v1", ("FIREWORKS_API_KEY",)),
    "cerebras": Preset("openai", "https://api.cerebras.ai/v1", ("CEREBRAS_API_KEY",)),
}

OTHER_NAMES = {
    "google": "gemini",
    "llamacpp": "llama.cpp",
    "llama-cpp": "llama.cpp",
    "lm-studio": "lmstudio",
    "moonshotai": "moonshot",
    "x-ai": "xai",
    "z-ai": "zai",
    "dashscope": "qwen",
    "together-ai": "together",
    "azure-openai": "azure",
}
"""Ids that other programs use for the same provider."""

DEFAULT_MODELS: dict[str, tuple[str, ...]] = {
    "anthropic": ("sonnet",),
    "openai-responses": ("gpt", "sol"),
    "openai": ("gpt", "sol"),
    "gemini": ("gemini",),
}
"""The words of the family to use when only a key was given; the newest of it is taken. For other makers it is the
first model of the table."""

USUAL_MODELS: dict[str, tuple[str, ...]] = {
    "openrouter": ("anthropic/claude-sonnet-5.5", "openai/gpt-6.1-sol"),
    "together": ("openai/gpt-oss-120b", "Qwen/Qwen3-Coder-480B-A35B-Instruct-FP8"),
    "fireworks": ("accounts/fireworks/models/gpt-oss-120b", "accounts/fireworks/models/kimi-k2-instruct"),
    "cerebras": ("gpt-oss-120b", "qwen-3-coder-480b"),
}
"""Of providers that serve models of many makers and have no table: those to use when only a key was given, the best
first. One that the server does not list is passed over."""
