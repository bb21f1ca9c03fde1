"""Searching: who is asked, in which order, and what each failure is called."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from retinue.capabilities.web import search as choose
from retinue.capabilities.web import searchers as duckduckgo
from retinue.core.install import install_command
from retinue.settings.table import Settings
from tests.capabilities.web.conftest import BoundedBrowser, Browser, Visit
from tests.capabilities.web.test_web_tools import code, identifier

ROWS = [
    {"url": f"https://example.com/{n}", "title": f"Title <b>{n}</b>", "text": f"about {n} &amp; more"} for n in range(9)
]


def page(data: Any, status: int = 200) -> Callable[..., None]:
    return lambda v: v.send(json.dumps(data), "application/json", status=status)


def named(rows: list[dict[str, str]], url: str, title: str, text: str) -> list[dict[str, str]]:
    return [{url: row["url"], title: row["title"], text: row["text"]} for row in rows]


PAGES = {
    "/res/v1/web/search": page({"web": {"results": named(ROWS, "url", "title", "description")}}),
    "/search": page(
        {"results": [*named(ROWS, "url", "title", "content"), {"url": "javascript:x"}, "odd", {"title": "no"}]}
    ),
}


@pytest.fixture
def without_duckduckgo(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(duckduckgo.DuckDuckGo, "missing", lambda self: "not here")


@pytest.fixture
def tavily(browser: Browser) -> Callable[[str], None]:
    """`tavily(url)`: searches go to this address and nowhere else, so nothing talks to the internet."""

    def use(url: str) -> None:
        browser.environment |= {
            "TAVILY_API_KEY": "key-secret",
            "TAVILY_BASE_URL": url,
            "RETINUE_WEB_PROVIDER": "tavily",
        }

    return use


async def test_no_query_is_an_invalid_query(browser: Browser) -> None:
    for arguments in ({}, {"query": " "}, {"queries": []}, {"queries": ["", "  "]}):
        assert code(await browser("web_search", **arguments)) == "WEB_SEARCH_INVALID_QUERY"
    refused = await browser("web_search", queries=[{"q": 1}])
    assert refused.is_error
    assert "queries[0] must be a string" in refused.text


async def test_nothing_set_up_says_what_to_do(browser: Browser, without_duckduckgo: None) -> None:
    output = await browser("web_search", query="x")
    assert code(output) == "PROVIDER_UNAVAILABLE"
    for word in (install_command("web"), "BRAVE_SEARCH_API_KEY", "web.searxngUrl"):
        assert word in output.text


@pytest.mark.parametrize(
    ("name", "environment", "header"),
    [
        ("brave", {"BRAVE_SEARCH_API_KEY": "key-1", "BRAVE_SEARCH_BASE_URL": ""}, "x-subscription-token"),
        ("tavily", {"TAVILY_API_KEY": "key-1", "TAVILY_BASE_URL": ""}, "authorization"),
    ],
)
async def test_services_with_a_key(
    name: str, environment: dict[str, str], header: str, browser: Browser, visit: Visit
) -> None:
    site = visit(PAGES)
    browser.environment |= {key: value or site.url for key, value in environment.items()}
    output = await browser("web_search", queries=["one", "two", "one "], numResults=3)
    identifier(output)
    assert [each["query"] for each in output.value["queries"]] == ["one", "two"]
    first = output.value["queries"][0]["results"]
    assert first[0] == {
        "url": "https://example.com/0",
        "title": "Title 0",
        "snippet": "about 0 & more",
        "source": name,
    }
    assert len(first) == 3
    assert output.effect.provider == name
    assert output.effect.hosts == ("127.0.0.1",)
    assert "key-1" in site.seen[0].headers[header]
    assert len(site.seen) == 2


async def test_exa(browser: Browser, visit: Visit) -> None:
    site = visit({"/search": page({"results": ROWS})})
    browser.environment |= {"EXA_API_KEY": "k", "EXA_BASE_URL": site.url}
    output = await browser("web_search", query="x")
    assert output.value["queries"][0]["results"][1]["snippet"] == "about 1 & more"
    assert json.loads(site.seen[0].body)["numResults"] == 5


async def test_searxng(browser: Browser, visit: Visit) -> None:
    site = visit(PAGES)
    browser.environment["SEARXNG_URL"] = f"{site.url}/"
    output = await browser("web_search", query="où ça?", numResults=0)
    assert len(output.value["queries"][0]["results"]) == 1
    assert site.seen[0].path == "/search?q=o%C3%B9+%C3%A7a%3F&format=json"


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (401, "PROVIDER_AUTH_FAILED"),
        (403, "PROVIDER_AUTH_FAILED"),
        (429, "PROVIDER_RATE_LIMITED"),
        (500, "PROVIDER_UNAVAILABLE"),
        (503, "PROVIDER_UNAVAILABLE"),
        (400, "WEB_SEARCH_FAILED"),
    ],
)
async def test_statuses_have_their_codes(
    status: int, expected: str, browser: Browser, tavily: Callable[[str], None], visit: Visit
) -> None:
    tavily(visit({"/search": page({"error": "bad key-secret"}, status)}).url)
    output = await browser("web_search", query="x")
    assert code(output) == expected
    assert "key-secret" not in output.text
    assert output.effect.code == ("RATE_LIMITED" if status == 429 else expected)


async def test_no_answer_in_time_is_a_timeout(
    bounded_browser: BoundedBrowser, without_duckduckgo: None, visit: Visit
) -> None:
    site = visit({"/search": lambda v: v.site.over.wait(20)})
    bounded_browser.environment |= {"TAVILY_API_KEY": "k", "TAVILY_BASE_URL": site.url}
    bounded_browser.limits = replace(bounded_browser.limits, seconds=0.2)
    assert code(await bounded_browser("web_search", query="x")) == "WEB_SEARCH_TIMEOUT"


async def test_no_connection_is_a_network_error(browser: Browser, tavily: Callable[[str], None]) -> None:
    tavily("http://127.0.0.1:9")
    assert code(await browser("web_search", query="x")) == "NETWORK_ERROR"


async def test_an_answer_that_is_no_json_is_a_failed_search(
    browser: Browser, tavily: Callable[[str], None], visit: Visit
) -> None:
    tavily(visit({"/search": lambda v: v.send("<html>")}).url)
    assert code(await browser("web_search", query="x")) == "WEB_SEARCH_FAILED"


async def test_no_results_are_a_success(browser: Browser, visit: Visit) -> None:
    site = visit({"/search": page({"results": []})})
    browser.environment |= {"TAVILY_API_KEY": "k", "TAVILY_BASE_URL": site.url}
    output = await browser("web_search", query="x")
    assert not output.is_error
    assert "No results." in output.text


async def test_auto_goes_on_to_the_next_service_and_says_so(browser: Browser, visit: Visit) -> None:
    broken = visit({"/search": page({}, 500)})
    works = visit(PAGES)
    browser.environment |= {"TAVILY_API_KEY": "k", "TAVILY_BASE_URL": broken.url}
    browser.environment["SEARXNG_URL"] = works.url
    output = await browser("web_search", query="x")
    assert output.effect.provider == "searxng"
    assert "[PROVIDER_UNAVAILABLE: tavily failed" in output.text


async def test_a_named_service_is_asked_alone_and_without_its_key_there_is_no_search(
    browser: Browser, visit: Visit
) -> None:
    broken, works = visit({"/search": page({}, 500)}), visit(PAGES)
    browser.environment |= {"TAVILY_API_KEY": "k", "TAVILY_BASE_URL": broken.url}
    browser.environment |= {"SEARXNG_URL": works.url, "RETINUE_WEB_PROVIDER": "tavily"}
    assert code(await browser("web_search", query="x")) == "PROVIDER_UNAVAILABLE"
    assert not works.visits
    await browser.restart()
    browser.environment["RETINUE_WEB_PROVIDER"] = "brave"
    with pytest.raises(LookupError, match="There is no tool 'web_search'"):
        await browser("web_search", query="x")


def test_the_order_is_keys_then_own_servers_then_the_rest(
    bounded_browser: BoundedBrowser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(duckduckgo.DuckDuckGo, "missing", lambda self: None)
    environment = {"TAVILY_API_KEY": "a", "BRAVE_SEARCH_API_KEY": "b", "EXA_API_KEY": "c", "ANTHROPIC_API_KEY": "d"}
    values = {"web_searxng_url": "http://127.0.0.1:1"}
    order = choose.Search(Settings(values), environment, bounded_browser.transport).order()
    assert [each.name for each in order] == ["brave", "tavily", "exa", "searxng", "ddgs", "native"]


async def test_content_is_included_where_it_can_be_had_and_the_rules_allow(browser: Browser, visit: Visit) -> None:
    def results(v) -> None:
        paths = ("/page", "/missing", "/forbidden")
        v.send(json.dumps({"results": [{"url": site.url + path, "title": path} for path in paths]}), "application/json")

    site = visit(
        {
            "/search": results,
            "/page": lambda v: v.send("<p>what the page says</p>"),
            "/forbidden": lambda v: v.send("no"),
        }
    )
    browser.environment["SEARXNG_URL"] = site.url
    browser.bench.context.reach = lambda url: "no" if "forbidden" in url else None
    output = await browser("web_search", query="x", includeContent=True)
    found = identifier(output)
    assert "content" in output.value["queries"][0]["results"][0]
    assert site.visits["/forbidden"] == 0
    read = await browser("get_search_content", responseId=found, url=f"{site.url}/page")
    assert "what the page says" in read.text


async def test_queries_and_results_are_selected(browser: Browser, visit: Visit) -> None:
    site = visit(PAGES)
    browser.environment["SEARXNG_URL"] = site.url
    found = identifier(await browser("web_search", queries=["one", "two"]))
    everything = await browser("get_search_content", responseId=found)
    assert everything.text.count("<untrusted-content ") == 2
    for selector in ({"query": "TWO"}, {"queryIndex": 1}):
        output = await browser("get_search_content", responseId=found, **selector)
        assert "web search: two" in output.text
        assert "web search: one" not in output.text
    one = await browser("get_search_content", responseId=found, queryIndex=0, url="https://example.com/2/")
    assert "Title 2" in one.text
    assert "Title 1" not in one.text
    wrong = await browser("get_search_content", responseId=found, query="three")
    assert code(wrong) == "NOT_FOUND"
    assert "one, two" in wrong.text


async def test_no_network_is_said_at_once(browser: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no route leads out, nothing is looked up and nothing is waited for."""
    from retinue.capabilities.web import connect as resolve

    monkeypatch.setattr(choose, "has_network", lambda: False)
    monkeypatch.setattr(resolve, "has_network", lambda: False)
    for name in choose._PROXY_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    browser.environment |= {"BRAVE_SEARCH_API_KEY": "k"}
    output = await browser("web_search", query="x")
    assert code(output) == "NETWORK_ERROR"
    assert "no network" in output.text
    assert "no network" in (await browser("fetch_content", url="http://example.com/")).text


ANTHROPIC = {
    "content": [
        {"type": "server_tool_use", "name": "web_search"},
        {
            "type": "web_search_tool_result",
            "content": [{"type": "web_search_result", "url": "https://a.example/", "title": "A"}],
        },
        {"type": "text", "text": "x", "citations": [{"url": "https://a.example/", "cited_text": "quoted"}]},
    ]
}
OPENAI = {
    "output": [
        {
            "type": "message",
            "content": [
                {
                    "type": "output_text",
                    "text": "quoted [1]",
                    "annotations": [
                        {"type": "url_citation", "url": "https://a.example/", "title": "A", "start_index": 6}
                    ],
                }
            ],
        }
    ]
}
GEMINI = {
    "candidates": [
        {
            "groundingMetadata": {
                "groundingChunks": [{"web": {"uri": "https://a.example/", "title": "A"}}],
                "groundingSupports": [{"segment": {"text": "quoted"}, "groundingChunkIndices": [0]}],
            }
        }
    ]
}


@pytest.mark.parametrize(
    ("model", "variables", "path", "answer"),
    [
        ("anthropic/claude-haiku-4-5", ("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL"), "/v1/messages", ANTHROPIC),
        ("openai/gpt-5-mini", ("OPENAI_API_KEY", "OPENAI_BASE_URL"), "/v1/responses", OPENAI),
        (
            "gemini/gemini-2.5-flash",
            ("GEMINI_API_KEY", "GEMINI_BASE_URL"),
            "/v1beta/models/gemini-2.5-flash:generateContent",
            GEMINI,
        ),
    ],
)
async def test_the_search_of_a_models_provider(
    model: str, variables: tuple[str, str], path: str, answer: Any, browser: Browser, visit: Visit
) -> None:
    site = visit({path: page(answer)})
    browser.environment |= {variables[0]: "key-1", variables[1]: site.url}
    browser.environment |= {"RETINUE_WEB_PROVIDER": "native", "RETINUE_WEB_NATIVE_MODEL": model}
    output = await browser("web_search", query="x")
    assert not output.is_error, output.text
    (result,) = output.value["queries"][0]["results"]
    assert (result["url"], result["title"], result["snippet"]) == ("https://a.example/", "A", "quoted")
    assert "key-1" in json.dumps(site.seen[0].headers)
    assert "search" in json.dumps(json.loads(site.seen[0].body)["tools"])


async def test_duckduckgo_speaks_through_its_library(browser: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    ddgs = pytest.importorskip("ddgs")
    wrong = pytest.importorskip("ddgs.exceptions")
    monkeypatch.setattr(duckduckgo.DuckDuckGo, "missing", lambda self: None)
    monkeypatch.setattr(choose, "has_network", lambda: True)
    answers: list[Any] = [
        [{"title": "T", "href": "https://a.example/", "body": "B"}],
        wrong.DDGSException("No results found."),
        wrong.RatelimitException("202"),
        wrong.TimeoutException("slow"),
        wrong.DDGSException("error sending request for url"),
        RuntimeError("odd"),
    ]

    def text(self: Any, query: str, **options: Any) -> Any:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(type(ddgs.DDGS()), "text", text)
    found = await browser("web_search", query="x")
    assert found.value["queries"][0]["results"][0]["snippet"] == "B"
    assert not (await browser("web_search", query="x")).is_error
    codes = [code(await browser("web_search", query="x")) for _ in range(4)]
    assert codes == ["PROVIDER_RATE_LIMITED", "WEB_SEARCH_TIMEOUT", "NETWORK_ERROR", "WEB_SEARCH_FAILED"]
