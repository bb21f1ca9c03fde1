"""`retinue models list` and `models resolve`. A key is shown only by the name of its variable."""

from __future__ import annotations

import argparse
import asyncio

from retinue.app.documents import ErrorDocument, ErrorSummary
from retinue.app.models import (
    FIRST_STEPS,
    ModelList,
    PriceView,
    SelectedModel,
    explain_none,
    format_window,
    has_own_prices,
    is_free,
    list_models_in,
    model_line,
    model_name,
    resolve_model,
)
from retinue.errors import UsageError
from retinue.frontends.cli.project import add_where, folder, say, warn, write_json

_SETTINGS_FOLDER_HELP = "the folder whose settings count (default: here)"


def price(prices: PriceView | None) -> str:
    if prices is None:
        return "not known"
    if is_free(prices):
        return "nothing"
    words = [f"${prices.input:g} in", f"${prices.output:g} out"]
    if prices.cache_read is not None:
        words.append(f"${prices.cache_read:g} cache read")
    if prices.cache_write is not None:
        words.append(f"${prices.cache_write:g} cache write")
    text = ", ".join(words) + " per million tokens"
    if prices.above:
        above = prices.above
        text += f"; ${above.input:g} in, ${above.output:g} out for requests above {format_window(above.tokens)}"
    return text


def configure_list(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--provider", metavar="P", help="only the models of this provider")
    add_where(parser, _SETTINGS_FOLDER_HELP)


def execute_list(args: argparse.Namespace) -> int:
    """List the available models, and mark the default.

    The list contains the models of every provider with a key or an address; your own servers are
    asked for theirs. Any other model of a configured provider can be named as provider/id.
    """
    cwd = folder(args.cwd)
    models = asyncio.run(list_models_in(cwd, args.provider))
    if args.json:
        write_json(models)
        return 0
    warn(models.warnings)
    for model in models.models:
        mark = "*" if model.active else " "
        print(f"{mark} {model_line(model)}")
    if not models.models:
        print(explain_none(cwd, args.provider))
    else:
        own = ", `models` of your settings over them" if has_own_prices(cwd) else ""
        print(f"Prices (USD per million tokens) and windows as of {models.date}, from {models.source}{own}.")
    _print_active(models)
    return 0


def _print_active(models: ModelList) -> None:
    active = models.active
    if active is not None and active.source == "offline":
        if all(model.model == active.model for model in models.models):
            print("There is no language model yet.")
            print(FIRST_STEPS, end="")
        else:
            print("No language model is the default. Choose one: retinue models default NAME")
    if active is not None:
        print(f"The default model is {active.model}: {active.why}.")
    if models.error is not None:
        say(f"warning: {models.error.message.partition(chr(10))[0]}")


def configure_resolve(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("query", metavar="QUERY", nargs="?", help="provider/id, a family, or part of a name")
    parser.add_argument("--agent-model", metavar="M", help="the model that the agent's file names")
    add_where(parser, _SETTINGS_FOLDER_HELP)


def execute_resolve(args: argparse.Namespace) -> int:
    """Show which model a name means here, and why; without QUERY, the default.

    retinue models resolve haiku
    retinue models resolve --agent-model opus      as an agent's file would name it
    """
    try:
        model = asyncio.run(resolve_model(folder(args.cwd), args.query, args.agent_model))
    except UsageError as error:
        if not args.json:
            raise
        # With --json, the refusal is a JSON document.
        write_json(ErrorDocument(ErrorSummary(error.code, error.message, error.remedy)))
        return error.exit_code
    if args.json:
        write_json(model)
        return 0
    warn(model.warnings)
    print(_text(model))
    return 0


def _text(model: SelectedModel) -> str:
    rows = [("why", model.why)]
    if model.base_url is not None:
        key = f"key from {model.key}" if model.key else "no key"
        rows.append(("provider", f"{model.provider} at {model.base_url}, {key} ({model.origin})"))
    window, output = format_window(model.window), format_window(model.max_output)
    rows.append(("window", f"{window} tokens, of which {output} can be output"))
    abilities = []
    for word, able in (("thinking", model.thinking), ("images", model.images), ("PDFs", model.documents)):
        if able:
            abilities.append(word)
    rows.append(("abilities", ", ".join(abilities) or "text only"))
    if model.thinking_level is not None:
        rows.append(("thinking", model.thinking_level))
    rows.append(("price", price(model.prices)))
    rows += [("note", note) for note in model.notes]
    return "\n".join([model_name(model), *(f"  {name:<9}  {text}" for name, text in rows)])
