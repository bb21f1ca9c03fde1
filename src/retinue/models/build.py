"""From a selection to a model that can be asked. The only place that knows the classes."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import cache, partial
from typing import TYPE_CHECKING, Any, cast

from retinue.models.presets import Api

if TYPE_CHECKING:
    from retinue.http.transport import Transport
    from retinue.models.protocol import Model
    from retinue.models.retry import Gate
    from retinue.models.select import Selection

_WIRE: dict[Api, tuple[str, str]] = {
    "anthropic": ("retinue.models.anthropic", "AnthropicModel"),
    "openai": ("retinue.models.openai_chat", "OpenAIChatModel"),
    "openai-responses": ("retinue.models.openai_responses", "OpenAIResponsesModel"),
    "gemini": ("retinue.models.gemini", "GeminiModel"),
}


GateFor = Callable[["Selection"], "Gate | None"]


def build_model(selection: Selection, transport: Transport, *, gate_for: GateFor | None = None) -> Model:
    """Imports the one module that is needed. A model behind a wire repeats what failed for a
    passing reason, each attempt through its gate (a limiter that many runs share), and its
    fallbacks take over from it. Connects to nothing. Raises ConfigurationError for quirks that
    mean nothing and MissingExtraError for a local model without its extra."""
    if not selection.fallbacks:
        return _single(selection, transport, gate_for)
    from retinue.models.fallback import ATTEMPTS, Fallback

    chain = [selection, *selection.fallbacks]
    hurried = [each._replace(attempts=min(each.attempts, ATTEMPTS)) for each in chain[:-1]]
    others = [partial(_single, each, transport, gate_for) for each in (*hurried[1:], chain[-1])]
    return Fallback(_single(hurried[0], transport, gate_for), others)


def _single(selection: Selection, transport: Transport, gate_for: GateFor | None) -> Model:
    provider, info = selection.provider, selection.info
    embedded = provider.id if provider.api == "embedded" else None  # a server may have such a name, too
    if embedded == "offline":
        from retinue.models.offline.offline import OfflineModel

        return OfflineModel()
    if embedded == "local":
        from retinue.models.offline.local import LocalModel

        return LocalModel(selection.path, info)
    model = _bridged(selection) if embedded == "pydantic-ai" else _wired(selection, transport)
    gate = None if gate_for is None else gate_for(selection)
    if selection.attempts == 1 and gate is None:
        return model
    from retinue.models.retry import Retrying, RetryPolicy

    return Retrying(model, RetryPolicy(attempts=selection.attempts), gate=gate)


def _bridged(selection: Selection) -> Model:
    from retinue.models.bridge import PydanticAIModel

    return PydanticAIModel(selection.info, selection.info.id)


@cache
def _class_for(api: Api) -> Callable[..., Model]:
    module, name = _WIRE[api]
    return cast("Callable[..., Model]", getattr(importlib.import_module(module), name))


def _wired(selection: Selection, transport: Transport) -> Model:
    provider, info = selection.provider, selection.info
    make = _class_for(provider.api_for(info.id))
    quirks: dict[str, Any] = dict(provider.quirks)
    if provider.query:
        quirks["query"] = {**provider.query, **quirks.get("query", {})}
    return make(
        info,
        provider.url_for(info.id),
        provider.api_key or None,
        transport,
        headers=provider.headers,
        quirks=quirks,
        key_variable=provider.key_variable,
        helper=provider.helper,
    )
