"""get_search_content: what earlier searches and fetches of this run found."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from retinue.capabilities.web.base import WebTool
from retinue.capabilities.web.errors import WebError
from retinue.core.messages import Text
from retinue.core.tool import ToolContext, ToolOutput
from retinue.tools.arguments import Arguments
from retinue.tools.base import Aliases, Properties

if TYPE_CHECKING:
    from retinue.capabilities.web.service import Web
    from retinue.capabilities.web.store import Answer, Found, Result

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
    from retinue.capabilities.web.show import show_pages, show_search
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
    most = min(limit or web.settings.web_max_content_chars, web.settings.web_max_content_chars)
    return ToolOutput((Text(show_pages(answer, shown, offset=offset, most=most)),), value=as_value(answer))


def _queries(given: Arguments, answer: Answer) -> tuple[Found, ...]:
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


def _results(given: Arguments, found: tuple[Found, ...]) -> list[Result] | None:
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


def _only(found: tuple[Found, ...], results: list[Result]) -> tuple[Found, ...]:
    from dataclasses import replace

    some = (replace(each, results=tuple(one for one in each.results if one in results)) for each in found)
    return tuple(each for each in some if each.results)


def _not_found(what: str, choices: list[str]) -> WebError:
    from retinue.tools.delegation.frame import one_line

    listed = ", ".join(one_line(choice) for choice in choices[:_SHOWN])
    more = f" and {len(choices) - _SHOWN} more" if len(choices) > _SHOWN else ""
    return WebError("NOT_FOUND", f"{what} There is: {listed}{more}." if choices else f"{what} There is none yet.")
