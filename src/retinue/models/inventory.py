"""Every model that can be used from here: one list for `models list`, `--model`, `/model`, the wizard and agent files.

What a key, the table or the settings name is known without asking. Servers of the user's own, servers on this machine
that nobody has named (Ollama, LM Studio, vLLM, llama.cpp at their usual ports), and providers that serve many makers'
models are asked what they have: all at once, briefly, and only where a list or a default is wanted or a name means
nothing yet. `provider/model` and a name that the table knows ask nobody.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from retinue.errors import RetinueError
from retinue.models.known import known_models
from retinue.models.presets import USUAL_MODELS
from retinue.models.protocol import ModelInfo
from retinue.models.provider import Provider
from retinue.models.providers import Providers

if TYPE_CHECKING:
    from collections.abc import Mapping

    from retinue.http.transport import Transport
    from retinue.models.select import ModelSelection
    from retinue.settings.table import Settings

PROBE_SECONDS = 0.3
"""How long a server on this machine may take to accept a connection."""
ANSWER_SECONDS = 0.5
LIST_SECONDS = 4.0
"""How long a server may take where a person waits for the list and nothing else."""
_NO_CHAT = ("embed", "whisper", "tts", "rerank", "guard", "moderation", "bge-", "nomic-", "dall-e", "flux", "ocr")


class ModelInventory(NamedTuple):
    """`active` is the model that a run without one of its own gets; `problem`, why there is none."""

    models: tuple[ModelInfo, ...]
    active: ModelSelection | None
    problem: RetinueError | None
    providers: Providers


async def list_models(
    settings: Settings, environment: Mapping[str, str], transport: Transport | None = None
) -> ModelInventory:
    """Return every model that a name can mean here, and the one that a run would get."""
    from retinue.models.resolve import OFFLINE
    from retinue.models.select import select_model

    providers = Providers(settings, environment)
    await ask_servers(providers, transport, seconds=LIST_SECONDS)
    models = {info.full_name: info for info in (*providers.models, *providers.local_models)}
    active, problem = None, None
    try:
        active = await select_model(
            settings=settings, environment=environment, transport=transport, providers=providers
        )
        models.setdefault(active.info.full_name, active.info)
    except RetinueError as error:
        problem = error
    models.setdefault(OFFLINE.full_name, OFFLINE)
    return ModelInventory(tuple(models.values()), active, problem, providers)


async def ask_servers(
    providers: Providers, transport: Transport | None = None, *, seconds: float = ANSWER_SECONDS
) -> None:
    """Learn what servers have, once. One that does not answer is passed over."""
    if providers.asked:
        return
    providers.asked = True
    asked = [provider for provider in providers.configured() if lists_its_models(provider)]
    unnamed = providers.unnamed_servers()
    listening = await asyncio.gather(*(_is_listening(provider) for provider in unnamed))
    asked += [provider for provider, there in zip(unnamed, listening, strict=True) if there]
    if not asked:
        return
    # The transport takes a while to load: only where somebody is there to be asked.
    from retinue.models.local_window import served_models

    answers = await asyncio.gather(*(served_models(each, transport, seconds=seconds) for each in asked))
    for provider, models in zip(asked, answers, strict=True):
        # A server that nobody named must have a model, or something else listens there.
        if models or (models is not None and provider not in unnamed):
            providers.learn(provider, models)


def lists_its_models(provider: Provider) -> bool:
    """Return whether only the server knows what it has: one of the user's own, or one with models of many makers."""
    return provider.custom or provider.local or bool(provider.listed) or not any(known_models(provider.id))


async def default_of(providers: Providers, provider: Provider, transport: Transport | None = None) -> ModelInfo | None:
    """Return the model to use when only the provider is known: the newest of the table's family for everyday work,
    or the first suitable one that the server lists. None when neither is known."""
    from retinue.models.select import default_model

    if provider.listed:
        return provider.listed[0]
    usual = USUAL_MODELS.get(provider.id, ())
    best = next(iter(usual), None) or default_model(provider.id)
    if lists_its_models(provider) and not (provider.id == "openrouter" and not provider.custom):
        best = _preferred(await _ask(providers, provider, transport), usual, best)
    if best is None:
        return None
    return providers.info(provider, best)


def _preferred(served: tuple[str, ...] | None, usual: tuple[str, ...], best: str | None) -> str | None:
    """Return the first usual model that is served, else the first one that can talk."""
    if not served or best in served:
        return best
    for model in usual:
        if model in served:
            return model
    return first_that_talks(served)


def first_that_talks(served: tuple[str, ...]) -> str:
    """Return the first model that is not one for embeddings, speech or pictures."""
    for model in served:
        if not any(word in model.lower() for word in _NO_CHAT):
            return model
    return served[0]


async def _ask(providers: Providers, provider: Provider, transport: Transport | None) -> tuple[str, ...] | None:
    if provider.api not in ("openai", "openai-responses"):
        return None
    if providers.asked:
        return providers.served(provider)
    from retinue.models.local_window import served_models

    return await served_models(provider, transport)


async def _is_listening(provider: Provider) -> bool:
    """Return whether something accepts connections there."""
    parts = urlsplit(provider.base_url)
    try:
        async with asyncio.timeout(PROBE_SECONDS):
            _, writer = await asyncio.open_connection(parts.hostname, parts.port)
    except (OSError, TimeoutError, ValueError):
        return False
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
    return True
