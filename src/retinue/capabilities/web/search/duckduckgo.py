"""DuckDuckGo, through the library `ddgs` of the extra `web`."""

from __future__ import annotations

import asyncio
from importlib.util import find_spec
from typing import Any

from retinue.capabilities.web.errors import WebError
from retinue.capabilities.web.search.protocol import results
from retinue.capabilities.web.store import Result

_NO_WAY = ("connect", "dns", "resolve", "network", "sending request")
"""Words of the library's errors when nobody was reached."""


class DuckDuckGo:
    name = "ddgs"
    tier = 2
    host = "html.duckduckgo.com"

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def missing(self) -> str | None:
        return None if find_spec("ddgs") else "install it with: pip install 'retinue[web]'"

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
            said = " ".join(str(error).split())
            if "no results" in said.lower():
                return []
            if any(word in said.lower() for word in _NO_WAY):
                raise self._error("NETWORK_ERROR", "it cannot be reached; check the network") from None
            raise self._error("WEB_SEARCH_FAILED", said[:200]) from None
        except Exception as error:  # noqa: BLE001 - the library lets errors of its HTTP client through
            raise self._error("WEB_SEARCH_FAILED", f"{type(error).__name__}: {str(error)[:200]}") from None

    def _error(self, code: str, what: str) -> WebError:
        limited = code == "PROVIDER_RATE_LIMITED"
        return WebError(code, f"DuckDuckGo: {what}.", hosts=(self.host,), provider=self.name, limited=limited)
