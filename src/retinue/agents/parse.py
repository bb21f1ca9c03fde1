"""One agent file as a `Parsed`: a spec or the reason there is none, and what became of every key.

`parse` is pure and never raises, whatever the bytes; `parse_file` also reads the file. A spec is
sealed with a hash of its content, which does not depend on where its file is.

Skill files (`SKILL.md`) are read by the same reader. A skill is not an agent: it is read for its name, description,
allowed tools and text, and its `spec` only carries them with the fates of all other keys.

`FileCache` lists folders of agent files and reads only files that have changed, without blocking on a pipe or device. A
file is unchanged while its times, size and inode are the same. File systems stamp times coarsely, so a file that was
written at about the moment it was read is read again the next time and compared: no change is ever missed.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import orjson
from msgspec import Struct

from retinue.agents.dialects.table import Dialect
from retinue.agents.dialects.tables import DIALECTS, SKILL
from retinue.agents.dialects.tools import NO_VALUE
from retinue.agents.dialects.translate import build, translate
from retinue.agents.folders import MAX_FOLDER_DEPTH, Folder, by_place, refine
from retinue.agents.frontmatter import Frontmatter, Parsed, Split, decode, read, split
from retinue.agents.yaml_reader import Item, YamlError, load_mapping
from retinue.core.files import MAX_PROJECT_FILE_BYTES, FileRefusedError, read_with_status
from retinue.core.spec import AgentSpec, DialectName, Problem, Source

_NOT_HASHED = frozenset({"source", "path", "fates", "problems", "hash", "foreign"})
_DEFAULT_SPEC = AgentSpec(name="")
_HASH_OPTIONS = orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS


def spec_hash(spec: AgentSpec) -> str:
    """Return the SHA-256 of every field that is not its default, in hex, without the origin of the spec and the fates
    of the keys."""
    content = {}
    for name in spec.__struct_fields__:
        value = getattr(spec, name)
        if name in ("name", "dialect") or (name not in _NOT_HASHED and value != getattr(_DEFAULT_SPEC, name)):
            content[name] = value
    try:
        data = orjson.dumps(content, default=msgspec.to_builtins, option=_HASH_OPTIONS)
    except TypeError:  # half a surrogate pair, or a number beyond 64 bits, which JSON text may have
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
    if len(data) > MAX_PROJECT_FILE_BYTES:
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
    text = f"The file has {size:,} bytes; at most {MAX_PROJECT_FILE_BYTES:,} are read."
    return Problem("too-large", "error", text, "An agent is a prompt: keep it short.")


def finish(table: Dialect, parts: Split, matter: Frontmatter, path: str, source: Source) -> Parsed:
    """Translate, check and build: the last step of every reading."""
    draft = translate(table, matter.items, source)
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
        places={item.key: item for item in matter.items} if parts.block else {},
        problems=problems,
        error=error,
    )


def _parse_whole(data: bytes, path: str, table: Dialect, source: Source) -> Parsed:
    """Parse a file that is YAML from its first line to its last."""
    file = decode(data)
    parts = file._replace(block=file.body, body="")
    matter = read(file.body, table.knows)
    items: list[Item] = []
    for item in matter.items:
        if item.key != table.nested_under or item.value is None:
            items.append(item)
        elif isinstance(item.value, dict):
            lines: dict[str, int] = {}
            if matter.reading == "yaml":
                with suppress(YamlError):
                    load_mapping(file.body, lines)
            for key, value in item.value.items():
                items.append(Item(key, value, lines.get(f"$.{item.key}.{key}", item.line), 1, item.end_line))
        else:
            # Every key of the agent is below `agent:`; without them nothing would limit it.
            text = f"What stands below '{item.key}' cannot be read as keys and values."
            remedy = "Correct the YAML: one 'key: value' per line, indented below it."
            error = Problem("frontmatter-unreadable", "error", text, remedy, item.key, item.line, item.column)
            return finish(table, parts, Frontmatter(error=error), path, source)
    return finish(table, parts, matter._replace(items=items), path, source)


def _name(
    table: Dialect, written: Any, parts: Split, matter: Frontmatter, path: str, source: Source
) -> tuple[str, Problem | None]:
    if table is SKILL and is_skill(path):
        # The folder of a skill has its name.
        folder = path.replace("\\", "/").rpartition("/")[0]
        path = f"{folder}.md" if folder else path
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
        line = next((item.line for item in matter.items if item.key == "name"), None)
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
    if len(data) > MAX_PROJECT_FILE_BYTES:
        return unusable(path, too_large(len(data)), "generic")
    parts = split(data)
    matter = Frontmatter() if parts.block is None else read(parts.block, SKILL.knows)
    return seal_parsed(finish(SKILL, parts, matter, path, "project"))


Signature = tuple[int, int, int, int]
"""Modification and change time in nanoseconds, size, inode: while they stay, a file stays."""

_FINE_STAMP_NS = 30_000_000
_COARSE_STAMP_NS = 2_100_000_000
_SECOND_NS = 1_000_000_000


def unchanged(signatures: list[tuple[str, Signature]], status: Callable[[str], os.stat_result] = os.stat) -> bool:
    """Return whether each path still has the signature it had."""
    try:
        return all(signature_of(status(path)) == signature for path, signature in signatures)
    except OSError:
        return False


def signature_of(status: os.stat_result) -> Signature:
    return status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino


def just_written(signature: Signature, now: int) -> bool:
    """Return whether a change right after `now` might not change the signature."""
    # File systems stamp times coarsely; some only to the second.
    newest = max(signature[0], signature[1])
    return newest > now - (_COARSE_STAMP_NS if newest % _SECOND_NS == 0 else _FINE_STAMP_NS)


def _no_file(entry: os.DirEntry[str]) -> Problem:
    if entry.is_symlink():
        return Problem("broken-link", "error", "This link leads nowhere.", "Repair or remove it.")
    text = "This is a pipe, socket or device, not a file."
    return Problem("not-a-file", "error", text, "Remove it from the agents folder.")


def read_bytes(path: str) -> bytes | Problem:
    """Return the content of a regular file, or why not."""
    content = read_signed(path)
    return content if isinstance(content, Problem) else content[0]


def read_signed(path: str) -> tuple[bytes, Signature] | Problem:
    """Return the content of a regular file with its signature from before it was read."""
    try:
        data, status = read_with_status(path)
    except FileRefusedError as error:
        remedy = "An agent is a prompt: keep it short." if error.reason == "too-large" else "Name a Markdown file."
        return Problem(error.reason, "error", f"The file is not read: {error.strerror}.", remedy)
    except OSError as error:
        text = f"The file cannot be read: {error.strerror}."
        return Problem("unreadable", "error", text, "Check its path and permissions.")
    return data, signature_of(status)


def parse_file(path: Path, *, dialect: DialectName | None = None, source: Source = "project") -> Parsed:
    """Return `parse` of the content of a file. A file that cannot be read gives a result with an error."""
    name = str(path)
    data = read_bytes(name)
    if isinstance(data, Problem):
        return unusable(name, data, dialect)
    return parse(data, path=name, dialect=dialect, source=source)


MAX_CACHED_FOLDERS = 512


class FolderContents(Struct, frozen=True):
    """All files of one folder, in the order of their paths. The same object is returned for as
    long as nothing in the folder changed."""

    folder: Folder
    files: tuple[Parsed, ...]


class _CachedFile(NamedTuple):
    """A file with a `signature` is not read again while it keeps it. One that was written just
    before it was read has none yet: its `data` are kept, and compared the next time."""

    signature: Signature | None
    parsed: Parsed
    data: bytes | None = None


class _CachedFolder:
    """A folder as it was read. `signatures` are those of the folders and files that, all unchanged, prove that nothing
    changed; None while that cannot be proved. A file that has not changed since `before` is not read again."""

    def __init__(self, folder: Folder, before: _CachedFolder | None) -> None:
        self.folder = folder
        self.signatures: list[tuple[str, Signature]] | None = []
        self._problems: dict[str, Problem | None] = {}
        self._scan()
        self._before = {} if before is None else before.files
        self.files: dict[str, _CachedFile] = {
            path: self._read(path, self._problems[path]) for path in sorted(self._problems)
        }
        self._before = {}
        parsed = tuple([file.parsed for file in self.files.values()])
        self.contents = FolderContents(folder, parsed)
        if before is not None and list(map(id, parsed)) == list(map(id, before.contents.files)):
            self.contents = before.contents

    def _sign(self, path: str, signature: Signature | None) -> None:
        if signature is None:
            self.signatures = None
        elif self.signatures is not None:
            self.signatures.append((path, signature))

    def _scan(self) -> None:
        """List everything that could be an agent file. Never raises, never opens a file, and ends on loops of links."""
        pending = [(self.folder.path, 0)]
        visited: set[tuple[int, int]] = set()
        while pending:
            path, depth = pending.pop()
            now = time.time_ns()
            try:
                status = Path(path).stat()
                if (status.st_dev, status.st_ino) in visited:
                    continue
                visited.add((status.st_dev, status.st_ino))
                subfolders = self._list(path)
            except OSError as error:
                reason = f"The folder cannot be listed: {error.strerror}."
                self._problems[path] = Problem("unreadable", "error", reason, "Check its permissions.")
                self.signatures = None
                continue
            signature = signature_of(status)
            self._sign(path, None if just_written(signature, now) else signature)
            if depth < MAX_FOLDER_DEPTH:
                pending += [(subfolder, depth + 1) for subfolder in subfolders]

    def _list(self, path: str) -> list[str]:
        """Note the files of one folder, and return its subfolders to list next."""
        subfolders: list[str] = []
        with os.scandir(path) as entries:
            for entry in entries:
                name = entry.name
                is_named = name.lower().endswith(self.folder.suffixes)
                try:
                    is_file, is_folder = is_named and entry.is_file(), entry.is_dir()
                except OSError:  # a link to itself
                    is_file = is_folder = False
                if is_file:
                    self._problems[entry.path] = None
                elif is_folder:
                    if self.folder.recursive and name[0] != "." and name != "node_modules":
                        subfolders.append(entry.path)
                elif is_named or entry.is_symlink():
                    # It may become or lead to something else without a trace here.
                    self.signatures = None
                    if is_named:
                        self._problems[entry.path] = _no_file(entry)
        return subfolders

    def _read(self, path: str, problem: Problem | None) -> _CachedFile:
        before = self._before.get(path)
        if before is None or problem or before.signature is None or not unchanged([(path, before.signature)]):
            before = self._read_again(path, problem, before)
        self._sign(path, before.signature)
        return before

    def _read_again(self, path: str, problem: Problem | None, before: _CachedFile | None) -> _CachedFile:
        now = time.time_ns()
        content = problem or read_signed(path)
        if isinstance(content, Problem):
            # Never trusted the next time: the reason why the file is unreadable may pass.
            if before is not None and before.parsed.error == content:
                return before._replace(signature=None)
            return _CachedFile(None, unusable(path, content, self.folder.home))
        data, signature = content
        if before is not None and before.data == data:
            parsed = before.parsed
        else:
            parsed = parse_at_home(data, path, self.folder.home, self.folder.source)
            if self.folder.left_out and parsed.error is None:
                remedy = "Move the file there, or name the folder .retinue/agents."
                left_out = Problem("left-out", "warning", self.folder.left_out, remedy)
                parsed = unusable(path, left_out, self.folder.home)
        if just_written(signature, now):
            return _CachedFile(None, parsed, data)
        return _CachedFile(signature, parsed)


class FileCache:
    """One per process is enough. Not locked: two threads may both read a file, no more."""

    def __init__(self) -> None:
        self._folders: dict[Folder, _CachedFolder] = {}

    def read(self, folder: Folder) -> FolderContents:
        cached = self._folders.get(folder)
        if cached is None or cached.signatures is None or not unchanged(cached.signatures):
            if len(self._folders) >= MAX_CACHED_FOLDERS:
                self._folders.clear()
            self._folders[folder] = cached = _CachedFolder(folder, cached)
        return cached.contents
