"""`retinue settings list`, `settings get`, `settings set` and `settings unset`."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable

from retinue.app.settings import (
    SettingView,
    explanation,
    find_setting,
    is_retired,
    list_settings,
    remove_retired,
    set_setting,
    shown,
    surprise_of,
)
from retinue.errors import UsageError
from retinue.frontends.cli.project import add_where, folder, say, warn, write_json

_SEEN_FROM_HELP = "as seen from there (default: here)"


def configure_list(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("words", nargs="*", metavar="WORD", help="only settings that contain all of these words")
    parser.add_argument("--all", action="store_true", help="include defaults, each with its description")
    add_where(parser, _SEEN_FROM_HELP)


def execute_list(args: argparse.Namespace) -> int:
    """List settings with their values and origins.

        retinue settings list                what differs from the defaults, by section
        retinue settings list --all          everything, with descriptions
        retinue settings list --json         all of it as one document

    Files, lowest precedence first: those of other programs (devkit-pi's config.json, CodingCode's
    config.yaml, pi's subagents.json), RETINUE_HOME/settings.json, .retinue/settings.json (shared
    with the project) and .retinue/settings.local.json (yours). The environment overrides files,
    flags override everything.
    """
    settings, loaded = list_settings(folder(args.cwd), args.words)
    if args.json:
        write_json(settings)
        return 0
    warn(loaded.warnings)
    for unused in loaded.unused:
        say(f"note: {unused}")
    lines = _lines(settings.settings, everything=args.all or bool(args.words))
    print("\n".join(lines) or "Every setting has its default.")
    if not args.all and not args.words:
        print("\nAll settings: retinue settings list --all. One of them: retinue settings get NAME --explain")
    return 0


def _lines(settings: Iterable[SettingView], *, everything: bool) -> list[str]:
    lines: list[str] = []
    section = ""
    for setting in settings:
        if not everything and setting.origin.layer == "default":
            continue
        if setting.section != section:
            section = setting.section
            if lines:
                lines.append("")
            lines.append(section)
        lines.append(f"  {setting.name} = {shown(setting.value)}  ({setting.origin})")
        if everything:
            lines.append(f"      {setting.doc}")
    return lines


def configure_get(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", help="a setting, or an alias of it")
    parser.add_argument("--explain", action="store_true", help="show description, accepted values and origin")
    add_where(parser, _SEEN_FROM_HELP)


def execute_get(args: argparse.Namespace) -> int:
    """Print the value of one setting as JSON.

    retinue settings get maxConcurrent
    retinue settings get maxConcurrent --explain    and every layer that sets it
    """
    setting, warnings = find_setting(folder(args.cwd), args.name)
    warn(warnings)
    if args.json:
        write_json(setting)
    elif args.explain:
        print(explanation(setting))
    else:
        print(json.dumps(setting.value, ensure_ascii=False))
    return 0


def configure_set(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", help="a setting, or an alias of it")
    parser.add_argument("value", nargs="?", help="a word, or JSON")
    parser.add_argument("--unset", action="store_true", help="the same as: retinue settings unset NAME")
    add_target(parser)


def add_target(parser: argparse.ArgumentParser) -> None:
    """Add the options for the file that is changed, and for the output."""
    target = parser.add_mutually_exclusive_group()
    target.add_argument("--user", dest="target", action="store_const", const="user", help="RETINUE_HOME/settings.json")
    target.add_argument("--local", dest="target", action="store_const", const="local", help="settings.local.json")
    target.add_argument(
        "--project", dest="target", action="store_const", const="project", help=".retinue/settings.json (default)"
    )
    parser.set_defaults(target="project")
    parser.add_argument("--explain", action="store_true", help="print the origin of the value afterwards")
    add_where(parser, "the project (default: here)")


def execute_set(args: argparse.Namespace) -> int:
    """Change one setting in one file; the rest of the file is preserved.

        retinue settings set maxConcurrent 8             in the project's shared file
        retinue settings set maxConcurrent 8 --local     for you, in this project
        retinue settings set model ollama/qwen3 --user   for you, everywhere
        retinue settings unset maxConcurrent             back to the value of the layer below

    VALUE is a word, or JSON for lists and objects. An invalid value changes nothing.
    """
    if (args.value is None) != args.unset:
        raise UsageError("Give either a value or --unset.", remedy="retinue settings set NAME VALUE")
    return _change(args, args.value)


def _change(args: argparse.Namespace, value: str | None) -> int:
    """Write the value, or remove the setting for None, and print the value in effect."""
    setting, problems = set_setting(folder(args.cwd), args.name, value, args.target)
    warn(problems)
    if args.json:
        write_json(setting)
        return 0
    if args.explain:
        print(explanation(setting))
    else:
        print(f"{setting.name} = {shown(setting.value)}  ({setting.origin})")
    unset = value is None
    say(f"{'Removed from' if unset else 'Written to'} {setting.saved}.")
    surprise, _ = surprise_of(setting, args.target, unset=unset)
    if surprise:
        say(surprise)
    return 0


def configure_unset(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", help="a setting, or an alias of it")
    add_target(parser)


def execute_unset(args: argparse.Namespace) -> int:
    """Remove one setting from one file, so that the next layer takes effect.

        retinue settings unset maxConcurrent             from the project's shared file
        retinue settings unset maxConcurrent --local     from yours, in this project
        retinue settings unset model --user              from yours, for every project

    A name that is not a setting can be removed as well.
    """
    cwd = folder(args.cwd)
    if not is_retired(cwd, args.name, args.target):
        return _change(args, None)
    say(f"Removed {args.name} from {remove_retired(cwd, args.name, args.target)}.")
    return 0
