"""The settings of the web tools: a part of the table."""

from __future__ import annotations

from typing import Any, Literal

from retinue.settings.field import Alias, Values, setting
from retinue.settings.kinds import Choice, Flag, Number, Text, Texts, Whole

SEARCHERS = ("brave", "tavily", "exa", "searxng", "ddgs", "native")
"""Who can search, those with a key of their own first."""

_DAY = 86_400


def _seconds(milliseconds: Any) -> Any:
    return milliseconds / 1000


# fmt: off
class WebSettings(Values):
    web_enabled: bool = setting(
        True, Flag(), name="web.enabled", section="web", applies="next session",
        doc="Offer the tools that search the web and read its pages.",
    )
    web_provider: Literal["auto", "brave", "tavily", "exa", "searxng", "ddgs", "native"] = setting(
        "auto", Choice("auto", *SEARCHERS), name="web.provider", section="web",
        doc="Who searches. `auto` tries those that are set up, in the order of web.providerPriority: services with a "
        "key (BRAVE_SEARCH_API_KEY, TAVILY_API_KEY, EXA_API_KEY), your SearXNG, DuckDuckGo (extra `web`), and last "
        "the search of your model's provider, which costs tokens. A named one is asked alone.",
    )
    web_provider_priority: tuple[str, ...] = setting(
        SEARCHERS, Texts(SEARCHERS), name="web.providerPriority", section="web",
        doc="The order in which `auto` asks; within it services with a key come first, then your own, then the rest.",
    )
    web_searxng_url: str | None = setting(
        None, Text("a URL"), name="web.searxngUrl", section="web", variables=("SEARXNG_URL",),
        doc="The address of a SearXNG server that answers in JSON. In a project's files it needs your consent.",
    )
    web_native_model: str | None = setting(
        None, Text("a model name"), name="web.nativeModel", section="web",
        doc="The model, as provider/id, whose provider searches when `native` is asked; else a small one you have "
        "a key for.",
    )
    web_allow_hosts: tuple[str, ...] = setting(
        (), Texts(), name="web.allowHosts", section="web",
        doc="Hosts outside the public internet that pages may be fetched from: a name, *.domain, an address or a "
        "network such as 10.1.0.0/16, each with :port if only that one. In a project's files it needs your consent.",
    )
    web_timeout_seconds: float = setting(
        20.0, Number(0.1, 600, unit="seconds"), name="web.timeoutSeconds", section="web",
        aliases=(Alias("web.timeoutMs", _seconds, Whole(1, 600_000)),),
        doc="How long one page or one search may take, redirects included.",
    )
    web_max_response_bytes: int = setting(
        2_097_152, Whole(1_024, 100_000_000), name="web.maxResponseBytes", section="web",
        doc="How much of a page is read, unpacked; the rest is cut off.",
    )
    web_max_content_chars: int = setting(
        30_000, Whole(500, 1_000_000), name="web.maxContentChars", section="web",
        doc="How much text of one page a model gets at a time; it can ask for the rest.",
    )
    web_max_results: int = setting(
        5, Whole(1, 20), name="web.maxResults", section="web",
        doc="How many results one search gives at most.",
    )
    web_max_stored_results: int = setting(
        100, Whole(1, 10_000), name="web.maxStoredResults", section="web",
        doc="How many answers of searches and fetches a run keeps; the oldest go first.",
    )
    web_max_stored_content_chars: int = setting(
        200_000, Whole(1_000, 10_000_000), name="web.maxStoredContentChars", section="web",
        doc="How much text of one page is kept for later reading.",
    )
    web_cache_enabled: bool = setting(
        True, Flag(), name="web.cache.enabled", section="web",
        doc="Keep fetched pages, and ask their servers only whether they changed.",
    )
    web_cache_seconds: float = setting(
        300.0, Number(0, _DAY, unit="seconds"), name="web.cache.seconds", section="web",
        aliases=(Alias("web.cache.ttlMs", _seconds, Whole(0, _DAY * 1000)),),
        doc="How long a page that says nothing about it is used without asking again.",
    )
    web_cache_max_entries: int = setting(
        200, Whole(1, 100_000), name="web.cache.maxEntries", section="web",
        doc="How many pages are kept.",
    )
    web_host_concurrency: int = setting(
        2, Whole(1, 100), name="web.hostConcurrency", section="web", applies="next session",
        doc="How many requests one host gets at a time from this process.",
    )
    web_host_delay_seconds: float = setting(
        0.2, Number(0, 60, unit="seconds"), name="web.hostDelaySeconds", section="web", applies="next session",
        doc="The least time between two requests to one host.",
    )
    web_taint: Literal["off", "ask"] = setting(
        "off", Choice("off", "ask"), name="web.taint", section="web", applies="next run",
        doc="After a run, or an agent below it, has read text of the web: `ask` wants a person's consent for every "
        "command, every start of an agent and every call of a server's tool, in every mode. A project's files switch "
        "it off only with your consent.",
    )
# fmt: on
