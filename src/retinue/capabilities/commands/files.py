"""The files of commands: which there are, and what each says.

    .retinue/commands/**/*.md    .claude/commands/**/*.md    .pi/prompts/*.md     of the project, nearest folder first
    ~/.retinue/commands          ~/.claude/commands          ~/.pi/agent/prompts  of the user
    prompts/ of this folder                                                       shipped: /init

A command is called by the name of its file. Of several files of one name the first in this order has it; a file in a
subfolder can also be called `/folder:name`. Links are not followed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct

from retinue.agents.folders import levels
from retinue.agents.frontmatter import read, split
from retinue.agents.scan import read_bytes
from retinue.core.format import replace_unprintable
from retinue.settings.places import home, pi_home, retinue_home
from retinue.tools.filter import split_entry
from retinue.tools.safe_dir import is_safe

PROJECT = (".retinue/commands", ".claude/commands", ".pi/prompts")
_SHIPPED = Path(__file__).parent / "prompts"
MOST = 2_000
DEEPEST = 5
_DESCRIBED = 200
_KEYS = frozenset({"description", "argument-hint", "allowed-tools", "model"})
_ALSO = {"argument_hint": "argument-hint", "allowed_tools": "allowed-tools"}

CommandSource = Literal["project", "user", "builtin"]


class CommandFolder(Struct, frozen=True):
    """One folder of commands. pi's prompts lie side by side, and run nothing."""

    path: Path
    source: CommandSource
    pi: bool = False


class CommandFile(Struct, frozen=True, kw_only=True):
    """One command. `namespace` is the subfolder it lies in, its parts joined by colons."""

    name: str
    namespace: str
    path: Path
    source: CommandSource
    content: bytes
    body: str
    description: str = ""
    hint: str = ""
    allowed_tools: tuple[str, ...] = ()
    model: str | None = None
    runs_commands: bool = True
    problem: str = ""
    """Why it cannot be used; empty for one that can."""

    @property
    def origin(self) -> str:
        """Where it comes from, for the menu: `project` or `project:frontend`."""
        return ":".join(filter(None, (self.source, self.namespace)))


def command_folders(cwd: Path, environment: Mapping[str, str]) -> list[CommandFolder]:
    """Return every folder to look in, strongest first, whether it exists or not."""
    house = home(environment)
    user = [retinue_home(environment) / "commands", house / ".claude" / "commands", pi_home(environment) / "prompts"]
    found = []
    for level in levels(cwd):
        for name in PROJECT:
            # In the user's home folder a project's folder and the user's are one, and it is the user's.
            if level / name not in user:
                found.append(CommandFolder(level / name, "project", pi=name == PROJECT[-1]))
    found += [CommandFolder(path, "user", pi=path == user[-1]) for path in user]
    found.append(CommandFolder(_SHIPPED, "builtin"))
    return found


def find_commands(cwd: Path, environment: Mapping[str, str]) -> dict[str, CommandFile]:
    """Return the commands by every name they can be called by."""
    found: dict[str, CommandFile] = {}
    for folder in command_folders(cwd, environment):
        for path, namespace in _files(folder):
            command = _read(path, namespace, folder)
            found.setdefault(command.name, command)
            if namespace:
                found.setdefault(f"{namespace}:{command.name}", command)
            if len(found) >= MOST:
                return found
    return found


def _files(folder: CommandFolder) -> Iterator[tuple[Path, str]]:
    if folder.path.is_symlink() or not folder.path.is_dir():
        return
    for here, folders, names in os.walk(folder.path):
        inner = Path(here).relative_to(folder.path).parts
        folders[:] = sorted(name for name in folders if is_safe(name))
        if folder.pi or len(inner) >= DEEPEST:
            folders.clear()
        for name in sorted(names):
            path = Path(here, name)
            if path.suffix == ".md" and is_safe(path.stem) and not path.is_symlink():
                yield path, ":".join(inner)


def _read(path: Path, namespace: str, folder: CommandFolder) -> CommandFile:
    data = read_bytes(str(path))
    if not isinstance(data, bytes):
        return CommandFile(
            name=path.stem,
            namespace=namespace,
            path=path,
            source=folder.source,
            content=b"",
            body="",
            problem=data.message,
        )
    parts = split(data)
    said: dict[str, Any] = {}
    problem = ""
    if parts.error is not None and not parts.body:
        problem = parts.error.message
    if parts.block is not None:
        matter = read(parts.block, _KEYS.__contains__)
        if matter.error is not None:
            problem = matter.error.message
        for item in matter.items:
            key = item.key.lower()
            said[_ALSO.get(key, key)] = item.value
    body = parts.body.strip()
    return CommandFile(
        name=path.stem,
        namespace=namespace,
        path=path,
        source=folder.source,
        content=data,
        body=body,
        description=_one_line(said.get("description")) or _first_line(body),
        hint=_hint(said.get("argument-hint")),
        allowed_tools=tuple(_tools(said.get("allowed-tools"))),
        model=_one_line(said.get("model")) or None,
        runs_commands=not folder.pi,
        problem=problem,
    )


def _one_line(value: Any) -> str:
    if not isinstance(value, str):
        return ""
    return " ".join(replace_unprintable(value).split())[:_DESCRIBED]


def _hint(value: Any) -> str:
    """Return the hint for arguments. YAML reads `[pr] [priority]` as a list."""
    if isinstance(value, list | tuple):
        return " ".join(f"[{_one_line(str(each))}]" for each in value)
    return _one_line(value)


def _first_line(body: str) -> str:
    for line in body.splitlines():
        text = _one_line(line.lstrip("#"))
        if text:
            return text
    return ""


def _tools(value: Any) -> Iterator[str]:
    """Yield the entries of a list, or of a string with commas between them; what is in parentheses stays together."""
    if isinstance(value, list | tuple):
        yield from filter(None, map(_one_line, value))
        return
    if not isinstance(value, str):
        return
    depth, word = 0, ""
    for letter in f"{value},":
        depth += (letter == "(") - (letter == ")")
        if letter == "," and depth <= 0:
            if split_entry(word.strip())[0]:
                yield word.strip()
            word = ""
        else:
            word += letter
