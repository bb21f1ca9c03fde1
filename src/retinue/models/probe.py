"""Asking a server which models it has: bounded in time, and any failure is just "no answer"."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from retinue.models.providers import Provider

if TYPE_CHECKING:
    from retinue.http.transport import Transport

SECONDS = 0.5
MAX_BYTES = 1024 * 1024


async def served_models(
    provider: Provider, transport: Transport | None = None, *, seconds: float = SECONDS
) -> tuple[str, ...] | None:
    """The ids a server lists, in its order; None when it gave no answer that can be used."""
    from retinue.http.transport import Transport, TransportError

    own = Transport() if transport is None else transport
    try:
        async with asyncio.timeout(seconds):
            headers = request_headers(await with_key(provider))
            async with await own.get(_url(provider), headers) as response:
                body = await response.body(MAX_BYTES)
                return _ids(body) if response.status == 200 else None
    except (TransportError, TimeoutError, OSError):
        return None
    finally:
        if transport is None:
            await own.close()


async def first_that_answers(
    providers: list[Provider], transport: Transport | None = None
) -> tuple[Provider, tuple[str, ...]] | None:
    """All are asked at once; the first in the given order that has a model to offer wins."""
    answers = await asyncio.gather(*(served_models(provider, transport) for provider in providers))
    for provider, models in zip(providers, answers, strict=True):
        if models or (models is not None and provider.listed):
            return provider, models
    return None


async def with_key(provider: Provider) -> Provider:
    """The provider with the key that its helper gives, if it has one that works."""
    if provider.helper is None:
        return provider
    from retinue.models.key_helper import KeyHelperError, helped_key

    try:
        return provider._replace(api_key=await helped_key(provider.helper))
    except KeyHelperError:
        return provider


def _url(provider: Provider) -> str:
    path = {"anthropic": "/v1/models", "gemini": "/v1beta/models"}.get(provider.api, "/models")
    return provider.base_url + path + (f"?{urlencode(dict(provider.query))}" if provider.query else "")


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
    names = [entry.get("id") or entry.get("name") for entry in entries if isinstance(entry, dict)]
    return tuple(
        name.removeprefix("models/") for name in names if isinstance(name, str) and name.isprintable() and name
    )
