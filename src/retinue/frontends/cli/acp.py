"""`retinue acp`: the agents inside an editor that speaks the Agent Client Protocol."""

from __future__ import annotations

import argparse
import asyncio
import sys

from retinue.frontends.acp import serve_editor


def configure_acp(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--setup", action="store_true", help="set up a model in this terminal, and end")


def execute_acp(args: argparse.Namespace) -> int:
    """Speak the Agent Client Protocol (version 1) on standard input and output.

        retinue acp                       started by an editor: Zed, JetBrains, Neovim, Emacs
        retinue acp --setup               set up a model first

    The settings of each editor are in docs/editors.md. Agents below the main one are child sessions
    in editors that support these, and live summaries in others. When the editor closes the pipe,
    everything that runs here is stopped and can be resumed.
    """
    if args.setup:
        from retinue.frontends.cli.main import run

        return run(["models", "add"])
    if sys.stdin.isatty():
        sys.stderr.write("An editor starts this program and speaks to it; see docs/editors.md. Ctrl-C ends it.\n")
    asyncio.run(serve_editor())
    return 0
