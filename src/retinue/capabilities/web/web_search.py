"""web_search: several queries at once, by whichever search service is set up."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from retinue.capabilities.web.base import WebTool, texts
from retinue.capabilities.web.errors import WebError
from retinue.core.effects import ToolEffect
from retinue.core.messages import Text
from retinue.core.tool import ToolContext, ToolOutput
from retinue.tools.arguments import Arguments
from retinue.tools.base import Aliases, Properties

if TYPE_CHECKING:
    from retinue.capabilities.web.service import Web
    from retinue.capabilities.web.store import Found

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
        from retinue.capabilities.web.show import show_search
        from retinue.capabilities.web.store import as_value

        queries = [query[:_LONGEST] for query in texts(given, "query", "queries")][:MOST_QUERIES]
        if not queries:
            raise WebError("WEB_SEARCH_INVALID_QUERY", 'web_search needs "query", or "queries" with at least one.')
        web = self.web()
        wanted = given.number("numResults")
        most = web.settings.web_max_results
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
    web: Web, found: tuple[Found, ...], context: ToolContext
) -> tuple[tuple[Found, ...], tuple[str, ...]]:
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
