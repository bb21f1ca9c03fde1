from __future__ import annotations

import argparse
import dataclasses
from typing import Any

from retinue.agents.catalog import Catalog, Entry
from retinue.agents.precedence import shadows
from retinue.core.codec import to_data
from retinue.core.spec import AgentSpec
from retinue.faces.cli.agents._common import add_common, folder, plugins, say
from retinue.faces.cli.agents._prompt import add_prompt_options, show_prompt
from retinue.faces.cli.agents._show import clean, fate_data, problem_data, write_json

_ASIDE = frozenset({"name", "description", "prompt", "source", "path", "dialect", "fates", "problems", "extra", "hash"})
_PLAIN = AgentSpec(name="")


def configure_show(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="exact, or without regard to case where that is clear")
    add_common(parser)
    parser.add_argument("--agents", metavar="JSON", help="agents given here, as Claude Code's option of that name")
    add_prompt_options(parser)


def execute_show(args: argparse.Namespace) -> int:
    """One agent: its spec, the fate of every field, and which file replaces which.
    """
    cwd = folder(args)
    if args.prompt:
        return show_prompt(args, cwd)
    catalog = Catalog.load(cwd, agents_json=args.agents, plugin_folders=plugins(cwd))
    entry = catalog.find(args.name)
    replaced = shadows(catalog.entries, entry)
    if args.json:
        write_json(_data(entry, [each.path for each in replaced]))
        return 0
    _print(entry, replaced)
    for problem in entry.problems:
        where = f"{entry.path}:{problem.line}" if problem.line else entry.path
        say(clean(f"{problem.severity}: {where}: {problem.message} {problem.remedy}".rstrip()))
    return 0


def _data(entry: Entry, replaced: list[str]) -> dict[str, Any]:
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


def _print(entry: Entry, replaced: tuple[Entry, ...]) -> None:
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
