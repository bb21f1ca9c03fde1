"""`retinue models add`, `remove`, `test` and `default`: set up a model without editing a file."""

from __future__ import annotations

import argparse
import asyncio
import getpass
import sys
from pathlib import Path

from msgspec.structs import replace

from retinue.app.models import (
    KEY_PAGES,
    NewProvider,
    ProviderChoice,
    TestedModel,
    add_provider,
    check_model,
    choose_default,
    find_active,
    key_source,
    list_choices,
    make_default,
    needs_key,
    provider_name,
    remove_provider,
)
from retinue.errors import RetinueError, UsageError
from retinue.frontends.cli.main import at_terminal
from retinue.frontends.cli.project import add_where, folder, say, warn, write_json

_SETTINGS_FOLDER_HELP = "the folder whose settings count (default: here)"
OTHER_PROVIDER = "other"


def configure_add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("provider", metavar="PROVIDER", nargs="?", help="such as openrouter")
    parser.add_argument("--url", metavar="ADDRESS", default="", help="the address of your own server")
    parser.add_argument("--key-stdin", action="store_true", help="read the key from standard input")
    parser.add_argument("--model", metavar="ID", default="", help="the model to try (default: the usual one)")
    parser.add_argument("--default", action="store_true", help="use it from now on, also where another key is set")
    parser.add_argument("--no-check", action="store_true", help="store it without a test")
    add_where(parser, _SETTINGS_FOLDER_HELP)


def execute_add(args: argparse.Namespace) -> int:
    """Set up a provider: ask for its key or address, test it with one small request, and store it.

    The key is stored in the system's keyring (the library keyring) or in a file in RETINUE_HOME
    that only you can read; an address is stored in your own settings. Nothing is written into a
    project, and a refused key is not stored.

        retinue models add                                   choose from a list
        retinue models add openrouter                        asks for the key
        echo "$KEY" | retinue models add groq --key-stdin
        retinue models add work --url https://llm.example.com/v1
    """
    cwd = folder(args.cwd)
    name = args.provider or _choose(cwd, args)
    if name.lower().endswith(".gguf"):
        raise UsageError("Retinue runs no weights itself.", remedy=_serve_remedy(name))
    url = args.url
    if name == OTHER_PROVIDER:
        name, url = _line("A name for it, such as work: "), _line("Its address, such as http://localhost:9000/v1: ")
    key = _read_key(name, url, args, cwd)
    if not args.json and not args.no_check:
        say(f"Trying {provider_name(name)} with one small request …")
    added = asyncio.run(add_provider(cwd, name, key=key, url=url, model=args.model, check=not args.no_check))
    return _report(added, args, cwd)


def _report(added: NewProvider, args: argparse.Namespace, cwd: Path) -> int:
    """Print what was stored and which model is the default now."""
    if args.json:
        if args.default:
            make_default(added.model)
            active = asyncio.run(find_active(cwd))
            added = replace(added, active=active and active.model)
        write_json(added)
        return 0
    if added.test is not None:
        print(_answered(added.test))
    if added.kept_in is not None:
        print(f"The key is stored in {added.kept_in}.")
    active = asyncio.run(find_active(cwd))
    is_default, provider = args.default, added.model.partition("/")[0]
    if active is not None and active.provider != provider and not is_default:
        print(f"The default model is still {active.model}: {active.why}.")
        if at_terminal():
            is_default = _line(f"Use {added.model} instead from now on? [Y/n] ").lower() in ("", "y", "yes")
        else:
            print(f"Use the new one: retinue models default {added.model}")
    if is_default:
        make_default(added.model)
        active = asyncio.run(find_active(cwd))
    if active is not None and active.provider == provider:
        print(f"The default model is {active.model}.")
        print('Try it: retinue -p "Say hello"')
    return 0


def _serve_remedy(path: str) -> str:
    """Return how a file of weights can be served so that it is detected."""
    return (
        f"Serve it, and it is found by itself: `llama-server -m {path} -c 65536 --jinja`, LM Studio, or\n"
        f"`ollama create NAME` with a Modelfile `FROM {path}`. Then: retinue models list"
    )


def _choose(cwd: Path, args: argparse.Namespace) -> str:
    """Let the person choose a provider."""
    if args.json or not at_terminal():
        names = ", ".join(KEY_PAGES)
        raise UsageError(
            "A provider can only be chosen in a terminal.", remedy=f"Name one: retinue models add NAME ({names})"
        )
    choices = asyncio.run(list_choices(cwd))
    choices.append(ProviderChoice(OTHER_PROVIDER, "any server that speaks OpenAI's API, by its address"))
    say("Which one?")
    width = max(len(choice.name) for choice in choices)
    for number, choice in enumerate(choices, 1):
        say(f"  {number:>2}  {choice.name:<{width}}  {choice.about}")
    answer = _line("Number or name: ")
    if answer.isdecimal() and 0 < int(answer) <= len(choices):
        return choices[int(answer) - 1].name
    return answer


def _read_key(name: str, url: str, args: argparse.Namespace, cwd: Path) -> str:
    """Return the key to store; empty if none is needed or the environment has one."""
    provider = provider_name(name)
    if args.key_stdin:
        key = sys.stdin.readline().strip()
        if not key:
            raise UsageError(
                "There is no key on standard input.", remedy='echo "$KEY" | retinue models add … --key-stdin'
            )
        return _checked(key)
    source = key_source(provider, cwd)
    if source and not url:
        if not args.json:
            say(f"{provider} has a key already: {source}. Another one: --key-stdin, or remove it first.")
        return ""
    needs = needs_key(provider)
    if args.json or not at_terminal():
        if needs and not url:
            raise UsageError(
                f"'{provider}' needs a key, which can only be entered in a terminal.", remedy="Use --key-stdin."
            )
        return ""
    if not needs and not url:
        return ""
    page = KEY_PAGES.get(provider)
    about = f"from {page}; " if page else ""
    ending = "" if needs and not url else ", empty for none"
    # `getpass` would write its prompt to the terminal itself.
    print(f"Key of {provider} ({about}it is not shown{ending}): ", end="", file=sys.stderr, flush=True)
    return _checked(getpass.getpass("", sys.stderr).strip())


def _checked(key: str) -> str:
    if key and (not key.isascii() or not key.isprintable() or " " in key):
        raise UsageError("This is not a key: one word of ASCII characters is expected.", remedy="Copy it again.")
    return key


def configure_remove(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("provider", metavar="PROVIDER", help="such as openrouter")
    add_where(parser, _SETTINGS_FOLDER_HELP)


def execute_remove(args: argparse.Namespace) -> int:
    """Remove the key and the address that `retinue models add` stored, and your default if it is
    one of its models. Variables of your shell are not changed."""
    cwd = folder(args.cwd)
    removed = asyncio.run(remove_provider(cwd, args.provider))
    if args.json:
        write_json(removed)
        return 0
    words = [word for word, had in (("its key", removed.key), ("its entry in your settings", removed.settings)) if had]
    print(f"Removed of {removed.provider}: {' and '.join(words)}.")
    if removed.left:
        print(f"It is still usable: its key comes from {removed.left}.")
        return 0
    if removed.default is not None:
        print(f"{removed.default} is no longer the default.")
    active = asyncio.run(find_active(cwd))
    if active is not None:
        print(f"The default model is {active.model}: {active.why}.")
    else:
        print("There is no default model now: see retinue models resolve")
    return 0


def configure_test(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "name", metavar="NAME", nargs="?", help="provider/id or a part of a name (default: the default model)"
    )
    add_where(parser, _SETTINGS_FOLDER_HELP)


def execute_test(args: argparse.Namespace) -> int:
    """Ask a model for one word, and print whether and how fast it answers."""
    test, warnings = asyncio.run(check_model(folder(args.cwd), args.name))
    if args.json:
        write_json(test)
    elif test.failure is None:
        warn(warnings)
        print(_answered(test))
    else:
        raise RetinueError(test.failure.message, remedy=test.failure.remedy)
    return 0 if test.ok else 1


def configure_default(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="provider/id or a part of a name: retinue models list")
    add_where(parser, _SETTINGS_FOLDER_HELP)


def execute_default(args: argparse.Namespace) -> int:
    """Set the default model for runs that name none: your own setting `model`."""
    cwd = folder(args.cwd)
    chosen, warnings = asyncio.run(choose_default(cwd, args.name))
    if args.json:
        write_json(chosen)
        return 0
    warn(warnings)
    print(f"The default model is {chosen.model} ({chosen.file}).")
    active = asyncio.run(find_active(cwd))
    if active is not None and active.model != chosen.model:
        print(f"Here the default is still {active.model}: {active.why}.")
    return 0


def _answered(test: TestedModel) -> str:
    words = " ".join(test.text.split())[:60]
    quoted = f": {words}" if words else " without a word"
    return f"✓ {test.model} answered in {test.seconds:.1f} s{quoted}"


def _line(question: str) -> str:
    print(question, end="", file=sys.stderr, flush=True)
    try:
        return input().strip()
    except EOFError:
        # The person has left, so nothing is stored.
        raise KeyboardInterrupt from None
