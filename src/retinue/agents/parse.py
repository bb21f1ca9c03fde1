"""One agent file as a `Parsed`: a spec or the reason there is none, and what became of every key.

`parse` is pure and never raises, whatever the bytes; `parse_file` also reads the file. A spec is
sealed with a hash of its content, which does not depend on where its file is.

Skill files (`SKILL.md`) are read by the same reader. A skill is not an agent: it is read for its name,
description, allowed tools and text, and its `spec` only carries them with the fates of all other keys.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import orjson

from retinue.agents.dialects.rows import DESCRIPTION, NAME, unused
from retinue.agents.dialects.structures import HOOKS, MODEL
from retinue.agents.dialects.table import Dialect, FieldRow
from retinue.agents.dialects.tables import DIALECTS
from retinue.agents.dialects.tools import NO_VALUE, SPACED_TOOLS
from retinue.agents.dialects.translate import SpecDraft, build, missed_limits, translate
from retinue.agents.folders import by_place, refine
from retinue.agents.frontmatter import BLOCK_LINE, Frontmatter, KeyPosition, Parsed, Places, Split, decode, read, split
from retinue.agents.scan import read_bytes as read_bytes
from retinue.agents.scan import too_large
from retinue.agents.yaml_items import Item
from retinue.core.files import MAX_FILE_BYTES
from retinue.core.spec import AgentSpec, DialectName, Problem, Source

_ASIDE = frozenset({"source", "path", "fates", "problems", "hash", "foreign"})
_PLAIN = AgentSpec(name="")
_DEFAULTS: Mapping[str, Any] = {
    name: getattr(_PLAIN, name) for name in AgentSpec.__struct_fields__ if name not in (*_ASIDE, "name", "dialect")
}
_MISSING = object()
_OPTIONS = orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS


def spec_hash(spec: AgentSpec) -> str:
    """sha256, hex, over every field that is not its default; where the spec came from and what
    became of the keys of its file do not count."""
    content = {}
    for name in spec.__struct_fields__:
        value = getattr(spec, name)
        if name not in _ASIDE and _DEFAULTS.get(name, _MISSING) != value:
            content[name] = value
    try:
        data = orjson.dumps(content, default=msgspec.to_builtins, option=_OPTIONS)
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
_NO_FRONTMATTER = Frontmatter()
NO_PLACES: Mapping[str, KeyPosition] = {}


def parse(data: bytes, *, path: str, dialect: DialectName | None = None, source: Source = "project") -> Parsed:
    """Return what `data`, the content of the file at `path`, means. The dialect is guessed from the
    path, and from the keys where the path leaves it open, unless it is given."""
    if dialect is not None:
        parsed = _parse(data, path, DIALECTS[dialect], source, None)
    else:
        parsed = parse_at_home(data, path, by_place(path), source)
    return seal_parsed(parsed)


def parse_at_home(data: bytes, path: str, home: DialectName | None, source: Source) -> Parsed:
    """Like `parse`, for a file in a folder that belongs to `home` whatever its path looks like,
    and without the hash of the spec: see `seal_parsed`."""
    shared = home is None or home == "pi"
    return _parse(data, path, DIALECTS[refine(home, ())], source, home if shared else None, shared)


def parse_file(path: Path, *, dialect: DialectName | None = None, source: Source = "project") -> Parsed:
    """Return `parse` of the file's content. What cannot be read is an error in the result."""
    name = str(path)
    data = read_bytes(name)
    if isinstance(data, Problem):
        return unusable(name, data, dialect)
    return parse(data, path=name, dialect=dialect, source=source)


def seal_parsed(parsed: Parsed) -> Parsed:
    """Return `parsed` with the hash of its spec filled in."""
    if parsed.spec is not None:
        seal(parsed.spec)
    return parsed


def unusable(path: str, error: Problem, dialect: DialectName | None = None) -> Parsed:
    """Return the result for a file of which nothing could be read."""
    return Parsed(
        file=path,
        dialect=dialect or refine(by_place(path), ()),
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
    # In a folder that dialects share, the keys settle the dialect once they are known.
    if len(data) > MAX_FILE_BYTES:
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
    """Translate, check and build: the last step of every reading."""
    first_line = 1
    if table.nested_under is None:
        first_line = BLOCK_LINE
    draft = translate(table, matter.items, source, first_line)
    if matter.reading == "lines" and parts.block is not None:
        draft.problems += missed_limits(table, parts.block, matter.items, first_line)
    written = draft.values.pop("name", None)
    description = draft.values.get("description")
    error = parts.error or matter.error
    spec: AgentSpec | None = None
    problems = (*parts.problems, *matter.problems, *draft.problems)
    if error is None:
        name, error = _name(table, written, parts, matter, path, source)
        if error is None and not description:
            error = _describe(draft, table, name, source)
        if error is None:
            spec = build(draft, table, name=name, prompt=parts.body, source=source, path=path, problems=problems)
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
        places=_places(table, parts, matter, first_line),
        problems=problems,
        error=error,
    )


def _places(table: Dialect, parts: Split, matter: Frontmatter, first_line: int) -> Mapping[str, KeyPosition]:
    block = parts.block
    if not block or not matter.items:
        return NO_PLACES
    return Places(lambda: read(block, table.knows, simple=table.simple).items, first_line)


def _parse_whole(data: bytes, path: str, table: Dialect, source: Source) -> Parsed:
    """Parse a file that is YAML from its first line to its last."""
    whole = decode(data)
    parts = whole._replace(block=whole.body, body="")
    matter = read(whole.body, table.knows)
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
            place = (item.key, item.line + 1, item.column + 1)
            error = Problem("frontmatter-unreadable", "error", text, remedy, *place)
            return finish(table, parts, Frontmatter(error=error), path, source)
    return finish(table, parts, matter._replace(items=items), path, source)


def _name(
    table: Dialect, written: Any, parts: Split, matter: Frontmatter, path: str, source: Source
) -> tuple[str, Problem | None]:
    # A README beside agents is for people.
    document = file_name(path, (".md",)).lower() in _DOCUMENTS
    if parts.block is None and (table.frontmatter_required or document):
        text = "This file has no frontmatter, so it is documentation and not an agent."
        remedy = "To make it an agent, begin it with '---', name, description and '---'."
        return "", Problem("no-frontmatter", "info", text, remedy, None, 1, 1)
    if not written:
        stem = file_name(path, table.suffixes)
        if table.name_rule == "required" and source != "plugin":
            text = f"There is no name, and {table.title} takes none from the file's name."
            return "", Problem("missing-name", "error", text, f"Add 'name: {stem}'.", "name", 1, 1)
        return path_name(path, stem) if table.name_rule == "path" else stem, None
    name: str = written
    refused = table.forbidden_in_name
    if (refused and refused in name) or (name[0] == "-" and table.name == "claude"):
        text = f"The name '{name}' may not " + (f"contain '{refused}'." if refused in name else "begin with '-'.")
        line = None
        for item in matter.items:
            if item.key == "name":
                line = item.line + BLOCK_LINE
                break
        return "", Problem("bad-name", "error", text, "Choose letters, digits and hyphens.", "name", line, 1)
    return name, None


def _describe(draft: SpecDraft, table: Dialect, name: str, source: Source) -> Problem | None:
    """Set a missing description to the name, or return the problem where the dialect requires one."""
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
    """Return `core/reviewer` for `.opencode/agent/core/reviewer.md`."""
    folders = path.replace("\\", "/").split("/")[:-1]
    for index in range(len(folders) - 1, -1, -1):
        if folders[index] in ("agent", "agents"):
            return "/".join((*folders[index + 1 :], stem))
    return stem


SKILL = Dialect(
    name="generic",
    title="Agent Skills",
    folders=("skills/NAME/SKILL.md",),
    name_rule="file",
    fields=(
        NAME,
        DESCRIPTION,
        FieldRow("allowed-tools", SPACED_TOOLS, "tools.allow", ("allowed_tools", "allowedTools", "tools")),
        FieldRow("model", MODEL, "model.name"),
        FieldRow("hooks", HOOKS, "hooks"),
        *unused("license", "compatibility", "metadata", "version", "author", "tags"),
        *unused("argument-hint", "disable-model-invocation", "user-invocable", "context", "agent", "when_to_use"),
    ),
)


def is_skill(path: str) -> bool:
    return path.replace("\\", "/").rpartition("/")[2].lower() == "skill.md"


def parse_skill(data: bytes, *, path: str) -> Parsed:
    """Pure, and never raises. A skill without a name is called after its folder."""
    if len(data) > MAX_FILE_BYTES:
        return unusable(path, too_large(len(data)), "generic")
    parts = split(data)
    matter = _NO_FRONTMATTER
    if parts.block is not None:
        matter = read(parts.block, SKILL.knows)
    folder, slash, _ = path.replace("\\", "/").rpartition("/")
    if slash and is_skill(path):
        path = f"{folder}.md"
    return seal_parsed(finish(SKILL, parts, matter, path, "project"))
