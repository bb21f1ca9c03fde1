"""Changes to the files of agents by name: create, delete, switch off and on, copy to edit, have one written.

A new file has a safe name and the right place, and overwrites nothing by accident. Only files of the
person or the project are deleted, and only the one that was meant.

Switching off adds one key; switching on takes it away, and the file is what it was, byte for byte.
Whether a file is off is asked of the real reader before and after, never of a pattern, and an edit that
would change anything else is not made. `brief` is the task of an agent that writes an agent, and `look`
checks what it wrote.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct, field
from msgspec.structs import replace

import retinue.builtin
from retinue.agents.catalog import Catalog, LoadedAgent, shadows
from retinue.agents.convert import Loss, convert, differences, reread, why_none
from retinue.agents.dialects.tables import DIALECTS, in_dialect
from retinue.agents.dialects.tools import split_names
from retinue.agents.edit import FileLines, bare, write_atomically
from retinue.agents.folders import USER_HOMES, WRITABLE, WRITTEN_FOLDERS, PluginFolder, find_folders, levels
from retinue.agents.frontmatter import Parsed
from retinue.agents.lint.runner import lint_paths
from retinue.agents.lint.subject import Finding
from retinue.agents.parse import parse, parse_file, read_bytes
from retinue.agents.write import check_name, file_name, off_switch, scalar
from retinue.agents.yaml_reader import Item
from retinue.core.spec import AgentSpec, DialectName, ModelPolicy, Problem, ToolPolicy
from retinue.errors import ConfigurationError, UnknownAgentError, UsageError
from retinue.settings.places import home, pi_home, repository_root, retinue_home


def agents_folder(dialect: DialectName, cwd: Path, *, user: bool) -> Path:
    """Return where that dialect keeps agents: of the user, or of the project `cwd` belongs to. The
    nearest folder upward that exists wins; without one it is made at the repository's root, or
    in `cwd` outside a repository."""
    if dialect not in WRITABLE:
        raise UsageError(f"There is no folder for {dialect} agents.", remedy=f"Choose one of: {', '.join(WRITABLE)}.")
    own = _user_folder(dialect)
    if user:
        if own is None:
            raise UsageError(
                f"{DIALECTS[dialect].title} has no user folder for agents.",
                remedy="Leave out --user, or choose another --dialect.",
            )
        return own
    below = WRITTEN_FOLDERS[dialect]
    root = repository_root(cwd)
    for folder in levels(cwd) if root else (cwd,):
        if (folder / below).is_dir() and folder / below != own:
            return folder / below
    return (root or cwd) / below


def _user_folder(dialect: DialectName) -> Path | None:
    # Retinue's and pi's folders can be moved by a variable, so the table does not know them.
    if dialect == "retinue":
        return retinue_home() / "agents"
    if dialect in ("pi", "devkit"):
        return pi_home() / "agents"
    return next((home() / folder.below for folder in USER_HOMES if folder.dialect == dialect), None)


def write_new(path: Path, text: str, *, force: bool) -> bool:
    """Write a file, and return whether it replaced one. Raise UsageError if it exists and `force` is not set. A
    symbolic link is followed only when forced."""
    existed = path.exists() or path.is_symlink()
    exists = UsageError(f"{path} exists.", remedy="Use --force to replace it, or choose another name.")
    if existed and not force:
        raise exists
    try:
        write_atomically(path, text.encode("utf-8", "replace"), exclusive=not force)
    except FileExistsError:
        raise exists from None
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror or error}.", remedy="Check the folder.") from error
    return existed


OWN_SOURCES = ("project", "user")
"""Sources whose files are the person's to change."""


class Removed(Struct, frozen=True):
    """`instead` is the agent of that name that is loaded now, if there is one."""

    name: str
    paths: tuple[Path, ...]
    instead: LoadedAgent | None = None


def own_files(catalog: Catalog, entry: LoadedAgent) -> tuple[Path, ...]:
    """Return the files that replace a built-in agent of that name, strongest first: the files that a reset deletes.
    Empty if no built-in agent is replaced, or one by a file that is not the person's."""
    paths: list[Path] = []
    for candidate in (entry, *shadows(catalog.entries, entry)):
        if candidate.source == "builtin":
            return tuple(paths)
        if candidate.source not in OWN_SOURCES:
            break
        paths.append(Path(candidate.path))
    return ()


def remove(name: str, cwd: Path, path: Path) -> Removed:
    """Delete `path`, from which the agent `name` is loaded. UsageError for an agent that has no
    file of the person's; ConfigurationError when it is loaded from elsewhere by now, or the file
    cannot be deleted."""
    entry = Catalog.load(cwd).find(name)
    if entry.source not in OWN_SOURCES:
        raise UsageError(
            f"'{entry.name}' is not yours to delete: it comes from {_origin(entry)}.",
            remedy="Disable it instead, or eject it to have a file of your own.",
        )
    if Path(entry.path) != path:
        raise ConfigurationError(
            f"'{entry.name}' is loaded from {entry.path} by now, not from {path}.", remedy="Look again."
        )
    delete_file(path)
    return Removed(entry.name, (path,), _winner(cwd, entry.name))


def reset(name: str, cwd: Path, paths: tuple[Path, ...]) -> Removed:
    """Delete `paths`, the result of `own_files`, so that the built-in agent is loaded again. Raise as `remove`; nothing
    is deleted if the files have changed meanwhile."""
    catalog = Catalog.load(cwd)
    entry = catalog.find(name)
    if not paths or own_files(catalog, entry) != paths:
        raise ConfigurationError(f"The files of '{entry.name}' have changed.", remedy="Look again.")
    for path in paths:
        delete_file(path)
    return Removed(entry.name, paths, _winner(cwd, entry.name))


def _winner(cwd: Path, name: str) -> LoadedAgent | None:
    try:
        return Catalog.load(cwd).find(name)
    except UnknownAgentError:
        return None


def _origin(entry: LoadedAgent) -> str:
    if entry.source == "builtin":
        return "the package"
    return f"{entry.source} ({entry.path})"


def delete_file(path: Path) -> None:
    """Delete a file. Raise ConfigurationError where that is not possible."""
    try:
        path.unlink()
    except OSError as error:
        raise ConfigurationError(
            f"{path} cannot be deleted: {error.strerror or error}.", remedy="Check the folder."
        ) from error


READ_ONLY_TOOLS = ("read", "grep", "find", "ls")
_OPEN = frozenset({"", "inherit", "default"})


class AgentDraft(Struct, frozen=True, kw_only=True):
    """`tools` are names, or `all`, `none`, `read-only`; what is empty or `inherit` is left open
    and not written into the file."""

    name: str
    description: str
    tools: str = ""
    model: str = ""
    thinking: str = ""
    prompt: str = ""
    readonly: bool = False
    dialect: DialectName = "retinue"


def spec_of(draft: AgentDraft) -> AgentSpec:
    """Raise UsageError for a name that cannot be one and for an empty description."""
    name = check_name(draft.name)
    description = draft.description.strip()
    if not description:
        raise UsageError("The description is empty.", remedy="Say in a sentence when to use the agent.")
    return AgentSpec(
        name=name,
        description=description,
        prompt=draft.prompt.strip() or starter(name, description),
        tools=ToolPolicy(allow=_draft_tools(draft.tools, draft.dialect, draft.readonly)),
        model=ModelPolicy(name=_read_choice(draft.model), thinking=_read_choice(draft.thinking)),
        readonly=True if draft.readonly else None,
        dialect=draft.dialect,
    )


def starter(name: str, description: str) -> str:
    """Instructions that do, until someone writes better ones."""
    return (
        f"You are {name}. {description}\n\n"
        "Do what the task says and nothing beside it. "
        "If something is unclear, choose the simplest reading and say so.\n\n"
        "Report the result first, then what you did with `path:line`, then what is uncertain."
    )


def _draft_tools(text: str, dialect: DialectName, readonly: bool) -> tuple[str, ...] | None:
    words = split_names(text) or (READ_ONLY_TOOLS if readonly else ())
    folded = [word.lower() for word in words]
    if not words or folded in (["all"], ["*"], ["inherit"]):
        return None
    if folded == ["none"]:
        return ()
    tools: dict[str, None] = {}
    for word in words:
        for name in READ_ONLY_TOOLS if word.lower() in ("read-only", "readonly") else (word,):
            tools |= dict.fromkeys(in_dialect(name, dialect))
    return tuple(tools)


def _read_choice(value: str) -> str | None:
    return None if value.strip() in _OPEN else value.strip()


REPLACED_LINE = "# retinue-was: "
"""Marks a line that an inserted key replaces, so that switching on can bring it back."""


class CannotSwitchError(Exception):
    """A file that cannot be switched; completes "the file was not changed: …"."""


def switch_off(data: bytes, parsed: Parsed) -> bytes:
    """Return the content of a file with its agent switched off. `parsed` is the meaning of `data`."""
    spec = _require_switchable(data, parsed)
    if not spec.enabled:
        return data
    text = FileLines.read(data)
    for entry in reversed(_switches(text, parsed)):
        old = tuple(REPLACED_LINE + bare(line) for line in text.lines[entry.line - 1 : entry.end_line])
        text = text.replace_lines(entry.line, entry.end_line, old)
    for key, value in _candidates(parsed).items():
        new = text.replace_lines(2, 1, (f"{key}: {value}",)).encode()
        if _only_switched(parsed, reread(parsed, new), enabled=False):
            return new
    raise CannotSwitchError("its frontmatter is not one 'key: value' a line, so no key can be added safely")


def switch_on(data: bytes, parsed: Parsed) -> bytes:
    """Return the content of a file with its agent switched on."""
    spec = _require_switchable(data, parsed)
    if spec.enabled:
        return data
    text = FileLines.read(data)
    for entry in reversed(_switches(text, parsed)):
        text = text.remove(entry)
    # The lines that switching off had set aside are in force again.
    for number, line in enumerate(text.lines[: text.close], 1):
        if line.startswith(REPLACED_LINE):
            text = text.replace_lines(number, number, (bare(line)[len(REPLACED_LINE) :],))
    new = text.encode()
    if not _only_switched(parsed, reread(parsed, new), enabled=True):
        raise CannotSwitchError("the key that switches it off cannot be removed without changing something else")
    return new


def is_stub(data: bytes, parsed: Parsed) -> bool:
    """Return whether a file does nothing but switch an agent of this name off."""
    if parsed.spec is None or parsed.spec.enabled or parsed.prompt.strip():
        return False
    text = FileLines.read(data)
    switches = _switches(text, parsed)
    return all(entry in switches or entry.key == "name" for entry in text.entries())


def stub(name: str) -> bytes:
    """Return the whole content of a file that switches off an agent which has no file of its own."""
    key, value = off_switch("retinue")
    return f"---\nname: {scalar(name)}\n{key}: {scalar(value)}\n---\n".encode()


def _require_switchable(data: bytes, parsed: Parsed) -> AgentSpec:
    if parsed.spec is None:
        raise CannotSwitchError(f"the file is no agent: {why_none(parsed, 'it cannot be read.')}")
    text = FileLines.read(data)
    if text.bom:
        raise CannotSwitchError("the file begins with a byte order mark, so other programs see no frontmatter in it")
    if text.close is None:
        raise CannotSwitchError("the file has no frontmatter")
    return parsed.spec


def _candidates(parsed: Parsed) -> dict[str, str]:
    # The dialect's own key comes first; the others are honoured in every dialect because they limit.
    key, value = off_switch(parsed.dialect)
    return {key: scalar(value)} | {"enabled": "false", "disabled": "true"} | {key: scalar(value)}


def _is_switch(key: str, parsed: Parsed) -> bool:
    match = DIALECTS[parsed.dialect].match(key)
    return match is not None and match.field.to == "enabled"


def _switches(text: FileLines, parsed: Parsed) -> list[Item]:
    """Return the keys of this file that switch the agent on or off."""
    return [entry for entry in text.entries() if _is_switch(entry.key, parsed)]


def _only_switched(before: Parsed, after: Parsed, *, enabled: bool) -> bool:
    # The real reader is asked before and after: an edit that changes anything else is not made.
    if before.spec is None or after.spec is None or after.spec.enabled is not enabled:
        return False
    if not set(differences(before.spec, after.spec)) <= {"enabled", "extra"}:
        return False
    return _other_extras(before, before.spec) == _other_extras(after, after.spec)


def _other_extras(parsed: Parsed, spec: AgentSpec) -> dict[str, Any]:
    """Return the unused keys, but for those that are failed attempts to switch the agent off."""
    return {key: value for key, value in spec.extra.items() if not _is_switch(key, parsed)}


Action = Literal["edited", "stub-written", "stub-deleted", "unchanged"]
_UNCHANGED: Action = "unchanged"


class SwitchedAgent(Struct, frozen=True):
    """An agent that was switched on or off, and how."""

    name: str
    path: str
    enabled: bool
    changed: bool
    action: Action


class EjectedAgent(Struct, frozen=True, kw_only=True):
    """A copy that was written. `losses` is empty if it means the same as the original. `effective` is whether the agent
    is loaded from it, and not from a stronger file."""

    name: str
    origin: str = field(name="from")
    path: str
    dialect: DialectName
    losses: tuple[Loss, ...]
    replaced: bool
    effective: bool


def disable(name: str, cwd: Path, *, user: bool = False, plugins: Iterable[PluginFolder] = ()) -> SwitchedAgent:
    """Switch an agent off. A file of the person is edited. A built-in agent, or one of a plugin, is hidden by a stub in
    the project or the user's folder. Raise UnknownAgentError, UsageError or ConfigurationError; then nothing has
    changed."""
    entry = Catalog.load(cwd, plugin_folders=plugins).find(name)
    _require_own(entry)
    path, action = Path(entry.path), _UNCHANGED
    if entry.enabled and entry.source in ("builtin", "plugin"):
        path = agents_folder("retinue", cwd, user=user) / file_name(entry.name, "retinue")
        write_new(path, stub(entry.name).decode(), force=False)
        action = "stub-written"
    elif entry.enabled:
        path = locate(entry, cwd)
        action = _apply(path, switch_off, *_read(entry, path))
    return SwitchedAgent(entry.name, str(path), False, action != _UNCHANGED, action)


def enable(name: str, cwd: Path, *, plugins: Iterable[PluginFolder] = ()) -> SwitchedAgent:
    """Switch an agent on again. A stub that only hid another agent is deleted."""
    entry = Catalog.load(cwd, plugin_folders=plugins).find(name)
    _require_own(entry)
    path, action = Path(entry.path), _UNCHANGED
    if not entry.enabled:
        path = locate(entry, cwd)
        data, parsed = _read(entry, path)
        if is_stub(data, parsed):
            delete_file(path)
            action = "stub-deleted"
        else:
            action = _apply(path, switch_on, data, parsed)
    return SwitchedAgent(entry.name, str(path), True, action != _UNCHANGED, action)


def eject(
    name: str,
    cwd: Path,
    *,
    dialect: DialectName = "retinue",
    user: bool = False,
    force: bool = False,
    plugins: Sequence[PluginFolder] = (),
) -> EjectedAgent:
    """Copy an agent into a file of the project or the user: unchanged if the copy means the same in this dialect, else
    converted."""
    entry = Catalog.load(cwd, plugin_folders=plugins).find(name)
    path = agents_folder(dialect, cwd, user=user) / file_name(entry.name, dialect)
    if path.exists() and Path(entry.path).exists() and path.samefile(entry.path):
        raise UsageError(f"'{entry.name}' is already {path}.", remedy="Edit that file.")
    text, losses = _copy(entry, path, dialect)
    replaced = write_new(path, text, force=force)
    winner = Catalog.load(cwd, plugin_folders=plugins).find(entry.name)
    return EjectedAgent(
        name=entry.name,
        origin=entry.path,
        path=str(path),
        dialect=dialect,
        losses=losses,
        replaced=replaced,
        effective=winner.path == str(path),
    )


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
    data = read_bytes(entry.path) if Path(entry.path).is_file() else None
    if isinstance(data, bytes) and entry.dialect == dialect:
        copy = parse(data, path=str(path), dialect=dialect)
        if copy.spec is not None and not differences(entry.spec, copy.spec):
            with suppress(UnicodeDecodeError):
                return data.decode(), ()
    parsed = entry.parsed
    if entry.source == "builtin" and parsed.spec is not None:
        # A copy of ours in another dialect has no other time limit than before: it is written out.
        seconds = DIALECTS[parsed.dialect].limits.get("seconds")
        parsed = replace(parsed, spec=replace(parsed.spec, timeout_seconds=parsed.spec.timeout_seconds or seconds))
    conversion = convert(parsed, dialect)
    return conversion.text, conversion.losses


def _apply(path: Path, switch: Callable[[bytes, Parsed], bytes], data: bytes, parsed: Parsed) -> Action:
    try:
        new = switch(data, parsed)
        if new == data:
            return _UNCHANGED
        write_atomically(path, new)
    except CannotSwitchError as error:
        remedy = f"Try: retinue agents lint --fix {path}"
        raise ConfigurationError(f"{path} was not changed: {error}.", remedy=remedy) from None
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be written: {error.strerror or error}.") from error
    return "edited"


def _read(entry: LoadedAgent, path: Path) -> tuple[bytes, Parsed]:
    """Return the file of an agent and what it means, in the dialect in which the catalog read it."""
    data = read_bytes(str(path))
    if isinstance(data, Problem):
        raise ConfigurationError(f"{path}: {data.message}", remedy=data.remedy)
    # A file in the place of the recorded one may be of another dialect: it is guessed.
    dialect = entry.parsed.dialect if str(path) == entry.path else None
    return data, parse(data, path=str(path), dialect=dialect, source=entry.source)


def _require_own(entry: LoadedAgent) -> None:
    if entry.source == "policy":
        raise UsageError(
            f"'{entry.name}' is set by policy ({entry.path}).", remedy="Only its administrator can switch it."
        )


WRITER_TURNS = 5
"""How many turns the writing agent gets."""


class WrittenAgent(Struct, frozen=True):
    """The file of a new agent. `problem` is the reason why it is no agent of that name; then the file, if there is one,
    stays for the person to look at."""

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
        "turns": str(WRITER_TURNS),
    }
    # One pass: what a person wrote is never looked at for marks.
    return re.sub(r"\{([^}]*)\}", lambda mark: values[mark[1]], text.strip())


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
