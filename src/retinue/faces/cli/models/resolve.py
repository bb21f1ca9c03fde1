from __future__ import annotations

import argparse
import asyncio

from retinue.capabilities.trust.attach import settings_in_effect
from retinue.errors import UsageError
from retinue.faces.cli.models._show import add_common, folder, price, print_json, say, selection_data, size
from retinue.http.address import display_url
from retinue.models.keys import environment as process_environment
from retinue.models.select import Selection, select_model


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


def _text(selection: Selection) -> str:
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
