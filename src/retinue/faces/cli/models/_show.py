"""How models are shown, to people and to programs. Keys are named by their variable, never shown."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from retinue.http.address import display_url
from retinue.models.protocol import ModelInfo, Prices
from retinue.models.select import Selection


def add_common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--cwd", metavar="DIR", help="the folder whose settings count (default: here)")
    parser.add_argument("--json", action="store_true", help="print one JSON document on stdout")


def say(text: str) -> None:
    print(text, file=sys.stderr)


def print_json(document: Any) -> None:
    import json

    print(json.dumps(document, ensure_ascii=False, indent=2))


def size(tokens: int) -> str:
    """`8.2k`, `200k`, `1M`, `1.05M`: three digits say enough."""
    if tokens < 1_000:
        return str(tokens)
    return f"{tokens / 1_000_000:.3g}M" if tokens >= 999_500 else f"{tokens / 1_000:.3g}k"


def line(info: ModelInfo) -> str:
    """`provider/id (name) · ctx 200k · reasoning · $3/$15`."""
    named = f" ({info.name})" if info.name and info.name != info.id else ""
    parts = [f"{info.full_name}{named}", f"ctx {size(info.window)}"]
    if info.thinking:
        parts.append("reasoning")
    if info.prices is not None:
        parts.append("free" if _free(info.prices) else f"${info.prices.input:g}/${info.prices.output:g}")
    return " · ".join(parts)


def price(prices: Prices | None) -> str:
    if prices is None:
        return "not known"
    if _free(prices):
        return "nothing"
    words = [f"${prices.input:g} in", f"${prices.output:g} out"]
    if prices.cache_read is not None:
        words.append(f"${prices.cache_read:g} cache read")
    if prices.cache_write is not None:
        words.append(f"${prices.cache_write:g} cache write")
    text = ", ".join(words) + " per million tokens"
    if prices.above is not None:
        start, above = prices.above
        text += f"; ${above.input:g} in, ${above.output:g} out for requests above {size(start)}"
    return text


def model_data(info: ModelInfo) -> dict[str, Any]:
    return {
        "provider": info.provider,
        "id": info.id,
        "name": info.name or info.id,
        "window": info.window,
        "maxOutput": info.max_output,
        "thinking": info.thinking,
        "images": info.images,
        "documents": info.documents,
        "prices": prices_data(info.prices),
    }


def prices_data(prices: Prices | None) -> dict[str, Any] | None:
    if prices is None:
        return None
    data: dict[str, Any] = {
        "input": prices.input,
        "output": prices.output,
        "cacheRead": prices.cache_read,
        "cacheWrite": prices.cache_write,
    }
    if prices.above is not None:
        data["above"] = {"tokens": prices.above[0], **(prices_data(prices.above[1]) or {})}
    return data


def selection_data(selection: Selection) -> dict[str, Any]:
    provider = selection.provider
    return {
        "model": selection.info.full_name,
        **model_data(selection.info),
        "source": selection.source,
        "why": selection.why,
        "api": provider.api,
        "baseUrl": display_url(provider.base_url) or None,
        "key": provider.key_source or None,
        "file": str(selection.path) if selection.path else None,
        "thinkingLevel": selection.thinking,
        "notes": list(selection.notes),
        "warnings": list(selection.warnings),
    }


def folder(argument: str | None) -> Path:
    from retinue.faces.cli.task import folder as chosen

    return chosen(argument)


def _free(prices: Prices) -> bool:
    return prices.input == 0 and prices.output == 0
