"""Which models a local server has, and how many tokens each really has there.

A local server gives a model the window its operator or its memory allows, not the maker's: Ollama
4,096 tokens below 24 GiB of video memory (docs/context-length), and what does not fit is cut off
without notice. So the server is asked, in its own way:

    Ollama      /api/ps       context_length of the loaded model; /api/generate loads it first
                /api/show     num_ctx of the model's own parameters, where an older version does not say it there
    vLLM        /v1/models    max_model_len
    LiteLLM     /v1/models    max_input_tokens
    llama.cpp   /props        default_generation_settings.n_ctx
    LM Studio   /api/v0/models    loaded_context_length

Every question is bounded in time, and any failure counts as "no answer": then a modest window is
assumed and reported.

Every model that can be used from here: one list for `models list`, `--model`, `/model`, the wizard and agent files.

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
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlencode, urlsplit

from msgspec.structs import replace

from retinue.errors import RetinueError
from retinue.http.transport import Transport, TransportError, foreign_listener
from retinue.models.keys import KeyHelperError, helped_key
from retinue.models.known import USUAL_MODELS, known_elsewhere, known_models
from retinue.models.protocol import ModelInfo
from retinue.models.providers import Provider, Providers
from retinue.models.resolve import OFFLINE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from retinue.http.transport import Transport
    from retinue.models.providers import Providers
    from retinue.models.select import ModelSelection
    from retinue.settings.table import Settings


SECONDS = 0.5
MAX_BYTES = 1024 * 1024
LIST_BYTES = 16 * MAX_BYTES
"""OpenRouter describes hundreds of models."""


async def served_models(
    provider: Provider, transport: Transport | None = None, *, seconds: float = SECONDS
) -> tuple[str, ...] | None:
    """Return the ids a server lists, in its order; None when it gave no answer that can be used."""
    own = Transport() if transport is None else transport
    try:
        async with asyncio.timeout(seconds):
            headers = request_headers(await with_key(provider))
            path = {"anthropic": "/v1/models", "gemini": "/v1beta/models"}.get(provider.api, "/models")
            url = provider.base_url + path
            if provider.query:
                url += f"?{urlencode(dict(provider.query))}"
            async with await own.get(url, headers) as response:
                body = await response.body(LIST_BYTES)
                if response.status == 200:
                    return _ids(body)
                return None
    except (TransportError, TimeoutError, OSError):
        return None
    finally:
        if transport is None:
            await own.close()


async def with_key(provider: Provider) -> Provider:
    """Return the provider with the key that its helper returns, if it has one that works."""
    if provider.helper is None:
        return provider
    try:
        return provider._replace(api_key=await helped_key(provider.helper))
    except KeyHelperError:
        return provider


def request_headers(provider: Provider) -> dict[str, str]:
    headers = {"accept": "application/json", **{name.lower(): value for name, value in provider.headers.items()}}
    usual = {"anthropic": "x-api-key", "gemini": "x-goog-api-key"}.get(provider.api, "bearer")
    auth = str(provider.quirks.get("auth") or usual).lower()
    if provider.api_key and auth == "bearer":
        headers.setdefault("authorization", f"Bearer {provider.api_key}")
    elif provider.api_key and auth != "none":
        headers.setdefault(auth, provider.api_key)
    if provider.api == "anthropic":
        headers.setdefault("anthropic-version", "2023-06-01")
    return headers


def _ids(body: bytes) -> tuple[str, ...] | None:
    import orjson

    try:
        answer: Any = orjson.loads(body)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(answer, dict):
        return None
    entries = answer.get("data") or answer.get("models") or []
    if not isinstance(entries, list):
        return None
    ids = []
    for entry in entries:
        name = None
        if isinstance(entry, dict):
            name = entry.get("id") or entry.get("name")
        if isinstance(name, str) and name.isprintable() and name:
            ids.append(name.removeprefix("models/"))
    return tuple(ids)


Tell = Callable[[str, float], None]
"""Takes what is waited for, and since how many seconds."""

WINDOW_SECONDS = 2.0
SILENT_SECONDS = 3.0
"""Shorter waits are not reported."""
LOAD_SECONDS = 60.0
KEEP_SECONDS = 60.0
SMALL = 16_384
"""Below this an agent's instructions and a few files already fill the window."""
_ADVICE = {
    "ollama": "start it with OLLAMA_CONTEXT_LENGTH=65536",
    "llama.cpp": "start it with -c 65536",
    "lmstudio": "load the model with a longer context",
    "vllm": "start it with a larger --max-model-len",
}


def _nobody(what: str, seconds: float) -> None: ...


_known: dict[tuple[str, str], tuple[float, int | None]] = {}


async def with_real_window(
    selection: ModelSelection, providers: Providers, transport: Transport, tell: Tell = _nobody, *, load: bool = True
) -> ModelSelection:
    """Return the selection with the window that its server gives the model, and with what is to be said of it."""
    provider, info = selection.provider, selection.info
    described = providers.has_window(provider, info.id)
    info, note = await with_local_window(provider, info, transport, described, tell, load=load)
    if note is None:
        return selection._replace(info=info)
    return selection._replace(info=info, warnings=(*selection.warnings, note))


async def with_local_window(
    provider: Provider,
    info: ModelInfo,
    transport: Transport,
    described: bool,
    tell: Tell = _nobody,
    *,
    load: bool = True,
) -> tuple[ModelInfo, str | None]:
    """Return `info` with the window that the server has, and a sentence for people when there is
    something to say. `described`: the user's settings name the window, so no server is asked. `tell`
    hears, every second after the first three, that the server still loads the model; without `load`
    it is asked about what it has loaded already."""
    if described or info.id.endswith("cloud") or not provider.runs_models:
        return info, None
    key = (provider.base_url, info.id)
    at, window = _known.get(key, (0.0, None))
    if not at or time.monotonic() - at > KEEP_SECONDS:
        window = await _ask(provider, info.id, transport, tell, load=load)
        _known[key] = (time.monotonic(), window)
    if window is None and not provider.computes_answers and known_elsewhere(info.id) is not None:
        # A gateway to the model's maker.
        return info, None
    if window is None:
        before = ""
        if provider.id == "ollama" and not load:
            before = " (it may, once a run has loaded it)"
        note = (
            f"the server '{provider.id}' does not say how large the window of {info.id} is{before}: {info.window} "
            "tokens are assumed; `models` in settings can say more"
        )
        return _with_window(info, info.window), note
    info = _with_window(info, window)
    if window >= SMALL:
        return info, None
    how = _ADVICE.get(provider.id, "give it a larger context")
    return info, f"{info.full_name} has a window of only {window} tokens on this server: {how}, agents need 64,000"


def _with_window(info: ModelInfo, window: int) -> ModelInfo:
    """Return `info` with this window, and an answer that leaves half of it for the conversation."""
    return replace(info, window=window, max_output=max(256, min(info.max_output, window // 2)))


async def _ask(provider: Provider, model: str, transport: Transport, tell: Tell, *, load: bool) -> int | None:
    root = provider.base_url.removesuffix("/v1")
    if provider.id == "ollama":
        status = _find_loaded(await _get(f"{root}/api/ps", provider, transport), model)
        if status is None and load:
            await _load(root, model, provider, transport, tell)
            status = _find_loaded(await _get(f"{root}/api/ps", provider, transport), model)
        if status is None:
            shown = await _get(f"{root}/api/show", provider, transport, body={"model": model})
            status = _find_parameter(shown, "num_ctx")
        return status
    listed = _by_id(await _get(f"{provider.base_url}/models", provider, transport), model)
    for key in ("max_model_len", "max_input_tokens"):
        if window := _whole(listed.get(key)):
            return window
    props = await _get(f"{root}/props", provider, transport)
    settings = props.get("default_generation_settings")
    if isinstance(settings, Mapping) and (window := _whole(settings.get("n_ctx"))):
        return window
    loaded = _by_id(await _get(f"{root}/api/v0/models", provider, transport), model)
    return _whole(loaded.get("loaded_context_length"))


async def _load(root: str, model: str, provider: Provider, transport: Transport, tell: Tell) -> None:
    """A request without a prompt only loads the model, which the first one would have to do anyway."""
    loading = asyncio.ensure_future(_get(f"{root}/api/generate", provider, transport, LOAD_SECONDS, {"model": model}))
    began = time.monotonic()
    pause = SILENT_SECONDS
    try:
        while not (await asyncio.wait({loading}, timeout=pause))[0]:
            tell(f"waiting for the server '{provider.id}' to load {model}", time.monotonic() - began)
            pause = 1.0
    finally:
        loading.cancel()


def _find_loaded(answer: Mapping[str, Any], model: str) -> int | None:
    for entry in answer.get("models") or ():
        if isinstance(entry, Mapping) and _same(str(entry.get("name") or entry.get("model") or ""), model):
            return _whole(entry.get("context_length"))
    return None


def _find_parameter(answer: Mapping[str, Any], name: str) -> int | None:
    """Return a number among the parameters of a model, of which each has a line: `num_ctx  8192`."""
    for line in str(answer.get("parameters") or "").splitlines():
        key, _, value = line.strip().partition(" ")
        if key == name and value.strip().isdecimal():
            return _whole(int(value))
    return None


def _same(name: str, model: str) -> bool:
    return name.removesuffix(":latest").lower() == model.removesuffix(":latest").lower()


def _by_id(answer: Mapping[str, Any], model: str) -> Mapping[str, Any]:
    for entry in answer.get("data") or ():
        if isinstance(entry, Mapping) and str(entry.get("id", "")).lower() == model.lower():
            return entry
    return {}


def _whole(value: Any) -> int | None:
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value
    return None


async def _get(
    url: str, provider: Provider, transport: Transport, seconds: float = WINDOW_SECONDS, body: Any = None
) -> Mapping[str, Any]:
    """Return the JSON object at an address; an empty one when there is none."""
    import orjson

    headers = request_headers(provider)
    try:
        async with asyncio.timeout(seconds):
            if body is None:
                opened = await transport.get(url, headers)
            else:
                opened = await transport.post(url, {**headers, "content-type": "application/json"}, orjson.dumps(body))
            async with opened as response:
                data = await response.body(MAX_BYTES)
                document = orjson.loads(data) if response.status == 200 else {}
    except (TransportError, TimeoutError, OSError, orjson.JSONDecodeError):
        return {}
    if isinstance(document, dict):
        return document
    return {}


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
    from retinue.models.select import select_model

    providers = Providers(settings, environment)
    await ask_servers(providers, transport, seconds=LIST_SECONDS)
    models = {info.full_name: info for info in providers.models}
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
        best = _preferred(await _ask_provider(providers, provider, transport), usual, best)
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


async def _ask_provider(
    providers: Providers, provider: Provider, transport: Transport | None
) -> tuple[str, ...] | None:
    if providers.asked or providers.asked_named:
        return providers.served(provider)

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
