"""One agent file as a `Parsed`: a spec or the reason there is none, and what became of every key.

`parse` is pure and never raises, whatever the bytes; `parse_file` also reads the file. A spec is
sealed with a hash of its content, which does not depend on where its file is.

Skill files (`SKILL.md`) are read by the same reader. A skill is not an agent: it is read for its name,
description, allowed tools and text, and its `spec` only carries them with the fates of all other keys.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

import msgspec
import orjson

from retinue.agents.dialects.table import Dialect
from retinue.agents.dialects.tables import DIALECTS, SKILL
from retinue.agents.dialects.tools import NO_VALUE
from retinue.agents.dialects.translate import build, translate
from retinue.agents.folders import by_place, refine
from retinue.agents.frontmatter import BLOCK_LINE, Frontmatter, Parsed, Split, decode, positions, read, split
from retinue.agents.yaml_reader import Item
from retinue.core.files import MAX_FILE_BYTES
from retinue.core.spec import AgentSpec, DialectName, Problem, Source

_NOT_HASHED = frozenset({"source", "path", "fates", "problems", "hash", "foreign"})
_DEFAULT_SPEC = AgentSpec(name="")
_HASH_OPTIONS = orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS


def spec_hash(spec: AgentSpec) -> str:
    """sha256, hex, over every field that is not its default; where the spec came from and what
    became of the keys of its file do not count."""
    content = {}
    for name in spec.__struct_fields__:
        value = getattr(spec, name)
        if name in ("name", "dialect") or (name not in _NOT_HASHED and value != getattr(_DEFAULT_SPEC, name)):
            content[name] = value
    try:
        data = orjson.dumps(content, default=msgspec.to_builtins, option=_HASH_OPTIONS)
    except TypeError:  # half a surrogate pair, or a number beyond 64 bits, which JSON text can hold
        data = json.dumps(msgspec.to_builtins(content), sort_keys=True).encode()
    return hashlib.sha256(data).hexdigest()


def seal(spec: AgentSpec) -> AgentSpec:
    """Return `spec` with its hash. A catalog of a thousand files leaves the hashing to the caller that takes
    one of them; the value is the same whenever it is computed."""
    if not spec.hash:
        msgspec.structs.force_setattr(spec, "hash", spec_hash(spec))
    return spec


_DOCUMENTS = frozenset({"readme", "agents", "claude", "gemini", "changelog", "contributing", "license"})


def parse(data: bytes, *, path: str, dialect: DialectName | None = None, source: Source = "project") -> Parsed:
    """Return what `data`, the content of the file at `path`, means. The dialect is guessed from the
    path, and from the keys where the path leaves it open, unless it is given."""
    return seal_parsed(parse_at_home(data, path, by_place(path), source, dialect))


def parse_at_home(
    data: bytes, path: str, home: DialectName | None, source: Source, dialect: DialectName | None = None
) -> Parsed:
    """Like `parse`, for a file in a folder that belongs to `home` whatever its path looks like,
    and without the hash of the spec: see `seal_parsed`."""
    table = DIALECTS[dialect or refine(home, ())]
    if len(data) > MAX_FILE_BYTES:
        return unusable(path, too_large(len(data)), table.name)
    if table.nested_under is not None:
        return _parse_whole(data, path, table, source)
    parts = split(data)
    if parts.block is None:
        return finish(table, parts, Frontmatter(), path, source)
    matter = read(parts.block, table.knows, simple=table.simple)
    # In a folder that dialects share, the keys settle the dialect once they are known.
    if dialect is None and home in (None, "pi"):
        chosen = DIALECTS[refine(home, {item.key for item in matter.items})]
        if chosen is not table:
            table, matter = chosen, read(parts.block, chosen.knows, simple=chosen.simple)
    return finish(table, parts, matter, path, source)


def seal_parsed(parsed: Parsed) -> Parsed:
    """Return `parsed` with the hash of its spec filled in."""
    if parsed.spec is not None:
        seal(parsed.spec)
    return parsed


def unusable(path: str, error: Problem, dialect: DialectName | None = None) -> Parsed:
    """Return the result for a file of which nothing could be read."""
    dialect = dialect or refine(by_place(path), ())
    return Parsed(file=path, dialect=dialect, problems=(error,), error=error)


def too_large(size: int) -> Problem:
    text = f"The file has {size:,} bytes; at most {MAX_FILE_BYTES:,} are read."
    return Problem("too-large", "error", text, "An agent is a prompt: keep it short.")


def finish(table: Dialect, parts: Split, matter: Frontmatter, path: str, source: Source) -> Parsed:
    """Translate, check and build: the last step of every reading."""
    first_line = 1
    if table.nested_under is None:
        first_line = BLOCK_LINE
    draft = translate(table, matter.items, source, first_line)
    if matter.reading == "lines" and parts.block is not None:
        draft.refuse_missed_limits(parts.block, matter.items)
    written = draft.values.pop("name", None)
    description = draft.values.get("description")
    error = parts.error or matter.error
    spec: AgentSpec | None = None
    problems = (*parts.problems, *matter.problems, *draft.problems)
    if error is None:
        name, error = _name(table, written, parts, matter, path, source)
        if error is None and not description:
            if table.description_required and source != "plugin":
                text = f"There is no description, and {table.title} does not load such a file."
                remedy = "Add 'description:' and say when to use this agent."
                error = Problem("missing-description", "error", text, remedy, "description", 1, 1)
            draft.values["description"] = name
        if error is None:
            spec = build(draft, name=name, prompt=parts.body, source=source, path=path, problems=problems)
    if error is not None:
        problems = (*problems, error)
    choice = draft.values.get("tools.allow")
    denied = draft.values.get("tools.deny")
    if denied is None and choice is not None and choice.refused:
        denied = choice.refused
    model = draft.values.get("model.name")
    return Parsed(
        file=path,
        dialect=table.name,
        name=written,
        description=description,
        tools=None if choice is None or choice is NO_VALUE else choice.names,
        disallowed_tools=denied,
        model=None if model is None else model.written,
        prompt=parts.body,
        spec=spec,
        reading=matter.reading,
        fates=draft.fates,
        places=positions(matter.items, first_line) if parts.block else {},
        problems=problems,
        error=error,
    )


def _parse_whole(data: bytes, path: str, table: Dialect, source: Source) -> Parsed:
    """Parse a file that is YAML from its first line to its last."""
    file = decode(data)
    parts = file._replace(block=file.body, body="")
    matter = read(file.body, table.knows)
    items = list(matter.items)
    for item in matter.items:
        if item.key != table.nested_under:
            continue
        if isinstance(item.value, dict):
            items.remove(item)
            items += [Item(key, value, item.line, 0, item.end_line) for key, value in item.value.items()]
        elif item.value is not None:
            # Every key of the agent is below `agent:`; without them nothing would limit it.
            text = f"What stands below '{item.key}' cannot be read as keys and values."
            remedy = "Correct the YAML: one 'key: value' per line, indented below it."
            position = (item.key, item.line + 1, item.column + 1)
            error = Problem("frontmatter-unreadable", "error", text, remedy, *position)
            return finish(table, parts, Frontmatter(error=error), path, source)
    parsed = finish(table, parts, matter._replace(items=items), path, source)
    return msgspec.structs.replace(parsed, places=positions(matter.items, 1))


def _name(
    table: Dialect, written: Any, parts: Split, matter: Frontmatter, path: str, source: Source
) -> tuple[str, Problem | None]:
    # A README beside agents is for people.
    document = file_stem(path, (".md",)).lower() in _DOCUMENTS
    if parts.block is None and (table.frontmatter_required or document):
        text = "This file has no frontmatter, so it is documentation and not an agent."
        remedy = "To make it an agent, begin it with '---', name, description and '---'."
        return "", Problem("no-frontmatter", "info", text, remedy, None, 1, 1)
    if not written:
        stem = file_stem(path, table.suffixes)
        if table.name_rule == "required" and source != "plugin":
            text = f"There is no name, and {table.title} takes none from the file's name."
            return "", Problem("missing-name", "error", text, f"Add 'name: {stem}'.", "name", 1, 1)
        return _path_name(path, stem) if table.name_rule == "path" else stem, None
    name: str = written
    refused = table.forbidden_in_name
    if (refused and refused in name) or (name[0] == "-" and table.name == "claude"):
        text = f"The name '{name}' may not " + (f"contain '{refused}'." if refused in name else "begin with '-'.")
        line = next((item.line + BLOCK_LINE for item in matter.items if item.key == "name"), None)
        return "", Problem("bad-name", "error", text, "Choose letters, digits and hyphens.", "name", line, 1)
    return name, None


def file_stem(path: str, suffixes: tuple[str, ...]) -> str:
    name = path.replace("\\", "/").rpartition("/")[2]
    for suffix in suffixes:
        if name.lower().endswith(suffix) and len(name) > len(suffix):
            return name[: -len(suffix)]
    return name.rpartition(".")[0] or name


def _path_name(path: str, stem: str) -> str:
    """Return `core/reviewer` for `.opencode/agent/core/reviewer.md`."""
    folders = path.replace("\\", "/").split("/")[:-1]
    for index in range(len(folders) - 1, -1, -1):
        if folders[index] in ("agent", "agents"):
            return "/".join((*folders[index + 1 :], stem))
    return stem


def is_skill(path: str) -> bool:
    return path.replace("\\", "/").rpartition("/")[2].lower() == "skill.md"


def parse_skill(data: bytes, *, path: str) -> Parsed:
    """Pure, and never raises. A skill without a name is called after its folder."""
    if len(data) > MAX_FILE_BYTES:
        return unusable(path, too_large(len(data)), "generic")
    parts = split(data)
    matter = Frontmatter()
    if parts.block is not None:
        matter = read(parts.block, SKILL.knows)
    folder, slash, _ = path.replace("\\", "/").rpartition("/")
    if slash and is_skill(path):
        path = f"{folder}.md"
    return seal_parsed(finish(SKILL, parts, matter, path, "project"))
