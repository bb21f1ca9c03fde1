"""What the commands on agent files share: options, output, and `agents show --prompt`.

Agents and problems are shown safely on a terminal, and alike in every JSON document.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from retinue.agents.frontmatter import Parsed
from retinue.agents.homes import WRITABLE
from retinue.core.codec import to_data
from retinue.core.spec import Fate, Problem
from retinue.errors import UnknownAgentError, UsageError
from retinue.faces.cli.output import escape_json
from retinue.faces.cli.project import folder as chosen_folder

if TYPE_CHECKING:
    from retinue.core.spec import AgentSpec
    from retinue.runs.preview import Preview
    from retinue.runs.project import Project


def add_common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--cwd", metavar="DIR", help="the folder to look from (default: here)")
    parser.add_argument("--json", action="store_true", help="print one JSON document on stdout")


def add_place(parser: argparse.ArgumentParser) -> None:
    """Where a written file goes."""
    parser.add_argument("--user", action="store_true", help="in your own folder instead of the project's")
    parser.add_argument(
        "--dialect", choices=WRITABLE, default="retinue", help="whose format and folder (default: retinue)"
    )
    parser.add_argument("--force", action="store_true", help="replace a file that exists")


def folder(args: argparse.Namespace) -> Path:
    """The folder of --cwd, absolute. UsageError when it is none."""
    return chosen_folder(args.cwd)


def plugins(cwd: Path, *, own: bool = True) -> tuple[tuple[str, Path], ...]:
    """Folders of agents that plugins bring; without `own` only those of the project. Nothing of a
    plugin is run for it."""
    from retinue.capabilities.plugins.attach import agent_folders, visible_plugins
    from retinue.settings.load import load_settings

    found = visible_plugins(cwd, os.environ, load_settings(cwd))
    return agent_folders(found if own else found.brought)


def say(text: str) -> None:
    """For people: stderr, so that stdout stays what a program asked for."""
    print(text, file=sys.stderr)


def put(text: str) -> None:
    """A result on stdout, byte for byte: a path may hold bytes that are no characters."""
    sys.stdout.flush()
    sys.stdout.buffer.write(text.encode("utf-8", "surrogateescape"))
    sys.stdout.buffer.flush()


def read_text(argument: str) -> str:
    """TEXT as it is, `-` for stdin, `@file` for a file's text."""
    if argument == "-":
        return sys.stdin.read()
    if argument.startswith("@") and len(argument) > 1:
        try:
            return Path(argument[1:]).expanduser().read_text(encoding="utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"{argument[1:]} cannot be read: {error}.", remedy="Check the path after '@'.") from error
    return argument


def clean(text: str) -> str:
    """`text` without characters that could move the cursor or change colours."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else " " for letter in text)


def clipped(text: str, width: int) -> str:
    return text if len(text) <= width else text[: max(0, width - 1)] + "…"


def write_json(data: Any, indent: int | None = 2) -> None:
    """One JSON document and a newline on stdout. JSON is UTF-8 whatever the terminal's encoding,
    and half a character, as the name of a file may hold, stays an escape."""
    text = json.dumps(data, ensure_ascii=False, indent=indent)
    sys.stdout.flush()
    sys.stdout.buffer.write(escape_json(text.encode("utf-8", "backslashreplace")) + b"\n")
    sys.stdout.buffer.flush()


def problem_data(problem: Problem) -> dict[str, Any]:
    data: dict[str, Any] = to_data(problem)
    return data


def fate_data(fate: Fate) -> dict[str, str]:
    """Only what there is to say."""
    data = {"fate": str(fate.fate)}
    if fate.to is not None:
        data["to"] = fate.to
    if fate.why is not None:
        data["why"] = fate.why
    return data


def parsed_data(parsed: Parsed, dialect: str | None = None) -> dict[str, Any]:
    """One file as `agents parse` prints it."""
    return {
        "file": parsed.file,
        "dialect": dialect or parsed.dialect,
        "name": parsed.name,
        "description": parsed.description,
        "tools": None if parsed.tools is None else list(parsed.tools),
        "disallowed_tools": None if parsed.disallowed_tools is None else list(parsed.disallowed_tools),
        "model": list(parsed.model) if isinstance(parsed.model, tuple) else parsed.model,
        "prompt": parsed.prompt,
        "spec": None if parsed.spec is None else to_data(parsed.spec),
        "fates": {key: fate_data(fate) for key, fate in parsed.fates.items()},
        "problems": [problem_data(problem) for problem in parsed.problems],
        "error": None if parsed.error is None else problem_data(parsed.error),
    }


_TASK = "(the task)"


def add_prompt_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--prompt", action="store_true", help="print what the model sees, with tokens of every part")
    parser.add_argument("--task", metavar="TEXT", default=_TASK, help="with --prompt: the task it would be given")
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--under-main", action="store_true", help="with --prompt: as the main agent would start it")
    where.add_argument("--as-main", action="store_true", help="with --prompt: as `retinue -p --agent NAME` would")


def show_prompt(args: argparse.Namespace, cwd: Path) -> int:
    from retinue.faces.api import main_agent
    from retinue.runs.project import Project

    project = Project(cwd, agents_json=args.agents)
    try:
        spec, main = project.catalog().find(args.name).spec, args.as_main
    except UnknownAgentError:
        if args.name != "main":
            raise
        spec, main = main_agent(), True
    found = asyncio.run(_preview(spec, project, args.task, main=main, under_main=args.under_main and not main))
    if args.json:
        write_json(_data(spec, found))
        return 0
    for line in _table(found):
        say(line)
    put(found.system + "\n")
    return 0


async def _preview(spec: AgentSpec, project: Project, task: str, *, main: bool, under_main: bool) -> Preview:
    from retinue.capabilities.skills.attach import with_initial_prompt
    from retinue.core.request import RunRequest
    from retinue.faces.api import main_agent
    from retinue.runs.preview import preview

    above = None
    if under_main:
        above = await preview(RunRequest(spec=main_agent(), task=task, cwd=project.cwd), project)
    request = RunRequest(
        spec=spec, task=with_initial_prompt(spec, task, project), cwd=project.cwd, depth=0 if main else 1
    )
    return await preview(request, project, above)


def _tokens(text: str) -> int:
    from retinue.models.tokens import overhead

    return overhead(text, ())


def _data(spec: AgentSpec, found: Preview) -> dict[str, Any]:
    from retinue.models.tokens import overhead

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
    from retinue.models.tokens import overhead

    rows = [(part.name, _tokens(part.text)) for part in found.parts]
    rows += [(f"tool {tool.spec.name}", overhead("", (tool.spec,))) for tool in found.tools]
    rows += [("all", found.tokens)]
    width = max(len(name) for name, _ in rows)
    lines = [f"{clean(name):<{width}}  {tokens:>7,} tokens (estimated)" for name, tokens in rows]
    return [*lines, *(f"note: {clean(note)}" for note in found.notes), ""]
