"""The catalog: all agents visible from a folder, by precedence.

Loading again is cheap and sees every change. Agents of `--agents JSON`, in Claude Code's fields, are
read here.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from retinue.agents.cache import FileCache, FolderContents
from retinue.agents.dialects.tables import DIALECTS
from retinue.agents.folders import BUILTIN_FOLDERS, FALLBACK, Folder, PluginFolder, builtins_disabled, find_folders
from retinue.agents.frontmatter import Frontmatter, Parsed, Split, place_of
from retinue.agents.parse import file_name, finish, unusable
from retinue.agents.precedence import FailedFile, LoadedAgent, is_profile, may_mean, resolve
from retinue.agents.yaml_items import Item, too_deep
from retinue.core.delegation import Vocabulary
from retinue.core.spec import AgentSpec, Problem
from retinue.errors import DefinitionError, UnknownAgentError, UsageError
from retinue.settings.table import Settings

FLAG = "--agents"
_SHAPE = 'It is an object such as {"reviewer": {"description": "…", "prompt": "…"}}.'


def read_flag(text: str) -> FolderContents:
    """Return the agents of the option. Raise UsageError when it is not an object at all, or one of them cannot be
    loaded: a file of the same name could be wider than what was meant."""
    try:
        data = json.loads(text, object_pairs_hook=_without_repeats)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"The value of {FLAG} is not valid JSON: {error}.", remedy=_SHAPE) from None
    if not isinstance(data, dict) or too_deep(data):
        raise UsageError(f"The value of {FLAG} is not a JSON object.", remedy=_SHAPE)
    files = tuple(_agent(name, fields) for name, fields in data.items())
    for parsed in files:
        if parsed.error is not None:
            name = parsed.file.partition("#")[2]
            message = f"The agent '{name}' of {FLAG} cannot be loaded: {parsed.error.message}"
            raise UsageError(message, remedy=parsed.error.remedy or _SHAPE)
    return FolderContents(Folder(FLAG, "flag", "claude"), files)


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Raise ValueError for a key that stands twice: the one that JSON drops could be the narrower."""
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"{key!r} stands twice in one object")
        found[key] = value
    return found


def _agent(name: str, fields: Any) -> Parsed:
    path = f"{FLAG}#{name}"
    if not isinstance(fields, dict):
        return unusable(path, Problem("bad-value", "error", f"The agent '{name}' is not an object.", _SHAPE), "claude")
    prompt = fields.get("prompt")
    if prompt is not None and not isinstance(prompt, str):
        return unusable(path, Problem("bad-value", "error", f"The prompt of '{name}' is not text.", _SHAPE), "claude")
    given = {"name": name} | fields | {"name": name}
    given.pop("prompt", None)
    items = tuple(Item(key, value, 0, 0, 0) for key, value in given.items())
    parts = Split("", (prompt or "").strip())
    parsed = finish(DIALECTS["claude"], parts, Frontmatter(items, "yaml"), path, "flag")
    if parsed.spec is None or parts.body:
        return parsed
    mute = Problem("empty-body", "warning", "It has no prompt.", 'Say in "prompt" what the agent shall do.')
    spec = replace(parsed.spec, problems=(*parsed.spec.problems, mute))
    return replace(parsed, spec=spec, problems=(*parsed.problems, mute))


_FILES = FileCache()


class Catalog(Struct, frozen=True):
    """`entries` hold everything that loaded, replaced and disabled agents included; `failed`
    everything that did not."""

    entries: tuple[LoadedAgent, ...]
    failed: tuple[FailedFile, ...]

    @classmethod
    def load(
        cls,
        cwd: Path,
        *,
        agents_json: str | None = None,
        plugin_folders: Iterable[PluginFolder] = (),
        policy_folders: Iterable[Path | str] = (),
        environment: Mapping[str, str] | None = None,
        builtins: bool = True,
        settings: Settings | None = None,
        cache: FileCache | None = None,
    ) -> Catalog:
        """Raise UsageError for an `agents_json` that is no object; a bad file never raises.
        `settings` are those seen from `cwd`; without them they are read."""
        files = _FILES if cache is None else cache
        folders = find_folders(
            cwd, environment=environment, policy_folders=policy_folders, plugin_folders=plugin_folders
        )
        if builtins and not builtins_disabled(cwd, environment, settings):
            folders.extend(BUILTIN_FOLDERS)
        readings = [files.read(folder) for folder in folders]
        if agents_json is not None:
            strongest = sum(folder.source == "policy" for folder in folders)
            readings.insert(strongest, read_flag(agents_json))
        return cls.of(readings)

    @classmethod
    def of(cls, readings: Iterable[FolderContents]) -> Catalog:
        return _resolve_once(tuple(readings))

    @property
    def winners(self) -> tuple[LoadedAgent, ...]:
        """One entry per name: the one that counts, enabled or not."""
        return tuple(entry for entry in self.entries if entry.shadowed_by is None)

    @property
    def agents(self) -> tuple[LoadedAgent, ...]:
        """What can be started: the winners that are enabled and whose restrictions could be read.
        Only these may be advertised."""
        return tuple(entry for entry in self.winners if entry.startable)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(entry.name for entry in self.agents)

    def offered(self, vocabulary: Vocabulary) -> tuple[LoadedAgent, ...]:
        """Return what the delegation tools of `vocabulary` list: of a profile of CodingCode and the other
        built-in agent of that name, each vocabulary has one. Without those that are for people only."""
        delegable = [entry for entry in self.agents if entry.spec.offered]
        profiles = set()
        if vocabulary == "codingcode":
            profiles = {entry.name.casefold() for entry in delegable if is_profile(entry)}
        found = []
        for entry in delegable:
            if is_profile(entry):
                listed = vocabulary == "codingcode"
            else:
                listed = entry.source != "builtin" or entry.name.casefold() not in profiles
            if listed:
                found.append(entry)
        return tuple(found)

    def find(self, name: str, vocabulary: Vocabulary | None = None) -> LoadedAgent:
        """By exact name, then by `plugin:name`, by the file's name as pi has it, and by the only
        name that differs in case.
        A disabled or refused agent is found: check `startable` before starting it. CodingCode's own
        profiles are found in its vocabulary, and elsewhere as `codingcode:explore`."""
        with_profiles = vocabulary == "codingcode"
        for entry in self.entries:
            if entry.name == name and entry.shadowed_by is None and (with_profiles or not is_profile(entry)):
                return entry
        winners = [entry for entry in self.winners if with_profiles or not is_profile(entry)]
        for entry in self.entries:
            if entry.qualified_name == name and entry.qualified_name != entry.name:
                return entry
        for entry in winners:
            if entry.dialect == "pi" and file_name(entry.path, (".md",)) == name:
                return entry
        folded = name.casefold()
        alike = [entry for entry in winners if entry.name.casefold() == folded]
        if len(alike) == 1:
            return alike[0]
        if alike:
            names = ", ".join(sorted(entry.name for entry in alike))
            raise UnknownAgentError(
                f"'{name}' could be any of {names}.", remedy="Write the name with its capital letters."
            )
        known = [entry.name for entry in self.agents if with_profiles or not is_profile(entry)]
        listed = f"Available agents: {', '.join(sorted(known)) or 'none'}."
        why = self.why_broken(name)
        if why is None:
            from retinue.agents.lint.keys import nearest

            meant = nearest(name, known)
            hint = f" Did you mean '{meant}'?" if meant else ""
            raise UnknownAgentError(f"There is no agent '{name}'.{hint}", remedy=listed)
        raise UnknownAgentError(f"There is no agent '{name}'. Its file could not be loaded: {why}", remedy=listed)

    def why_broken(self, name: str) -> str | None:
        """Return where and why the file of an agent could not be loaded, and what to do; None where no file
        that failed may have been meant by `name`."""
        for broken in self.failed:
            if may_mean(broken, name):
                return f"{place_of(broken.path, broken.problem)}: {broken.reason} {broken.problem.remedy}".rstrip()
        return None

    def general_purpose(self) -> AgentSpec:
        """Return the agent to fall back to. There is one even where all built-in agents are off."""
        for entry in self.agents:
            if entry.name == FALLBACK.name:
                return entry.spec
        return FALLBACK

    def newly_failed(self, before: Catalog | None) -> tuple[FailedFile, ...]:
        """Return what to warn about: failures that `before`, the previous load, did not have."""
        known = set()
        if before is not None:
            known = {(each.path, each.reason) for each in before.failed}
        found = []
        for each in self.failed:
            if each.problem.severity == "error" and (each.path, each.reason) not in known:
                found.append(each)
        return tuple(found)

    def require_readable(self) -> None:
        """Raise DefinitionError for the first file that cannot be loaded (strictAgentFiles)."""
        for each in self.newly_failed(None):
            raise DefinitionError(
                f"{place_of(each.path, each.problem)}: {each.reason}",
                remedy=f"{each.problem.remedy} strictAgentFiles is on: nothing starts before the file is corrected.",
            )


_LAST: dict[str, tuple[tuple[FolderContents, ...], Catalog]] = {}
_MAX_LAST = 64


def _resolve_once(readings: tuple[FolderContents, ...]) -> Catalog:
    """Return the catalog of `readings`; the one made before, when they are the very same objects."""
    # A parent asks for its catalog before each launch; folders that did not change return the same objects.
    key = os.pathsep.join([reading.folder.path for reading in readings])
    last = _LAST.get(key)
    if last is not None and [id(each) for each in last[0]] == [id(each) for each in readings]:
        return last[1]
    catalog = Catalog(*resolve(readings))
    if len(_LAST) >= _MAX_LAST:
        _LAST.clear()
    _LAST[key] = (readings, catalog)
    return catalog


__all__ = ["Catalog", "FailedFile", "FileCache", "Folder", "LoadedAgent"]


def main_agent() -> AgentSpec:
    """Return the agent a person talks to when they name none."""
    from retinue.agents.parse import parse_file

    path = Path(__file__).parent.parent / "builtin" / "prompts" / "main.md"
    spec = parse_file(path, dialect="retinue", source="builtin").spec
    if spec is None:
        raise RuntimeError(f"{path} does not load")
    return replace(spec, path=None)
