"""`retinue models list` and `models resolve`. Keys are named by their variable, never shown."""

from __future__ import annotations

import argparse
import asyncio
from typing import TYPE_CHECKING, Any

from retinue.errors import RetinueError, UsageError
from retinue.faces.cli.project import add_where, folder, say, warn, write_json
from retinue.faces.text import optional
from retinue.guard.trust import settings_in_effect
from retinue.http.address import display_url
from retinue.models.inventory import ModelInventory, list_models
from retinue.models.keys import environment as process_environment
from retinue.models.known import table_date, table_source
from retinue.models.presets import OTHER_NAMES
from retinue.models.protocol import ModelInfo, Prices
from retinue.models.providers import Providers
from retinue.models.select import ModelSelection, select_model
from retinue.settings.table import Settings

if TYPE_CHECKING:
    from retinue.http.transport import Transport

_MOST_ASKED = 16
"""A gateway may list hundreds of models, and each is asked about."""
_WHOSE = "the folder whose settings count (default: here)"


def size(tokens: int) -> str:
    """Return `8.2k`, `200k`, `1M` or `1.05M`: three digits say enough."""
    if tokens < 1_000:
        return str(tokens)
    if tokens < 999_500:
        return f"{tokens / 1_000:.3g}k"
    return f"{tokens / 1_000_000:.3g}M"


def name_of(info: ModelInfo) -> str:
    """Return `provider/id (name)`."""
    if info.name == info.id:
        return info.full_name
    return info.full_name + optional(" ({})", info.name)


def line(info: ModelInfo) -> str:
    """Return `provider/id (name) · ctx 200k · reasoning · $3/$15`."""
    parts = [name_of(info), f"ctx {size(info.window)}"]
    if info.thinking:
        parts.append("reasoning")
    if info.prices is not None and _is_free(info.prices):
        parts.append("free")
    elif info.prices is not None:
        parts.append(f"${info.prices.input:g}/${info.prices.output:g}")
    return " · ".join(parts)


def price(prices: Prices | None) -> str:
    if prices is None:
        return "not known"
    if _is_free(prices):
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
        "maxOutput": min(info.max_output, info.window),
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
        "file": selection.path and str(selection.path),
        "thinkingLevel": selection.thinking,
        "notes": list(selection.notes),
        "warnings": list(selection.warnings),
    }


def _is_free(prices: Prices) -> bool:
    return prices.input == 0 and prices.output == 0


def configure_list(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--provider", metavar="P", help="only the models of this provider")
    add_where(parser, _WHOSE)


async def _list(settings: Settings) -> ModelInventory:
    """Return the models, the first of the user's own servers with the windows that they have there."""
    found = await list_models(settings, process_environment())
    servers = {provider.id for provider in found.providers.configured() if provider.runs_models}
    own = [info for info in found.models if info.provider in servers][:_MOST_ASKED]
    if not own:
        return found
    from retinue.http.transport import Transport

    transport = Transport()
    try:
        asked = await asyncio.gather(*(_measured(info, found.providers, transport) for info in own))
    finally:
        await transport.close()
    measured = {info.full_name: info for info in asked}
    return found._replace(models=tuple(measured.get(info.full_name, info) for info in found.models))


async def _measured(info: ModelInfo, providers: Providers, transport: Transport) -> ModelInfo:
    from retinue.models.local_window import with_local_window

    provider = providers.get(info.provider)
    if provider is None:
        return info
    described = providers.has_window(provider, info.id)
    measured, _ = await with_local_window(provider, info, transport, described, load=False)
    return measured if measured.window != info.window else info


def execute_list(args: argparse.Namespace) -> int:
    """List the models that can be used from here, and mark the one a run would get.

    Shown are the models of every provider that has a key or an address; a server of your own is
    asked for what it serves. Any other model of a configured provider can be named as provider/id.
    """
    from retinue.models.setup import FIRST_STEPS

    loaded = settings_in_effect(folder(args.cwd), process_environment())
    found = asyncio.run(_list(loaded.settings))
    models, active, problem = list(found.models), found.active, found.problem
    warnings = (*loaded.warnings, *_withheld(found.providers))
    if args.provider is not None:
        wanted = args.provider.strip().lower()
        wanted = OTHER_NAMES.get(wanted, wanted)
        models = [info for info in models if info.provider.lower() == wanted]
    if args.json:
        _print_document(models, active, problem, warnings)
        return 0
    warn(warnings)
    chosen = active.info.full_name if active is not None else ""
    for info in models:
        mark = "*" if info.full_name == chosen else " "
        print(f"{mark} {line(info)}")
    if not models:
        print(_nothing(args.provider, found.providers))
    else:
        own = ", `models` of your settings over them" if loaded.settings.models else ""
        print(f"Prices (USD per million tokens) and windows as of {table_date()}, from {table_source()}{own}.")
    if active is not None and active.source == "offline":
        print(_none_chosen(models))
        print(FIRST_STEPS, end="")
    if active is not None:
        print(f"A run without a model of its own gets {active.info.full_name}: {active.why}.")
    if problem is not None:
        say(f"warning: {problem.message} {problem.remedy.partition(chr(10))[0]}")
    return 0


def _none_chosen(models: list[ModelInfo]) -> str:
    """Say that runs get no language model, and how one that is here can be theirs."""
    own = [info.full_name for info in models if info.provider == "local"]
    if not own:
        return "There is no language model yet."
    return f"Runs get no language model yet. To use the one on this machine: retinue models default {own[0]}"


def _withheld(providers: Providers) -> tuple[str, ...]:
    """Return what providers go without, and why."""
    notes: dict[str, None] = {}
    for provider in providers.configured():
        notes |= dict.fromkeys(provider.notes)
    return tuple(notes)


def _nothing(provider: str | None, providers: Providers) -> str:
    if provider is None:
        return "No model is available."
    found = providers.get(provider)
    if found is None:
        return f"There is no provider '{provider}'; `providers` in settings can describe one."
    if found.problem is not None:
        return f"No models: {found.problem}."
    return f"'{found.id}' lists no models here; name one as {found.id}/ID, or start the server at {found.base_url}."


def _print_document(
    models: list[ModelInfo], active: ModelSelection | None, problem: RetinueError | None, warnings: tuple[str, ...]
) -> None:
    name, selection, error = None, None, None
    if active is not None:
        name, selection = active.info.full_name, selection_data(active)
    if problem is not None:
        error = {"code": problem.code, "message": str(problem)}
    write_json(
        {
            "models": [{**model_data(info), "active": info.full_name == name} for info in models],
            "active": selection,
            "error": error,
            "date": table_date(),
            "source": table_source(),
            "warnings": list(warnings),
        }
    )


def configure_resolve(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("query", metavar="QUERY", nargs="?", help="provider/id, a family, or part of a name")
    parser.add_argument("--agent-model", metavar="M", help="the model that the agent's file names")
    add_where(parser, _WHOSE)


def execute_resolve(args: argparse.Namespace) -> int:
    """Say which model a name means here, and why; without QUERY, which one a run would get.

    retinue models resolve haiku
    retinue models resolve --agent-model opus      as an agent's file would ask for it
    """
    loaded = settings_in_effect(folder(args.cwd), process_environment())
    try:
        selection = asyncio.run(_resolve(args.query, args.agent_model, loaded.settings))
    except UsageError as error:
        if not args.json:
            raise
        # A program that asked for JSON gets the refusal as a document of its own.
        write_json({"error": {"code": error.code, "message": error.message, "remedy": error.remedy}})
        return error.exit_code
    if args.json:
        data = selection_data(selection)
        write_json({**data, "warnings": [*data["warnings"], *loaded.warnings]})
        return 0
    warn((*loaded.warnings, *selection.warnings))
    print(_text(selection))
    return 0


async def _resolve(query: str | None, file_model: str | None, settings: Settings) -> ModelSelection:
    """Return the model with the window it has where it is served. A model is not loaded only to be asked about."""
    from retinue.http.transport import Transport
    from retinue.models.local_window import with_real_window

    environment = process_environment()
    selection = await select_model(query, file_model=file_model, settings=settings, environment=environment)
    if not selection.provider.runs_models:
        return selection
    transport = Transport()
    try:
        return await with_real_window(selection, Providers(settings, environment), transport, load=False)
    finally:
        await transport.close()


def _text(selection: ModelSelection) -> str:
    info, provider = selection.info, selection.provider
    rows = [("why", selection.why)]
    if provider.base_url:
        key = optional("key from {}", provider.key_source) or "no key"
        rows.append(("provider", f"{provider.id} at {display_url(provider.base_url)}, {key} ({provider.origin})"))
    if selection.path is not None:
        rows.append(("file", str(selection.path)))
    rows.append(
        ("window", f"{size(info.window)} tokens, of which {size(min(info.max_output, info.window))} can be output")
    )
    abilities = []
    for word, able in (("thinking", info.thinking), ("images", info.images), ("PDFs", info.documents)):
        if able:
            abilities.append(word)
    rows.append(("abilities", ", ".join(abilities) or "text only"))
    if selection.thinking is not None:
        rows.append(("thinking", selection.thinking))
    rows.append(("price", price(info.prices)))
    rows += [("note", note) for note in selection.notes]
    return "\n".join([name_of(info), *(f"  {name:<9}  {text}" for name, text in rows)])
