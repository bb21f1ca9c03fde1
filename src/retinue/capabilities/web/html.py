"""HTML to Markdown, by the libraries of the extra `web`.

trafilatura finds the part of a page that people read; html-to-markdown converts the whole page where that part is
missing or short, and reads the title and the data that a page has for machines. Both get a bounded page: hostile
markup costs trafilatura time that grows with the square of the tags, and html-to-markdown keeps every other thread
waiting while it works.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, NamedTuple

from retinue.capabilities.web.data import summarise_linked
from retinue.http.fetched import FetchError

if TYPE_CHECKING:
    from html_to_markdown import ConversionResult

_MOST_TAGS = 100_000
"""No page that people read has more. html-to-markdown takes about a second for the worst of that size."""
_MOST_TAGS_EXTRACTED = 8_000
_MOST_DEPTH = 100
_LONGEST_TITLE = 300
_MOST_BLOCKS = 5
_SHORT = 400
_ALMOST_EMPTY = 80
_FURNITURE = ("nav", "header", "footer", "aside", "form", "button", "dialog", "menu")
_FRONT_MATTER = re.compile(r"---\n(?:[^\n]+\n)+?---\n")
"""What html-to-markdown puts before a page when it reads the page's metadata: one line each, never empty."""
_LINK = re.compile(r"\[([^\[\]]*)\]\(([^\s()]+)(?: \"[^\"\n]*\")?\)")


class HtmlText(NamedTuple):
    """What a page says, as Markdown. `warning` is empty where all of it was read."""

    title: str
    text: str
    warning: str


def read_html(page: str, url: str) -> HtmlText:
    """Convert a page. Raise FetchError without the extra, and ValueError for a page that cannot be converted."""
    page, cut = _limit_tags(page)
    warnings = []
    if cut:
        warnings.append(f"Only its first {_MOST_TAGS:,} tags were read.")
    whole = _convert(page, url)
    title = _title_of(whole)
    data = _structured_data(whole)
    text = _extract_main_part(page, url)
    if len(text) < _SHORT:
        full = _text_of(whole, url)
        if len(full) < _ALMOST_EMPTY:
            whole = _convert(page, url, furniture=True)
            full = _text_of(whole, url)
        # Of small pages trafilatura often returns bare lines of text, navigation included: the whole page reads better.
        if len(full) > len(text) / 2:
            text = full
            if _is_too_deep(whole):
                warnings.append(f"What stands more than {_MOST_DEPTH} elements deep was left out.")
    if len(text) < _SHORT:
        text = "\n\n".join(filter(None, (text, data)))
    return HtmlText(title, text, " ".join(warnings))


def _limit_tags(page: str) -> tuple[str, bool]:
    parts = page.split("<", _MOST_TAGS + 1)
    if len(parts) <= _MOST_TAGS + 1:
        return page, False
    return "<".join(parts[:-1]), True


def _convert(page: str, url: str, *, furniture: bool = False) -> ConversionResult:
    """Convert the whole page; without `furniture`, leave out what stands around its content."""
    try:
        from html_to_markdown import ConversionError, ConversionOptions, PreprocessingOptions, convert
    except ImportError:
        raise _missing_extra(url) from None
    options = ConversionOptions(
        base_url=url,
        bullets="-",
        compact_tables=True,
        exclude_selectors=[] if furniture else list(_FURNITURE),
        max_depth=_MOST_DEPTH,
        preprocessing=PreprocessingOptions(enabled=not furniture),
        skip_images=True,
    )
    try:
        return convert(page, options)
    except ConversionError as error:
        raise ValueError(f"the converter failed: {error}") from None


def _extract_main_part(page: str, url: str) -> str:
    """Return the part of the page that people read, or an empty text where there is none."""
    try:
        from trafilatura import extract
    except ImportError:
        raise _missing_extra(url) from None
    if page.count("<") > _MOST_TAGS_EXTRACTED:
        return ""
    try:
        found = extract(
            page, url=url, output_format="markdown", include_links=True, include_tables=True, favor_recall=True
        )
    except Exception:  # noqa: BLE001 - whatever a foreign page makes it do, the whole page is there
        return ""
    return found or ""


def _missing_extra(url: str) -> FetchError:
    return FetchError(
        "EXTRA_MISSING",
        f"{url} is an HTML page, and reading HTML needs the extra web: pip install 'retinue[web]'. "
        "JSON, XML, CSV, Markdown and plain text can be fetched without it.",
    )


def _is_too_deep(whole: ConversionResult) -> bool:
    return any(str(found.kind) == "depth_limit_exceeded" for found in whole.warnings)


def _text_of(whole: ConversionResult, url: str) -> str:
    """Return the Markdown without what costs tokens and says nothing: titles of links, links within the page."""
    here = url.partition("#")[0] + "#"

    def shorten(link: re.Match[str]) -> str:
        text, target = link.groups()
        if target.startswith(here):
            return text
        return f"[{text}]({target})"

    text = _FRONT_MATTER.sub("", whole.content or "", count=1)
    return _LINK.sub(shorten, text).strip()


def _title_of(whole: ConversionResult) -> str:
    title = whole.metadata.document.title
    if not title:
        title = next((header.text for header in whole.metadata.headers if header.level == 1), "")
    return " ".join(title.split())[:_LONGEST_TITLE]


def _structured_data(whole: ConversionResult) -> str:
    """Return what a page tells machines about itself, for pages that tell people nothing."""
    found = []
    for block in whole.metadata.structured_data[:_MOST_BLOCKS]:
        try:
            found.append(summarise_linked(json.loads(re.sub(r"[\x00-\x1f]+", " ", block.raw_json))))
        except (ValueError, RecursionError):
            continue
    return "\n\n".join(filter(None, found))
