"""Conversion of pages to text: HTML to Markdown; JSON, JSON-LD, JSON lines, CSV, YAML and XML (feeds, site maps).

After a ValueError the caller shows the original text. XML that declares entities is never parsed.

HTML is converted by the libraries of the extra `web`. trafilatura finds the main part of a page. If that part is
missing or short, html-to-markdown converts the complete page; it also reads the title and structured data. The size of
the page is limited for both: trafilatura takes quadratic time on hostile markup, and html-to-markdown blocks all
threads."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator, Mapping
from html import unescape
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple
from xml.etree import ElementTree

from retinue.core.install import install_command
from retinue.http.address import FetchError

if TYPE_CHECKING:
    from html_to_markdown import ConversionResult


_MAX_FEED_ENTRIES = 50
_DECLARATION = re.compile(r"^\s*<\?xml[^>]{0,200}\?>")
_TAGS = re.compile(r"<[^<>]{0,2000}>")


def read_xml(text: str) -> tuple[str, str]:
    """Return the title and the text of a document, or raise ValueError. A document that declares entities is not
    parsed, so that none is expanded or fetched."""
    if "<!ENTITY" in text:
        raise ValueError("it declares entities, which are refused")
    try:
        root = ElementTree.fromstring(_DECLARATION.sub("", text, count=1).lstrip("\ufeff \t\r\n"))  # noqa: S314 - without entities
    except (ElementTree.ParseError, ValueError) as error:
        raise ValueError(f"it is not well-formed: {error}") from None
    match _name(root):
        case "rss" | "RDF":
            return _feed(root, "item")
        case "feed":
            return _feed(root, "entry")
        case "urlset" | "sitemapindex":
            return "", _site_map(root)
        case name:
            return "", f"XML document <{name}>, {len(list(root.iter())):,} elements\n\n{text.strip()}"


def _feed(root: ElementTree.Element, entry: str) -> tuple[str, str]:
    channel = next(_find_elements(root, "channel"), root)
    title, about = _text(channel, "title"), _text(channel, "description", "subtitle")
    entries = list(_find_elements(root, entry))
    parts = []
    if about:
        parts.append(about)
    for element in entries[:_MAX_FEED_ENTRIES]:
        head = _text(element, "title") or "(no title)"
        when = _text(element, "pubDate", "published", "updated", "date")
        if when:
            head += f" ({when})"
        lines = [f"- {head}", _link(element), _text(element, "description", "summary")]
        parts.append("\n  ".join(filter(None, lines)))
    if len(entries) > _MAX_FEED_ENTRIES:
        parts.append(f"… {len(entries) - _MAX_FEED_ENTRIES} more entries")
    return title, "\n".join(parts)


def _site_map(root: ElementTree.Element) -> str:
    urls = [(element.text or "").strip() for element in _find_elements(root, "loc")]
    text = f"Site map with {len(urls):,} addresses\n\n" + "\n".join(urls[:500])
    if len(urls) > 500:
        text += f"\n… {len(urls) - 500} more"
    return text


def _find_elements(root: ElementTree.Element, name: str) -> Iterator[ElementTree.Element]:
    return (element for element in root.iter() if _name(element) == name)


def _text(element: ElementTree.Element, *names: str) -> str:
    for name in names:
        for child in element:
            if _name(child) == name:
                # Feeds contain HTML as escaped text, so tags and entities remain after XML has been parsed.
                text = "".join(child.itertext())
                return " ".join(unescape(_TAGS.sub(" ", text)).split())[:500]
    return ""


def _link(entry: ElementTree.Element) -> str:
    for child in entry:
        if _name(child) == "link":
            return (child.get("href") or child.text or "").strip()[:2_000]
    return ""


def _name(element: ElementTree.Element) -> str:
    # Comments and processing instructions have a function in place of a tag.
    return element.tag.rpartition("}")[2] if isinstance(element.tag, str) else ""


_MAX_LIST_ITEMS = 50
_MAX_ROWS = 200
_MAX_TABLE_COLUMNS = 50
_MAX_PARSED_YAML = 256 * 1024
_SUMMARY_PROPERTIES = (
    *("name", "headline", "description", "datePublished", "dateModified", "url", "author", "publisher", "offers"),
    *("price", "priceCurrency", "ratingValue", "articleBody", "recipeIngredient", "startDate", "location"),
)
"""The properties of schema.org that a summary shows."""


def read_json(text: str) -> str:
    """Return JSON with indentation and with long lists cut."""
    try:
        return json.dumps(_shorten(json.loads(text)), indent=2, ensure_ascii=False)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def read_json_lines(text: str) -> str:
    lines = list(filter(str.strip, text.splitlines()))
    for line in lines[:_MAX_ROWS]:
        json.loads(line)
    shown = lines[:_MAX_ROWS]
    if len(lines) > _MAX_ROWS:
        shown.append(f"… {len(lines) - _MAX_ROWS} more lines")
    return "\n".join(shown)


def read_linked(text: str) -> str:
    """Return a summary of JSON-LD, followed by the complete document."""
    try:
        summary = summarise_linked(json.loads(text))
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    return "\n\n".join(filter(None, (summary, read_json(text))))


def summarise_linked(data: Any) -> str:
    nodes = data
    if isinstance(data, Mapping):
        nodes = data.get("@graph", [data])
    if not isinstance(nodes, list):
        nodes = [nodes]
    summaries = [_node(node) for node in nodes[:10] if isinstance(node, Mapping)]
    return "\n\n".join(filter(None, summaries))


def _node(node: Mapping[str, Any]) -> str:
    kind = node.get("@type")
    lines = []
    for name in _SUMMARY_PROPERTIES:
        text = _short(node.get(name))
        if text:
            lines.append(f"{name}: {text}")
    if not kind or not lines:
        return ""
    if isinstance(kind, list):
        kind = ", ".join(map(str, kind))
    return "\n".join([f"**{kind}**", *lines])


def _short(value: Any) -> str:
    if isinstance(value, Mapping):
        value = value.get("name") or value.get("@id") or value.get("price") or ""
    if isinstance(value, list):
        return ", ".join(filter(None, map(_short, value[:10])))
    return " ".join(str(value).split())[:2_000] if isinstance(value, str | int | float) else ""


def _shorten(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _shorten(inner) for key, inner in value.items()}
    if isinstance(value, list):
        shortened = [_shorten(inner) for inner in value[:_MAX_LIST_ITEMS]]
        if len(value) > _MAX_LIST_ITEMS:
            shortened.append(f"… {len(value) - _MAX_LIST_ITEMS} more items")
        return shortened
    return value


def read_csv(text: str) -> str:
    """Return the first rows as a table."""
    first = text[:8_192].partition("\n")[0]
    delimiter = max(",;\t|", key=first.count)
    try:
        reader = csv.reader(io.StringIO(text), delimiter=delimiter, strict=False)
        rows = list(filter(None, islice(reader, _MAX_ROWS)))
    except csv.Error as error:
        raise ValueError(str(error)) from None
    if not rows or len(rows[0]) < 2:
        raise ValueError("it has no columns")
    total = text.count("\n") + (not text.endswith("\n"))
    width = min(max(map(len, rows)), _MAX_TABLE_COLUMNS)
    lines = [_line(row, width) for row in rows]
    lines.insert(1, "|" + "---|" * width)
    if total > len(rows):
        lines.append(f"\n… about {total - len(rows)} more rows")
    return "\n".join(lines)


def _line(row: list[str], width: int) -> str:
    cells = [" ".join(cell.split()).replace("|", "\\|") for cell in row[:width]]
    return "| " + " | ".join(cells + [""] * (width - len(cells))) + " |"


def read_yaml(text: str) -> str:
    """Return YAML unchanged. Raise ValueError if it cannot be parsed."""
    # A larger text is not parsed, because that takes long and only a warning depends on it.
    if len(text) <= _MAX_PARSED_YAML:
        import yaml

        try:
            for _ in yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
                pass
        except (yaml.YAMLError, RecursionError) as error:
            raise ValueError(str(error).splitlines()[0]) from None
    return text.strip()


_MAX_TAGS = 100_000
"""Pages for people have fewer. The worst page of this size takes html-to-markdown about a second."""
_MAX_EXTRACTED_TAGS = 8_000
_MAX_ELEMENT_DEPTH = 100
_MAX_DATA_BLOCKS = 5
_SHORT_PAGE_CHARACTERS = 400
_EMPTY_PAGE_CHARACTERS = 80
_PAGE_FRAME_ELEMENTS = ("nav", "header", "footer", "aside", "form", "button", "dialog", "menu")
_FRONT_MATTER = re.compile(r"---\n(?:[^\n]+\n)+?---\n")
"""The metadata that html-to-markdown adds before a page: non-empty lines."""
_LINK = re.compile(r"\[([^\[\]]*)\]\(([^\s()]+)(?: \"[^\"\n]*\")?\)")


class HtmlText(NamedTuple):
    """A page as Markdown. `warning` is empty if all of it was converted."""

    title: str
    text: str
    warning: str


def read_html(page: str, url: str) -> HtmlText:
    """Convert a page. Raise FetchError without the extra, and ValueError for a page that cannot be converted."""
    warnings = []
    parts = page.split("<", _MAX_TAGS + 1)
    if len(parts) > _MAX_TAGS + 1:
        page = "<".join(parts[:-1])
        warnings.append(f"Only its first {_MAX_TAGS:,} tags were read.")
    conversion = _convert(page, url)
    title = _title_of(conversion)
    data = _structured_data(conversion)
    text = _extract_main_part(page, url)
    if len(text) < _SHORT_PAGE_CHARACTERS:
        complete_text = _text_of(conversion, url)
        if len(complete_text) < _EMPTY_PAGE_CHARACTERS:
            conversion = _convert(page, url, with_frame=True)
            complete_text = _text_of(conversion, url)
        # For small pages trafilatura often returns plain lines with navigation; then the complete page is better.
        if len(complete_text) > len(text) / 2:
            text = complete_text
            if "depth_limit_exceeded" in (str(warning.kind) for warning in conversion.warnings):
                warnings.append(f"Content more than {_MAX_ELEMENT_DEPTH} elements deep was left out.")
    if len(text) < _SHORT_PAGE_CHARACTERS:
        text = "\n\n".join(filter(None, (text, data)))
    return HtmlText(title, text, " ".join(warnings))


def _convert(page: str, url: str, *, with_frame: bool = False) -> ConversionResult:
    """Convert the complete page; without `with_frame`, skip navigation, headers, footers and the like."""
    try:
        from html_to_markdown import ConversionError, ConversionOptions, PreprocessingOptions, convert
    except ImportError:
        raise _missing_extra(url) from None
    options = ConversionOptions(
        base_url=url,
        bullets="-",
        compact_tables=True,
        exclude_selectors=[] if with_frame else list(_PAGE_FRAME_ELEMENTS),
        max_depth=_MAX_ELEMENT_DEPTH,
        preprocessing=PreprocessingOptions(enabled=not with_frame),
        skip_images=True,
    )
    try:
        return convert(page, options)
    except ConversionError as error:
        raise ValueError(f"the converter failed: {error}") from None


def _extract_main_part(page: str, url: str) -> str:
    """Return the main part of the page, or an empty text if there is none."""
    try:
        from trafilatura import extract
    except ImportError:
        raise _missing_extra(url) from None
    if page.count("<") > _MAX_EXTRACTED_TAGS:
        return ""
    try:
        extracted = extract(
            page, url=url, output_format="markdown", include_links=True, include_tables=True, favor_recall=True
        )
    except Exception:  # noqa: BLE001 - after any error the complete page is converted instead
        return ""
    return extracted or ""


def _missing_extra(url: str) -> FetchError:
    return FetchError(
        "EXTRA_MISSING",
        f"{url} is an HTML page, and reading HTML needs the extra web: {install_command('web')}. "
        "JSON, XML, CSV, Markdown and plain text can be fetched without it.",
    )


def _text_of(conversion: ConversionResult, url: str) -> str:
    """Return the Markdown without the titles of links and without links within the page."""
    here = url.partition("#")[0] + "#"

    def shorten(link: re.Match[str]) -> str:
        text, target = link.groups()
        if target.startswith(here):
            return text
        return f"[{text}]({target})"

    text = _FRONT_MATTER.sub("", conversion.content or "", count=1)
    return _LINK.sub(shorten, text).strip()


def _title_of(conversion: ConversionResult) -> str:
    title = conversion.metadata.document.title
    if not title:
        title = next((header.text for header in conversion.metadata.headers if header.level == 1), "")
    return " ".join(title.split())


def _structured_data(conversion: ConversionResult) -> str:
    """Return a summary of the structured data, for pages with little text."""
    objects = []
    for block in conversion.metadata.structured_data[:_MAX_DATA_BLOCKS]:
        try:
            objects.append(summarise_linked(json.loads(re.sub(r"[\x00-\x1f]+", " ", block.raw_json))))
        except (ValueError, RecursionError):
            continue
    return "\n\n".join(filter(None, objects))
