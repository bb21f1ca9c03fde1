"""`agents show --prompt`: what the model of an agent sees, with the size of every part."""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

from retinue.errors import UnknownAgentError
from retinue.faces.cli.agents._common import put, say
from retinue.faces.cli.agents._show import clean, write_json

if TYPE_CHECKING:
    from retinue.core.spec import AgentSpec
    from retinue.runs.preview import Preview
    from retinue.runs.world import World

_TASK = "(the task)"


def add_prompt_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--prompt", action="store_true", help="print what the model sees, with tokens of every part")
    parser.add_argument("--task", metavar="TEXT", default=_TASK, help="with --prompt: the task it would be given")
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--under-main", action="store_true", help="with --prompt: as the main agent would start it")
    where.add_argument("--as-main", action="store_true", help="with --prompt: as `retinue -p --agent NAME` would")


def show_prompt(args: argparse.Namespace, cwd: Path) -> int:
    from retinue.faces.api import main_agent
    from retinue.runs.world import World

    world = World(cwd, agents_json=args.agents)
    try:
        spec, main = world.catalog().find(args.name).spec, args.as_main
    except UnknownAgentError:
        if args.name != "main":
            raise
        spec, main = main_agent(), True
    found = asyncio.run(_preview(spec, world, args.task, main=main, under_main=args.under_main and not main))
    if args.json:
        write_json(_data(spec, found))
        return 0
    for line in _table(found):
        say(line)
    put(found.system + "\n")
    return 0


async def _preview(spec: AgentSpec, world: World, task: str, *, main: bool, under_main: bool) -> Preview:
    from retinue.capabilities.skills.attach import with_initial_prompt
    from retinue.core.request import RunRequest
    from retinue.faces.api import main_agent
    from retinue.runs.preview import preview

    above = None
    if under_main:
        above = await preview(RunRequest(spec=main_agent(), task=task, cwd=world.cwd), world)
    request = RunRequest(spec=spec, task=with_initial_prompt(spec, task, world), cwd=world.cwd, depth=0 if main else 1)
    return await preview(request, world, above)


def _tokens(text: str) -> int:
    from retinue.loop.tokens import overhead

    return overhead(text, ())


def _data(spec: AgentSpec, found: Preview) -> dict[str, Any]:
    from retinue.loop.tokens import overhead

    return {
        "name": spec.name,
        "system": found.system,
        "parts": [
            {"name": part.name, "tokens": _tokens(part.text), "characters": len(part.text), "text": part.text}
            for part in found.parts
        ],
        "tools": [
            {
                "name": tool.spec.name,
                "tokens": overhead("", (tool.spec,)),
                "description": tool.spec.description,
                "parameters": dict(tool.spec.parameters),
            }
            for tool in found.tools
        ],
        "message": found.message,
        "tokens": {
            "system": _tokens(found.system),
            "tools": overhead("", [tool.spec for tool in found.tools]),
            "message": _tokens(found.message),
            "prefix": found.tokens,
        },
        "notes": list(found.notes),
    }


def _table(found: Preview) -> list[str]:
    from retinue.loop.tokens import overhead

    rows = [(part.name, _tokens(part.text)) for part in found.parts]
    rows += [(f"tool {tool.spec.name}", overhead("", (tool.spec,))) for tool in found.tools]
    rows += [("all", found.tokens)]
    width = max(len(name) for name, _ in rows)
    lines = [f"{clean(name):<{width}}  {tokens:>7,} tokens (estimated)" for name, tokens in rows]
    return [*lines, *(f"note: {clean(note)}" for note in found.notes), ""]
