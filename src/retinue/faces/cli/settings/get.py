from __future__ import annotations

import argparse
import json
import os
import sys

from retinue.capabilities.trust.attach import settings_in_effect
from retinue.faces.cli.settings.common import data, explained, explanation, plain
from retinue.faces.cli.task import folder


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
