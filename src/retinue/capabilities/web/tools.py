"""web_search: several queries at once, by whichever search service is set up.

fetch_content: pages of the public web as readable text.

get_search_content: what earlier searches and fetches of this run found.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from msgspec.structs import replace

from retinue.capabilities.web.base import WebError, WebTool, texts
from retinue.core.messages import Text
from retinue.core.permission import ToolEffect
from retinue.core.tool import ToolContext, ToolOutput
from retinue.http.fetched import FetchError
from retinue.tools.arguments import Arguments
from retinue.tools.base import Aliases, Properties

if TYPE_CHECKING:
    from retinue.capabilities.web.service import Web
    from retinue.capabilities.web.store import Result, StoredAnswer, StoredQuery


MOST_QUERIES = 5
_LONGEST = 1_000
_READ_PAGES = 5


class WebSearchTool(WebTool):
    name = "web_search"
    required = ()
    properties: ClassVar[Properties] = {
        "query": {"type": "string"},
        "queries": {"type": "array", "items": {"type": "string"}, "description": "At most 5"},
    }
    hidden: ClassVar[Properties] = {"numResults": {"type": "integer"}, "includeContent": {"type": "boolean"}}
    aliases: ClassVar[Aliases] = {
        "query": ("q", "search_query", "search_term"),
        "numResults": ("num_results", "count", "max_results", "limit"),
        "includeContent": ("include_content",),
    }
    ignored = frozenset({"explanation", "description"})

    async def call(self, call_id: str, given: Arguments, context: ToolContext) -> ToolOutput:
        from retinue.capabilities.web.base import show_search
        from retinue.capabilities.web.store import as_value

        queries = [query[:_LONGEST] for query in texts(given, "query", "queries")][:MOST_QUERIES]
        if not queries:
            raise WebError("WEB_SEARCH_INVALID_QUERY", 'web_search needs "query", or "queries" with at least one.')
        web = self.web()
        wanted = given.number("numResults")
        most = web.limits.results
        count = most if wanted is None else max(1, min(int(wanted), most))
        context.progress(call_id, f"searching for {', '.join(queries)[:200]}")
        made = await web.search().run(queries, count)
        found, hosts = made.found, made.hosts
        if given.flag("includeContent"):
            found, more = await _with_pages(web, found, context)
            hosts = tuple(dict.fromkeys((*hosts, *more)))
        answer = web.store(context).add("search", found)
        text = show_search(answer, found, made.provider, made.notes)
        effect = ToolEffect(hosts=hosts, provider=made.provider)
        return ToolOutput((Text(text),), effect=effect, value=as_value(answer))


async def _with_pages(
    web: Web, found: tuple[StoredQuery, ...], context: ToolContext
) -> tuple[tuple[StoredQuery, ...], tuple[str, ...]]:
    """The first results with what their pages say. A page that cannot be had is left out, and so
    is one that the rules of the run do not allow."""
    from retinue.capabilities.web.store import Result

    urls = list(dict.fromkeys(result.url for each in found for result in each.results))
    allowed = [url for url in urls if context.reach(url) is None][:_READ_PAGES]
    done = await web.pages(allowed, context.reach)
    pages = {url: page for url, page, _ in done if isinstance(page, Result)}
    hosts = tuple(dict.fromkeys(host for _, _, some in done for host in some))

    def filled(result: Result) -> Result:
        page = pages.get(result.url)
        if page is None:
            return result
        return replace(result, content=page.content, truncated=page.truncated, content_type=page.content_type)

    return tuple(replace(each, results=tuple(map(filled, each.results))) for each in found), hosts


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
        from retinue.capabilities.web.base import show_pages
        from retinue.capabilities.web.service import MOST_URLS
        from retinue.capabilities.web.store import Result, StoredQuery, as_value

        if given.find("responseId") is not None:
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
        answer = web.store(context).add("fetch", [StoredQuery("", tuple(results))]) if results else None
        if failures or answer is None:
            raise _failed(failures, hosts, answer.id if answer else "")
        most = min(limit or web.limits.shown_characters, web.limits.shown_characters)
        text = show_pages(answer, results, offset=offset, most=most)
        return ToolOutput((Text(text),), effect=ToolEffect(hosts=hosts), value=as_value(answer))


def _failed(failures: list[tuple[str, FetchError]], hosts: tuple[str, ...], kept: str) -> WebError:
    first = failures[0][1]
    message = " ".join(dict.fromkeys(error.message for _, error in failures))
    if kept:
        message += f' The other pages were fetched: fetch_content with responseId "{kept}" has them.'
    limited = any(error.problem == "RATE_LIMITED" for _, error in failures)
    return WebError(first.code, message, hosts=hosts, limited=limited)


_SHOWN = 5


class GetSearchContentTool(WebTool):
    name = "get_search_content"
    required = ()
    properties: ClassVar[Properties] = {
        "responseId": {"type": "string", "description": "The id an earlier result began with"},
        "query": {"type": "string", "description": "One of its queries"},
        "queryIndex": {"type": "integer", "description": "Or its number, from 0"},
        "url": {"type": "string", "description": "One of its pages or results"},
        "urlIndex": {"type": "integer", "description": "Or its number, from 0"},
        "offset": {"type": "integer", "description": "First character of a page to show, from 0"},
        "limit": {"type": "integer", "description": "Number of characters"},
    }
    aliases: ClassVar[Aliases] = {"responseId": ("response_id", "id"), "offset": ("start",)}

    async def call(self, call_id: str, given: Arguments, context: ToolContext) -> ToolOutput:
        return recall(given, self.web(), context)


def recall(given: Arguments, web: Web, context: ToolContext) -> ToolOutput:
    """What an earlier search or fetch of the run found, by its `responseId`. Fetches nothing."""
    from retinue.capabilities.web.base import show_pages, show_search
    from retinue.capabilities.web.store import as_value

    identifier = given.optional_text("responseId")
    if identifier is None:
        raise WebError("INVALID_INPUT", 'get_search_content needs "responseId": the id an earlier result began with.')
    store = web.store(context)
    answer = store.get(identifier.strip())
    if answer is None:
        raise _not_found(f"There is no response '{identifier}' in this run.", store.ids())
    offset, limit = given.whole("offset") or 0, given.whole("limit", least=1)
    found = _queries(given, answer)
    results = _results(given, found)
    if answer.kind == "search" and (results is None or not any(result.content for result in results)):
        chosen = found if results is None else _only(found, results)
        return ToolOutput((Text(show_search(answer, chosen)),), value=as_value(answer))
    shown = [result for each in found for result in each.results] if results is None else results
    most = min(limit or web.limits.shown_characters, web.limits.shown_characters)
    return ToolOutput((Text(show_pages(answer, shown, offset=offset, most=most)),), value=as_value(answer))


def _queries(given: Arguments, answer: StoredAnswer) -> tuple[StoredQuery, ...]:
    query, index = given.optional_text("query"), given.whole("queryIndex", "query_index")
    if query is not None:
        chosen = tuple(each for each in answer.found if each.query.strip().lower() == query.strip().lower())
        if not chosen:
            raise _not_found(f"The response has no query '{query}'.", [each.query for each in answer.found])
        return chosen
    if index is not None:
        if index >= len(answer.found):
            raise _not_found(f"The response has no query number {index}.", [each.query for each in answer.found])
        return (answer.found[index],)
    return answer.found


def _results(given: Arguments, found: tuple[StoredQuery, ...]) -> list[Result] | None:
    """Those that are asked for; None when all are."""
    url, index = given.optional_text("url"), given.whole("urlIndex", "url_index")
    every = [result for each in found for result in each.results]
    if url is not None:
        wanted = url.strip().rstrip("/")
        chosen = [result for result in every if wanted in (result.url.rstrip("/"), result.source.rstrip("/"))]
        if not chosen:
            raise _not_found(f"The response has no page '{url}'.", [result.url for result in every])
        return chosen[:1]
    if index is not None:
        if index >= len(every):
            raise _not_found(f"The response has no page number {index}.", [result.url for result in every])
        return [every[index]]
    return None


def _only(found: tuple[StoredQuery, ...], results: list[Result]) -> tuple[StoredQuery, ...]:
    from msgspec.structs import replace

    some = (replace(each, results=tuple(one for one in each.results if one in results)) for each in found)
    return tuple(each for each in some if each.results)


def _not_found(what: str, choices: list[str]) -> WebError:
    from retinue.tools.delegation.frame import one_line

    listed = ", ".join(one_line(choice) for choice in choices[:_SHOWN])
    more = f" and {len(choices) - _SHOWN} more" if len(choices) > _SHOWN else ""
    return WebError("NOT_FOUND", f"{what} There is: {listed}{more}." if choices else f"{what} There is none yet.")
