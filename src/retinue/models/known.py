"""What is known of models without asking anyone: windows, output limits, thinking, prices.

The facts are data (`known_models.json`, dated; `tools/update_known_models.py` rewrites it) and
the user's settings overrule them. A model that is not in the table is not an error: it gets what
all its known siblings can do, and no price, because unknown must not read as free.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from retinue.models.efforts import version_of
from retinue.models.protocol import ModelInfo, Prices

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
    found = _find(provider, model)
    if found is None:
        return None
    return _info(provider, *found)


def describe_model(provider: str, model: str) -> ModelInfo:
    """Never fails. A model of another maker (`openrouter/anthropic/claude-…`) takes that model's
    abilities without its price; an unknown one what all of its siblings have in common."""
    found = known_model(provider, model)
    if found is not None:
        return found
    elsewhere = known_elsewhere(model)
    if elsewhere is not None:
        return replace(elsewhere, provider=provider, id=model, prices=None)
    return _from_siblings(provider, model)


def wants_responses(model: str) -> bool:
    """Return True for a model that thinks and uses tools together only through the Responses API."""
    found = _find("openai", model)
    return bool(found and found[1].get("responses"))


def makers_id(model: str) -> str:
    """Return the maker's id of a model that a cloud has its own for: Bedrock writes
    `us.anthropic.claude-sonnet-5-5-20261001-v1:0`, Vertex `claude-sonnet-5-5@20261001`."""
    bare = re.sub(r"^(?:[a-z]{2,6}\.)?(?:anthropic|openai|google|meta|mistral|amazon|cohere)\.", "", model)
    return _DATE.sub("", re.sub(r"-v\d+(?::\d+)?$", "", bare))


def describe_bridged(provider: str, name: str) -> ModelInfo:
    """Return what is known of `bedrock:us.anthropic.claude-sonnet-5-5-20261001-v1:0` and its like: the
    abilities of the same model at its maker, without a price."""
    found = known_elsewhere(makers_id(name.partition(":")[2].rpartition("/")[2]))
    if found is None:
        return ModelInfo(provider, name)
    reads = found.images and name.partition(":")[0] in _READING_BRIDGES
    return replace(found, provider=provider, id=name, prices=None, documents=reads)


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
        found = known_model(provider, bare) or known_model(provider, model)
        if found is not None:
            return found
    return None


def _from_siblings(provider: str, model: str) -> ModelInfo:
    words = re.split(r"[-._:/ ]", model.lower())
    known = list(known_models(provider))
    for length in range(len(words) - 1, 0, -1):
        family = [info for info in known if re.split(r"[-._:/ ]", info.id.lower())[:length] == words[:length]]
        if family:
            return ModelInfo(
                provider,
                model,
                window=min(info.window for info in family),
                max_output=min(info.max_output for info in family),
                thinking=all(info.thinking for info in family) or _thinks_by_name(provider, model),
                images=all(info.images for info in family),
            )
    window = UNKNOWN.window if known else UNKNOWN_WINDOW_ELSEWHERE
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
    taken, given, read, write = (*values, None, None)[:4]
    return Prices(taken, given, read, write)
