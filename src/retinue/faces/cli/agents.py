"""`retinue agents list` and `agents show`."""

from __future__ import annotations

import argparse
import dataclasses
import shutil
import sys
from collections.abc import Sequence
from typing import Any

from retinue.agents.catalog import Catalog, FailedFile, LoadedAgent
from retinue.agents.precedence import shadows
from retinue.core.codec import to_data
from retinue.core.spec import AgentSpec
from retinue.faces.cli.agents_show import (
    add_common,
    add_prompt_options,
    clean,
    clipped,
    fate_data,
    folder,
    plugins,
    problem_data,
    say,
    show_prompt,
    write_json,
)


def configure_list(parser: argparse.ArgumentParser) -> None:
    add_common(parser)
    parser.add_argument("--agents", metavar="JSON", help="agents given here, as Claude Code's option of that name")
    parser.add_argument("--all", action="store_true", help="also the replaced agents and files that are no agents")


def execute_list(args: argparse.Namespace) -> int:
    """Every agent visible from here, and which file won.

    Agents go to stdout, files that could not be loaded to stderr. --json prints one document with
    all agents, the replaced ones included (`shadowed_by` names the file that counts instead).
    """
    cwd = folder(args)
    catalog = Catalog.load(cwd, agents_json=args.agents, plugin_folders=plugins(cwd))
    if args.json:
        write_json(
            {"agents": [_data_of_row(entry) for entry in _ordered(catalog)], "failed": _failed_data(catalog.failed)}
        )
        return 0
    shown = [entry for entry in _ordered(catalog) if args.all or entry.shadowed_by is None]
    _print_table(shown)
    _say_problems(catalog, shown, everything=args.all)
    return 0


def _say_problems(catalog: Catalog, shown: Sequence[LoadedAgent], *, everything: bool) -> None:
    """What failed, and what is an error in what loaded; the rest is for `agents lint`."""
    for each in catalog.failed:
        if each.problem.severity == "error" or everything:
            say(clean(f"not loaded: {_where(each.path, each.line)}: {each.reason}"))
    found = [(entry.path, problem) for entry in shown for problem in entry.problems]
    for path, problem in found:
        if problem.severity == "error":
            say(clean(f"error: {_where(path, problem.line)}: {problem.message}"))
    warnings = sum(problem.severity == "warning" for _, problem in found)
    if warnings:
        say(f"{warnings} warning{'s' if warnings > 1 else ''}: see retinue agents lint")


def _where(path: str, line: int | None) -> str:
    return f"{path}:{line}" if line else path


def _ordered(catalog: Catalog) -> list[LoadedAgent]:
    """The agents that count first, each group by name."""
    return sorted(catalog.entries, key=lambda entry: (entry.shadowed_by is not None, entry.name.casefold(), entry.path))


def _data_of_row(entry: LoadedAgent) -> dict[str, object]:
    parsed, spec = entry.parsed, entry.spec
    return {
        "name": entry.name,
        "description": spec.description,
        "source": entry.source,
        "dialect": parsed.dialect,
        "path": entry.path,
        "tools": None if parsed.tools is None else list(parsed.tools),
        "model": list(parsed.model) if isinstance(parsed.model, tuple) else parsed.model,
        "readonly": spec.readonly is True,
        "enabled": entry.enabled,
        "shadowed_by": entry.shadowed_by,
        "problems": [problem_data(problem) for problem in entry.problems],
    }


def _failed_data(failed: Sequence[FailedFile]) -> list[dict[str, object]]:
    return [{"path": each.path, "reason": each.reason, "line": each.line} for each in failed]


def _print_table(entries: Sequence[LoadedAgent]) -> None:
    rows = [_row(entry) for entry in entries]
    if not rows:
        say("There are no agents here. Create one with: retinue agents new")
        return
    heads = ("NAME", "SOURCE", "TOOLS", "MODEL", "DESCRIPTION")
    limits = (28, 16, 30, 22)
    widths = [
        min(limit, max(len(head), *(len(row[column]) for row in rows)))
        for column, (head, limit) in enumerate(zip(heads, limits, strict=False))
    ]
    wide = shutil.get_terminal_size((100, 24)).columns if sys.stdout.isatty() else 10_000
    rest = max(20, wide - sum(widths) - 2 * len(widths))
    for row in (heads, *rows):
        cells = [clipped(cell, width).ljust(width) for cell, width in zip(row, widths, strict=False)]
        print("  ".join([*cells, clipped(row[4], rest)]).rstrip())


def _row(entry: LoadedAgent) -> tuple[str, str, str, str, str]:
    parsed = entry.parsed
    note = "" if entry.enabled else ", off"
    note += "" if entry.shadowed_by is None else ", replaced"
    tools = "all" if parsed.tools is None else ", ".join(parsed.tools) or "none"
    model = parsed.model if isinstance(parsed.model, str) else ", ".join(parsed.model or ())
    description = " ".join(entry.spec.description.split())
    texts = (entry.name, f"{entry.source}{note}", tools, model or "inherit", description)
    return (clean(texts[0]), clean(texts[1]), clean(texts[2]), clean(texts[3]), clean(texts[4]))


_ASIDE = frozenset({"name", "description", "prompt", "source", "path", "dialect", "fates", "problems", "extra", "hash"})
_PLAIN = AgentSpec(name="")


def configure_show(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="exact, or without regard to case where that is clear")
    add_common(parser)
    parser.add_argument("--agents", metavar="JSON", help="agents given here, as Claude Code's option of that name")
    add_prompt_options(parser)


def execute_show(args: argparse.Namespace) -> int:
    """One agent: its spec, the fate of every field, and which file replaces which."""
    cwd = folder(args)
    if args.prompt:
        return show_prompt(args, cwd)
    catalog = Catalog.load(cwd, agents_json=args.agents, plugin_folders=plugins(cwd))
    entry = catalog.find(args.name)
    replaced = shadows(catalog.entries, entry)
    if args.json:
        write_json(_data_of_agent(entry, [each.path for each in replaced]))
        return 0
    _print(entry, replaced)
    for problem in entry.problems:
        where = f"{entry.path}:{problem.line}" if problem.line else entry.path
        say(clean(f"{problem.severity}: {where}: {problem.message} {problem.remedy}".rstrip()))
    return 0


def _data_of_agent(entry: LoadedAgent, replaced: list[str]) -> dict[str, Any]:
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
        "shadows": replaced,
        "spec": to_data(entry.spec),
        "fates": {key: fate_data(fate) for key, fate in parsed.fates.items()},
        "problems": [problem_data(problem) for problem in entry.problems],
    }


def _print(entry: LoadedAgent, replaced: tuple[LoadedAgent, ...]) -> None:
    spec, parsed = entry.spec, entry.parsed
    state = "" if entry.enabled else " (switched off)"
    _line("name", f"{entry.name}{state}")
    _line("description", " ".join(spec.description.split()))
    _line("source", f"{entry.source}, {parsed.dialect}")
    _line("path", entry.path)
    if entry.shadowed_by is not None:
        _line("replaced by", entry.shadowed_by)
    for each in replaced:
        _line("replaces", f"{each.path} ({each.source})")
    for field in dataclasses.fields(spec):
        value = getattr(spec, field.name)
        if field.name not in _ASIDE and value != getattr(_PLAIN, field.name):
            _line(field.name, _text(value))
    _line("hash", spec.hash)
    print("\nfields")
    for key, fate in parsed.fates.items():
        to = f" → {fate.to}" if fate.to and fate.to != key else ""
        why = f" ({fate.why})" if fate.why else ""
        _line(f"  {key}", f"{fate.fate}{to}{why}")
    print(f"\nprompt ({len(spec.prompt)} characters)\n{_safe_lines(spec.prompt)}")


def _text(value: Any) -> str:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = dataclasses.fields(value)
        said = ((each.name, getattr(value, each.name), each.default) for each in fields)
        return ", ".join(f"{name}: {_text(found)}" for name, found, default in said if found != default)
    if isinstance(value, tuple):
        return "[" + ", ".join(_text(each) for each in value) + "]"
    return str(value)


def _line(label: str, text: str) -> None:
    print(f"{clean(label):<16} {clean(text)}".rstrip())


def _safe_lines(text: str) -> str:
    return "\n".join(clean(line) for line in text.split("\n"))
