"""HTML to readable Markdown: with trafilatura where the extra `web` is installed, else our own."""

from __future__ import annotations

import json
import re

from retinue.capabilities.web.handlers.html_markdown import title_of, to_markdown
from retinue.capabilities.web.handlers.html_tokens import tokens

_MOST_TAGS = 8_000
"""Above that trafilatura's time grows with the square: our own converter reads such pages."""
_SHORT = 400


def read_html(page: str, url: str) -> tuple[str, str]:
    """The title, and what the page says. Never raises."""
    title = title_of(page)
    text = _extracted(page, url)
    if len(text) < _SHORT:
        own = to_markdown(page, url)
        text = own if len(own) > 1.5 * len(text) else text
    if len(text) < _SHORT:
        text = "\n\n".join(filter(None, (text, structured_data(page))))
    return title, text


def _extracted(page: str, url: str) -> str:
    if page.count("<") > _MOST_TAGS:
        return ""
    try:
        from trafilatura import extract
    except ImportError:
        return ""
    try:
        found = extract(
            page, url=url, output_format="markdown", include_links=True, include_tables=True, favor_recall=True
        )
    except Exception:  # noqa: BLE001 - whatever a foreign page makes it do, our own converter reads it
        return ""
    return found or ""


def structured_data(page: str) -> str:
    """What a page tells machines about itself, for pages that tell people nothing."""
    from retinue.capabilities.web.handlers.data import summarise_linked

    found: list[str] = []
    inside = False
    for token in tokens(page):
        if token.tag == "script":
            inside = "ld+json" in token.text
        elif inside and not token.tag:
            inside = False
            try:
                found.append(summarise_linked(json.loads(re.sub(r"[\x00-\x1f]+", " ", token.text))))
            except (ValueError, RecursionError):
                continue
        if len(found) >= 5:
            break
    return "\n\n".join(filter(None, found))
