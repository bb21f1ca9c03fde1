"""The web as a part of runs: its tools, and which hosts the rules of a run let it reach.

`web_search` sends several queries at once to a search service, `fetch_content` returns pages of the public web as
readable text, and `get_search_content` shows results of earlier searches and fetches of the run.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

from msgspec.structs import replace

from retinue.capabilities.web.base import (
    Result,
    StoredAnswer,
    StoredQuery,
    WebError,
    WebTool,
    as_value,
    results_of,
    show_pages,
    show_search,
    texts,
)
from retinue.core.messages import Text
from retinue.core.permission import ToolEffect, ToolUse
from retinue.core.tool import Tool, ToolContext, ToolOutput
from retinue.core.tool_names import TOOL_EFFECTS
from retinue.http.address import FetchError
from retinue.runs.guard import RunGuards
from retinue.tools.base import Aliases, Arguments, Properties
from retinue.tools.delegation.frame import one_line

if TYPE_CHECKING:
    from retinue.capabilities.web.service import Web
    from retinue.http.address import Fetched
    from retinue.runs.project import Project


class Browsing:
    """The access of this process to the web. The service is not loaded before the first call of a tool."""

    def __init__(self, project: Project) -> None:
        self._project = project

    def tools(self) -> dict[str, Tool]:
        """Return the tools that search and read the web, by name."""
        kinds = (WebSearchTool, FetchContentTool, GetSearchContentTool)
        return {kind.name: kind(lambda: self.web) for kind in kinds}

    async def download(self, url: str, limit: int, permit: Callable[[str], str | None]) -> Fetched:
        """Fetch a URL for another tool, behind the same guard."""
        return await self.web.download(url, limit=limit, permit=permit)

    @cached_property
    def web(self) -> Web:
        from retinue.capabilities.web.service import Web

        project = self._project
        return Web(lambda: project.settings.settings, project.environment, lambda: project.transport)


def reach_of(project: Project, run_id: str) -> Callable[[str], str | None]:
    """Return a check for hosts that a call did not name: None if the run may contact the host, or the reason why not.

    A host that the rules ask about is refused. The model can name it in a separate call, about which the gate asks.
    """

    def why_not(url: str) -> str | None:
        guard = project.part(RunGuards).get(run_id)
        if guard is None:
            return None
        decision = guard.permissions.decide(ToolUse("fetch_content", {"url": url}, TOOL_EFFECTS["fetch_content"]))
        match decision.verdict:
            case "allow":
                return None
            case "deny":
                return decision.reason
            case _:
                return "No rule allows that host. If you need the page, fetch that URL itself."

    return why_not


MAX_QUERIES = 5
MAX_URLS = 10
_MAX_QUERY_CHARACTERS = 1_000
_MAX_READ_PAGES = 5


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

    async def call(self, call_id: str, arguments: Arguments, context: ToolContext) -> ToolOutput:
        queries = [query[:_MAX_QUERY_CHARACTERS] for query in texts(arguments, "query", "queries")][:MAX_QUERIES]
        if not queries:
            raise WebError("WEB_SEARCH_INVALID_QUERY", 'web_search needs "query", or "queries" with at least one.')
        web = self.web()
        number = arguments.number("numResults")
        count = web.limits.results
        if number is not None:
            count = max(1, min(int(number), count))
        context.progress(call_id, f"searching for {', '.join(queries)[:200]}")
        outcome = await web.search().run(queries, count)
        results, hosts = outcome.queries, outcome.hosts
        if arguments.flag("includeContent"):
            results, page_hosts = await _with_pages(web, results, context)
            hosts = tuple(dict.fromkeys((*hosts, *page_hosts)))
        answer = web.store(context).add("search", results)
        text = show_search(answer, results, outcome.provider, outcome.notes)
        effect = ToolEffect(hosts=hosts, provider=outcome.provider)
        return ToolOutput((Text(text),), effect=effect, value=as_value(answer))


async def _with_pages(
    web: Web, queries: tuple[StoredQuery, ...], context: ToolContext
) -> tuple[tuple[StoredQuery, ...], tuple[str, ...]]:
    """Add the text of the pages to the first results, except for pages that cannot be fetched or that the rules of the
    run do not allow."""
    urls = dict.fromkeys(result.url for result in results_of(queries))
    allowed = [url for url in urls if context.reach(url) is None][:_MAX_READ_PAGES]
    done = await web.pages(allowed, context.reach)
    pages = {url: page for url, page, _ in done if isinstance(page, Result)}
    hosts = _hosts(done)

    def add_page(result: Result) -> Result:
        page = pages.get(result.url)
        if page is None:
            return result
        return replace(result, content=page.content, truncated=page.truncated, content_type=page.content_type)

    return tuple(replace(query, results=tuple(map(add_page, query.results))) for query in queries), hosts


def _hosts(done: list[tuple[str, Result | FetchError, tuple[str, ...]]]) -> tuple[str, ...]:
    hosts: list[str] = []
    for _, _, contacted in done:
        hosts += contacted
    return tuple(dict.fromkeys(hosts))


class FetchContentTool(WebTool):
    name = "fetch_content"
    required = ()
    properties: ClassVar[Properties] = {
        "url": {"type": "string"},
        "responseId": {"type": "string", "description": "To read on"},
        "offset": {"type": "integer", "description": "From 0"},
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

    async def call(self, call_id: str, arguments: Arguments, context: ToolContext) -> ToolOutput:
        if arguments.find("responseId") is not None:
            return recall(arguments, self.web(), context)
        urls = texts(arguments, "url", "urls")
        if not urls or len(urls) > MAX_URLS:
            asked = f"{len(urls)} were given" if urls else "none was given"
            raise WebError("INVALID_INPUT", f'fetch_content needs "url", or "urls" with at most {MAX_URLS}; {asked}.')
        offset, limit = arguments.whole_number("offset") or 0, arguments.whole_number("limit", least=1)
        web = self.web()
        context.progress(call_id, f"fetching {', '.join(urls)[:200]}")
        done = await web.pages(urls, context.reach)
        hosts = _hosts(done)
        results: list[Result] = []
        failures: list[FetchError] = []
        for url, page, _ in done:
            if isinstance(page, FetchError):
                failures.append(page)
            else:
                results.append(replace(page, source=url))
        answer = None
        if results:
            answer = web.store(context).add("fetch", [StoredQuery("", tuple(results))])
        # One failure fails the whole call, so that it is noticed; the error names the id of the fetched pages.
        if failures or answer is None:
            raise _make_error(failures, hosts, answer)
        limit = min(limit or web.limits.shown_characters, web.limits.shown_characters)
        text = show_pages(answer, results, offset=offset, limit=limit)
        return ToolOutput((Text(text),), effect=ToolEffect(hosts=hosts), value=as_value(answer))


def _make_error(failures: list[FetchError], hosts: tuple[str, ...], stored: StoredAnswer | None) -> WebError:
    message = " ".join(dict.fromkeys(error.message for error in failures))
    if stored is not None:
        message += f' The other pages were fetched: fetch_content with responseId "{stored.id}" has them.'
    limited = any(error.problem == "RATE_LIMITED" for error in failures)
    return WebError(failures[0].code, message, hosts=hosts, limited=limited)


_MAX_LISTED_CHOICES = 5


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

    async def call(self, call_id: str, arguments: Arguments, context: ToolContext) -> ToolOutput:
        return recall(arguments, self.web(), context)


def recall(arguments: Arguments, web: Web, context: ToolContext) -> ToolOutput:
    """Show the results of an earlier search or fetch of the run, by its `responseId`. Nothing is fetched."""
    identifier = arguments.optional_text("responseId")
    if identifier is None:
        raise WebError("INVALID_INPUT", 'get_search_content needs "responseId": the id an earlier result began with.')
    store = web.store(context)
    answer = store.get(identifier.strip())
    if answer is None:
        raise _not_found(f"There is no response '{identifier}' in this run.", store.ids())
    offset, limit = arguments.whole_number("offset") or 0, arguments.whole_number("limit", least=1)
    queries = _queries(arguments, answer)
    results = _results(arguments, queries)
    # A search result has the text of its page only if the search used `includeContent`.
    if answer.kind == "search" and (results is None or not any(result.content for result in results)):
        if results is not None:
            queries = _only(queries, results)
        return ToolOutput((Text(show_search(answer, queries)),), value=as_value(answer))
    if results is None:
        results = results_of(queries)
    limit = min(limit or web.limits.shown_characters, web.limits.shown_characters)
    return ToolOutput((Text(show_pages(answer, results, offset=offset, limit=limit)),), value=as_value(answer))


def _queries(arguments: Arguments, answer: StoredAnswer) -> tuple[StoredQuery, ...]:
    query, index = arguments.optional_text("query"), arguments.whole_number("queryIndex", "query_index")
    queries = [stored.query for stored in answer.queries]
    if query is not None:
        chosen = tuple(stored for stored in answer.queries if stored.query.strip().lower() == query.strip().lower())
        if not chosen:
            raise _not_found(f"The response has no query '{query}'.", queries)
        return chosen
    if index is not None:
        if index >= len(answer.queries):
            raise _not_found(f"The response has no query number {index}.", queries)
        return (answer.queries[index],)
    return answer.queries


def _results(arguments: Arguments, queries: tuple[StoredQuery, ...]) -> list[Result] | None:
    """Return the requested results; None for all."""
    url, index = arguments.optional_text("url"), arguments.whole_number("urlIndex", "url_index")
    results = results_of(queries)
    urls = [result.url for result in results]
    if url is not None:
        # A page can be named by the requested URL or by the URL after redirects.
        address = url.strip().rstrip("/")
        chosen = [result for result in results if address in (result.url.rstrip("/"), result.source.rstrip("/"))]
        if not chosen:
            raise _not_found(f"The response has no page '{url}'.", urls)
        return chosen[:1]
    if index is not None:
        if index >= len(results):
            raise _not_found(f"The response has no page number {index}.", urls)
        return [results[index]]
    return None


def _only(queries: tuple[StoredQuery, ...], results: list[Result]) -> tuple[StoredQuery, ...]:
    matching = []
    for query in queries:
        some = tuple(result for result in query.results if result in results)
        if some:
            matching.append(replace(query, results=some))
    return tuple(matching)


def _not_found(what: str, choices: list[str]) -> WebError:
    if not choices:
        return WebError("NOT_FOUND", f"{what} There is none yet.")
    listed = ", ".join(map(one_line, choices[:_MAX_LISTED_CHOICES]))
    if len(choices) > _MAX_LISTED_CHOICES:
        listed += f" and {len(choices) - _MAX_LISTED_CHOICES} more"
    return WebError("NOT_FOUND", f"{what} There is: {listed}.")
