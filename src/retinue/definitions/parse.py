"""One agent file to one `Parsed`: a spec or the reason there is none, and every key's fate.

`parse` is pure and never raises, whatever the bytes; `parse_file` adds the reading of the file.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

from retinue.definitions.dialects import DIALECTS
from retinue.definitions.dialects.table import Dialect
from retinue.definitions.dialects.translate import Draft, build, translate
from retinue.definitions.digest import spec_hash
from retinue.definitions.frontmatter import BLOCK_LINE, NO_PLACES, Frontmatter, Split, read, split
from retinue.definitions.guess import by_place, guess_dialect, refine
from retinue.definitions.parsed import Parsed
from retinue.definitions.yaml_values import Item
from retinue.domain.spec import AgentSpec, DialectName, Problem, Source

MAX_FILE = 10 * 1024 * 1024

_DOCUMENTS = frozenset({"readme", "agents", "claude", "gemini", "changelog", "contributing", "license"})
_NO_FRONTMATTER = Frontmatter()


def parse(data: bytes, *, path: str, dialect: DialectName | None = None, source: Source = "project") -> Parsed:
    """What `data`, the content of the file at `path`, means. The dialect is guessed from the
    path, and from the keys where the path leaves it open, unless it is given."""
    if dialect is not None:
        return _parse(data, path, DIALECTS[dialect], source, None)
    home = by_place(path)
    return parse_at_home(data, path, home, source)


def parse_at_home(data: bytes, path: str, home: DialectName | None, source: Source) -> Parsed:
    """Like `parse`, for a file in a folder that belongs to `home` whatever its path looks like."""
    shared = home is None or home == "pi"
    return _parse(data, path, DIALECTS[refine(home, ())], source, home if shared else None, shared)


def parse_file(path: Path, *, dialect: DialectName | None = None, source: Source = "project") -> Parsed:
    """`parse` of the file's content. What cannot be read is an error in the result."""
    name = str(path)
    data = read_bytes(name)
    if isinstance(data, Problem):
        return unusable(name, data, dialect)
    return parse(data, path=name, dialect=dialect, source=source)


def read_bytes(path: str) -> bytes | Problem:
    """The content of a regular file, or why not. Never waits for a pipe or a device."""
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
    except OSError as error:
        return _unreadable(error)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            return Problem("not-a-file", "error", "This is not a regular file.", "Remove it from the agents folder.")
        if status.st_size > MAX_FILE:
            return too_large(status.st_size)
        chunks = []
        while chunk := os.read(descriptor, 1 << 20):
            chunks.append(chunk)
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)
    except OSError as error:
        return _unreadable(error)
    finally:
        os.close(descriptor)


def unusable(path: str, error: Problem, dialect: DialectName | None = None) -> Parsed:
    """A file of which nothing could be read."""
    return Parsed(
        file=path,
        dialect=dialect or guess_dialect(path),
        name=None,
        description=None,
        tools=None,
        disallowed_tools=None,
        model=None,
        prompt="",
        spec=None,
        reading="none",
        problems=(error,),
        error=error,
    )


def _parse(
    data: bytes, path: str, table: Dialect, source: Source, home: DialectName | None, shared: bool = False
) -> Parsed:
    """`shared` places settle the dialect by the keys, once these are known."""
    if len(data) > MAX_FILE:
        return unusable(path, too_large(len(data)), table.name)
    if table.nested_under is not None:
        return _parse_whole(data, path, table, source)
    parts = split(data)
    if parts.block is None:
        return finish(table, parts, _NO_FRONTMATTER, path, source)
    matter = read(parts.block, table.knows, simple=table.simple)
    if shared:
        chosen = DIALECTS[refine(home, {item.key for item in matter.items})]
        if chosen is not table:
            table, matter = chosen, read(parts.block, chosen.knows, simple=chosen.simple)
    return finish(table, parts, matter, path, source)


def finish(table: Dialect, parts: Split, matter: Frontmatter, path: str, source: Source) -> Parsed:
    """The last step of every reading: translate, check, build."""
    first_line = BLOCK_LINE if table.nested_under is None else 1
    draft = translate(table, matter.items, source, first_line)
    written = draft.values.pop("name", None)
    description = draft.values.get("description")
    error = parts.error or matter.error or draft.error
    spec: AgentSpec | None = None
    if error is None:
        name, error = _name(table, written, parts, path, source)
        if error is None and not description:
            error = _describe(draft, table, name, source)
        if error is None:
            spec = build(draft, table, name=name, prompt=parts.body, source=source, path=path)
            object.__setattr__(spec, "hash", spec_hash(spec))
    problems = (*parts.problems, *matter.problems, *draft.problems)
    choice = draft.values.get("tools.allow")
    denied = draft.values.get("tools.deny") or (choice.refused if choice is not None else ())
    model = draft.values.get("model.name")
    return Parsed(
        file=path,
        dialect=table.name,
        name=written,
        description=description,
        tools=None if choice is None else choice.names,
        disallowed_tools=denied or None,
        model=None if model is None else model.written,
        prompt=parts.body,
        spec=spec,
        reading=matter.reading,
        fates=draft.fates,
        places=matter.places if matter.items else NO_PLACES,
        problems=problems if error is None else (*problems, error),
        error=error,
    )


def _parse_whole(data: bytes, path: str, table: Dialect, source: Source) -> Parsed:
    """A file that is YAML from its first line to its last."""
    parts = split(b"---\n" + data.removeprefix(b"\xef\xbb\xbf") + b"\n---\n")
    matter = read(parts.block or "", table.knows)
    items = list(matter.items)
    for item in matter.items:
        if item.key == table.nested_under and isinstance(item.value, dict):
            items.remove(item)
            items += [Item(key, value, item.line, 0, item.end_line) for key, value in item.value.items()]
    matter = Frontmatter(tuple(items), matter.reading, matter.problems, matter.error)
    return finish(table, parts, matter, path, source)


def _name(table: Dialect, written: Any, parts: Split, path: str, source: Source) -> tuple[str, Problem | None]:
    stem = file_name(path, table.suffixes)
    if parts.block is None and (table.frontmatter_required or stem.lower() in _DOCUMENTS):
        text = "This file has no frontmatter, so it is documentation and not an agent."
        remedy = "To make it an agent, begin it with '---', name, description and '---'."
        return "", Problem("no-frontmatter", "info", text, remedy, None, 1, 1)
    if not written:
        if table.name_rule == "required" and source != "plugin":
            text = f"There is no name, and {table.title} takes none from the file's name."
            return "", Problem("missing-name", "error", text, f"Add 'name: {stem}'.", "name", 1, 1)
        return path_name(path, stem) if table.name_rule == "path" else stem, None
    name: str = written
    refused = next((letter for letter in table.forbidden_in_name if letter in name), "")
    if refused or (table.name == "claude" and name.startswith("-")):
        text = f"The name '{name}' may not " + (f"contain '{refused}'." if refused else "begin with '-'.")
        return "", Problem("bad-name", "error", text, "Choose letters, digits and hyphens.", "name", None, None)
    return name, None


def _describe(draft: Draft, table: Dialect, name: str, source: Source) -> Problem | None:
    """A missing description is the name, or the end of it."""
    if table.description_required and source != "plugin":
        text = f"There is no description, and {table.title} does not load such a file."
        remedy = "Add 'description:' and say when to use this agent."
        return Problem("missing-description", "error", text, remedy, "description", 1, 1)
    draft.values["description"] = name
    return None


def file_name(path: str, suffixes: tuple[str, ...]) -> str:
    name = path.replace("\\", "/").rpartition("/")[2]
    for suffix in suffixes:
        if name.lower().endswith(suffix) and len(name) > len(suffix):
            return name[: -len(suffix)]
    return name.rpartition(".")[0] or name


def path_name(path: str, stem: str) -> str:
    """`core/reviewer` for `.opencode/agent/core/reviewer.md`."""
    folders = path.replace("\\", "/").split("/")[:-1]
    for index in range(len(folders) - 1, -1, -1):
        if folders[index] in ("agent", "agents"):
            return "/".join((*folders[index + 1 :], stem))
    return stem


def _unreadable(error: OSError) -> Problem:
    return Problem("unreadable", "error", f"The file cannot be read: {error.strerror}.", "Check its permissions.")


def too_large(size: int) -> Problem:
    text = f"The file has {size:,} bytes; at most {MAX_FILE:,} are read."
    return Problem("too-large", "error", text, "An agent is a prompt: keep it short.")
