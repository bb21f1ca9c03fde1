"""The models that are known without a request, and how servers differ.

`Quirks` describe how a server differs from the maker of its format; the presets of servers are in `presets.py`.

Windows, output limits, thinking and prices of models are in `known_models.json`, which has a date and is updated by
`tools/update_known_models.py`. The user's settings override them. An unknown model gets the abilities that all known
models of its family share, and no price, because an unknown price must not read as free.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from msgspec import Struct, ValidationError, convert, field
from msgspec.structs import replace

from retinue.errors import ConfigurationError
from retinue.models.efforts import version_of
from retinue.models.protocol import ModelInfo, Prices


class Quirks(Struct, frozen=True, kw_only=True):
    """How a server differs from the maker of its wire format. In settings the names may be in camelCase."""

    auth: str | None = None
    """The header with the key: `bearer`, the name of a header, or `none`."""
    stream_usage: bool = True
    """False: the server does not know `stream_options`."""
    parallel_tool_calls: bool | None = None
    """The value to send, if it is set; False asks for one call at a time."""
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
    """There must be a turn of the assistant between a tool's result and a message of the user."""
    call_id_length: int = 0
    """The exact number of letters and digits of a call id; 0: any."""
    thinking: str | None = None
    """Anthropic format: `budget`, `adaptive` or `none`."""
    temperature: bool = True
    """False: the server refuses sampling parameters."""
    cache_control: bool | None = None
    """Whether cache marks are sent. None: in the Anthropic format, and through OpenRouter to
    Claude and Gemini."""
    cache_ttl: str | None = None
    """How long the cache is kept: `5m`, or `1h` at a higher price. None: an hour for a run that has started agents,
    else five minutes."""
    cache_key: bool | None = None
    """Whether `prompt_cache_key` is sent. None: to OpenAI and Azure."""
    documents: str | None = None
    """How a PDF is sent in the chat format: `file` (OpenAI, OpenRouter) or `document_url` (Mistral). None: as text."""
    extra_body: Mapping[str, Any] = field(default_factory=dict)
    """Merged into every request."""
    query: Mapping[str, str] = field(default_factory=dict)
    """Parameters of the URL, such as Azure's `api-version`."""

    @classmethod
    def of(cls, value: Quirks | Mapping[str, Any] | None) -> Quirks:
        """Return the quirks of an entry in settings. Raise ConfigurationError for an unknown name or a wrong value."""
        if isinstance(value, Quirks):
            return value
        if not value:
            return NO_QUIRKS
        quirks: dict[str, Any] = {}
        for key, setting in value.items():
            name = re.sub("(?=[A-Z])", "_", str(key)).lower().replace("-", "_")
            if name not in cls.__struct_fields__:
                names = ", ".join(cls.__struct_fields__)
                raise ConfigurationError(f"There is no quirk '{key}'.", remedy=f"Known: {names}.")
            if setting is not None:
                quirks[name] = setting
        try:
            return convert(quirks, cls)
        except ValidationError as error:
            remedy = "Correct `quirks` of the provider in the settings."
            raise ConfigurationError(f"The quirks of a provider cannot be used: {error}.", remedy=remedy) from None


NO_QUIRKS = Quirks()


DEFAULT_MODELS: dict[str, tuple[str, ...]] = {
    "anthropic": ("sonnet",),
    "openai-responses": ("gpt", "sol"),
    "openai": ("gpt", "sol"),
    "gemini": ("gemini",),
}
"""The words of the family to use if only a key is known; its newest model is used. For other makers it is the first
model of the table."""

USUAL_MODELS: dict[str, tuple[str, ...]] = {
    "openrouter": ("anthropic/claude-sonnet-5.5", "openai/gpt-6.1-sol"),
    "together": ("openai/gpt-oss-120b", "Qwen/Qwen3-Coder-480B-A35B-Instruct-FP8"),
    "fireworks": ("accounts/fireworks/models/gpt-oss-120b", "accounts/fireworks/models/kimi-k2-instruct"),
    "cerebras": ("gpt-oss-120b", "qwen-3-coder-480b"),
}
"""The models to use if only a key is known, the best first, of providers that serve models of many makers. A model that
the server does not list is skipped."""


SAME_MODELS = {"openai-responses": "openai", "azure": "openai", "google": "gemini"}
"""Providers with the models of another one."""

FREE = Prices(0.0, 0.0, 0.0, 0.0)
UNKNOWN_MODEL = ModelInfo("", "", window=128_000, max_output=8_192, thinking=False, images=False)
UNKNOWN_LOCAL_WINDOW = 32_768
"""The window that is assumed for an unknown model on a server of the user."""

_PDF_BRIDGES = frozenset({"anthropic", "bedrock", "google", "google-cloud", "google-gla", "google-vertex", "mistral"})
"""Providers to which pydantic-ai sends PDFs unchanged."""

_ID_DATE = re.compile(r"[-@](?:20\d{6}|20\d\d-\d\d-\d\d|latest)$")


def table_date() -> str:
    date: str = _table()["date"]
    return date


def table_source() -> str:
    """Return where the prices and windows are from."""
    source: str = _table()["source"]
    return source


def known_models(provider: str) -> Iterator[ModelInfo]:
    """Yield the models of a provider, the newest of a family first."""
    for model, row in _rows(provider).items():
        yield _info(provider, model, row)


_OPENROUTER_MAKERS = {
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
"""The makers by their names at OpenRouter."""


def routed_models() -> Iterator[str]:
    """Yield the makers' models by their names at OpenRouter: `anthropic/claude-sonnet-5.5`. This needs no request."""
    for maker, route in _OPENROUTER_MAKERS.items():
        for model in _rows(maker):
            name = model.lower()
            if maker == "anthropic":
                name = re.sub(r"(?<=-\d)-(?=\d$)", ".", name)
            yield f"{route}/{name}"


def known_model(provider: str, model: str) -> ModelInfo | None:
    """Return the facts about exactly this model. Dots and case do not matter. A name with a date or `-latest` has the
    facts of the plain name and stays unchanged, because it pins a snapshot."""
    match = _find(provider, model)
    if match is None:
        return None
    return _info(provider, *match)


def describe_model(provider: str, model: str) -> ModelInfo:
    """Return the facts about any model. One of another maker (`openrouter/anthropic/claude-…`) has the abilities of
    that model but not its price; an unknown one has those that all models of its family share."""
    info = known_model(provider, model)
    if info is not None:
        return info
    elsewhere = known_elsewhere(model)
    if elsewhere is not None:
        return replace(elsewhere, provider=provider, id=model, prices=None)
    return _from_siblings(provider, model)


def wants_responses(model: str) -> bool:
    """Return whether a model can use tools and think together in the Responses API only."""
    match = _find("openai", model)
    return bool(match and match[1].get("responses"))


def makers_id(model: str) -> str:
    """Return the maker's id for that of a cloud. Bedrock writes `us.anthropic.claude-sonnet-5-5-20261001-v1:0`, Vertex
    `claude-sonnet-5-5@20261001`."""
    bare = re.sub(r"^(?:[a-z]{2,6}\.)?(?:anthropic|openai|google|meta|mistral|amazon|cohere)\.", "", model)
    return _ID_DATE.sub("", re.sub(r"-v\d+(?::\d+)?$", "", bare))


def describe_bridged(provider: str, name: str) -> ModelInfo:
    """Return the facts about a model such as `bedrock:us.anthropic.claude-sonnet-5-5-20261001-v1:0`: those of the same
    model at its maker, without a price."""
    info = known_elsewhere(makers_id(name.partition(":")[2].rpartition("/")[2]))
    if info is None:
        return ModelInfo(provider, name)
    reads = info.images and name.partition(":")[0] in _PDF_BRIDGES
    return replace(info, provider=provider, id=name, prices=None, documents=reads)


def takes_responses(model: str) -> bool:
    """Return whether OpenAI's Responses API is used: for every thinking model. Chat Completions refuses efforts beside
    tools from GPT-5.2 on, and all tools from 5.6 on (pipecat#4043, litellm#34569)."""
    name = model.rpartition("/")[2].lower()
    if re.match(r"o[134](?![a-z0-9])", name):
        return True
    return (version_of(name, "gpt-") or (0, 0)) >= (5, 0) and "chat" not in name


def with_overrides(info: ModelInfo, override: Mapping[str, Any] | None) -> ModelInfo:
    """Return `info` with the corrections of the `models` setting, or of a provider's own list."""
    if not override:
        return info
    prices = override.get("prices")
    if prices is not None and {"input", "output"} <= prices.keys():
        info = replace(
            info,
            prices=Prices(prices["input"], prices["output"], prices.get("cacheRead"), prices.get("cacheWrite")),
        )
    names = {"maxOutput": "max_output"} | {name: name for name in ("name", "window", "thinking", "images", "documents")}
    info = replace(info, **{field: override[name] for name, field in names.items() if name in override})
    # The output limit cannot exceed the window, even if only the window was corrected.
    return replace(info, max_output=min(info.max_output, info.window))


def same_name(model: str) -> str:
    """Return an id in the spelling in which ids are compared: case and dots do not matter."""
    return model.lower().replace(".", "-")


@cache
def _table() -> dict[str, Any]:
    import orjson

    table: dict[str, Any] = orjson.loads(Path(__file__).with_name("known_models.json").read_bytes())
    return table


def _rows(provider: str) -> Mapping[str, Any]:
    rows: Mapping[str, Any] = _table()["providers"].get(SAME_MODELS.get(provider, provider), {})
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
    key = keys.get(same_name(_ID_DATE.sub("", model)))
    if key is None:
        return None
    return (model, rows[key])


def known_elsewhere(model: str) -> ModelInfo | None:
    """Return the facts about the same model at its maker, found by the last part of a path without an Ollama tag."""
    bare = model.rpartition("/")[2].partition(":")[0]
    infos = (known_model(provider, bare) or known_model(provider, model) for provider in _table()["providers"])
    return next(filter(None, infos), None)


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
    window = UNKNOWN_MODEL.window if siblings else UNKNOWN_LOCAL_WINDOW
    return replace(UNKNOWN_MODEL, provider=provider, id=model, window=window)


def _thinks_by_name(provider: str, model: str) -> bool:
    """Return whether it is a GPT that is newer than the table: all think since GPT-5."""
    return SAME_MODELS.get(provider, provider) == "openai" and takes_responses(model)


def _info(provider: str, model: str, row: Mapping[str, Any]) -> ModelInfo:
    prices = _prices(row["prices"]) if "prices" in row else None
    if prices is not None and "above" in row:
        start, above = row["above"]
        prices = replace(prices, above=(start, _prices(above)))
    return ModelInfo(provider, model, row["name"], row["window"], row["output"], row["thinking"], row["images"], prices)


def _prices(values: list[Any]) -> Prices:
    return Prices(*values)
