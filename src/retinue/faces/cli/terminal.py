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
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from retinue.domain.spec import PermissionMode
from retinue.errors import StateError
from retinue.faces.cli.task import folder

if TYPE_CHECKING:
    from retinue.faces.api import Retinue


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
    cwd = folder(args.cwd)
    trust = args.trust or _consent(cwd)

    async def work() -> int:
        from retinue.faces.api import Retinue
        from retinue.faces.tui.app import run_app

        async with Retinue(
            cwd, model=args.model, agents=args.agents, permission_mode=args.permission_mode, trust=trust
        ) as crew:
            resume = None if args.resume is None else _earlier(crew, args.resume)
            options = {"thinking": args.thinking} if args.thinking else {}
            return await run_app(crew, resume=resume, agent=args.agent, **options)

    return asyncio.run(work())


def _consent(cwd: Path) -> bool:
    """Asked before the app takes the screen."""
    from retinue.faces.cli.consent import ask_for_trust

    return ask_for_trust(cwd)


def _earlier(crew: Retinue, wanted: str) -> str:
    """The run to go on with. Raises when there is none."""
    if wanted:
        return crew.supervisor.world.log.reader.run(wanted).id
    newest = next((row for row in crew.runs if row.depth == 0), None)
    if newest is None:
        raise StateError("There is no conversation here to go on with.", remedy="Begin one: retinue")
    return newest.id
