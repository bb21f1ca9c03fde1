from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

from retinue.capabilities.trust.attach import consent_stays, settings_in_effect
from retinue.errors import StateError, UsageError
from retinue.faces.cli.settings.common import data, explained, explanation, shown
from retinue.faces.cli.task import folder
from retinue.runs.world import World
from retinue.settings.field import Field
from retinue.settings.load import Explanation, Loaded, load_settings
from retinue.settings.variables import raw_value
from retinue.settings.write import Saved, Target, save_settings, target_file

_LAYERS = {"user": 0, "project": 1, "local": 2}


def configure_set(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", help="a setting, or an alias of it")
    parser.add_argument("value", nargs="?", help="a word, or JSON")
    parser.add_argument("--unset", action="store_true", help="the same as: retinue settings unset NAME")
    add_target(parser)


def add_target(parser: argparse.ArgumentParser) -> None:
    """Which file is changed, and what is printed afterwards."""
    target = parser.add_mutually_exclusive_group()
    target.add_argument("--user", dest="target", action="store_const", const="user", help="RETINUE_HOME/settings.json")
    target.add_argument("--local", dest="target", action="store_const", const="local", help="settings.local.json")
    target.add_argument(
        "--project", dest="target", action="store_const", const="project", help=".retinue/settings.json (default)"
    )
    parser.set_defaults(target="project")
    parser.add_argument("--explain", action="store_true", help="print afterwards where the value is from")
    parser.add_argument("--cwd", metavar="DIR", help="the project (default: here)")
    parser.add_argument("--json", action="store_true", help="print one JSON document on stdout")


def execute_set(args: argparse.Namespace) -> int:
    """Change one setting in one file; everything else in it stays as it is.

        retinue settings set maxConcurrent 8             in the project's shared file
        retinue settings set maxConcurrent 8 --local     for you, in this project
        retinue settings set model ollama/qwen3 --user   for you, everywhere
        retinue settings unset maxConcurrent             back to what lies under it

    VALUE is a word, or JSON for lists and objects. A value that is not acceptable changes nothing.
    """
    if (args.value is None) != args.unset:
        raise UsageError("Give either a value or --unset.", remedy="retinue settings set NAME VALUE")
    return change(args, None if args.unset else str(args.value))


def change(args: argparse.Namespace, value: str | None) -> int:
    """Write the value, or remove the setting for None, and say what holds now."""
    cwd = folder(args.cwd)
    target: Target = args.target
    before = load_settings(cwd)
    field = explained(before, args.name).field
    path = target_file(cwd, target, os.environ)
    if value is None and not _stands_in(path, before, field):
        origin = before.explain(field.name).origin
        raise UsageError(f"{field.name} is not set in {path}.", remedy=f"Its value comes from: {origin}")
    raw = None if value is None else raw_value(field, value)
    with consent_stays(World(cwd), path):
        saved = save_settings({field.name: raw}, cwd=cwd, target=target)
    if not saved.persisted:
        raise StateError(saved.problem or f"{saved.path} cannot be written.", remedy="Nothing was changed.")
    loaded = settings_in_effect(cwd, os.environ)
    found = explained(loaded, field.name)
    for problem in loaded.problems:
        if problem.where == str(saved.path) and field.name in problem.field:
            print(f"warning: {problem}", file=sys.stderr)
    if args.json:
        print(json.dumps({"saved": str(saved.path), **data(found)}, ensure_ascii=False, indent=2))
        return 0
    print(explanation(found) if args.explain else f"{field.name} = {shown(found.value)}  ({found.origin})")
    _say(found, saved, target, unset=value is None)
    return 0


def _stands_in(path: Path, loaded: Loaded, field: Field) -> bool:
    """Whether the file says anything about the setting, good or bad."""
    good = any(origin.where == str(path) for origin, _, _ in loaded.explain(field.name).layers)
    return good or any(field.name in problem.field for problem in loaded.problems if problem.where == str(path))


def _say(found: Explanation, saved: Saved, target: Target, *, unset: bool) -> None:
    """What the person might not expect: another layer wins, or it does not hold at once."""
    print(f"{'Removed from' if unset else 'Written to'} {saved.path}.", file=sys.stderr)
    winner = found.origin.layer
    stronger = winner in ("environment", "flag") or _LAYERS.get(winner, 0) > _LAYERS[target]
    if not unset and stronger:
        print(f"It has no effect here: {found.origin} goes before it.", file=sys.stderr)
    elif found.field.applies != "live":
        print(f"It holds from the {found.field.applies} on.", file=sys.stderr)
