"""Pages as text: HTML to Markdown, and JSON, JSON-LD, JSON lines, CSV, YAML and XML (feeds and site maps as lists).

A ValueError means that the caller shows the text as it is. XML that declares entities is never parsed.

HTML is converted by the libraries of the extra `web`. trafilatura finds the part of a page that people read;
html-to-markdown converts the whole page where that part is missing or short, and reads the title and the data that a
page has for machines. Both get a bounded page: hostile markup costs trafilatura time that grows with the square of the
tags, and html-to-markdown keeps every other thread waiting while it works.
"""

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


_MOST_ENTRIES = 50
_DECLARATION = re.compile(r"^\s*<\?xml[^>]{0,200}\?>")
_TAGS = re.compile(r"<[^<>]{0,2000}>")


def read_xml(text: str) -> tuple[str, str]:
    """Return the title and the text of a document, or raise ValueError. One that declares entities is not parsed, so
    that none is ever expanded or fetched."""
    if "<!ENTITY" in text:
        raise ValueError("it declares entities, which are not read")
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
    for element in entries[:_MOST_ENTRIES]:
        head = _text(element, "title") or "(no title)"
        when = _text(element, "pubDate", "published", "updated", "date")
        if when:
            head += f" ({when})"
        lines = [f"- {head}", _link(element), _text(element, "description", "summary")]
        parts.append("\n  ".join(filter(None, lines)))
    if len(entries) > _MOST_ENTRIES:
        parts.append(f"… {len(entries) - _MOST_ENTRIES} more entries")
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
                # Feeds carry HTML as escaped text, so tags and entities are left after XML has been parsed.
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


_MOST_ITEMS = 50
_MOST_ROWS = 200
_MOST_COLUMNS = 50
_MOST_YAML = 256 * 1024
_TELLING = (
    *("name", "headline", "description", "datePublished", "dateModified", "url", "author", "publisher", "offers"),
    *("price", "priceCurrency", "ratingValue", "articleBody", "recipeIngredient", "startDate", "location"),
)
"""Properties of schema.org that say what something is."""


def read_json(text: str) -> str:
    """Return JSON with indentation and with long lists cut."""
    try:
        return json.dumps(_shorten(json.loads(text)), indent=2, ensure_ascii=False)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def read_json_lines(text: str) -> str:
    lines = list(filter(str.strip, text.splitlines()))
    for line in lines[:_MOST_ROWS]:
        json.loads(line)
    shown = lines[:_MOST_ROWS]
    if len(lines) > _MOST_ROWS:
        shown.append(f"… {len(lines) - _MOST_ROWS} more lines")
    return "\n".join(shown)


def read_linked(text: str) -> str:
    """Return a summary of JSON-LD, then the whole."""
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
    nodes_read = [_node(node) for node in nodes[:10] if isinstance(node, Mapping)]
    return "\n\n".join(filter(None, nodes_read))


def _node(node: Mapping[str, Any]) -> str:
    kind = node.get("@type")
    lines = []
    for name in _TELLING:
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
        shortened = [_shorten(inner) for inner in value[:_MOST_ITEMS]]
        if len(value) > _MOST_ITEMS:
            shortened.append(f"… {len(value) - _MOST_ITEMS} more items")
        return shortened
    return value


def read_csv(text: str) -> str:
    """Return the first rows as a table."""
    first = text[:8_192].partition("\n")[0]
    delimiter = max(",;\t|", key=first.count)
    try:
        reader = csv.reader(io.StringIO(text), delimiter=delimiter, strict=False)
        rows = list(filter(None, islice(reader, _MOST_ROWS)))
    except csv.Error as error:
        raise ValueError(str(error)) from None
    if not rows or len(rows[0]) < 2:
        raise ValueError("it has no columns")
    total = text.count("\n") + (not text.endswith("\n"))
    width = min(max(map(len, rows)), _MOST_COLUMNS)
    lines = [_line(row, width) for row in rows]
    lines.insert(1, "|" + "---|" * width)
    if total > len(rows):
        lines.append(f"\n… about {total - len(rows)} more rows")
    return "\n".join(lines)


def _line(row: list[str], width: int) -> str:
    cells = [" ".join(cell.split()).replace("|", "\\|") for cell in row[:width]]
    return "| " + " | ".join(cells + [""] * (width - len(cells))) + " |"


def read_yaml(text: str) -> str:
    """Return YAML as it is, or raise ValueError if it cannot be parsed."""
    # Parsing a larger text takes long, and only a warning depends on it.
    if len(text) <= _MOST_YAML:
        import yaml

        try:
            for _ in yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
                pass
        except (yaml.YAMLError, RecursionError) as error:
            raise ValueError(str(error).splitlines()[0]) from None
    return text.strip()


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
    warnings = []
    parts = page.split("<", _MOST_TAGS + 1)
    if len(parts) > _MOST_TAGS + 1:
        page = "<".join(parts[:-1])
        warnings.append(f"Only its first {_MOST_TAGS:,} tags were read.")
    conversion = _convert(page, url)
    title = _title_of(conversion)
    data = _structured_data(conversion)
    text = _extract_main_part(page, url)
    if len(text) < _SHORT:
        full = _text_of(conversion, url)
        if len(full) < _ALMOST_EMPTY:
            conversion = _convert(page, url, furniture=True)
            full = _text_of(conversion, url)
        # Of small pages trafilatura often returns bare lines of text, navigation included: the whole page reads better.
        if len(full) > len(text) / 2:
            text = full
            if "depth_limit_exceeded" in (str(warning.kind) for warning in conversion.warnings):
                warnings.append(f"What stands more than {_MOST_DEPTH} elements deep was left out.")
    if len(text) < _SHORT:
        text = "\n\n".join(filter(None, (text, data)))
    return HtmlText(title, text, " ".join(warnings))


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
        extracted = extract(
            page, url=url, output_format="markdown", include_links=True, include_tables=True, favor_recall=True
        )
    except Exception:  # noqa: BLE001 - whatever a foreign page makes it do, the whole page is there
        return ""
    return extracted or ""


def _missing_extra(url: str) -> FetchError:
    return FetchError(
        "EXTRA_MISSING",
        f"{url} is an HTML page, and reading HTML needs the extra web: {install_command('web')}. "
        "JSON, XML, CSV, Markdown and plain text can be fetched without it.",
    )


def _text_of(conversion: ConversionResult, url: str) -> str:
    """Return the Markdown without what costs tokens and says nothing: titles of links, links within the page."""
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
    return " ".join(title.split())[:_LONGEST_TITLE]


def _structured_data(conversion: ConversionResult) -> str:
    """Return what a page tells machines about itself, for pages that tell people nothing."""
    objects = []
    for block in conversion.metadata.structured_data[:_MOST_BLOCKS]:
        try:
            objects.append(summarise_linked(json.loads(re.sub(r"[\x00-\x1f]+", " ", block.raw_json))))
        except (ValueError, RecursionError):
            continue
    return "\n\n".join(filter(None, objects))
