"""What a user does with agents by name: switch off, switch on, copy to edit, have one written.

Switching off adds one key; switching on takes it away, and the file is what it was, byte for byte.
Whether a file is off is asked of the real reader before and after, never of a pattern, and an edit that
would change anything else is not made. `brief` is the task of an agent that writes an agent, and `look`
checks what it wrote.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

import retinue.builtin
from retinue.agents.catalog import Catalog, LoadedAgent
from retinue.agents.convert import Loss, convert, differences, reread, why_none
from retinue.agents.dialects.tables import DIALECTS
from retinue.agents.edit import FileLines, FrontmatterKey, bare, write_atomically
from retinue.agents.encode import scalar
from retinue.agents.files import agents_folder, delete_file, file_name, write_new
from retinue.agents.folders import PluginFolder, find_folders
from retinue.agents.frontmatter import Parsed
from retinue.agents.lint.runner import lint_paths
from retinue.agents.lint.subject import Finding
from retinue.agents.parse import parse, parse_file, read_bytes
from retinue.agents.write import off_switch
from retinue.core.spec import DialectName, Problem
from retinue.errors import ConfigurationError, UsageError

WAS = "# retinue-was: "
"""Marks the line that an inserted key stands in for, so that switching on can bring it back."""


class Switched(Struct, frozen=True):
    """`data` is the new content. `refused` says why nothing could be done; then it is the old."""

    data: bytes
    changed: bool
    refused: str = ""


def switch_off(data: bytes, parsed: Parsed) -> Switched:
    """`parsed` is what `data` means now."""
    refused = _cannot(data, parsed)
    if refused or parsed.spec is None or not parsed.spec.enabled:
        return Switched(data, False, refused)
    text = FileLines.read(data)
    for entry in reversed(_switches(text, parsed)):
        old = tuple(WAS + bare(line) for line in text.lines[entry.first : entry.last + 1])
        text = text.replace_lines(entry.first, entry.last, old)
    for key, value in _candidates(parsed):
        new = text.insert(1, f"{key}: {value}").encode()
        if _only_switched(parsed, reread(parsed, new), enabled=False):
            return Switched(new, True)
    return Switched(data, False, "its frontmatter is not one 'key: value' a line, so no key can be added safely")


def switch_on(data: bytes, parsed: Parsed) -> Switched:
    refused = _cannot(data, parsed)
    if refused or parsed.spec is None or parsed.spec.enabled:
        return Switched(data, False, refused)
    text = FileLines.read(data)
    for entry in reversed(_switches(text, parsed)):
        text = text.remove(entry.first, entry.last)
    # The lines that switching off had set aside are in force again.
    for index in range(1, text.close or 1):
        line = text.lines[index]
        if line.startswith(WAS):
            text = text.replace_lines(index, index, (bare(line)[len(WAS) :],))
    new = text.encode()
    if _only_switched(parsed, reread(parsed, new), enabled=True):
        return Switched(new, True)
    return Switched(data, False, "the key that switches it off cannot be removed without changing something else")


def is_stub(data: bytes, parsed: Parsed) -> bool:
    """Return whether a file says nothing but that an agent of this name is off."""
    if parsed.spec is None or parsed.spec.enabled or parsed.prompt.strip():
        return False
    text = FileLines.read(data)
    switches = _switches(text, parsed)
    return all(entry in switches or entry.key == "name" for entry in text.entries())


def stub(name: str) -> bytes:
    """Return the whole content of a file that switches off an agent which has no file of its own."""
    key, value = off_switch("retinue")
    return f"---\nname: {scalar(name)}\n{key}: {scalar(value)}\n---\n".encode()


def _cannot(data: bytes, parsed: Parsed) -> str:
    if parsed.spec is None:
        return f"the file is no agent: {why_none(parsed, 'it cannot be read.')}"
    text = FileLines.read(data)
    if text.bom:
        return "the file begins with a byte order mark, so other programs see no frontmatter in it"
    if text.close is None:
        return "the file has no frontmatter"
    return ""


def _candidates(parsed: Parsed) -> Iterator[tuple[str, str]]:
    # The dialect's own key comes first; the others count in every dialect because they limit.
    key, value = off_switch(parsed.dialect)
    yield key, scalar(value)
    if key != "enabled":
        yield "enabled", "false"
    if key != "disabled":
        yield "disabled", "true"


def _switches(text: FileLines, parsed: Parsed) -> list[FrontmatterKey]:
    """Return the keys of this file that say whether the agent is on."""
    table = DIALECTS[parsed.dialect]
    found = []
    for entry in text.entries():
        match = table.match(entry.key)
        if match is not None and match.field.to == "enabled":
            found.append(entry)
    return found


def _only_switched(before: Parsed, after: Parsed, *, enabled: bool) -> bool:
    # The real reader is asked before and after: an edit that changes anything else is not made.
    if before.spec is None or after.spec is None or after.spec.enabled is not enabled:
        return False
    if not set(differences(before.spec, after.spec)) <= {"enabled", "extra"}:
        return False
    return _other_extras(before) == _other_extras(after)


def _other_extras(parsed: Parsed) -> dict[str, Any]:
    """Return the unused keys, but for those that are failed attempts to switch the agent off."""
    table = DIALECTS[parsed.dialect]
    found: dict[str, Any] = {}
    if parsed.spec is not None:
        for key, value in parsed.spec.extra.items():
            match = table.match(key)
            if match is None or match.field.to != "enabled":
                found[key] = value
    return found


Action = Literal["edited", "stub-written", "stub-deleted", "unchanged"]


class Toggled(Struct, frozen=True):
    name: str
    path: Path
    action: Action

    @property
    def changed(self) -> bool:
        return self.action != "unchanged"


class Ejected(Struct, frozen=True):
    """`losses` is empty whenever the copy says all that the original said."""

    name: str
    origin: str
    path: Path
    dialect: DialectName
    losses: tuple[Loss, ...] = ()
    replaced: bool = False


def disable(name: str, cwd: Path, *, user: bool = False, plugins: Iterable[PluginFolder] = ()) -> Toggled:
    """Switch an agent off. A file of the user's is edited; a built-in agent, or a plugin's, is
    hidden by a stub in the project (or the user's folder). Raise UnknownAgentError, UsageError,
    ConfigurationError; then nothing has changed."""
    entry = Catalog.load(cwd, plugin_folders=plugins).find(name)
    _not_policy(entry)
    if not entry.enabled:
        return Toggled(entry.name, Path(entry.path), "unchanged")
    if entry.source in ("builtin", "plugin"):
        path = agents_folder("retinue", cwd, user=user) / file_name(entry.name, "retinue")
        write_new(path, stub(entry.name).decode(), force=False)
        return Toggled(entry.name, path, "stub-written")
    path = locate(entry, cwd)
    data, parsed = _read(entry, path)
    return _apply(entry, path, switch_off(data, parsed))


def enable(name: str, cwd: Path, *, plugins: Iterable[PluginFolder] = ()) -> Toggled:
    """Switch an agent on again; a stub that did nothing but hide another agent is deleted."""
    entry = Catalog.load(cwd, plugin_folders=plugins).find(name)
    _not_policy(entry)
    if entry.enabled:
        return Toggled(entry.name, Path(entry.path), "unchanged")
    path = locate(entry, cwd)
    data, parsed = _read(entry, path)
    if is_stub(data, parsed):
        delete_file(path)
        return Toggled(entry.name, path, "stub-deleted")
    return _apply(entry, path, switch_on(data, parsed))


def eject(
    name: str,
    cwd: Path,
    *,
    dialect: DialectName = "retinue",
    user: bool = False,
    force: bool = False,
    plugins: Iterable[PluginFolder] = (),
) -> Ejected:
    """Copy an agent into a file of the project or the user: verbatim where the dialect is the
    same and the copy means the same, else converted."""
    entry = Catalog.load(cwd, plugin_folders=plugins).find(name)
    path = agents_folder(dialect, cwd, user=user) / file_name(entry.name, dialect)
    if path.exists() and Path(entry.path).exists() and path.samefile(entry.path):
        raise UsageError(f"'{entry.name}' is already {path}.", remedy="Edit that file.")
    text, losses = _copy(entry, path, dialect)
    made = write_new(path, text, force=force)
    return Ejected(entry.name, entry.path, path, dialect, losses, made.replaced)


def locate(entry: LoadedAgent, cwd: Path) -> Path:
    """Return the file an agent came from; if that has gone since, the file of its name in the strongest
    folder. Raise ConfigurationError when there is none."""
    recorded = Path(entry.path)
    if recorded.is_file():
        return recorded
    for folder in find_folders(cwd):
        for suffix in folder.suffixes:
            guess = Path(folder.path) / f"{entry.name}{suffix}"
            if folder.source in ("project", "user") and guess.is_file():
                return guess
    raise ConfigurationError(f"The file of '{entry.name}' is gone: {entry.path}.", remedy="Look again.")


def _copy(entry: LoadedAgent, path: Path, dialect: DialectName) -> tuple[str, tuple[Loss, ...]]:
    data = None
    if Path(entry.path).is_file():
        data = read_bytes(entry.path)
    if isinstance(data, bytes) and entry.parsed.dialect == dialect:
        again = parse(data, path=str(path), dialect=dialect)
        if again.spec is not None and not differences(entry.spec, again.spec) and _is_text(data):
            return data.decode(), ()
    parsed = entry.parsed
    if entry.source == "builtin" and parsed.spec is not None:
        # A copy of ours in another dialect has no other time limit than before: it is written out.
        seconds = DIALECTS[parsed.dialect].limits.get("seconds")
        parsed = replace(parsed, spec=replace(parsed.spec, timeout_seconds=parsed.spec.timeout_seconds or seconds))
    made = convert(parsed, dialect)
    return made.text, made.losses


def _is_text(data: bytes) -> bool:
    try:
        return bool(data.decode())
    except UnicodeDecodeError:
        return False


def _apply(entry: LoadedAgent, path: Path, new: Switched) -> Toggled:
    if new.refused:
        remedy = f"Try: retinue agents lint --fix {path}"
        raise ConfigurationError(f"{path} was not changed: {new.refused}.", remedy=remedy)
    if not new.changed:
        return Toggled(entry.name, path, "unchanged")
    try:
        write_atomically(path, new.data)
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be written: {error.strerror or error}.") from error
    return Toggled(entry.name, path, "edited")


def _read(entry: LoadedAgent, path: Path) -> tuple[bytes, Parsed]:
    """Return the file of an agent and what it means, in the dialect in which the catalog read it."""
    data = read_bytes(str(path))
    if isinstance(data, Problem):
        raise ConfigurationError(f"{path}: {data.message}", remedy=data.remedy)
    # A file that was found instead of the recorded one may be of another dialect: it is guessed.
    dialect = entry.parsed.dialect if str(path) == entry.path else None
    return data, parse(data, path=str(path), dialect=dialect, source=entry.source)


def _not_policy(entry: LoadedAgent) -> None:
    if entry.source == "policy":
        raise UsageError(
            f"'{entry.name}' is set by policy ({entry.path}).", remedy="Only its administrator can switch it."
        )


TURNS = 5
"""How many turns the writing agent gets."""


class WrittenAgent(Struct, frozen=True):
    """What was found in the file. `problem` says why it is no agent of that name; then the file,
    if there is one, stays for the person to look at."""

    path: Path
    problem: str = ""
    findings: tuple[Finding, ...] = ()


def brief(name: str, description: str, path: Path, tools: Iterable[str]) -> str:
    """Return the task for the writing agent: every field there is, and the one file it may write."""
    text = (Path(retinue.builtin.__file__).parent / "prompts" / "new-agent.md").read_text(encoding="utf-8")
    values = {
        "path": str(path),
        "name": name,
        "description": "\n".join(f"> {line}" for line in description.strip().splitlines()),
        "fields": fields(),
        "tools": ", ".join(f"`{tool}`" for tool in tools),
        "turns": str(TURNS),
    }
    head, *pieces = text.strip().split("{")
    filled = [head]
    # One pass: what a person wrote is never looked at for marks.
    for piece in pieces:
        key, _, rest = piece.partition("}")
        filled.append(values[key] + rest)
    return "".join(filled)


def fields() -> str:
    """Return every key of Retinue's own files, one a line, from the table that reads them."""
    lines = []
    for row in DIALECTS["retinue"].fields:
        note = f" ({row.note})" if row.note else ""
        lines.append(f"- `{row.key}`: {row.type}{note}")
    return "\n".join(lines)


def look(path: Path, name: str) -> WrittenAgent:
    """Return whether `path` is an agent called `name` now."""
    if not path.is_file():
        return WrittenAgent(path, f"{path} was not written.")
    parsed = parse_file(path, dialect="retinue", source="project")
    if parsed.spec is None:
        return WrittenAgent(path, f"{path} is no agent: {why_none(parsed, 'it cannot be read.')}")
    findings = tuple(lint_paths([path]).findings)
    if parsed.spec.name != name:
        return WrittenAgent(path, f"{path} calls itself '{parsed.spec.name}', not '{name}'.", findings)
    return WrittenAgent(path, findings=findings)
