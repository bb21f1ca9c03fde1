"""The providers and models that are known without asking anyone.

Presets hold the address, key variable, wire format and quirks of a server: `{"ollama": {}}` under `providers` in
settings, or a model named `ollama/…`, is enough. `Quirks` describe how a server differs from the one whose format it
speaks.

Windows, output limits, thinking and prices of models are data (`known_models.json`, dated;
`tools/update_known_models.py` rewrites it), and the user's settings overrule them. A model that is not in the table
is not an error: it gets the abilities that all its known siblings share, and no price, because unknown must not read
as free.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

from msgspec import Struct, field
from msgspec.structs import replace

from retinue.errors import ConfigurationError
from retinue.models.efforts import version_of
from retinue.models.protocol import ModelInfo, Prices


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
        return cls._read(value) if value else NO_QUIRKS

    @classmethod
    def _read(cls, data: Mapping[str, Any]) -> Self:
        types = cls.__annotations__
        values: dict[str, Any] = {}
        for key, value in data.items():
            name = "".join(f"_{c.lower()}" if c.isupper() else c for c in str(key)).replace("-", "_")
            if name not in types:
                names = ", ".join(types)
                raise ConfigurationError(f"There is no quirk '{key}'.", remedy=f"Known: {names}.")
            if value is None:
                continue
            expected = _wanted_type(str(types[name]))
            if not isinstance(value, expected):
                raise ConfigurationError(f"The quirk '{key}' cannot be {value!r}.", remedy=f"Use {_NAMES[expected]}.")
            values[name] = value
        return cls(**values)


NO_QUIRKS = Quirks()

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


SHARED = {"openai-responses": "openai", "azure": "openai", "google": "gemini"}
"""Providers that serve the models of another one."""

FREE = Prices(0.0, 0.0, 0.0, 0.0)
UNKNOWN = ModelInfo("", "", window=128_000, max_output=8_192, thinking=False, images=False)
UNKNOWN_WINDOW_ELSEWHERE = 32_768
"""The window assumed for an unknown model on a server of the user's own: smaller than elsewhere."""

_READING_BRIDGES = frozenset(
    {"anthropic", "bedrock", "google", "google-cloud", "google-gla", "google-vertex", "mistral"}
)
"""Providers behind the bridge to which pydantic-ai sends PDFs as such."""

_DATE = re.compile(r"[-@](?:20\d{6}|20\d\d-\d\d-\d\d|latest)$")


def table_date() -> str:
    date: str = _table()["date"]
    return date


def table_source() -> str:
    """Return where the prices and windows are from."""
    source: str = _table()["source"]
    return source


def known_models(provider: str) -> Iterator[ModelInfo]:
    """Yield the models of a provider, the newest of a family first. Empty for unknown providers."""
    for model, row in _rows(provider).items():
        yield _info(provider, model, row)


_ROUTES = {
    "anthropic": "anthropic",
    "openai": "openai",
    "gemini": "google",
    "deepseek": "deepseek",
    "xai": "x-ai",
    "mistral": "mistralai",
    "moonshot": "moonshotai",
    "zai": "z-ai",
    "qwen": "qwen",
    "minimax": "minimax",
}
"""What OpenRouter calls the makers."""


def routed_models() -> Iterator[str]:
    """Yield the makers' models as OpenRouter names them: `anthropic/claude-sonnet-5.5`. It is asked for its own
    list where one is wanted; this one needs no request."""
    for maker, route in _ROUTES.items():
        for model in _rows(maker):
            name = model.lower()
            if maker == "anthropic":
                name = re.sub(r"(?<=-\d)-(?=\d$)", ".", name)
            yield f"{route}/{name}"


def known_model(provider: str, model: str) -> ModelInfo | None:
    """Return what is known of exactly this model. Dots and capitals do not matter; a dated or `-latest`
    name has the facts of the plain one and stays as it was given, since it pins a snapshot."""
    match = _find(provider, model)
    if match is None:
        return None
    return _info(provider, *match)


def describe_model(provider: str, model: str) -> ModelInfo:
    """Never fails. A model of another maker (`openrouter/anthropic/claude-…`) takes that model's
    abilities without its price; an unknown one what all of its siblings have in common."""
    info = known_model(provider, model)
    if info is not None:
        return info
    elsewhere = known_elsewhere(model)
    if elsewhere is not None:
        return replace(elsewhere, provider=provider, id=model, prices=None)
    return _from_siblings(provider, model)


def wants_responses(model: str) -> bool:
    """Return True for a model that thinks and uses tools together only through the Responses API."""
    match = _find("openai", model)
    return bool(match and match[1].get("responses"))


def makers_id(model: str) -> str:
    """Return the maker's id of a model that a cloud has its own for: Bedrock writes
    `us.anthropic.claude-sonnet-5-5-20261001-v1:0`, Vertex `claude-sonnet-5-5@20261001`."""
    bare = re.sub(r"^(?:[a-z]{2,6}\.)?(?:anthropic|openai|google|meta|mistral|amazon|cohere)\.", "", model)
    return _DATE.sub("", re.sub(r"-v\d+(?::\d+)?$", "", bare))


def describe_bridged(provider: str, name: str) -> ModelInfo:
    """Return what is known of `bedrock:us.anthropic.claude-sonnet-5-5-20261001-v1:0` and its like: the
    abilities of the same model at its maker, without a price."""
    info = known_elsewhere(makers_id(name.partition(":")[2].rpartition("/")[2]))
    if info is None:
        return ModelInfo(provider, name)
    reads = info.images and name.partition(":")[0] in _READING_BRIDGES
    return replace(info, provider=provider, id=name, prices=None, documents=reads)


def takes_responses(model: str) -> bool:
    """Return True for every thinking model of OpenAI's: from GPT-5.2 on Chat Completions refuses efforts
    beside tools, and from 5.6 tools as such (pipecat#4043, litellm#34569); the Responses API takes
    them all."""
    name = model.rpartition("/")[2].lower()
    if re.match(r"o[134](?![a-z0-9])", name):
        return True
    return (version_of(name, "gpt-") or (0, 0)) >= (5, 0) and "chat" not in name


def with_overrides(info: ModelInfo, override: Mapping[str, Any] | None) -> ModelInfo:
    """Return `info` as the `models` setting (or a provider's own list) corrects it."""
    if not override:
        return info
    prices = override.get("prices")
    if prices is not None and {"input", "output"} <= prices.keys():
        info = replace(
            info,
            prices=Prices(prices["input"], prices["output"], prices.get("cacheRead"), prices.get("cacheWrite")),
        )
    same = ("name", "window", "thinking", "images", "documents")
    changed: dict[str, Any] = {}
    for name in same:
        if name in override:
            changed[name] = override[name]
    if "maxOutput" in override:
        changed["max_output"] = override["maxOutput"]
    info = replace(info, **changed)
    # An answer is a part of the window, also where only the window was corrected.
    return replace(info, max_output=min(info.max_output, info.window))


def same_name(model: str) -> str:
    """Return how two spellings of one id compare: case and dots do not matter."""
    return model.lower().replace(".", "-")


@cache
def _table() -> dict[str, Any]:
    import orjson

    table: dict[str, Any] = orjson.loads(Path(__file__).with_name("known_models.json").read_bytes())
    return table


def _rows(provider: str) -> Mapping[str, Any]:
    rows: Mapping[str, Any] = _table()["providers"].get(SHARED.get(provider, provider), {})
    return rows


def _find(provider: str, model: str) -> tuple[str, Mapping[str, Any]] | None:
    """Return the id to use and its row."""
    rows = _rows(provider)
    if model in rows:
        return model, rows[model]
    keys = {same_name(key): key for key in rows}
    key = keys.get(same_name(model))
    if key is not None:
        return key, rows[key]
    key = keys.get(same_name(_DATE.sub("", model)))
    if key is None:
        return None
    return (model, rows[key])


def known_elsewhere(model: str) -> ModelInfo | None:
    """Return what is known of the same model at its maker, by the last part of a path, without an Ollama tag."""
    bare = model.rpartition("/")[2].partition(":")[0]
    for provider in _table()["providers"]:
        info = known_model(provider, bare) or known_model(provider, model)
        if info is not None:
            return info
    return None


def _from_siblings(provider: str, model: str) -> ModelInfo:
    words = re.split(r"[-._:/ ]", model.lower())
    siblings = list(known_models(provider))
    for length in range(len(words) - 1, 0, -1):
        family = [info for info in siblings if re.split(r"[-._:/ ]", info.id.lower())[:length] == words[:length]]
        if family:
            return ModelInfo(
                provider,
                model,
                window=min(info.window for info in family),
                max_output=min(info.max_output for info in family),
                thinking=all(info.thinking for info in family) or _thinks_by_name(provider, model),
                images=all(info.images for info in family),
            )
    window = UNKNOWN.window if siblings else UNKNOWN_WINDOW_ELSEWHERE
    return replace(UNKNOWN, provider=provider, id=model, window=window)


def _thinks_by_name(provider: str, model: str) -> bool:
    """A GPT that is newer than the table thinks, as all since GPT-5 do."""
    return SHARED.get(provider, provider) == "openai" and takes_responses(model)


def _info(provider: str, model: str, row: Mapping[str, Any]) -> ModelInfo:
    prices = None
    if "prices" in row:
        prices = _prices(row["prices"])
    if prices is not None and "above" in row:
        start, above = row["above"]
        prices = replace(prices, above=(start, _prices(above)))
    return ModelInfo(provider, model, row["name"], row["window"], row["output"], row["thinking"], row["images"], prices)


def _prices(values: list[Any]) -> Prices:
    taken, output, read, write = (*values, None, None)[:4]
    return Prices(taken, output, read, write)
