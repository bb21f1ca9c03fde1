"""Every model that can be used from here: one list for `models list`, `--model`, `/model`, the wizard and agent files.

What a key, the table or the settings name is known without asking. Servers of the user's own and providers that serve
many makers' models are asked which models they have before a part of a name is looked up. Servers on this machine that
nobody has named (Ollama, LM Studio, vLLM, llama.cpp at their usual ports) are asked only where a list or a default is
wanted or a name means nothing yet, and only if they belong to this user or to the system. `provider/model` with a
version, and a model's whole id, ask nobody. All questions of one moment are asked at once, briefly.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from retinue.errors import RetinueError
from retinue.http.listener import foreign_listener
from retinue.models.known import known_models
from retinue.models.presets import USUAL_MODELS
from retinue.models.protocol import ModelInfo
from retinue.models.provider import Provider
from retinue.models.providers import Providers

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from retinue.http.transport import Transport
    from retinue.models.select import ModelSelection
    from retinue.settings.table import Settings

PROBE_SECONDS = 0.3
"""How long a server on this machine may take to accept a connection."""
ANSWER_SECONDS = 0.5
LIST_KEPT_SECONDS = 60.0
"""How long runs use what a server has listed without asking again."""
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
    """Learn what servers have, once, also those on this machine that nobody has named. One that does not answer is
    passed over."""
    if providers.asked:
        return
    providers.asked = True
    unnamed = providers.unnamed_servers()
    listening = await asyncio.gather(*(_is_listening(provider) for provider in unnamed))
    trusted = []
    for provider, is_there in zip(unnamed, listening, strict=True):
        owner = foreign_listener(urlsplit(provider.base_url).port or 0) if is_there else None
        if owner is not None:
            providers.foreign_servers[provider.id] = owner
        elif is_there:
            trusted.append(provider)
    named = [] if providers.asked_named else _named_servers(providers)
    providers.asked_named = True
    await _learn(providers, [*named, *trusted], transport, seconds)


async def ask_named_servers(providers: Providers, transport: Transport | None = None) -> None:
    """Learn what the servers have that the user set up and that list their models, once."""
    if providers.asked_named:
        return
    servers = _named_servers(providers)
    unasked = []
    for server in servers:
        asked_at, models = _lists.get((server.base_url, server.api_key), (-LIST_KEPT_SECONDS, ()))
        if time.monotonic() - asked_at < LIST_KEPT_SECONDS:
            providers.learn(server, models)
        else:
            unasked.append(server)
    # A name that is not in a kept list may be in a new one.
    providers.asked_named = len(unasked) == len(servers)
    await _learn(providers, unasked, transport, ANSWER_SECONDS)


_lists: dict[tuple[str, str], tuple[float, tuple[str, ...]]] = {}
"""By address and key: when a server was asked, and what it listed."""


def _named_servers(providers: Providers) -> list[Provider]:
    return [provider for provider in providers.configured() if lists_its_models(provider)]


async def _learn(
    providers: Providers, servers: Sequence[Provider], transport: Transport | None, seconds: float
) -> None:
    if not servers:
        return
    # The transport takes a while to load: only where somebody is there to be asked.
    from retinue.models.local_window import served_models

    answers = await asyncio.gather(*(served_models(server, transport, seconds=seconds) for server in servers))
    unnamed = providers.unnamed_servers()
    for server, models in zip(servers, answers, strict=True):
        # A server that nobody named must have a model, or something else listens there.
        if models or (models is not None and server not in unnamed):
            providers.learn(server, models)
            _lists[server.base_url, server.api_key] = (time.monotonic(), models)


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
    if providers.asked or providers.asked_named:
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
