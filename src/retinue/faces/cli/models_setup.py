"""`retinue models add`, `remove`, `test` and `default`: to a model of one's own without editing a file."""

from __future__ import annotations

import argparse
import asyncio
import getpass
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from retinue.errors import RetinueError, UsageError
from retinue.faces.cli.main import at_terminal
from retinue.faces.cli.project import add_where, folder, say, warn, write_json
from retinue.guard.trust import settings_in_effect
from retinue.http.address import display_url
from retinue.http.transport import Transport
from retinue.models.inventory import ask_servers
from retinue.models.key_store import remove_key
from retinue.models.keys import environment as process_environment
from retinue.models.presets import PRESETS
from retinue.models.providers import Providers
from retinue.models.select import ModelSelection, select_model
from retinue.models.setup import (
    KEY_PAGES,
    AddedProvider,
    ModelTest,
    add_provider,
    add_weights,
    forget_address,
    forget_default,
    make_default,
    own_providers,
    preset_of,
    provider_name,
    try_model,
)
from retinue.settings.table import Settings

_WHOSE = "the folder whose settings count (default: here)"
OTHER = "other"


def configure_add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "provider", metavar="PROVIDER", nargs="?", help="such as openrouter; or the path of a GGUF file"
    )
    parser.add_argument("--url", metavar="ADDRESS", default="", help="the address of a server of your own")
    parser.add_argument("--key-stdin", action="store_true", help="read the key from standard input")
    parser.add_argument("--model", metavar="ID", default="", help="the model to try (default: the usual one)")
    parser.add_argument("--default", action="store_true", help="use it from now on, also where another key is set")
    parser.add_argument("--no-check", action="store_true", help="keep it without trying it")
    add_where(parser, _WHOSE)


def execute_add(args: argparse.Namespace) -> int:
    """Set up a provider: ask for its key or address, try it with one small request, and keep it.

    The key goes to the system's keyring (the library keyring) or to a file that only you can read in RETINUE_HOME;
    an address goes to your own settings. Nothing is written into a project, and a key that is refused is not kept.

    retinue models add                                   choose from a list
    retinue models add openrouter                        asks for the key
    echo "$KEY" | retinue models add groq --key-stdin
    retinue models add work --url https://llm.example.com/v1
    retinue models add ~/models/qwen3-8b.gguf
    """
    environment = process_environment()
    name = args.provider or _choose(_settings(args, environment), environment, args)
    if name.lower().endswith(".gguf"):
        return _add_weights(Path(name).expanduser().absolute(), args, environment)
    url = args.url
    if name == OTHER:
        name, url = _line("A name for it, such as work: "), _line("Its address, such as http://localhost:9000/v1: ")
    settings = _settings(args, environment)
    key = _read_key(name, url, args, settings, environment)
    if not args.json and not args.no_check:
        say(f"Trying {provider_name(name)} with one small request …")
    added = asyncio.run(
        add_provider(
            name,
            key=key,
            url=url,
            model=args.model,
            check=not args.no_check,
            settings=settings,
            environment=environment,
        )
    )
    return _report(added, args, environment)


def _report(added: AddedProvider, args: argparse.Namespace, environment: Mapping[str, str]) -> int:
    """Say what was kept, and make sure that the person knows which model a run gets now."""
    if added.test is not None and not args.json:
        print(_answered(added.test))
    if added.where and not args.json:
        print(f"The key is kept in {added.where}.")
    active = _active(args, environment)
    wanted = args.default
    if active is not None and active.info.provider != added.model.partition("/")[0] and not wanted and not args.json:
        print(f"A run without a model of its own still gets {active.info.full_name}: {active.why}.")
        if at_terminal():
            wanted = _line(f"Use {added.model} instead from now on? [Y/n] ").lower() in ("", "y", "yes")
        else:
            print(f"Use the new one: retinue models default {added.model}")
    if wanted:
        make_default(added.model, environment)
        active = _active(args, environment)
    if args.json:
        write_json(
            {
                "provider": added.provider.id,
                "baseUrl": display_url(added.provider.base_url),
                "model": added.model,
                "keptIn": added.where or None,
                "test": added.test and _test_data(added.test),
                "active": active and active.info.full_name,
            }
        )
    elif active is not None and active.info.provider == added.model.partition("/")[0]:
        print(f"A run without a model of its own gets {active.info.full_name}.")
        print('Try it: retinue -p "Say hello"')
    return 0


def _add_weights(path: Path, args: argparse.Namespace, environment: Mapping[str, str]) -> int:
    add_weights(path, environment)
    name = f"local/{path.stem}"
    if args.default:
        make_default(name, environment)
    active = _active(args, environment)
    if args.json:
        write_json({"provider": "local", "model": name, "file": str(path), "active": active and active.info.full_name})
        return 0
    print(f"{name} is set up: {path}")
    if active is not None and active.info.full_name != name:
        print(f"A run without a model of its own still gets {active.info.full_name}: {active.why}.")
        print(f"Use the new one: retinue models default {name}")
    else:
        print(f"Try it: retinue models test {name}")
    return 0


def _choose(settings: Settings, environment: Mapping[str, str], args: argparse.Namespace) -> str:
    """Let the person choose from what there is."""
    if args.json or not at_terminal():
        known = ", ".join(KEY_PAGES)
        raise UsageError("Nobody is there to choose a provider.", remedy=f"Name one: retinue models add NAME ({known})")
    providers = Providers(settings, environment)
    asyncio.run(ask_servers(providers))
    rows: list[tuple[str, str, str]] = []
    for provider in providers.configured():
        served = providers.served(provider)
        if served and provider.id in PRESETS and not PRESETS[provider.id].needs_key:
            about = f"runs at {display_url(provider.base_url)}, {len(served)} models"
            rows.append((provider.id, provider.id, about))
    rows += [(name, name, f"a key from {page}") for name, page in KEY_PAGES.items()]
    for info in providers.local_models:
        rows.append((str(providers.weights[info.id]), info.full_name, "a file on this machine"))
    rows.append((OTHER, OTHER, "any server that speaks OpenAI's API, by its address"))
    say("Which one? (A path to a GGUF file is an answer, too.)")
    width = max(len(label) for _, label, _ in rows)
    for number, (_, label, about) in enumerate(rows, 1):
        say(f"  {number:>2}  {label:<{width}}  {about}")
    answer = _line("Number or name: ")
    if answer.isdecimal() and 0 < int(answer) <= len(rows):
        return rows[int(answer) - 1][0]
    return answer


def _read_key(name: str, url: str, args: argparse.Namespace, settings: Settings, environment: Mapping[str, str]) -> str:
    """Return the key to keep; empty where none is needed or the environment has one."""
    wanted = provider_name(name)
    if args.key_stdin:
        key = sys.stdin.readline().strip()
        if not key:
            raise UsageError(
                "There is no key on standard input.", remedy='echo "$KEY" | retinue models add … --key-stdin'
            )
        return _checked(key)
    preset = preset_of(wanted)
    known = Providers(settings, environment).get(wanted)
    if known is not None and known.key_source and not url:
        if not args.json:
            say(f"{wanted} has a key already: {known.key_source}. Another one: --key-stdin, or remove it first.")
        return ""
    needs = preset is not None and preset.needs_key
    if args.json or not at_terminal():
        if needs and not url:
            raise UsageError(f"'{wanted}' needs a key, and nobody is there to enter it.", remedy="Use --key-stdin.")
        return ""
    if not needs and not url:
        return ""
    page = KEY_PAGES.get(wanted)
    about = f"from {page}; " if page else ""
    ending = "" if needs and not url else ", empty for none"
    # `getpass` would write its prompt to the terminal itself.
    print(f"Key of {wanted} ({about}it is not shown{ending}): ", end="", file=sys.stderr, flush=True)
    return _checked(getpass.getpass("", sys.stderr).strip())


def _checked(key: str) -> str:
    if key and (not key.isascii() or not key.isprintable() or " " in key):
        raise UsageError("This is no key: one word of plain characters is expected.", remedy="Copy it again.")
    return key


def configure_remove(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("provider", metavar="PROVIDER", help="such as openrouter")
    add_where(parser, _WHOSE)


def execute_remove(args: argparse.Namespace) -> int:
    """Forget the key and the address that `retinue models add` has kept, and your default if it is a model of it.
    Variables of your shell stay."""
    environment = process_environment()
    name = provider_name(args.provider)
    had_key = remove_key(name, environment)
    had_entry = name in own_providers(environment) and forget_address(name, environment)
    provider = Providers(_settings(args, environment), environment).get(name)
    left = provider.key_source if provider is not None else ""
    if not had_key and not had_entry:
        why = f" Its key comes from {left}." if left else ""
        raise UsageError(f"Nothing is kept for '{name}'.{why}", remedy="See what there is: retinue models list")
    default = None if left else forget_default(name, environment)
    active = _active(args, environment)
    if args.json:
        found = {"provider": name, "key": had_key, "settings": had_entry, "left": left or None, "default": default}
        write_json({**found, "active": active and active.info.full_name})
        return 0
    removed = [word for word, had in (("its key", had_key), ("its entry in your settings", had_entry)) if had]
    print(f"Removed of {name}: {' and '.join(removed)}.")
    if left:
        print(f"It can still be used: its key comes from {left}.")
        return 0
    if default is not None:
        print(f"{default} is no longer the default.")
    if active is not None:
        print(f"A run without a model of its own gets {active.info.full_name}: {active.why}.")
    else:
        print("A run without a model of its own is refused now: see retinue models resolve")
    return 0


def configure_test(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "name", metavar="NAME", nargs="?", help="provider/id or a part of a name (default: the usual one)"
    )
    add_where(parser, _WHOSE)


def execute_test(args: argparse.Namespace) -> int:
    """Ask a model for one word, and say whether and how fast it answers."""
    environment = process_environment()
    test, selection = asyncio.run(_test(args.name, _settings(args, environment), environment))
    if args.json:
        write_json(_test_data(test))
    elif test.failure is None:
        warn(selection.warnings)
        print(_answered(test))
    else:
        raise RetinueError(test.failure.message, remedy=test.failure.remedy)
    return 0 if test.failure is None else 1


async def _test(
    name: str | None, settings: Settings, environment: Mapping[str, str]
) -> tuple[ModelTest, ModelSelection]:
    transport = Transport()
    try:
        selection = await select_model(name, settings=settings, environment=environment, transport=transport)
        return await try_model(selection, transport), selection
    finally:
        await transport.close()


def configure_default(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="provider/id or a part of a name: retinue models list")
    add_where(parser, _WHOSE)


def execute_default(args: argparse.Namespace) -> int:
    """Choose the model of runs for which nothing else names one: your own setting `model`."""
    environment = process_environment()
    chosen = asyncio.run(select_model(args.name, settings=_settings(args, environment), environment=environment))
    path = make_default(chosen.info.full_name, environment)
    active = _active(args, environment)
    if args.json:
        write_json({"model": chosen.info.full_name, "file": str(path), "active": active and active.info.full_name})
        return 0
    warn(chosen.warnings)
    print(f"A run without a model of its own gets {chosen.info.full_name} ({path}).")
    if active is not None and active.info.full_name != chosen.info.full_name:
        print(f"Here it still gets {active.info.full_name}: {active.why}.")
    return 0


def _settings(args: argparse.Namespace, environment: Mapping[str, str]) -> Settings:
    return settings_in_effect(folder(args.cwd), environment).settings


def _active(args: argparse.Namespace, environment: Mapping[str, str]) -> ModelSelection | None:
    """Return what a run would get now."""
    try:
        return asyncio.run(select_model(settings=_settings(args, environment), environment=environment))
    except RetinueError:
        return None


def _answered(test: ModelTest) -> str:
    words = " ".join(test.text.split())[:60]
    said = f": {words}" if words else " without a word"
    return f"✓ {test.model} answered in {test.seconds:.1f} s{said}"


def _test_data(test: ModelTest) -> dict[str, Any]:
    failure = None
    if test.failure is not None:
        failure = {"kind": test.failure.kind, "message": test.failure.message, "remedy": test.failure.remedy}
    return {
        "model": test.model,
        "ok": test.failure is None,
        "text": test.text,
        "seconds": test.seconds,
        "failure": failure,
    }


def _line(question: str) -> str:
    print(question, end="", file=sys.stderr, flush=True)
    try:
        return input().strip()
    except EOFError:
        # The person went away: nothing is kept.
        raise KeyboardInterrupt from None
