"""Search services: their interface, requests over HTTP, and two services that need more than one request.

These two are DuckDuckGo, through the library `ddgs` of the extra `web`, and the search of a model's provider
(Anthropic, OpenAI, Gemini). The latter makes one small request per query and uses only the sources of the answer. Its
tokens are not part of the usage of the run."""

from __future__ import annotations

import asyncio
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from html import unescape
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode, urlsplit

from retinue.capabilities.web.base import Result, WebError
from retinue.core.install import install_command
from retinue.http.transport import TransportError
from retinue.tools.delegation.frame import one_line

if TYPE_CHECKING:
    from retinue.http.transport import Transport
    from retinue.models.providers import Provider, Providers


_TAG = re.compile(r"<[^<>]{0,200}>")
_MAX_ANSWER_BYTES = 4 * 1024 * 1024


class Searcher(ABC):
    """A search service. `tier` 0 needs a key, 1 is the user's server, 2 needs nothing, 3 costs tokens."""

    name = ""
    tier = 0

    @property
    @abstractmethod
    def host(self) -> str:
        """The host that is contacted."""

    @abstractmethod
    def missing(self) -> str | None:
        """Return the missing setup step, or None if the service is available. Cheap: nothing is loaded."""

    @abstractmethod
    async def search(self, query: str, count: int) -> list[Result]:
        """Return the results of a query, or raise WebError."""


def failure(provider: str, host: str, status: int, message: str = "") -> WebError:
    """Return the error for a status of a service."""
    match status:
        case 401 | 403:
            code, what = "PROVIDER_AUTH_FAILED", "refuses the key"
        case 429:
            code, what = "PROVIDER_RATE_LIMITED", "has had too many requests"
        case _ if status >= 500:
            code, what = "PROVIDER_UNAVAILABLE", "failed"
        case _:
            code, what = "WEB_SEARCH_FAILED", "did not understand the request"
    text = f"{provider} {what} (status {status})"
    if message:
        text += f": {message}"
    return WebError(code, f"{text}.", hosts=(host,), provider=provider, limited=status == 429)


class HttpSearcher(Searcher):
    """A service with a JSON API. A subclass makes the request and reads the answer; `setup` tells the user how to set
    the key."""

    setup = ""

    def __init__(self, transport: Transport, base: str, key: str = "") -> None:
        self._transport = transport
        self._base = base.rstrip("/")
        self._key = key

    @property
    def host(self) -> str:
        return urlsplit(self._base).hostname or self._base

    def missing(self) -> str | None:
        return None if self._key else self.setup

    async def get(self, path: str, query: Mapping[str, str], headers: Mapping[str, str]) -> Any:
        return await self._ask(f"{self._base}{path}?{urlencode(query)}", headers, None)

    async def post(self, path: str, body: Mapping[str, Any], headers: Mapping[str, str]) -> Any:
        return await self._ask(f"{self._base}{path}", headers, json.dumps(body).encode())

    async def _ask(self, url: str, headers: Mapping[str, str], body: bytes | None) -> Any:
        all_headers = {"accept": "application/json", **headers}
        try:
            if body is None:
                answer = await self._transport.get(url, all_headers)
            else:
                answer = await self._transport.post(url, {"content-type": "application/json", **all_headers}, body)
            async with answer:
                data = await answer.body(_MAX_ANSWER_BYTES)
        except TransportError as error:
            raise WebError(
                "NETWORK_ERROR", f"{self.name}: {error.message}", hosts=(self.host,), provider=self.name
            ) from None
        if answer.status != 200:
            raise failure(self.name, self.host, answer.status, self._read_error(data))
        try:
            return json.loads(data)
        except ValueError:
            message = f"{self.name}: its answer is not JSON."
            raise WebError("WEB_SEARCH_FAILED", message, hosts=(self.host,), provider=self.name) from None

    def _read_error(self, data: bytes) -> str:
        """Return the text of an error: one line, without markup and without the key."""
        text = plain(data[:2_000].decode("utf-8", "replace"))
        # Some services repeat a wrong key in their answer.
        if self._key:
            text = text.replace(self._key, "[key]")
        return one_line(text)


def plain(text: object) -> str:
    """Return the text of a result without markup, which some services add."""
    if not isinstance(text, str):
        return ""
    return " ".join(unescape(_TAG.sub("", text)).split())


def results(rows: Any, source: str, *, url: str, title: str, snippet: str) -> list[Result]:
    """Return the rows as results, by the names of their fields. Invalid rows are skipped."""
    result_by_url: dict[str, Result] = {}
    if not isinstance(rows, list):
        return []
    for row in rows:
        if not isinstance(row, Mapping):
            continue
        address = row.get(url)
        if isinstance(address, str) and address.startswith(("http://", "https://")) and address not in result_by_url:
            snippet_text = plain(row.get(snippet))[:2_000]
            result_by_url[address] = Result(address, plain(row.get(title))[:300], snippet_text, source)
    return list(result_by_url.values())


async def in_time(provider: str, host: str, seconds: float, work: Any) -> Any:
    """Return the result of the work. Raise WebError if it takes too long."""
    try:
        async with asyncio.timeout(seconds):
            return await work
    except TimeoutError:
        raise WebError(
            "WEB_SEARCH_TIMEOUT", f"{provider} did not answer in {seconds:g} seconds.", hosts=(host,), provider=provider
        ) from None


_UNREACHED_WORDS = ("connect", "dns", "resolve", "network", "sending request")
"""Words in the library's errors if the server was not reached."""


class DuckDuckGo(Searcher):
    name = "ddgs"
    tier = 2

    @property
    def host(self) -> str:
        return "html.duckduckgo.com"

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def missing(self) -> str | None:
        return None if find_spec("ddgs") else f"install it with: {install_command('web')}"

    async def search(self, query: str, count: int) -> list[Result]:
        rows = await asyncio.to_thread(self._search, query, count)
        return results(rows, self.name, url="href", title="title", snippet="body")

    def _search(self, query: str, count: int) -> Any:
        from ddgs import DDGS
        from ddgs.exceptions import DDGSException, RatelimitException, TimeoutException

        try:
            with DDGS(timeout=max(1, int(self._seconds))) as engine:
                return engine.text(query, max_results=count, backend="duckduckgo")
        except RatelimitException:
            raise self._error("PROVIDER_RATE_LIMITED", "it has had too many requests; try again later") from None
        except TimeoutException:
            raise self._error("WEB_SEARCH_TIMEOUT", f"it did not answer in {self._seconds:g} seconds") from None
        except DDGSException as error:
            message = " ".join(str(error).split())
            # The library raises an error for a search without results.
            if "no results" in message.lower():
                return []
            if any(word in message.lower() for word in _UNREACHED_WORDS):
                raise self._error("NETWORK_ERROR", "it cannot be reached; check the network") from None
            raise self._error("WEB_SEARCH_FAILED", message[:200]) from None
        except Exception as error:  # noqa: BLE001 - the library lets errors of its HTTP client through
            raise self._error("WEB_SEARCH_FAILED", f"{type(error).__name__}: {str(error)[:200]}") from None

    def _error(self, code: str, what: str) -> WebError:
        limited = code == "PROVIDER_RATE_LIMITED"
        return WebError(code, f"DuckDuckGo: {what}.", hosts=(self.host,), provider=self.name, limited=limited)


_SEARCHING_APIS = ("anthropic", "openai-responses", "gemini")
_SMALL_MODEL_NAMES = {"anthropic": "haiku", "openai-responses": "mini", "gemini": "flash"}


class Native(HttpSearcher):
    name = "native"
    tier = 3

    def __init__(self, transport: Transport, providers: Providers, model: str | None) -> None:
        self._provider, self._model = _choose_provider(providers, model)
        base = key = ""
        if self._provider is not None:
            base, key = self._provider.base_url, self._provider.api_key
        super().__init__(transport, base, key)

    def missing(self) -> str | None:
        return None if self._provider else "set a key of Anthropic, OpenAI or Gemini, or web.nativeModel"

    async def search(self, query: str, count: int) -> list[Result]:
        assert self._provider is not None
        ask = {"anthropic": self._anthropic, "openai-responses": self._openai, "gemini": self._gemini}
        rows = list(await ask[self._provider.api](f"Search the web for: {query}"))
        return results(rows, f"native ({self._provider.id})", url="url", title="title", snippet="snippet")[:count]

    async def _anthropic(self, text: str) -> Iterator[Mapping[str, Any]]:
        body = {
            "model": self._model,
            "max_tokens": 1024,
            "messages": [{"role": "user", "content": text}],
            "tools": [{"type": "web_search_20250305", "name": "web_search", "max_uses": 1}],
        }
        headers = {"x-api-key": self._key, "anthropic-version": "2023-06-01"}
        return _of_anthropic(await self.post("/v1/messages", body, headers))

    async def _openai(self, text: str) -> Iterator[Mapping[str, Any]]:
        body = {"model": self._model, "input": text, "tools": [{"type": "web_search"}]}
        return _of_openai(await self.post("/responses", body, {"authorization": f"Bearer {self._key}"}))

    async def _gemini(self, text: str) -> Iterator[Mapping[str, Any]]:
        body = {"contents": [{"role": "user", "parts": [{"text": text}]}], "tools": [{"google_search": {}}]}
        path = f"/v1beta/models/{self._model}:generateContent"
        return _of_gemini(await self.post(path, body, {"x-goog-api-key": self._key}))


def _choose_provider(providers: Providers, chosen: str | None) -> tuple[Provider | None, str]:
    """Return the provider and the model to ask: the configured model, or a small one of the first provider with a
    key."""
    if chosen:
        name, _, model = chosen.partition("/")
        # The request made here is one of the Responses API.
        if name == "openai":
            name = "openai-responses"
        provider = providers.get(name)
        if provider is not None and provider.problem is None and provider.api in _SEARCHING_APIS:
            return provider, model
        return None, ""
    for api in _SEARCHING_APIS:
        provider = providers.get(api)
        if provider is not None and provider.problem is None and not provider.custom:
            for info in providers.models_of(provider):
                if _SMALL_MODEL_NAMES[api] in info.id:
                    return provider, info.id
    return None, ""


def _of_anthropic(data: Any) -> Iterator[Mapping[str, Any]]:
    blocks = _list(data, "content")
    cited = {}
    for block in blocks:
        for citation in _list(block, "citations"):
            cited[citation.get("url")] = citation.get("cited_text", "")
    for block in blocks:
        if block.get("type") == "web_search_tool_result":
            for row in _list(block, "content"):
                yield {**row, "snippet": cited.get(row.get("url"), "")}


def _of_openai(data: Any) -> Iterator[Mapping[str, Any]]:
    for item in _list(data, "output"):
        for content in _list(item, "content"):
            text = content.get("text", "")
            for note in _list(content, "annotations"):
                if note.get("type") == "url_citation":
                    # A citation follows the text that it supports, so the line before it is the snippet.
                    end = note.get("start_index") or 0
                    start = max(0, text.rfind("\n", 0, end))
                    yield {**note, "snippet": text[start:end].strip()}


def _of_gemini(data: Any) -> Iterator[Mapping[str, Any]]:
    for candidate in _list(data, "candidates"):
        grounding = candidate.get("groundingMetadata")
        texts: dict[int, str] = {}
        for support in _list(grounding, "groundingSupports"):
            segment = support.get("segment")
            text = segment.get("text", "") if isinstance(segment, Mapping) else ""
            for index in support.get("groundingChunkIndices") or ():
                texts.setdefault(index, text)
        for number, chunk in enumerate(_list(grounding, "groundingChunks")):
            source = chunk.get("web")
            if isinstance(source, Mapping):
                yield {"url": source.get("uri"), "title": source.get("title"), "snippet": texts.get(number, "")}


def _list(data: Any, name: str) -> list[Mapping[str, Any]]:
    if not isinstance(data, Mapping):
        return []
    values = data.get(name)
    if not isinstance(values, list):
        return []
    return [value for value in values if isinstance(value, Mapping)]
