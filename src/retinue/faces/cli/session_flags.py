"""Options that hold for one call of the program and change no file: rules, folders, servers, settings, a prompt."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from retinue.app.session_options import SessionOptions


def add_session_flags(parser: argparse.ArgumentParser) -> None:
    """Add them, each under the name that it has in Claude Code; the first two also as pi and others spell them."""
    _add_list(parser, ("--allowedTools", "--allowed-tools"), "RULE", "needs no question: Edit, 'Bash(npm test:*)'")
    _add_list(parser, ("--disallowedTools", "--disallowed-tools"), "RULE", "never happens: Write, 'Bash(git push:*)'")
    _add_list(parser, ("--add-dir",), "DIR", "a folder to work in beside the project")
    _add_list(parser, ("--mcp-config",), "FILE", "MCP servers of a file such as .mcp.json, or as JSON")
    parser.add_argument("--settings", metavar="FILE", help="settings of a file, or as JSON, before all others")
    parser.add_argument("--append-system-prompt", metavar="TEXT", help="put this behind the agent's own prompt")


def _add_list(parser: argparse.ArgumentParser, names: tuple[str, ...], metavar: str, help: str) -> None:
    dest = names[-1].removeprefix("--").replace("-", "_")
    parser.add_argument(*names, dest=dest, nargs="+", action="extend", default=[], metavar=metavar, help=help)


def read_session_flags(args: argparse.Namespace) -> SessionOptions:
    """Return what was given. Raise UsageError for a file or JSON that cannot be read."""
    from retinue.app.session_options import SessionOptions, read_object, servers_in

    servers: dict[str, Any] = {}
    for each in args.mcp_config:
        servers |= servers_in(read_object(each, "--mcp-config"), "--mcp-config")
    settings: dict[str, Any] = {}
    if args.settings is not None:
        settings = read_object(args.settings, "--settings")
    return SessionOptions(
        allowed_tools=tuple(args.allowed_tools),
        disallowed_tools=tuple(args.disallowed_tools),
        add_dirs=tuple(args.add_dir),
        mcp_servers=servers,
        settings=settings,
    )
