from __future__ import annotations

import argparse

from retinue.agents.manage import enable
from retinue.faces.cli.agents._common import add_common, folder, plugins
from retinue.faces.cli.agents.disable import tell


def configure_enable(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="the agent to switch on")
    add_common(parser)


def execute_enable(args: argparse.Namespace) -> int:
    """Switches an agent on again that `agents disable` switched off.

    The file is then what it was before, byte for byte. A file that did nothing but hide a built-in
    agent is deleted.

      retinue agents enable reviewer
    """
    cwd = folder(args)
    tell(enable(args.name, cwd, plugins=plugins(cwd)), enabled=True, as_json=args.json)
    return 0
