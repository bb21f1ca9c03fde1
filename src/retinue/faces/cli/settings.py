"""`retinue settings list`, `settings get`, `settings set` and `settings unset`."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from retinue.engine import open_project
from retinue.errors import StateError, UsageError
from retinue.faces.cli.project import add_where, folder, say, warn, write_json
from retinue.faces.text import optional
from retinue.guard.trust import settings_in_effect
from retinue.runs.consent import consent_stays
from retinue.settings.database import has_password
from retinue.settings.field import Field
from retinue.settings.foreign import foreign_files
from retinue.settings.load import Explanation, Loaded, load_settings, raw_value, settings_files
from retinue.settings.table import fields, find
from retinue.settings.write import Target, remove_unknown, save_settings, target_file

_SECRET = ("apikey", "token", "secret", "password", "authorization")
HIDDEN = "[hidden]"
_SEEN_FROM = "as seen from there (default: here)"
# How strong a file is among the three that can be written.
_LAYERS = {"user": 0, "project": 1, "local": 2}


def shown(value: Any) -> str:
    """Return the value as a settings file would hold it, without keys someone wrote into one."""
    if value is None:
        return "(not set)"
    return json.dumps(plain(value), ensure_ascii=False)


def plain(value: Any, key: str = "") -> Any:
    """Return JSON for a value. What looks like a key or a token is hidden, unless it names a variable."""
    if isinstance(value, Mapping):
        return {name: plain(each, name) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each, key) for each in value]
    if not isinstance(value, str) or not value or value.startswith("$") or key.endswith("Env"):
        return value
    if any(word in key.replace("-", "").lower() for word in _SECRET):
        return HIDDEN
    return value


def explain(loaded: Loaded, name: str) -> Explanation:
    """Return where a setting stands. Raise UsageError, with the name that was probably meant, where there is none."""
    from retinue.settings.suggest import RETIRED, nearest_name

    try:
        return loaded.explain(name)
    except KeyError:
        hint = optional(" Did you mean {}?", nearest_name(name))
        if name in RETIRED:
            hint = f" There was one: {RETIRED[name]}."
        raise UsageError(
            f"There is no setting '{name}'.{hint}", remedy="See all of them with: retinue settings list --all"
        ) from None


def data(found: Explanation) -> dict[str, Any]:
    """Return one setting as `--json` prints it; `layers` are all that say something, the winner last."""
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
    """Return the same for people."""
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
        written = "" if name == field.name else f" (as {name})"
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
    add_where(parser, _SEEN_FROM)


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
    found = [loaded.explain(field.name) for field in matching_fields(args.words)]
    if args.json:
        files: list[tuple[str, Path]] = []
        for foreign in foreign_files(cwd, os.environ):
            files.append((foreign.layer, Path(foreign.path)))
        files += settings_files(cwd, os.environ)
        write_json(
            {
                "settings": [*map(data, found)],
                "files": [{"layer": layer, "path": str(path), "exists": path.exists()} for layer, path in files],
                "problems": [problem._asdict() for problem in loaded.problems],
                "unknown": list(loaded.unknown),
                "unused": [problem._asdict() for problem in loaded.unused],
            }
        )
        return 0
    warn(loaded.warnings)
    for unused in loaded.unused:
        say(f"note: {unused}")
    print("\n".join(_lines(found, everything=args.all or bool(args.words))) or "Every setting has its default.")
    if not args.all and not args.words:
        print("\nAll settings: retinue settings list --all. One of them: retinue settings get NAME --explain")
    return 0


def matching_fields(words: Iterable[str]) -> list[Field]:
    """Return the settings whose name, meaning or section has all of the words."""
    found = []
    for field in fields().values():
        text = f"{field.name} {field.doc} {field.section}".casefold()
        if all(word.casefold() in text for word in words):
            found.append(field)
    return found


def _lines(explanations: list[Explanation], *, everything: bool) -> list[str]:
    lines: list[str] = []
    section = ""
    for found in explanations:
        if not everything and found.origin.layer == "default":
            continue
        if found.field.section != section:
            section = found.field.section
            if lines:
                lines.append("")
            lines.append(section)
        lines.append(f"  {found.field.name} = {shown(found.value)}  ({found.origin})")
        if everything:
            lines.append(f"      {found.field.doc}")
    return lines


def configure_get(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", help="a setting, or an alias of it")
    parser.add_argument("--explain", action="store_true", help="meaning, accepted values, and where the value is from")
    add_where(parser, _SEEN_FROM)


def execute_get(args: argparse.Namespace) -> int:
    """The value of one setting, as JSON.

    retinue settings get maxConcurrent
    retinue settings get maxConcurrent --explain    and every layer that sets it
    """
    loaded = settings_in_effect(folder(args.cwd), os.environ)
    found = explain(loaded, args.name)
    warn(loaded.warnings)
    if args.json:
        write_json(data(found))
    elif args.explain:
        print(explanation(found))
    else:
        print(json.dumps(plain(found.value), ensure_ascii=False))
    return 0


def configure_set(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", help="a setting, or an alias of it")
    parser.add_argument("value", nargs="?", help="a word, or JSON")
    parser.add_argument("--unset", action="store_true", help="the same as: retinue settings unset NAME")
    add_target(parser)


def add_target(parser: argparse.ArgumentParser) -> None:
    """Add the options for which file is changed, and what is printed afterwards."""
    target = parser.add_mutually_exclusive_group()
    target.add_argument("--user", dest="target", action="store_const", const="user", help="RETINUE_HOME/settings.json")
    target.add_argument("--local", dest="target", action="store_const", const="local", help="settings.local.json")
    target.add_argument(
        "--project", dest="target", action="store_const", const="project", help=".retinue/settings.json (default)"
    )
    parser.set_defaults(target="project")
    parser.add_argument("--explain", action="store_true", help="print afterwards where the value is from")
    add_where(parser, "the project (default: here)")


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
    if args.name == "database" and args.value and has_password(args.value):
        raise UsageError(
            "A password in the arguments of a program is shown to every user of the machine.",
            remedy="Leave it out of the URL and put it into ~/.pgpass, or write the URL into the file with an editor.",
        )
    return change(args, args.value)


def change(args: argparse.Namespace, value: str | None) -> int:
    """Write the value, or remove the setting for None, and say what holds now."""
    cwd = folder(args.cwd)
    target: Target = args.target
    before = load_settings(cwd)
    field = explain(before, args.name).field
    path = target_file(cwd, target, os.environ)
    if value is None and not _stands_in(path, before, field):
        origin = before.explain(field.name).origin
        raise UsageError(f"{field.name} is not set in {path}.", remedy=f"Its value comes from: {origin}")
    raw = None if value is None else raw_value(field, value)
    # The person changes the file through us: what they consented to before stays consented to.
    with consent_stays(open_project(cwd), path):
        saved = save_settings({field.name: raw}, cwd=cwd, target=target)
    if not saved.persisted:
        raise StateError(saved.problem or f"{saved.path} cannot be written.", remedy="Nothing was changed.")
    loaded = settings_in_effect(cwd, os.environ)
    found = explain(loaded, field.name)
    for problem in loaded.problems:
        if problem.where == str(saved.path) and field.name in problem.field:
            say(f"warning: {problem}")
    if args.json:
        write_json({"saved": str(saved.path), **data(found)})
        return 0
    if args.explain:
        print(explanation(found))
    else:
        print(f"{field.name} = {shown(found.value)}  ({found.origin})")
    unset = value is None
    say(f"{'Removed from' if unset else 'Written to'} {saved.path}.")
    surprise, _ = surprise_of(found, target, unset=unset)
    if surprise:
        say(surprise)
    return 0


def surprise_of(found: Explanation, target: Target, *, unset: bool) -> tuple[str, bool]:
    """Return what the person might not expect of a change, and whether the change has no effect here."""
    layer = found.origin.layer
    is_stronger = layer in ("environment", "flag") or _LAYERS.get(layer, 0) > _LAYERS[target]
    if is_stronger and not unset:
        return f"It has no effect here: {found.origin} goes before it.", True
    if found.field.applies != "live":
        return f"It holds from the {found.field.applies} on.", False
    return "", False


def _stands_in(path: Path, loaded: Loaded, field: Field) -> bool:
    """Return whether the file says anything about the setting, good or bad."""
    good = any(origin.where == str(path) for origin, _, _ in loaded.explain(field.name).layers)
    return good or any(field.name in problem.field for problem in loaded.problems if problem.where == str(path))


def configure_unset(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", help="a setting, or an alias of it")
    add_target(parser)


def execute_unset(args: argparse.Namespace) -> int:
    """Remove one setting from one file, so that what lies under it counts again.

        retinue settings unset maxConcurrent             from the project's shared file
        retinue settings unset maxConcurrent --local     from yours, in this project
        retinue settings unset model --user              from yours, for every project

    A name that is no setting any more, or never was one, can be removed as well.
    """
    cwd = folder(args.cwd)
    path = target_file(cwd, args.target, os.environ)
    if find(args.name) is not None:
        return change(args, None)
    if args.name not in {problem.field for problem in load_settings(cwd).problems if problem.where == str(path)}:
        # Says that there is none, and what was probably meant.
        return change(args, None)
    saved = remove_unknown(args.name, cwd=cwd, target=args.target)
    if not saved.persisted:
        raise StateError(saved.problem or f"{saved.path} cannot be written.", remedy="Nothing was changed.")
    say(f"Removed {args.name} from {saved.path}.")
    return 0
