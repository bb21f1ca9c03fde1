"""Structured data: JSON, JSON-LD, JSON lines, CSV, YAML. A ValueError means: show it as text."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping
from typing import Any

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
    """Pretty, with long lists cut to their first part."""
    try:
        return json.dumps(_shortened(json.loads(text)), indent=2, ensure_ascii=False)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def read_json_lines(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    for line in lines[:_MOST_ROWS]:
        json.loads(line)
    more = f"\n… {len(lines) - _MOST_ROWS} more lines" if len(lines) > _MOST_ROWS else ""
    return "\n".join(lines[:_MOST_ROWS]) + more


def read_linked(text: str) -> str:
    """JSON-LD: what it is about, then the whole."""
    try:
        summary = summarise_linked(json.loads(text))
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    return "\n\n".join(filter(None, (summary, read_json(text))))


def summarise_linked(data: Any) -> str:
    nodes = data.get("@graph", [data]) if isinstance(data, Mapping) else data
    found = [_node(node) for node in (nodes if isinstance(nodes, list) else [nodes])[:10] if isinstance(node, Mapping)]
    return "\n\n".join(filter(None, found))


def _node(node: Mapping[str, Any]) -> str:
    kind = node.get("@type")
    lines = [f"{name}: {text}" for name in _TELLING if (text := _short(node.get(name)))]
    if not kind or not lines:
        return ""
    return "\n".join([f"**{', '.join(map(str, kind)) if isinstance(kind, list) else kind}**", *lines])


def _short(value: Any) -> str:
    if isinstance(value, Mapping):
        value = value.get("name") or value.get("@id") or value.get("price") or ""
    if isinstance(value, list):
        return ", ".join(filter(None, map(_short, value[:10])))
    return " ".join(str(value).split())[:2_000] if isinstance(value, str | int | float) else ""


def _shortened(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _shortened(inner) for key, inner in value.items()}
    if isinstance(value, list):
        kept = [_shortened(inner) for inner in value[:_MOST_ITEMS]]
        return [*kept, f"… {len(value) - _MOST_ITEMS} more items"] if len(value) > _MOST_ITEMS else kept
    return value


def read_csv(text: str) -> str:
    """The first rows as a table."""
    first = text[:8_192].partition("\n")[0]
    delimiter = max(",;\t|", key=first.count)
    try:
        rows = list(_rows(csv.reader(io.StringIO(text), delimiter=delimiter, strict=False)))
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


def _rows(reader: Any) -> Any:
    for number, row in enumerate(reader):
        if number >= _MOST_ROWS:
            return
        if row:
            yield row


def _line(row: list[str], width: int) -> str:
    cells = [" ".join(cell.split()).replace("|", "\\|") for cell in row[:width]]
    return "| " + " | ".join(cells + [""] * (width - len(cells))) + " |"


def read_yaml(text: str) -> str:
    """As it is; parsed only to know whether it can be."""
    if len(text) <= _MOST_YAML:
        import yaml

        try:
            for _ in yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
                pass
        except (yaml.YAMLError, RecursionError) as error:
            raise ValueError(str(error).splitlines()[0]) from None
    return text.strip()
