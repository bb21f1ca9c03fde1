"""The models that can be used from here, and their windows on local servers.

A key, the table and the settings name models without a request. Servers of the user, and providers with models of many
makers, are asked for their models before a part of a name is matched. Well-known servers on this machine (Ollama, LM
Studio, vLLM, llama.cpp at their usual ports) that the user has not set up are asked only if a list or a default is
needed or a name is still unknown, and only if they belong to this user or to the system. `provider/model` with a
version, and the complete id of a model, need no request. Requests of one moment are sent at once, with a short limit.

On a local server the window of a model depends on the operator and the memory, not on the maker. Ollama gives 4,096
tokens below 24 GiB of video memory (docs/context-length), and cuts off longer requests without a notice. So the server
is asked, each in its own way:

    Ollama      /api/ps       context_length of the loaded model; /api/generate loads it first
                /api/show     num_ctx of the model's parameters, for older versions
    vLLM        /v1/models    max_model_len
    LiteLLM     /v1/models    max_input_tokens
    llama.cpp   /props        default_generation_settings.n_ctx
    LM Studio   /api/v0/models    loaded_context_length

Each request has a time limit. If it fails, a small window is assumed and reported.
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


LIST_SECONDS = 0.5
MAX_ANSWER_BYTES = 1024 * 1024
MAX_LIST_BYTES = 16 * MAX_ANSWER_BYTES
"""OpenRouter describes hundreds of models."""


async def served_models(
    provider: Provider, transport: Transport | None = None, *, seconds: float = LIST_SECONDS
) -> tuple[str, ...] | None:
    """Return the ids that a server lists, in its order; None if it gave no usable answer."""
    own = Transport() if transport is None else transport
    try:
        async with asyncio.timeout(seconds):
            headers = request_headers(await with_key(provider))
            path = {"anthropic": "/v1/models", "gemini": "/v1beta/models"}.get(provider.api, "/models")
            url = provider.base_url + path
            if provider.query:
                url += f"?{urlencode(dict(provider.query))}"
            async with await own.get(url, headers) as response:
                body = await response.body(MAX_LIST_BYTES)
                if response.status == 200:
                    return _ids(body)
                return None
    except (TransportError, TimeoutError, OSError):
        return None
    finally:
        if transport is None:
            await own.close()


async def with_key(provider: Provider) -> Provider:
    """Return the provider with the key of its helper, if the helper returns one."""
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


ReportWait = Callable[[str, float], None]
"""Takes a text about the wait, and the seconds since it began."""

WINDOW_SECONDS = 2.0
UNREPORTED_SECONDS = 3.0
"""Shorter waits are not reported."""
LOAD_SECONDS = 60.0
WINDOW_KEPT_SECONDS = 60.0
SMALL_WINDOW_TOKENS = 16_384
"""An agent's instructions and a few files fill a smaller window."""
_WINDOW_ADVICE = {
    "ollama": "start it with OLLAMA_CONTEXT_LENGTH=65536",
    "llama.cpp": "start it with -c 65536",
    "lmstudio": "load the model with a longer context",
    "vllm": "start it with a larger --max-model-len",
}


def _report_nothing(text: str, seconds: float) -> None: ...


_windows: dict[tuple[str, str], tuple[float, int | None]] = {}
"""By address and model: when a server was asked, and the window that it stated."""


async def with_real_window(
    selection: ModelSelection,
    providers: Providers,
    transport: Transport,
    report_wait: ReportWait = _report_nothing,
    *,
    load: bool = True,
) -> ModelSelection:
    """Return the selection with the window of the model on its server, and a warning if it is small or unknown."""
    provider, info = selection.provider, selection.info
    described = providers.has_window(provider, info.id)
    info, note = await with_local_window(provider, info, transport, described, report_wait, load=load)
    if note is None:
        return selection._replace(info=info)
    return selection._replace(info=info, warnings=(*selection.warnings, note))


async def with_local_window(
    provider: Provider,
    info: ModelInfo,
    transport: Transport,
    described: bool,
    report_wait: ReportWait = _report_nothing,
    *,
    load: bool = True,
) -> tuple[ModelInfo, str | None]:
    """Return `info` with the window on the server, and a sentence for people if it is small or unknown. `described`:
    the user's settings state the window, so no server is asked. `report_wait` is called every second after the first
    three while the server loads the model. Without `load` the server is asked only about a model that it has loaded."""
    if described or info.id.endswith("cloud") or not provider.runs_models:
        return info, None
    key = (provider.base_url, info.id)
    at, window = _windows.get(key, (0.0, None))
    if not at or time.monotonic() - at > WINDOW_KEPT_SECONDS:
        window = await _ask_window(provider, info.id, transport, report_wait, load=load)
        _windows[key] = (time.monotonic(), window)
    if window is None and not provider.computes_answers and known_elsewhere(info.id) is not None:
        # The server is a gateway to the model's maker.
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
    if window >= SMALL_WINDOW_TOKENS:
        return info, None
    how = _WINDOW_ADVICE.get(provider.id, "give it a larger context")
    return info, f"{info.full_name} has a window of only {window} tokens on this server: {how}, agents need 64,000"


def _with_window(info: ModelInfo, window: int) -> ModelInfo:
    """Return `info` with this window, and an output limit of half of it."""
    return replace(info, window=window, max_output=max(256, min(info.max_output, window // 2)))


async def _ask_window(
    provider: Provider, model: str, transport: Transport, report_wait: ReportWait, *, load: bool
) -> int | None:
    """Return the window that a server states; None if it does not answer."""
    root = provider.base_url.removesuffix("/v1")
    if provider.id == "ollama":
        status = _find_loaded(await _get(f"{root}/api/ps", provider, transport), model)
        if status is None and load:
            await _load(root, model, provider, transport, report_wait)
            status = _find_loaded(await _get(f"{root}/api/ps", provider, transport), model)
        if status is None:
            shown = await _get(f"{root}/api/show", provider, transport, body={"model": model})
            status = _find_parameter(shown, "num_ctx")
        return status
    listed = _by_id(await _get(f"{provider.base_url}/models", provider, transport), model)
    for key in ("max_model_len", "max_input_tokens"):
        if window := _positive_integer(listed.get(key)):
            return window
    props = await _get(f"{root}/props", provider, transport)
    settings = props.get("default_generation_settings")
    if isinstance(settings, Mapping) and (window := _positive_integer(settings.get("n_ctx"))):
        return window
    loaded = _by_id(await _get(f"{root}/api/v0/models", provider, transport), model)
    return _positive_integer(loaded.get("loaded_context_length"))


async def _load(root: str, model: str, provider: Provider, transport: Transport, report_wait: ReportWait) -> None:
    """Load a model by a request without a prompt. The first real request would have to load it anyway."""
    loading = asyncio.ensure_future(_get(f"{root}/api/generate", provider, transport, LOAD_SECONDS, {"model": model}))
    began = time.monotonic()
    pause = UNREPORTED_SECONDS
    try:
        while not (await asyncio.wait({loading}, timeout=pause))[0]:
            report_wait(f"waiting for the server '{provider.id}' to load {model}", time.monotonic() - began)
            pause = 1.0
    finally:
        loading.cancel()


def _find_loaded(answer: Mapping[str, Any], model: str) -> int | None:
    for entry in answer.get("models") or ():
        if isinstance(entry, Mapping) and _is_same_model(str(entry.get("name") or entry.get("model") or ""), model):
            return _positive_integer(entry.get("context_length"))
    return None


def _find_parameter(answer: Mapping[str, Any], name: str) -> int | None:
    """Return a number among the parameters of a model, one on each line: `num_ctx  8192`."""
    for line in str(answer.get("parameters") or "").splitlines():
        key, _, value = line.strip().partition(" ")
        if key == name and value.strip().isdecimal():
            return _positive_integer(int(value))
    return None


def _is_same_model(name: str, model: str) -> bool:
    return name.removesuffix(":latest").lower() == model.removesuffix(":latest").lower()


def _by_id(answer: Mapping[str, Any], model: str) -> Mapping[str, Any]:
    for entry in answer.get("data") or ():
        if isinstance(entry, Mapping) and str(entry.get("id", "")).lower() == model.lower():
            return entry
    return {}


def _positive_integer(value: Any) -> int | None:
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value
    return None


async def _get(
    url: str, provider: Provider, transport: Transport, seconds: float = WINDOW_SECONDS, body: Any = None
) -> Mapping[str, Any]:
    """Return the JSON object at an address; an empty one if there is none."""
    import orjson

    headers = request_headers(provider)
    try:
        async with asyncio.timeout(seconds):
            if body is None:
                opened = await transport.get(url, headers)
            else:
                opened = await transport.post(url, {**headers, "content-type": "application/json"}, orjson.dumps(body))
            async with opened as response:
                data = await response.body(MAX_ANSWER_BYTES)
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
"""How long runs use the list of a server before they ask again."""
PERSON_LIST_SECONDS = 4.0
"""How long a server may take if a person waits for the list."""
_OTHER_WORDS = (
    "embed",
    "whisper",
    "tts",
    "rerank",
    "guard",
    "moderation",
    "bge-",
    "nomic-",
    "dall-e",
    "flux",
    "ocr",
)


class ModelInventory(NamedTuple):
    """The models that can be used. `active` is the model of a run that names none, `problem` why there is none."""

    models: tuple[ModelInfo, ...]
    active: ModelSelection | None
    problem: RetinueError | None
    providers: Providers


async def list_models(
    settings: Settings, environment: Mapping[str, str], transport: Transport | None = None
) -> ModelInventory:
    """Return all models that a name can mean here, and the one that a run would get."""
    from retinue.models.select import select_model

    providers = Providers(settings, environment)
    await ask_servers(providers, transport, seconds=PERSON_LIST_SECONDS)
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
    """Ask the servers for their models, once, including well-known servers on this machine that are not set up. A
    server that does not answer is skipped."""
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
    """Ask the servers that the user set up for their models, once."""
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
    # A name that is missing in an older list may be in a new one.
    providers.asked_named = len(unasked) == len(servers)
    await _learn(providers, unasked, transport, ANSWER_SECONDS)


_lists: dict[tuple[str, str], tuple[float, tuple[str, ...]]] = {}
"""By address and key: when a server was asked, and the models that it listed."""


def _named_servers(providers: Providers) -> list[Provider]:
    return [provider for provider in providers.configured() if lists_its_models(provider)]


async def _learn(
    providers: Providers, servers: Sequence[Provider], transport: Transport | None, seconds: float
) -> None:
    if not servers:
        return
    answers = await asyncio.gather(*(served_models(server, transport, seconds=seconds) for server in servers))
    unnamed = providers.unnamed_servers()
    for server, models in zip(servers, answers, strict=True):
        # A server that is not set up must have a model, or it is another program.
        if models or (models is not None and server not in unnamed):
            providers.learn(server, models)
            _lists[server.base_url, server.api_key] = (time.monotonic(), models)


def lists_its_models(provider: Provider) -> bool:
    """Return whether only the server knows its models: it is the user's own, or has models of many makers."""
    return provider.custom or provider.local or bool(provider.listed) or not any(known_models(provider.id))


async def default_of(providers: Providers, provider: Provider, transport: Transport | None = None) -> ModelInfo | None:
    """Return the model to use if only the provider is known: the newest of the family for everyday work in the table,
    or the first suitable one that the server lists. Return None if neither is known."""
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
    """Return the first usual model that is served, else the first one for conversations."""
    if not served or best in served:
        return best
    for model in usual:
        if model in served:
            return model
    return first_chat_model(served)


def first_chat_model(served: tuple[str, ...]) -> str:
    """Return the first model that is not one for embeddings, speech or images."""
    for model in served:
        if not any(word in model.lower() for word in _OTHER_WORDS):
            return model
    return served[0]


async def _ask_provider(
    providers: Providers, provider: Provider, transport: Transport | None
) -> tuple[str, ...] | None:
    if providers.asked or providers.asked_named:
        return providers.served(provider)
    return await served_models(provider, transport)


async def _is_listening(provider: Provider) -> bool:
    """Return whether the address of a provider accepts connections."""
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
