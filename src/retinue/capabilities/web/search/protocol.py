"""What a search service is, and how one is asked over HTTP."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping
from html import unescape
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlencode, urlsplit

from retinue.capabilities.web.base import WebError
from retinue.capabilities.web.store import Result

if TYPE_CHECKING:
    from retinue.http.transport import Transport

_TAG = re.compile(r"<[^<>]{0,200}>")
_MOST_BYTES = 4 * 1024 * 1024


class Searcher(Protocol):
    """`tier` 0 has a key of its own, 1 is the user's server, 2 needs nothing, 3 costs tokens."""

    name: str
    tier: int

    @property
    def host(self) -> str: ...

    def missing(self) -> str | None:
        """What to set up before it can be asked; None when nothing. Cheap: nothing is loaded."""
        ...

    async def search(self, query: str, count: int) -> list[Result]:
        """Raises WebError with the codes of PROVIDER_CODES."""
        ...


def failure(provider: str, host: str, status: int, said: str = "") -> WebError:
    """A status of a service as the code that stands for it."""
    match status:
        case 401 | 403:
            code, what = "PROVIDER_AUTH_FAILED", "refuses the key"
        case 429:
            code, what = "PROVIDER_RATE_LIMITED", "has had too many requests"
        case _ if status >= 500:
            code, what = "PROVIDER_UNAVAILABLE", "failed"
        case _:
            code, what = "WEB_SEARCH_FAILED", "did not understand the request"
    text = f"{provider} {what} (status {status})" + (f": {said}" if said else "") + "."
    return WebError(code, text, hosts=(host,), provider=provider, limited=status == 429)


class HttpSearcher:
    """A service that answers in JSON. A subclass says how it is asked and what it answers."""

    name = ""
    tier = 0

    def __init__(self, transport: Transport, base: str, key: str = "") -> None:
        self._transport = transport
        self._base = base.rstrip("/")
        self._key = key

    @property
    def host(self) -> str:
        return urlsplit(self._base).hostname or self._base

    async def get(self, path: str, query: Mapping[str, str], headers: Mapping[str, str]) -> Any:
        return await self._ask(f"{self._base}{path}?{urlencode(query)}", headers, None)

    async def post(self, path: str, body: Mapping[str, Any], headers: Mapping[str, str]) -> Any:
        return await self._ask(f"{self._base}{path}", headers, json.dumps(body).encode())

    async def _ask(self, url: str, headers: Mapping[str, str], body: bytes | None) -> Any:
        from retinue.http.transport import TransportError

        given = {"accept": "application/json", **headers}
        try:
            if body is None:
                answer = await self._transport.get(url, given)
            else:
                answer = await self._transport.post(url, {"content-type": "application/json", **given}, body)
            async with answer:
                data = await answer.body(_MOST_BYTES)
        except TransportError as error:
            raise WebError(
                "NETWORK_ERROR", f"{self.name}: {error.message}", hosts=(self.host,), provider=self.name
            ) from None
        if answer.status != 200:
            raise failure(self.name, self.host, answer.status, self._said(data))
        try:
            return json.loads(data)
        except ValueError:
            raise self.odd("what it answered is not JSON") from None

    def odd(self, what: str) -> WebError:
        return WebError("WEB_SEARCH_FAILED", f"{self.name}: {what}.", hosts=(self.host,), provider=self.name)

    def _said(self, data: bytes) -> str:
        """What an error says: one line, without markup and without the key."""
        from retinue.tools.delegation.frame import one_line

        text = plain(data[:2_000].decode("utf-8", "replace"))
        return one_line(text.replace(self._key, "[key]") if self._key else text)


def plain(text: object) -> str:
    """Text of a result, without the markup some services put into it."""
    return " ".join(unescape(_TAG.sub("", text)).split()) if isinstance(text, str) else ""


def results(rows: Any, source: str, *, url: str, title: str, snippet: str) -> list[Result]:
    """The rows that are results, read by the names of their fields; others are passed over."""
    found: dict[str, Result] = {}
    for row in rows if isinstance(rows, list) else ():
        address = row.get(url) if isinstance(row, Mapping) else None
        if isinstance(address, str) and address.startswith(("http://", "https://")) and address not in found:
            snippet_text = plain(row.get(snippet))[:2_000]
            found[address] = Result(address, plain(row.get(title))[:300], snippet_text, source)
    return list(found.values())


async def in_time(provider: str, host: str, seconds: float, work: Any) -> Any:
    """The work, or the code for one that takes too long."""
    try:
        async with asyncio.timeout(seconds):
            return await work
    except TimeoutError:
        raise WebError(
            "WEB_SEARCH_TIMEOUT", f"{provider} did not answer in {seconds:g} seconds.", hosts=(host,), provider=provider
        ) from None
