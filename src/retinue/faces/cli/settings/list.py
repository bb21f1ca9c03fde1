from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

from retinue.capabilities.trust.attach import settings_in_effect
from retinue.faces.cli.settings.common import data, shown
from retinue.faces.cli.task import folder
from retinue.settings.foreign import foreign_files
from retinue.settings.load import Loaded, settings_files
from retinue.settings.table import fields


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
