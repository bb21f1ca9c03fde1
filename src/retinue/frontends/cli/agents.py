"""`retinue agents list` and `agents show`."""

from __future__ import annotations

import argparse
import asyncio
import shutil
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from retinue.app.agents import (
    NO_TASK,
    AgentDetail,
    AgentView,
    describe_agent,
    fate_text,
    list_agents,
    load_catalog,
    tools_text,
)
from retinue.app.output import put
from retinue.app.text import clean, clip, optional, plural
from retinue.core.spec import AgentSpec
from retinue.frontends.cli.project import add_where, folder, say, write_json

if TYPE_CHECKING:
    from retinue.app.prompt_preview import PromptPreview

LOOK_FROM_HELP = "the folder to look from (default: here)"
_HIDDEN_SPEC_FIELDS = frozenset(
    {"name", "description", "prompt", "source", "path", "dialect", "fates", "problems", "extra", "hash"}
)
_DEFAULT_SPEC = AgentSpec(name="")
_COLUMN_TITLES = ("NAME", "SOURCE", "TOOLS", "MODEL", "DESCRIPTION")
_MAX_COLUMN_WIDTHS = (28, 16, 30, 22)


def configure_list(parser: argparse.ArgumentParser) -> None:
    add_where(parser, LOOK_FROM_HELP)
    parser.add_argument(
        "--agents", metavar="JSON", help="additional agents as JSON, in the format of Claude Code's --agents"
    )
    parser.add_argument("--all", action="store_true", help="include replaced agents, and files that define no agent")


def execute_list(args: argparse.Namespace) -> int:
    """List every agent visible from here, and the file that defines it.

    Agents go to stdout, files that could not be loaded to stderr. --json prints one document with
    all agents, including the replaced ones (`shadowed_by` names the file that replaces them).
    """
    catalog = load_catalog(folder(args.cwd), args.agents)
    agents = list_agents(catalog)
    if args.json:
        write_json(agents)
        return 0
    shown = [agent for agent in agents.agents if args.all or agent.shadowed_by is None]
    _print_table(shown)
    for file in catalog.failed:
        if file.problem.severity == "error" or file.problem.code == "left-out" or args.all:
            say(clean(f"not loaded: {file.path}{optional(':{}', file.line)}: {file.reason}"))
    _say_problems(shown)
    return 0


def _say_problems(shown: Sequence[AgentView]) -> None:
    """Print the errors of loaded agents. `agents lint` prints the other problems."""
    warnings = 0
    for agent in shown:
        for problem in agent.problems:
            warnings += problem.severity == "warning"
            if problem.severity == "error":
                say(clean(f"error: {agent.path}{optional(':{}', problem.line)}: {problem.message}"))
    if warnings:
        say(f"{plural(warnings, 'warning')}: see retinue agents lint")


def _print_table(agents: Sequence[AgentView]) -> None:
    if not agents:
        say("There are no agents here. Create one with: retinue agents new")
        return
    rows = [_COLUMN_TITLES, *map(_row, agents)]
    widths = []
    for column, widest in zip(zip(*rows, strict=True), _MAX_COLUMN_WIDTHS, strict=False):
        widths.append(min(widest, max(map(len, column))))
    wide = shutil.get_terminal_size((100, 24)).columns if sys.stdout.isatty() else 10_000
    description_width = max(20, wide - sum(widths) - 2 * len(widths))
    for row in rows:
        cells = [clip(cell, width).ljust(width) for cell, width in zip(row, widths, strict=False)]
        print("  ".join([*cells, clip(row[4], description_width)]).rstrip())


def _row(agent: AgentView) -> tuple[str, ...]:
    source = agent.source
    if not agent.enabled:
        source += ", off"
    if agent.shadowed_by is not None:
        source += ", replaced"
    model = agent.model
    if not isinstance(model, str):
        model = ", ".join(model or ())
    description = " ".join(agent.description.split())
    return tuple(map(clean, (agent.name, source, tools_text(agent.tools), model or "inherit", description)))


def configure_show(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="exact, or in any case if unambiguous")
    add_where(parser, LOOK_FROM_HELP)
    parser.add_argument(
        "--agents", metavar="JSON", help="additional agents as JSON, in the format of Claude Code's --agents"
    )
    parser.add_argument(
        "--prompt", action="store_true", help="print the prompt of the model, with tokens of every part"
    )
    parser.add_argument(
        "--task", metavar="TEXT", default=NO_TASK, help="with --prompt: the task that the preview shows"
    )
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--under-main", action="store_true", help="with --prompt: as the main agent would start it")
    where.add_argument("--as-main", action="store_true", help="with --prompt: as `retinue -p --agent NAME` would")


def execute_show(args: argparse.Namespace) -> int:
    """Show one agent: its spec, the handling of every field, and the files that it replaces."""
    if args.prompt:
        return _show_prompt(args)
    catalog = load_catalog(folder(args.cwd), args.agents)
    agent = describe_agent(catalog, args.name)
    if args.json:
        write_json(agent)
        return 0
    _print_agent(agent, {entry.path: entry.source for entry in catalog.entries})
    for problem in agent.problems:
        where = f"{agent.path}{optional(':{}', problem.line)}"
        say(clean(f"{problem.severity}: {where}: {problem.message} {problem.remedy}".rstrip()))
    return 0


def _print_agent(agent: AgentDetail, sources: Mapping[str, str]) -> None:
    spec = agent.spec
    _print_line("name", agent.name if agent.enabled else f"{agent.name} (switched off)")
    _print_line("description", " ".join(spec.description.split()))
    _print_line("source", f"{agent.source}, {agent.dialect}")
    _print_line("path", agent.path)
    if agent.shadowed_by is not None:
        _print_line("replaced by", agent.shadowed_by)
    for path in agent.shadows:
        _print_line("replaces", f"{path} ({sources[path]})")
    for name in spec.__struct_fields__:
        value = getattr(spec, name)
        if name not in _HIDDEN_SPEC_FIELDS and value != getattr(_DEFAULT_SPEC, name):
            _print_line(name, _value_text(value))
    _print_line("hash", spec.hash)
    print("\nfields")
    for key, fate in agent.fates.items():
        _print_line(f"  {key}", fate_text(key, fate))
    print(f"\nprompt ({len(spec.prompt)} characters)")
    for line in spec.prompt.split("\n"):
        print(clean(line))


def _value_text(value: Any) -> str:
    """Return a value of a spec for people. Of a group of settings, only values that differ from the defaults."""
    if isinstance(value, msgspec.Struct):
        parts = []
        for field in msgspec.structs.fields(value):
            field_value = getattr(value, field.name)
            if field_value != field.default:
                parts.append(f"{field.name}: {_value_text(field_value)}")
        return ", ".join(parts)
    if isinstance(value, tuple):
        return f"[{', '.join(map(_value_text, value))}]"
    return str(value)


def _print_line(label: str, text: str) -> None:
    print(f"{clean(label):<16} {clean(text)}".rstrip())


# Prompt of an agent


def _show_prompt(args: argparse.Namespace) -> int:
    from retinue.app.prompt_preview import preview_in

    preview = asyncio.run(
        preview_in(
            folder(args.cwd), args.name, args.agents, task=args.task, as_main=args.as_main, under_main=args.under_main
        )
    )
    if args.json:
        write_json(preview)
        return 0
    for line in _preview_table(preview):
        say(line)
    put(preview.system + "\n")
    return 0


def _preview_table(preview: PromptPreview) -> list[str]:
    rows = [(part.name, part.tokens) for part in preview.parts]
    rows += [(f"tool {tool.name}", tool.tokens) for tool in preview.tools]
    rows += [("all", preview.tokens.prefix)]
    width = max(len(name) for name, _ in rows)
    lines = [f"{clean(name):<{width}}  {tokens:>7,} tokens (estimated)" for name, tokens in rows]
    return [*lines, *(f"note: {clean(note)}" for note in preview.notes), ""]
