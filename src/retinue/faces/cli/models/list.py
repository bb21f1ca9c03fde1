from __future__ import annotations

import argparse
import asyncio
from pathlib import Path

from retinue.capabilities.trust.attach import settings_in_effect
from retinue.errors import RetinueError
from retinue.faces.cli.models._show import add_common, folder, line, model_data, print_json, say, selection_data
from retinue.models.keys import environment as process_environment
from retinue.models.known import table_date, table_source
from retinue.models.presets import OTHER_NAMES
from retinue.models.protocol import ModelInfo
from retinue.models.providers import Provider, Providers
from retinue.models.resolve import OFFLINE
from retinue.models.select import Selection, select_model
from retinue.settings.load import Loaded


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


async def _gather(loaded: Loaded, cwd: Path) -> tuple[list[ModelInfo], Selection | None, RetinueError | None]:
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
    from retinue.models.probe import served_models

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
    models: list[ModelInfo], active: Selection | None, problem: RetinueError | None, warnings: tuple[str, ...]
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
