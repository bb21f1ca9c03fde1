"""Offer the agents of this project to another program, over the Model Context Protocol on stdin and
stdout.

    retinue mcp install claude        what to write into the configuration of Claude Code
    retinue mcp --cwd ~/app --agents Explore,reviewer --tools per-agent

The host starts this program. When the host disconnects, runs that it has started continue until
they end. `retinue serve` offers the same over HTTP, at /mcp.
"""

from __future__ import annotations

import argparse

from retinue.errors import UsageError
from retinue.frontends.cli.project import add_cwd, folder
from retinue.frontends.mcp import serve_host


def configure(parser: argparse.ArgumentParser) -> None:
    add_cwd(parser, "the project whose agents are offered (default: where the host starts it)")
    parser.add_argument(
        "--tools", choices=("shared", "per-agent"), default="shared", help="per-agent: also one tool for each agent"
    )
    parser.add_argument("--agents", metavar="A,B", default="", help="offer only these agents")
    parser.add_argument("--unattended", action="store_true", help="never ask: permissions.headless decides instead")


def execute(args: argparse.Namespace) -> int:
    cwd = folder(args.cwd)
    names = tuple(name for name in (name.strip() for name in args.agents.split(",")) if name)
    if args.agents and not names:
        raise UsageError("--agents names no agent.", remedy="Give names: --agents Explore,reviewer")
    return serve_host(cwd, names, tool_each=args.tools == "per-agent", attended=not args.unattended)
