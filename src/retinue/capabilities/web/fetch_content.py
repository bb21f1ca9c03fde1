"""fetch_content: pages of the public web as readable text."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from retinue.capabilities.web.base import WebTool, texts
from retinue.capabilities.web.errors import FetchError, WebError
from retinue.core.effects import ToolEffect
from retinue.core.messages import Text
from retinue.core.tool import ToolContext, ToolOutput
from retinue.tools.arguments import Arguments
from retinue.tools.base import Aliases, Properties


class FetchContentTool(WebTool):
    name = "fetch_content"
    required = ()
    properties: ClassVar[Properties] = {
        "url": {"type": "string"},
        "responseId": {"type": "string", "description": "Of an earlier result, to read on"},
        "offset": {"type": "integer", "description": "First character, from 0"},
    }
    hidden: ClassVar[Properties] = {
        "urls": {"type": "array", "items": {"type": "string"}},
        "limit": {"type": "integer"},
        "query": {"type": "string"},
        "queryIndex": {"type": "integer"},
        "urlIndex": {"type": "integer"},
    }
    aliases: ClassVar[Aliases] = {
        "url": ("uri", "link", "href", "address"),
        "responseId": ("response_id", "id"),
        "offset": ("start", "start_index"),
        "limit": ("max_length", "max_chars", "max_characters"),
    }
    ignored = frozenset({"prompt", "format", "raw", "timeout", "description", "explanation"})

    async def call(self, call_id: str, given: Arguments, context: ToolContext) -> ToolOutput:
        from retinue.capabilities.web.service import MOST_URLS
        from retinue.capabilities.web.show import show_pages
        from retinue.capabilities.web.store import Found, Result, as_value

        if given.find("responseId") is not None:
            from retinue.capabilities.web.get_search_content import recall

            return recall(given, self.web(), context)
        urls = texts(given, "url", "urls")
        if not urls or len(urls) > MOST_URLS:
            asked = f"{len(urls)} were given" if urls else "none was given"
            raise WebError("INVALID_INPUT", f'fetch_content needs "url", or "urls" with at most {MOST_URLS}; {asked}.')
        offset, limit = given.whole("offset") or 0, given.whole("limit", least=1)
        web = self.web()
        context.progress(call_id, f"fetching {', '.join(urls)[:200]}")
        done = await web.pages(urls, context.reach)
        hosts = tuple(dict.fromkeys(host for _, _, some in done for host in some))
        results = [replace(page, source=url) for url, page, _ in done if isinstance(page, Result)]
        failures = [(url, error) for url, error, _ in done if isinstance(error, FetchError)]
        answer = web.store(context).add("fetch", [Found("", tuple(results))]) if results else None
        if failures or answer is None:
            raise _failed(failures, hosts, answer.id if answer else "")
        most = min(limit or web.settings.web_max_content_chars, web.settings.web_max_content_chars)
        text = show_pages(answer, results, offset=offset, most=most)
        return ToolOutput((Text(text),), effect=ToolEffect(hosts=hosts), value=as_value(answer))


def _failed(failures: list[tuple[str, FetchError]], hosts: tuple[str, ...], kept: str) -> WebError:
    first = failures[0][1]
    message = " ".join(dict.fromkeys(error.message for _, error in failures))
    if kept:
        message += f' The other pages were fetched: fetch_content with responseId "{kept}" has them.'
    limited = any(error.problem == "RATE_LIMITED" for _, error in failures)
    return WebError(first.code, message, hosts=hosts, limited=limited)
