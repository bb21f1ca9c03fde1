"""`retinue settings list`, `settings get`, `settings set` and `settings unset`."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from retinue.capabilities.trust.attach import consent_stays, settings_in_effect
from retinue.errors import StateError, UsageError
from retinue.faces.cli.project import folder
from retinue.runs.project import Project
from retinue.settings.field import Field
from retinue.settings.foreign import foreign_files
from retinue.settings.load import Explanation, Loaded, load_settings, raw_value, settings_files
from retinue.settings.table import fields, find
from retinue.settings.write import Saved, Target, remove_unknown, save_settings, target_file

if TYPE_CHECKING:
    from retinue.settings.load import Explanation, Loaded


_SECRET = ("apikey", "token", "secret", "password", "authorization")
HIDDEN = "[hidden]"


def shown(value: Any) -> str:
    """The value as a settings file would hold it, without keys someone wrote into one."""
    return "(not set)" if value is None else json.dumps(plain(value), ensure_ascii=False)


def plain(value: Any, key: str = "") -> Any:
    """JSON for a value. What looks like a key or a token is hidden, unless it names a variable."""
    if isinstance(value, Mapping):
        return {name: plain(each, name) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each, key) for each in value]
    is_secret = any(word in key.replace("-", "").lower() for word in _SECRET) and not key.endswith("Env")
    return HIDDEN if is_secret and isinstance(value, str) and value and not value.startswith("$") else value


def explained(loaded: Loaded, name: str) -> Explanation:
    from retinue.settings.suggest import RETIRED, nearest_name

    try:
        return loaded.explain(name)
    except KeyError:
        meant = nearest_name(name)
        hint = f" Did you mean {meant}?" if meant else ""
        if name in RETIRED:
            hint = f" There was one: {RETIRED[name]}."
        raise UsageError(
            f"There is no setting '{name}'.{hint}", remedy="See all of them with: retinue settings list --all"
        ) from None


def data(found: Explanation) -> dict[str, Any]:
    """One setting as `--json` prints it; `layers` are all that say something, the winner last."""
    field = found.field
    return {
        "name": field.name,
        "value": plain(found.value),
        "default": plain(field.default),
        "origin": {"layer": found.origin.layer, "where": found.origin.where},
        "layers": [
            {"layer": origin.layer, "where": origin.where, "name": name, "value": plain(value)}
            for origin, name, value in found.layers
        ],
        "accepts": field.kind.accepts,
        "applies": field.applies,
        "section": field.section,
        "aliases": [alias.name for alias in field.aliases],
        "variables": list(field.variables),
        "doc": field.doc,
    }


def explanation(found: Explanation) -> str:
    """The same for people."""
    field = found.field
    lines = [
        f"{field.name} = {shown(found.value)}",
        f"  {field.doc}",
        f"  accepts   {field.kind.accepts}",
        f"  applies   {field.applies}",
        f"  default   {shown(field.default)}",
    ]
    for origin, name, value in reversed(found.layers):
        mark = "from" if origin == found.origin else "under"
        written = f" (as {name})" if name != field.name else ""
        lines.append(f"  {mark:<8}  {origin}{written}: {shown(value)}")
    if not found.layers:
        lines.append("  from      default")
    if field.variables:
        lines.append(f"  variable  {', '.join(field.variables)}")
    if field.aliases:
        lines.append(f"  aliases   {', '.join(alias.name for alias in field.aliases)}")
    return "\n".join(lines)


def configure_list(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("words", nargs="*", metavar="WORD", help="only settings whose name or meaning has all of these")
    parser.add_argument("--all", action="store_true", help="defaults too, each with its meaning")
    parser.add_argument("--cwd", metavar="DIR", help="as seen from there (default: here)")
    parser.add_argument("--json", action="store_true", help="print one JSON document on stdout")


def execute_list(args: argparse.Namespace) -> int:
    """Every setting with its value and where it comes from.

        retinue settings list                what differs from the defaults, by section
        retinue settings list --all          everything, with its meaning
        retinue settings list --json         all of it as one document

    Files, weakest first: those of other programs (devkit-pi's config.json, CodingCode's config.yaml, pi's
    subagents.json), RETINUE_HOME/settings.json, .retinue/settings.json (shared with the project) and
    .retinue/settings.local.json (yours). The environment goes before files, flags before everything.
    """
    cwd = folder(args.cwd)
    loaded = settings_in_effect(cwd, os.environ)
    names = [name for name in fields() if _matches(name, args.words)]
    if args.json:
        others = ((foreign.layer, Path(foreign.path)) for foreign in foreign_files(cwd, os.environ))
        files = [
            {"layer": layer, "path": str(path), "exists": path.exists()}
            for layer, path in (*others, *settings_files(cwd, os.environ))
        ]
        document = {
            "settings": [data(loaded.explain(name)) for name in names],
            "files": files,
            "problems": [problem._asdict() for problem in loaded.problems],
            "unknown": list(loaded.unknown),
            "unused": [problem._asdict() for problem in loaded.unused],
        }
        print(json.dumps(document, ensure_ascii=False, indent=2))
        return 0
    for warning in loaded.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    for unused in loaded.unused:
        print(f"note: {unused}", file=sys.stderr)
    lines = _lines(loaded, names, everything=args.all or bool(args.words))
    print("\n".join(lines) if lines else "Every setting has its default.")
    if not args.all and not args.words:
        print("\nAll settings: retinue settings list --all. One of them: retinue settings get NAME --explain")
    return 0


def _matches(name: str, words: list[str]) -> bool:
    text = f"{name} {fields()[name].doc} {fields()[name].section}".casefold()
    return all(word.casefold() in text for word in words)


def _lines(loaded: Loaded, names: list[str], *, everything: bool) -> list[str]:
    lines: list[str] = []
    section = ""
    for name in names:
        found = loaded.explain(name)
        if not everything and found.origin.layer == "default":
            continue
        if found.field.section != section:
            section = found.field.section
            lines += ["", section] if lines else [section]
        lines.append(f"  {name} = {shown(found.value)}  ({found.origin})")
        if everything:
            lines.append(f"      {found.field.doc}")
    return lines


def configure_get(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", help="a setting, or an alias of it")
    parser.add_argument("--explain", action="store_true", help="meaning, accepted values, and where the value is from")
    parser.add_argument("--cwd", metavar="DIR", help="as seen from there (default: here)")
    parser.add_argument("--json", action="store_true", help="print one JSON document on stdout")


def execute_get(args: argparse.Namespace) -> int:
    """The value of one setting, as JSON.

    retinue settings get maxConcurrent
    retinue settings get maxConcurrent --explain    and every layer that has a say
    """
    loaded = settings_in_effect(folder(args.cwd), os.environ)
    found = explained(loaded, args.name)
    for warning in loaded.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    if args.json:
        print(json.dumps(data(found), ensure_ascii=False, indent=2))
    elif args.explain:
        print(explanation(found))
    else:
        print(json.dumps(plain(found.value), ensure_ascii=False))
    return 0


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
    with consent_stays(Project(cwd), path):
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


def configure_unset(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", help="a setting, or an alias of it")
    add_target(parser)


def execute_unset(args: argparse.Namespace) -> int:
    """Remove one setting from one file, so that what lies under it counts again.

        retinue settings unset maxConcurrent             from the project's shared file
        retinue settings unset maxConcurrent --local     from yours, in this project
        retinue settings unset model --user              from yours, for every project

    A name that is no setting any more, or never was one, can be removed, too.
    """
    cwd = folder(args.cwd)
    path = target_file(cwd, args.target, os.environ)
    if find(args.name) is not None:
        return change(args, None)
    if args.name not in {problem.field for problem in load_settings(cwd).problems if problem.where == str(path)}:
        return change(args, None)  # says that there is none, and what was probably meant
    saved = remove_unknown(args.name, cwd=cwd, target=args.target)
    if not saved.persisted:
        raise StateError(saved.problem or f"{saved.path} cannot be written.", remedy="Nothing was changed.")
    print(f"Removed {args.name} from {saved.path}.", file=sys.stderr)
    return 0
