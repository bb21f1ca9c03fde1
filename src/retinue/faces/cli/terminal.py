"""The terminal app: talk to the main agent, see its agents work, step in.

    retinue
    retinue --resume                      (the newest conversation of this project)
    retinue --resume 3f2a9c1d
    retinue --agent reviewer --model anthropic/claude-sonnet-4-5

Inside, F1 shows the keys and /help the commands.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from retinue.core.spec import PermissionMode
from retinue.errors import StateError
from retinue.faces.cli.project import folder

if TYPE_CHECKING:
    from retinue.faces.api import Retinue
    from retinue.faces.cli.terminal_host import Host


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--resume", metavar="ID", nargs="?", const="", help="go on with an earlier conversation; without ID the newest"
    )
    parser.add_argument("--agent", metavar="NAME", help="talk to this agent instead of the main one")
    parser.add_argument("--model", metavar="M", help="provider/model or a part of its name: retinue models list")
    parser.add_argument("--thinking", metavar="LEVEL", help="off, minimal, low, medium, high, xhigh or max")
    parser.add_argument("--permission-mode", choices=get_args(PermissionMode), help="as for retinue run")
    parser.add_argument("--cwd", metavar="DIR", help="work in this folder instead of the current one")
    parser.add_argument("--agents", metavar="JSON", help="more agents, as Claude Code's --agents takes them")
    parser.add_argument("--trust", action="store_true", help="let the project's hooks, servers and rights take effect")


def execute(args: argparse.Namespace) -> int:
    from retinue.faces.cli.terminal_host import hosted

    cwd = folder(args.cwd)
    trust = args.trust or _consent(cwd)
    return hosted(lambda host: asyncio.run(_session(args, cwd, trust, host)))


async def _session(args: argparse.Namespace, cwd: Path, trust: bool, host: Host | None) -> int:
    from retinue.faces.api import Retinue

    async with Retinue(
        cwd, model=args.model, agents=args.agents, permission_mode=args.permission_mode, trust=trust
    ) as retinue:
        resume = None if args.resume is None else _earlier(retinue, args.resume)
        options = {"thinking": args.thinking} if args.thinking else {}
        return await show(retinue, host, resume=resume, agent=args.agent, **options)


async def show(retinue: Retinue, host: Host | None, **options: Any) -> int:
    """The app until it is left. Runs that are to go on do so here, without the terminal."""
    from retinue.faces.tui.app import run_app

    left = await run_app(retinue, host=host, **options)
    if left == "keep" and host is not None:
        count = len([node for node in retinue.supervisor.members.values() if node.live])
        what = f"{count} run{'s go' if count != 1 else ' goes'} on in process {os.getpid()}"
        print(f"retinue: {what}; what they ask waits in the inbox.", file=sys.stderr)
        print("  Watch: retinue attach. Stop: retinue runs stop --all", file=sys.stderr, flush=True)
        retinue.supervisor.project.inbox_service.attended += (
            1  # someone will look: nothing is denied for want of a person
        )
        host.let_go()
        await retinue.wait_all()
    return 0


def _consent(cwd: Path) -> bool:
    """Asked before the app takes the screen."""
    from retinue.faces.cli.asking import ask_for_trust

    return ask_for_trust(cwd)


def _earlier(retinue: Retinue, wanted: str) -> str:
    """The run to go on with. Raises when there is none."""
    if wanted:
        return retinue.supervisor.project.log.reader.run(wanted).id
    newest = next((row for row in retinue.runs if row.depth == 0), None)
    if newest is None:
        raise StateError("There is no conversation here to go on with.", remedy="Begin one: retinue")
    return newest.id
