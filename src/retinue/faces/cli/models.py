"""`retinue models list` and `models resolve`. Keys are named by their variable, never shown."""

from __future__ import annotations

import argparse
import asyncio
import sys
from pathlib import Path
from typing import Any

from retinue.capabilities.trust.attach import settings_in_effect
from retinue.errors import RetinueError, UsageError
from retinue.http.address import display_url
from retinue.models.keys import environment as process_environment
from retinue.models.known import table_date, table_source
from retinue.models.presets import OTHER_NAMES
from retinue.models.protocol import ModelInfo, Prices
from retinue.models.providers import Provider, Providers
from retinue.models.resolve import OFFLINE
from retinue.models.select import ModelSelection, select_model
from retinue.settings.load import Loaded


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


def selection_data(selection: ModelSelection) -> dict[str, Any]:
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
    from retinue.faces.cli.project import folder as chosen

    return chosen(argument)


def _free(prices: Prices) -> bool:
    return prices.input == 0 and prices.output == 0


def configure_list(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--provider", metavar="P", help="only the models of this provider")
    add_common(parser)


def execute_list(args: argparse.Namespace) -> int:
    """List the models that can be used from here, and mark the one a run would get.

    Shown are the models of every provider that has a key or an address; a server of your own is
    asked for what it serves. Any other model of a configured provider can be named as provider/id.
    """
    loaded = settings_in_effect(folder(args.cwd), process_environment())
    models, active, problem = asyncio.run(_gather(loaded, folder(args.cwd)))
    warnings = (*loaded.warnings, *_withheld(loaded))
    if args.provider is not None:
        wanted = args.provider.strip().lower()
        wanted = OTHER_NAMES.get(wanted, wanted)
        models = [info for info in models if info.provider.lower() == wanted]
    if args.json:
        _print_document(models, active, problem, warnings)
        return 0
    for warning in warnings:
        say(f"warning: {warning}")
    for info in models:
        mark = "*" if active is not None and info.full_name == active.info.full_name else " "
        print(f"{mark} {line(info)}")
    if not models:
        print(_nothing(args.provider, loaded))
    else:
        own = ", `models` of your settings over them" if loaded.settings.models else ""
        print(f"Prices (USD per million tokens) and windows as of {table_date()}, from {table_source()}{own}.")
    if active is not None:
        print(f"A run without a model of its own gets {active.info.full_name}: {active.why}.")
    if problem is not None:
        say(f"warning: {problem.message} {problem.remedy.partition(chr(10))[0]}")
    return 0


def _withheld(loaded: Loaded) -> tuple[str, ...]:
    """What providers go without, and why."""
    providers = Providers(loaded.settings, process_environment())
    return tuple(dict.fromkeys(note for provider in providers.configured() for note in provider.notes))


async def _gather(loaded: Loaded, cwd: Path) -> tuple[list[ModelInfo], ModelSelection | None, RetinueError | None]:
    providers = Providers(loaded.settings, process_environment())
    offered = await asyncio.gather(*(_offered(providers, provider) for provider in providers.configured()))
    models = [info for group in offered for info in group]
    active, problem = None, None
    try:
        active = await select_model(settings=loaded.settings, environment=process_environment())
    except RetinueError as error:
        problem = error
    for extra in (active.info if active else OFFLINE, OFFLINE):
        if extra.full_name not in {info.full_name for info in models}:
            models.append(extra)
    return models, active, problem


async def _offered(providers: Providers, provider: Provider) -> tuple[ModelInfo, ...]:
    """What the table or the settings say; a server that neither describes is asked."""
    known = providers.models_of(provider)
    if provider.listed or (not provider.custom and not provider.local):
        return known
    from retinue.models.local_window import served_models

    served = await served_models(provider)
    return known if served is None else tuple(providers.info(provider, model) for model in served)


def _nothing(provider: str | None, loaded: Loaded) -> str:
    if provider is None:
        return "No model is available."
    found = Providers(loaded.settings, process_environment()).get(provider)
    if found is None:
        return f"There is no provider '{provider}'; `providers` in settings can describe one."
    if found.problem is not None:
        return f"No models: {found.problem}."
    return f"'{found.id}' lists no models here; name one as {found.id}/ID, or start the server at {found.base_url}."


def _print_document(
    models: list[ModelInfo], active: ModelSelection | None, problem: RetinueError | None, warnings: tuple[str, ...]
) -> None:
    name = active.info.full_name if active is not None else None
    print_json(
        {
            "models": [{**model_data(info), "active": info.full_name == name} for info in models],
            "active": selection_data(active) if active is not None else None,
            "error": {"code": problem.code, "message": str(problem)} if problem is not None else None,
            "date": table_date(),
            "source": table_source(),
            "warnings": list(warnings),
        }
    )


def configure_resolve(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("query", metavar="QUERY", nargs="?", help="provider/id, a family, or part of a name")
    parser.add_argument("--agent-model", metavar="M", help="the model that the agent's file names")
    add_common(parser)


def execute_resolve(args: argparse.Namespace) -> int:
    """Say which model a name means here, and why; without QUERY, which one a run would get.

    retinue models resolve haiku
    retinue models resolve --agent-model opus      as an agent's file would ask for it
    """
    cwd = folder(args.cwd)
    loaded = settings_in_effect(cwd, process_environment())
    try:
        selection = asyncio.run(
            select_model(
                args.query,
                file_model=args.agent_model,
                settings=loaded.settings,
                environment=process_environment(),
            )
        )
    except UsageError as error:
        if not args.json:
            raise
        print_json({"error": {"code": error.code, "message": error.message, "remedy": error.remedy}})
        return error.exit_code
    if args.json:
        data = selection_data(selection)
        print_json({**data, "warnings": [*data["warnings"], *loaded.warnings]})
        return 0
    for warning in (*loaded.warnings, *selection.warnings):
        say(f"warning: {warning}")
    print(_text(selection))
    return 0


def _text(selection: ModelSelection) -> str:
    info, provider = selection.info, selection.provider
    named = f" ({info.name})" if info.name and info.name != info.id else ""
    rows = [("why", selection.why)]
    if provider.base_url:
        key = f"key from {provider.key_source}" if provider.key_source else "no key"
        rows.append(("provider", f"{provider.id} at {display_url(provider.base_url)}, {key} ({provider.origin})"))
    if selection.path is not None:
        rows.append(("file", str(selection.path)))
    rows.append(("window", f"{size(info.window)} tokens, of which {size(info.max_output)} can be output"))
    abilities = [
        word for word, can in (("thinking", info.thinking), ("images", info.images), ("PDFs", info.documents)) if can
    ]
    rows.append(("abilities", ", ".join(abilities) or "text only"))
    if selection.thinking is not None:
        rows.append(("thinking", selection.thinking))
    rows.append(("price", price(info.prices)))
    rows += [("note", note) for note in selection.notes]
    return "\n".join([f"{info.full_name}{named}", *(f"  {name:<9}  {text}" for name, text in rows)])
