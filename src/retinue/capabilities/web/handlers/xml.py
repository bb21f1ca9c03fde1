"""XML without entities: feeds and site maps as lists, anything else as it is."""

from __future__ import annotations

import re
from html import unescape
from xml.etree import ElementTree

_MOST_ITEMS = 50
_DECLARATION = re.compile(r"^\s*<\?xml[^>]{0,200}\?>")
_TAGS = re.compile(r"<[^<>]{0,2000}>")


def read_xml(text: str) -> tuple[str, str]:
    """A title and what is in it. ValueError: show it as text. A document that declares entities
    is not parsed at all, so none is ever expanded or fetched."""
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
            return "", f"XML document <{name}>, {sum(1 for _ in root.iter()):,} elements\n\n{text.strip()}"


def _feed(root: ElementTree.Element, entry: str) -> tuple[str, str]:
    channel = next((each for each in root.iter() if _name(each) == "channel"), root)
    title, about = _text(channel, "title"), _text(channel, "description", "subtitle")
    entries = [each for each in root.iter() if _name(each) == entry]
    parts = [about] if about else []
    for each in entries[:_MOST_ITEMS]:
        head = _text(each, "title") or "(no title)"
        when = _text(each, "pubDate", "published", "updated", "date")
        lines = [f"- {head}" + (f" ({when})" if when else ""), _link(each), _text(each, "description", "summary")]
        parts.append("\n  ".join(filter(None, lines)))
    if len(entries) > _MOST_ITEMS:
        parts.append(f"… {len(entries) - _MOST_ITEMS} more entries")
    return title, "\n".join(parts)


def _site_map(root: ElementTree.Element) -> str:
    places = [(each.text or "").strip() for each in root.iter() if _name(each) == "loc"]
    more = f"\n… {len(places) - 500} more" if len(places) > 500 else ""
    return f"Site map with {len(places):,} addresses\n\n" + "\n".join(places[:500]) + more


def _text(element: ElementTree.Element, *names: str) -> str:
    for name in names:
        for child in element:
            if _name(child) == name:
                text = "".join(child.itertext())
                return " ".join(unescape(_TAGS.sub(" ", text)).split())[:500]
    return ""


def _link(entry: ElementTree.Element) -> str:
    for child in entry:
        if _name(child) == "link":
            return (child.get("href") or child.text or "").strip()[:2_000]
    return ""


def _name(element: ElementTree.Element) -> str:
    return element.tag.rpartition("}")[2] if isinstance(element.tag, str) else ""
