"""Rewrites src/retinue/models/known_models.json from genai-prices. For maintainers only.

    pip install genai-prices && python tools/update_known_models.py [--check]

Prices, names and most windows come from that package; what it does not carry (output limits,
thinking, images, a few windows and prices) is in CHOSEN below, with its source. Where a price
depends on the hour, the dearest counts.
The newest model of a family stands first: lists show it first, and equal matches prefer it.
`--check` changes nothing and fails when the file is not what would be written.
"""

from __future__ import annotations

import argparse
import json
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

TARGET = Path(__file__).parent.parent / "src" / "retinue" / "models" / "known_models.json"


class Row(NamedTuple):
    id: str
    output: int
    source: str = ""  # its id at genai-prices, where that differs
    window: int = 0  # where genai-prices has none
    thinking: bool = True
    images: bool = True
    responses: bool = False  # thinks and uses tools together only through OpenAI's Responses API
    prices: tuple[float, ...] = ()  # where genai-prices has none: input, output, cache read, cache write
    unpriced: bool = False  # nobody says for certain what it costs
    name: str = ""


M = 1024 * 1024
INPUT = 272_000  # of a window of 400,000 the rest is reserved for output: only this much can be filled

CHOSEN: dict[tuple[str, str], tuple[Row, ...]] = {
    ("anthropic", "anthropic"): (
        # platform.claude.com what's-new-fable-5-2 (2026-11-09); genai-prices 0.2.1 does not have it
        Row("claude-fable-5-2", 128_000, window=1_000_000, prices=(8, 40, 0.2, 10), name="Claude Fable 5.2"),
        Row("claude-fable-5-1", 128_000),
        Row("claude-fable-5", 128_000),
        Row("claude-opus-5-5", 128_000),
        Row("claude-opus-5", 128_000),
        Row("claude-opus-4-8", 128_000),
        Row("claude-opus-4-7", 128_000),
        Row("claude-opus-4-6", 128_000),
        Row("claude-opus-4-5", 64_000),
        Row("claude-sonnet-5-5", 128_000),
        Row("claude-sonnet-5", 128_000),
        Row("claude-sonnet-4-6", 128_000),
        Row("claude-sonnet-4-5", 64_000),
        Row("claude-haiku-5-5", 128_000),
        Row("claude-haiku-4-5", 64_000),
        # litellm 1.106.2 for windows and prices; of the newest and the preview no price is certain
        Row("claude-mythos-5-2", 128_000, window=1_000_000, unpriced=True, name="Claude Mythos 5.2"),
        Row("claude-mythos-5-1", 128_000, window=1_000_000, prices=(10, 50, 0.25, 12.5), name="Claude Mythos 5.1"),
        Row("claude-mythos-5", 128_000, window=1_000_000, prices=(10, 50, 1, 12.5), name="Claude Mythos 5"),
        Row("claude-mythos-preview", 128_000, window=1_000_000, unpriced=True, name="Claude Mythos Preview"),
    ),
    ("openai", "openai"): (
        Row("gpt-6.1-sol", 128_000, responses=True),
        Row("gpt-6.1-terra", 128_000, responses=True),
        Row("gpt-6-astra", 128_000, responses=True),
        Row("gpt-6-sol", 128_000, responses=True),
        Row("gpt-6-luna", 128_000, responses=True),
        Row("gpt-5.6-sol", 128_000, responses=True),
        Row("gpt-5.6-terra", 128_000, responses=True),
        Row("gpt-5.6-luna", 128_000, responses=True),
        Row("gpt-5.5", 128_000),
        Row("gpt-5.5-pro", 128_000, responses=True),
        Row("gpt-5.4", 128_000),
        Row("gpt-5.4-mini", 128_000, window=INPUT),
        Row("gpt-5.4-nano", 128_000, window=INPUT),
        Row("gpt-5.4-pro", 128_000, responses=True),
        Row("gpt-5.3-codex", 128_000, window=INPUT, responses=True),
        Row("gpt-5.2", 128_000, window=INPUT),
        Row("gpt-5.2-codex", 128_000, "gpt-5.2", INPUT, responses=True, name="GPT-5.2 Codex"),
        Row("gpt-5.1", 128_000, window=INPUT),
        Row("gpt-5", 128_000, window=INPUT),
        Row("gpt-5-mini", 128_000, window=INPUT),
        Row("gpt-5-nano", 128_000, window=INPUT),
        Row("gpt-4.1", 32_768, thinking=False, name="GPT-4.1"),
        Row("gpt-4.1-mini", 32_768, thinking=False, name="GPT-4.1 mini"),
        Row("gpt-4.1-nano", 32_768, thinking=False, name="GPT-4.1 nano"),
        Row("gpt-4o", 16_384, thinking=False, name="GPT-4o"),
        Row("gpt-4o-mini", 16_384, thinking=False, name="GPT-4o mini"),
        Row("o4-mini", 100_000, name="o4 mini"),
        Row("o3", 100_000),
        Row("o3-pro", 100_000, responses=True),
        Row("o3-mini", 100_000, images=False),
        Row("o1", 100_000),
    ),
    ("gemini", "google"): (
        Row("gemini-4-argon", 65_536),
        Row("gemini-3.8-flash", 65_536, window=M),
        Row("gemini-3.7-flash", 65_536, window=M),
        Row("gemini-3.6-flash", 65_536, window=M),
        Row("gemini-3.5-flash", 65_536, window=M),
        Row("gemini-3.5-flash-lite", 65_536, window=M),
        Row("gemini-3.1-pro-preview", 65_536, window=M),
        Row("gemini-3.1-flash-lite", 65_536, window=M),
        Row("gemini-3-flash-preview", 65_536, window=M),
        Row("gemini-2.5-pro", 65_536, window=M),
        Row("gemini-2.5-flash", 65_536, window=M),
        Row("gemini-2.5-flash-lite", 65_536, window=M),
    ),
    ("deepseek", "deepseek"): (
        Row("deepseek-v4-pro", 393_216, images=False),
        Row("deepseek-v4-flash", 393_216),
        Row("deepseek-flash", 393_216),
        Row("deepseek-reasoner", 65_536, window=131_072, images=False),
        Row("deepseek-chat", 8_192, window=131_072, thinking=False, images=False),
    ),
    ("xai", "x-ai"): (
        Row("grok-4.7", 128_000),
        Row("grok-4.6", 128_000),
        Row("grok-4.5", 128_000),
        Row("grok-4.3", 128_000),
        Row("grok-build-0.1", 64_000),
        # served by grok-build-0.1 since 2026-05 (pydantic-ai profiles/grok.py), at its price (litellm)
        Row("grok-code-fast-1", 10_000, source="grok-build-0.1", images=False, name="Grok Code Fast 1"),
    ),
    ("mistral", "mistral"): (
        Row("mistral-large-4", 128_000),
        Row("mistral-large-2512", 128_000, thinking=False),
        Row("mistral-medium-3-5", 128_000),
        Row("mistral-medium-latest", 128_000, window=262_144),
        Row("mistral-small-2603", 128_000),
        Row("mistral-small-latest", 128_000, window=262_144),
        Row("ministral-8b-2512", 128_000, thinking=False),
        Row("codestral-2508", 32_768, window=128_000, thinking=False, images=False),
    ),
    ("moonshot", "moonshotai"): (
        Row("kimi-k3.1-pro", 131_072, name="Kimi K3.1 Pro"),
        Row("kimi-k3", 131_072),
        Row("kimi-k2.7-code", 65_536),
        Row("kimi-k2.6", 65_536),
    ),
    ("zai", "zai"): (
        Row("glm-5.3", 128_000, source="GLM-5.3", images=False),
        Row("glm-5.3-flash", 128_000, source="GLM-5.3-Flash"),
        Row("glm-5.2", 128_000, source="GLM-5.2", images=False),
        Row("glm-5.1", 128_000, source="GLM-5.1", window=200_000, images=False),
        Row("glm-5", 128_000, source="GLM-5", window=200_000, images=False),
        Row("glm-4.7", 128_000, source="GLM-4.7", window=200_000, images=False),
        Row("glm-4.6", 128_000, source="GLM-4.6", window=200_000, images=False),
    ),
    ("qwen", ""): (
        Row("qwen3.8-max", 131_072, window=991_808, prices=(2, 6, 0.25), name="Qwen3.8 Max"),
        Row("qwen3.8-flash", 131_072, window=991_808, prices=(0.15, 0.47, 0.016, 0.2), name="Qwen3.8 Flash"),
        Row("qwen3.7-max", 65_536, window=991_808, images=False, name="Qwen3.7 Max"),
        Row("qwen3-coder-plus", 65_536, window=997_952, images=False, name="Qwen3 Coder Plus"),
        Row("qwen3-coder-flash", 65_536, window=997_952, images=False, name="Qwen3 Coder Flash"),
    ),
    ("minimax", "minimax"): (
        Row("MiniMax-M3", 128_000, source="minimax-m3", images=False),
        Row("MiniMax-M3.1-Flash", 128_000, images=False),
        Row("MiniMax-M2.7", 128_000, images=False),
    ),
    ("meta", "meta"): (Row("muse-spark-1.3", 128_000), Row("muse-wonder-1.0", 128_000)),
    ("groq", "groq"): (
        Row("openai/gpt-oss-120b", 65_536, images=False),
        Row("openai/gpt-oss-20b", 65_536, images=False),
        Row("llama-3.3-70b-versatile", 32_768, window=131_072, thinking=False, images=False),
        Row("qwen/qwen3-32b", 40_960, images=False),
    ),
}

LEFT_OUT: dict[str, str] = {
    "gpt-5-chat-latest": "no tools worth offering",
    "gpt-5.1-chat-latest": "no tools worth offering",
    "gpt-5.2-chat-latest": "no tools worth offering",
    "gpt-5.3-chat-latest": "no tools worth offering",
    "gpt-5-codex": "retired",
    "gpt-5.1-codex": "retired",
    "gpt-5.1-codex-max": "retired",
    "gpt-5.1-mini": "retired",
    "gpt-5-pro": "one request takes many minutes",
    "gpt-5.2-pro": "one request takes many minutes",
    "gpt-5.6-cyber": "for vetted accounts only",
    "gpt-6-cyber": "for vetted accounts only",
    "gpt-6-rosalind": "for vetted accounts only",
    "o1-mini": "retired",
    "o1-preview": "retired",
    "o1-pro": "one request takes many minutes",
    "o3-deep-research": "no function tools",
    "o4-mini-deep-research": "no function tools",
}
"""Ids of the makers' SDKs that are not in the table on purpose. A test fails for any other."""

KEYS = ("input_mtok", "output_mtok", "cache_read_mtok", "cache_write_mtok")


def _number(value: Any) -> float | int:
    number = round(float(value), 6)
    return int(number) if number == int(number) else number


def _trim(values: list[float | int | None]) -> list[float | int | None]:
    while values and values[-1] is None:
        values.pop()
    return values


def _dearest(model: Any, now: datetime) -> Any:
    """The price of the dearest hour of the coming week: DeepSeek's peak is double, and a cost must
    never be an underestimate."""
    hours = [model.get_prices(now + timedelta(hours=hour)) for hour in range(7 * 24)]
    return max(hours, key=lambda price: float(getattr(price.output_mtok, "base", price.output_mtok) or 0))


def _prices(model: Any, now: datetime) -> tuple[list[Any] | None, list[Any] | None]:
    """The base prices, and [threshold, prices] of the tier above, where there is one."""
    price = _dearest(model, now)
    raw = [getattr(price, key, None) for key in KEYS]
    if raw[0] is None or raw[1] is None:
        return None, None
    base = [None if value is None else _number(getattr(value, "base", value)) for value in raw]
    starts = sorted({tier.start for value in raw for tier in getattr(value, "tiers", ())})
    if not starts:
        return _trim(base), None
    start = starts[0]

    def above(value: Any) -> float | int | None:
        tiers = [tier for tier in getattr(value, "tiers", ()) if tier.start == start]
        return None if value is None else _number(tiers[0].price if tiers else getattr(value, "base", value))

    return _trim(base), [start, _trim([above(value) for value in raw])]


def _row(row: Row, provider: Any | None, now: datetime) -> dict[str, Any]:
    model = None
    own = row.unpriced or bool(row.prices)
    if provider is not None and not (own and row.window):
        wanted = row.source or row.id
        model = next((m for m in provider.models if m.id == wanted), None) or provider.find_model(wanted)
        if model is None:
            raise SystemExit(f"genai-prices has no {provider.id} model '{wanted}': correct CHOSEN")
    window = row.window or (model.context_window if model is not None else 0)
    if not window:
        raise SystemExit(f"no window is known for {row.id}: give one in CHOSEN")
    base, above = (_trim(list(row.prices)) or None, None) if own or model is None else _prices(model, now)
    entry: dict[str, Any] = {
        "name": row.name or (model.name if model is not None else None) or row.id,
        "window": window,
        "output": row.output,
        "thinking": row.thinking,
        "images": row.images,
    }
    if base:
        entry["prices"] = base
    if above:
        entry["above"] = above
    if row.responses:
        entry["responses"] = True
    return entry


def build(now: datetime) -> str:
    from importlib.metadata import version

    from genai_prices.data import providers

    found = {provider.id: provider for provider in providers}
    table = {
        ours: {row.id: _row(row, found[theirs] if theirs else None, now) for row in rows}
        for (ours, theirs), rows in CHOSEN.items()
    }
    head = {
        "date": now.date().isoformat(),
        "source": f"genai-prices {version('genai-prices')} and the makers' documentation",
        "unit": "USD per million tokens: input, output, cache read, cache write",
    }
    lines = [f"  {json.dumps(key)}: {json.dumps(value)}," for key, value in head.items()]
    blocks = []
    for provider, models in table.items():
        rows = ",\n".join(f"      {json.dumps(key)}: {json.dumps(value)}" for key, value in models.items())
        blocks.append(f"    {json.dumps(provider)}: {{\n{rows}\n    }}")
    return "{\n" + "\n".join(lines) + '\n  "providers": {\n' + ",\n".join(blocks) + "\n  }\n}\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    now = datetime.now(UTC)
    if check:
        date = json.loads(TARGET.read_text())["date"]
        now = datetime.fromisoformat(date).replace(tzinfo=UTC)
        return 0 if build(now) == TARGET.read_text() else 1
    TARGET.write_text(build(now))
    sys.stdout.write(f"{TARGET.name}: {sum(len(rows) for rows in CHOSEN.values())} models\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
