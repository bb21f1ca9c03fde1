"""`retinue agents list` and `agents show`: agents and their problems, alike in every JSON document."""

from __future__ import annotations

import argparse
import asyncio
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from retinue.agents.catalog import Catalog, LoadedAgent
from retinue.agents.frontmatter import Parsed
from retinue.agents.precedence import is_profile, shadows
from retinue.core.spec import AgentSpec, Fate
from retinue.errors import UnknownAgentError
from retinue.faces.cli.console.output import put
from retinue.faces.cli.project import add_where, folder, plugins, say, write_json
from retinue.faces.text import clean, clip, optional, plural

if TYPE_CHECKING:
    from retinue.runs.preview import Preview
    from retinue.runs.project import Project

LOOK_FROM = "the folder to look from (default: here)"
_ASIDE = frozenset({"name", "description", "prompt", "source", "path", "dialect", "fates", "problems", "extra", "hash"})
_PLAIN = AgentSpec(name="")
_TASK = "(the task)"
_HEADS = ("NAME", "SOURCE", "TOOLS", "MODEL", "DESCRIPTION")
_WIDEST = (28, 16, 30, 22)


def configure_list(parser: argparse.ArgumentParser) -> None:
    add_where(parser, LOOK_FROM)
    parser.add_argument("--agents", metavar="JSON", help="agents given here, as Claude Code's option of that name")
    parser.add_argument("--all", action="store_true", help="also the replaced agents and files that are no agents")


def execute_list(args: argparse.Namespace) -> int:
    """Every agent visible from here, and which file won.

    Agents go to stdout, files that could not be loaded to stderr. --json prints one document with
    all agents, the replaced ones included (`shadowed_by` names the file that counts instead).
    """
    cwd = folder(args.cwd)
    catalog = Catalog.load(cwd, agents_json=args.agents, plugin_folders=plugins(cwd))
    # The agents that count first, each group by name.
    entries = sorted(catalog.entries, key=lambda each: (each.shadowed_by is not None, each.name.casefold(), each.path))
    if args.json:
        failed = [{"path": each.path, "reason": each.reason, "line": each.line} for each in catalog.failed]
        write_json({"agents": [*map(row_data, entries)], "failed": failed})
        return 0
    shown = [entry for entry in entries if args.all or entry.shadowed_by is None]
    _print_table(shown)
    _say_problems(catalog, shown, everything=args.all)
    return 0


def _say_problems(catalog: Catalog, shown: Sequence[LoadedAgent], *, everything: bool) -> None:
    """Say what failed, and what is an error in what loaded; the rest is for `agents lint`."""
    for each in catalog.failed:
        if each.problem.severity == "error" or each.problem.code == "left-out" or everything:
            say(clean(f"not loaded: {each.path}{optional(':{}', each.line)}: {each.reason}"))
    warnings = 0
    for entry in shown:
        for problem in entry.problems:
            warnings += problem.severity == "warning"
            if problem.severity == "error":
                say(clean(f"error: {entry.path}{optional(':{}', problem.line)}: {problem.message}"))
    if warnings:
        say(f"{plural(warnings, 'warning')}: see retinue agents lint")


def row_data(entry: LoadedAgent) -> dict[str, object]:
    parsed = entry.parsed
    return {
        "name": entry.name,
        "description": entry.spec.description,
        "source": entry.source,
        "dialect": parsed.dialect,
        "path": entry.path,
        "tools": msgspec.to_builtins(_tools(entry)),
        "model": msgspec.to_builtins(parsed.model),
        "readonly": entry.spec.readonly is True,
        "enabled": entry.enabled,
        "shadowed_by": entry.shadowed_by,
        "problems": msgspec.to_builtins(entry.problems),
    }


def _print_table(entries: Sequence[LoadedAgent]) -> None:
    if not entries:
        say("There are no agents here. Create one with: retinue agents new")
        return
    rows = [_HEADS, *map(_row, entries)]
    widths = []
    for column, widest in zip(zip(*rows, strict=True), _WIDEST, strict=False):
        widths.append(min(widest, max(map(len, column))))
    wide = shutil.get_terminal_size((100, 24)).columns if sys.stdout.isatty() else 10_000
    rest = max(20, wide - sum(widths) - 2 * len(widths))
    for row in rows:
        cells = [clip(cell, width).ljust(width) for cell, width in zip(row, widths, strict=False)]
        print("  ".join([*cells, clip(row[4], rest)]).rstrip())


def _row(entry: LoadedAgent) -> tuple[str, ...]:
    source: str = entry.source
    if not entry.enabled:
        source += ", off"
    if entry.shadowed_by is not None:
        source += ", replaced"
    model = entry.parsed.model
    if not isinstance(model, str):
        model = ", ".join(model or ())
    description = " ".join(entry.spec.description.split())
    name = entry.qualified_name if is_profile(entry) else entry.name
    return tuple(map(clean, (name, source, tools_text(entry), model or "inherit", description)))


def tools_text(entry: LoadedAgent) -> str:
    """Return the tools that an agent's file names, `all` where it limits none, or `none`."""
    tools = _tools(entry)
    if tools is None:
        return "all"
    return ", ".join(tools) or "none"


def _tools(entry: LoadedAgent) -> Sequence[str] | None:
    """Return the tools that a file names, as it names them; nothing where it leaves none."""
    if entry.spec.tools.allow == ():
        return ()
    return entry.parsed.tools


def configure_show(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="exact, or without regard to case where that is clear")
    add_where(parser, LOOK_FROM)
    parser.add_argument("--agents", metavar="JSON", help="agents given here, as Claude Code's option of that name")
    parser.add_argument("--prompt", action="store_true", help="print what the model sees, with tokens of every part")
    parser.add_argument("--task", metavar="TEXT", default=_TASK, help="with --prompt: the task it would be given")
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--under-main", action="store_true", help="with --prompt: as the main agent would start it")
    where.add_argument("--as-main", action="store_true", help="with --prompt: as `retinue -p --agent NAME` would")


def execute_show(args: argparse.Namespace) -> int:
    """One agent: its spec, the fate of every field, and which file replaces which."""
    cwd = folder(args.cwd)
    if args.prompt:
        return _show_prompt(args, cwd)
    catalog = Catalog.load(cwd, agents_json=args.agents, plugin_folders=plugins(cwd))
    entry = catalog.find(args.name)
    replaced = shadows(catalog.entries, entry)
    if args.json:
        write_json(agent_data(entry, replaced))
        return 0
    _print_agent(entry, replaced)
    for problem in entry.problems:
        where = f"{entry.path}{optional(':{}', problem.line)}"
        say(clean(f"{problem.severity}: {where}: {problem.message} {problem.remedy}".rstrip()))
    return 0


def agent_data(entry: LoadedAgent, replaced: Sequence[LoadedAgent]) -> dict[str, Any]:
    parsed = entry.parsed
    return {
        "name": entry.name,
        "description": entry.spec.description,
        "source": entry.source,
        "dialect": parsed.dialect,
        "path": entry.path,
        "reading": parsed.reading,
        "enabled": entry.enabled,
        "shadowed_by": entry.shadowed_by,
        "shadows": [each.path for each in replaced],
        "spec": msgspec.to_builtins(entry.spec),
        "fates": _fates_data(parsed),
        "problems": msgspec.to_builtins(entry.problems),
    }


def parsed_data(parsed: Parsed, dialect: str | None = None) -> dict[str, Any]:
    """Return one file as `agents parse` prints it."""
    return {
        "file": parsed.file,
        "dialect": dialect or parsed.dialect,
        "name": parsed.name,
        "description": parsed.description,
        "tools": msgspec.to_builtins(parsed.tools),
        "disallowed_tools": msgspec.to_builtins(parsed.disallowed_tools),
        "model": msgspec.to_builtins(parsed.model),
        "prompt": parsed.prompt,
        "spec": msgspec.to_builtins(parsed.spec),
        "fates": _fates_data(parsed),
        "problems": msgspec.to_builtins(parsed.problems),
        "error": msgspec.to_builtins(parsed.error),
    }


def _fates_data(parsed: Parsed) -> dict[str, dict[str, str]]:
    """Return what became of each field; of each only what there is to say."""
    data = {}
    for key, fate in parsed.fates.items():
        data[key] = {"fate": str(fate.fate)}
        if fate.to is not None:
            data[key]["to"] = fate.to
        if fate.why is not None:
            data[key]["why"] = fate.why
    return data


def fate_text(key: str, fate: Fate) -> str:
    """Return what became of a field, such as `kept → max_turns (why)`."""
    to = optional(" → {}", fate.to) if fate.to != key else ""
    return f"{fate.fate}{to}{optional(' ({})', fate.why)}"


def _print_agent(entry: LoadedAgent, replaced: Sequence[LoadedAgent]) -> None:
    spec, parsed = entry.spec, entry.parsed
    _print_line("name", entry.name if entry.enabled else f"{entry.name} (switched off)")
    _print_line("description", " ".join(spec.description.split()))
    _print_line("source", f"{entry.source}, {parsed.dialect}")
    _print_line("path", entry.path)
    if entry.shadowed_by is not None:
        _print_line("replaced by", entry.shadowed_by)
    for each in replaced:
        _print_line("replaces", f"{each.path} ({each.source})")
    for name in spec.__struct_fields__:
        value = getattr(spec, name)
        if name not in _ASIDE and value != getattr(_PLAIN, name):
            _print_line(name, _value_text(value))
    _print_line("hash", spec.hash)
    print("\nfields")
    for key, fate in parsed.fates.items():
        _print_line(f"  {key}", fate_text(key, fate))
    print(f"\nprompt ({len(spec.prompt)} characters)")
    for line in spec.prompt.split("\n"):
        print(clean(line))


def _value_text(value: Any) -> str:
    """Return a value of a spec for people: of a group of settings only what differs from its defaults."""
    if isinstance(value, msgspec.Struct):
        parts = []
        for field in msgspec.structs.fields(value):
            found = getattr(value, field.name)
            if found != field.default:
                parts.append(f"{field.name}: {_value_text(found)}")
        return ", ".join(parts)
    if isinstance(value, tuple):
        return f"[{', '.join(map(_value_text, value))}]"
    return str(value)


def _print_line(label: str, text: str) -> None:
    print(f"{clean(label):<16} {clean(text)}".rstrip())


# What the model sees


def _show_prompt(args: argparse.Namespace, cwd: Path) -> int:
    from retinue.engine import open_project

    project = open_project(cwd, agents_json=args.agents)
    found = preview_named(project, args.name, task=args.task, as_main=args.as_main, under_main=args.under_main)
    spec, shown = asyncio.run(found)
    if args.json:
        write_json(preview_data(spec, shown))
        return 0
    for line in _preview_table(shown):
        say(line)
    put(shown.system + "\n")
    return 0


async def preview_named(
    project: Project, name: str, *, task: str = _TASK, as_main: bool = False, under_main: bool = False
) -> tuple[AgentSpec, Preview]:
    """Return an agent and what its model would see. `main` is the main agent, unless a file has that name. Raise
    UnknownAgentError, and LaunchError where a launch would."""
    from retinue.faces.dialogue import main_agent

    try:
        spec = project.catalog().find(name).spec
    except UnknownAgentError:
        if name != "main":
            raise
        spec, as_main = main_agent(), True
    return spec, await _preview(spec, project, task, main=as_main, under_main=under_main and not as_main)


async def _preview(spec: AgentSpec, project: Project, task: str, *, main: bool, under_main: bool) -> Preview:
    from retinue.core.request import RunRequest
    from retinue.faces.dialogue import main_agent
    from retinue.runs.preview import preview

    above = None
    if under_main:
        above = await preview(RunRequest(spec=main_agent(), task=task, cwd=project.cwd), project)
    text = project.preview_initial_prompt(spec, task)
    request = RunRequest(spec=spec, task=text, cwd=project.cwd, depth=int(not main))
    return await preview(request, project, above)


def preview_data(spec: AgentSpec, found: Preview) -> dict[str, Any]:
    """Return what the model of an agent would see as plain data, with estimated tokens."""
    from retinue.models.tokens import overhead

    parts = []
    for part in found.parts:
        tokens = overhead(part.text, ())
        parts.append({"name": part.name, "tokens": tokens, "characters": len(part.text), "text": part.text})
    tools = []
    for tool in found.tools:
        about = {"name": tool.spec.name, "tokens": overhead("", (tool.spec,)), "description": tool.spec.description}
        tools.append({**about, "parameters": dict(tool.spec.parameters)})
    return {
        "name": spec.name,
        "system": found.system,
        "parts": parts,
        "tools": tools,
        "message": found.message,
        "tokens": {
            "system": overhead(found.system, ()),
            "tools": overhead("", [tool.spec for tool in found.tools]),
            "message": overhead(found.message, ()),
            "prefix": found.tokens,
        },
        "notes": list(found.notes),
    }


def _preview_table(found: Preview) -> list[str]:
    from retinue.models.tokens import overhead

    rows = [(part.name, overhead(part.text, ())) for part in found.parts]
    rows += [(f"tool {tool.spec.name}", overhead("", (tool.spec,))) for tool in found.tools]
    rows += [("all", found.tokens)]
    width = max(len(name) for name, _ in rows)
    lines = [f"{clean(name):<{width}}  {tokens:>7,} tokens (estimated)" for name, tokens in rows]
    return [*lines, *(f"note: {clean(note)}" for note in found.notes), ""]
