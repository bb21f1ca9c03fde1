from __future__ import annotations

import argparse
import os
import sys

from retinue.errors import StateError
from retinue.faces.cli.settings.set import add_target, change
from retinue.faces.cli.task import folder
from retinue.settings.load import load_settings
from retinue.settings.table import find
from retinue.settings.write import remove_unknown, target_file


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
