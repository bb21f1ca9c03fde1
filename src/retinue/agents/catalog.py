"""All agents visible from a folder, and which of several with one name is loaded.

The agent in the strongest place is loaded. Within one folder, or one tree that is read as one, the file that comes
last by path wins, as the dialects have it. A file that loses stays visible with the path of the one that won.

Loading again is cheap and sees every change. Agents of `--agents JSON`, in the fields of Claude Code, are read here as
well. A run reports each error and warning of its own file once (`file_notes`), with file, line, reason and remedy;
`lint` reports the same and more, for all files.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from retinue.agents.dialects.tables import DIALECTS
from retinue.agents.folders import (
    BUILTIN_FOLDERS,
    FALLBACK_AGENT,
    Folder,
    PluginFolder,
    builtins_disabled,
    find_folders,
)
from retinue.agents.frontmatter import Frontmatter, Parsed, Split, place_of
from retinue.agents.parse import (
    FileCache,
    FolderContents,
    file_stem,
    finish,
    parse,
    parse_file,
    read_bytes,
    seal,
    unusable,
)
from retinue.agents.yaml_reader import Item, too_deep
from retinue.core.delegation import Vocabulary
from retinue.core.spec import AgentSpec, DialectName, Problem, Source
from retinue.core.spelling import nearest
from retinue.core.tool_names import STARTING_TOOLS, canonical, split_entry
from retinue.errors import DefinitionError, RefusedAgentError, UnknownAgentError, UsageError
from retinue.settings.table import Settings

RECOVERED = "lines"
"""The reading of a frontmatter that is not YAML and was understood line by line."""


class LoadedAgent(Struct, eq=False):
    """One agent that loaded. `shadowed_by` is the path of the file that replaced it;
    `duplicate_of` the same, where both lie in one folder and neither place is stronger."""

    file: Parsed
    unsealed: AgentSpec
    """The spec of the file, which gets its hash when someone asks for `spec` or `parsed`."""
    source: Source
    plugin: str | None = None
    shadowed_by: str | None = None
    duplicate_of: str | None = None
    recovered_under: str | None = None
    """The weaker file that is loaded instead, because this one was only read line by line."""

    @property
    def parsed(self) -> Parsed:
        seal(self.unsealed)
        return self.file

    @property
    def spec(self) -> AgentSpec:
        return seal(self.unsealed)

    @property
    def name(self) -> str:
        return self.unsealed.name

    @property
    def path(self) -> str:
        return self.file.file

    @property
    def dialect(self) -> DialectName:
        return self.unsealed.dialect

    @property
    def enabled(self) -> bool:
        return self.unsealed.enabled

    @property
    def startable(self) -> bool:
        """Enabled, and every key that restricts it could be read."""
        return self.unsealed.enabled and self.unsealed.refusal is None

    @property
    def reading(self) -> str:
        return self.file.reading

    @property
    def problems(self) -> tuple[Problem, ...]:
        if self.duplicate_of is None:
            return self.file.problems
        text = f"Another file of this folder is also called '{self.name}': {self.duplicate_of}. That one counts."
        problem = Problem("duplicate-name", "warning", text, "Rename or remove one of them.", "name")
        return (*self.file.problems, problem)

    @property
    def qualified_name(self) -> str:
        if is_profile(self):
            return f"codingcode:{self.name}"
        if self.plugin:
            return f"{self.plugin}:{self.name}"
        return self.name


def is_profile(entry: LoadedAgent) -> bool:
    """Return whether it is one of CodingCode's built-in profiles, `explore` and `plan`: called as other
    built-in agents but for case, they are for `dispatch_agent`."""
    return entry.source == "builtin" and entry.unsealed.dialect == "codingcode"


class FailedFile(Struct, frozen=True):
    """A file that is no agent, and why. An `info` problem is documentation, not a mistake."""

    path: str
    problem: Problem
    parsed: Parsed
    instead: str | None = None
    """The path from which its name now loads, if the broken file would have replaced it."""

    @property
    def reason(self) -> str:
        if self.instead is None:
            return self.problem.message
        return f"{self.problem.message} '{claimed_name(self.parsed)}' is loaded from {self.instead} instead."

    @property
    def line(self) -> int | None:
        return self.problem.line


def resolve(folders: Sequence[FolderContents]) -> tuple[tuple[LoadedAgent, ...], tuple[FailedFile, ...]]:
    """`folders` come strongest first. Entries keep that order, winners and losers mixed."""
    winners: dict[str, tuple[LoadedAgent, FolderContents]] = {}
    entries: list[LoadedAgent] = []
    broken: list[tuple[int, Parsed]] = []
    profiles = _profile_paths(folders)
    for contents in folders:
        folder = contents.folder
        for parsed in reversed(contents.files):
            spec = parsed.spec
            if spec is None:
                broken.append((len(entries), parsed))
                continue
            entry = LoadedAgent(parsed, spec, folder.source, _scope(folder, parsed.file))
            winner, home = winners.get(spec.name, (None, None))
            # A file whose frontmatter no YAML reader takes never hides one that is sound.
            if winner is not None and winner.reading == RECOVERED and parsed.reading != RECOVERED:
                winner.recovered_under = parsed.file
                for loser in (winner, *shadows(entries, winner)):
                    loser.shadowed_by = parsed.file
                winner = None
            # CodingCode ignores a user's file with the name of one of its own profiles, but not a project's.
            if folder.home == "codingcode" and folder.source == "user":
                entry.shadowed_by = profiles.get(spec.name.casefold())
            if winner is None and entry.shadowed_by is None:
                winners[spec.name] = (entry, contents)
            elif winner is not None and entry.shadowed_by is None:
                entry.shadowed_by = winner.path
                entry.duplicate_of = winner.path if home is contents else None
            entries.append(entry)
    order = {entry.path: index for index, entry in enumerate(entries)}
    failed = []
    for index, parsed in broken:
        problem = parsed.error or Problem("unreadable", "error", "The file could not be read.")
        winner, _ = winners.get(claimed_name(parsed) or "", (None, None))
        # Only a broken file that is stronger than the winner has lost its name to it. One that is disabled is not
        # loaded instead: there is no agent of this name then.
        instead = None
        if problem.severity == "error" and winner is not None and winner.startable and order[winner.path] >= index:
            instead = winner.path
        failed.append(FailedFile(parsed.file, problem, parsed, instead))
    return tuple(entries), tuple(failed)


def _profile_paths(folders: Sequence[FolderContents]) -> dict[str, str]:
    """Return the names of CodingCode's built-in profiles, in lower case, with their files."""
    paths = {}
    for contents in folders:
        if contents.folder.source == "builtin" and contents.folder.home == "codingcode":
            for parsed in contents.files:
                if parsed.spec is not None:
                    paths[parsed.spec.name.casefold()] = parsed.file
    return paths


def _scope(folder: Folder, path: str) -> str | None:
    """Return `plugin` or `plugin:sub:folders`, under which a plugin's agent can be asked for as well."""
    if folder.plugin is None:
        return None
    below = path[len(folder.path) :].replace("\\", "/").strip("/").split("/")[:-1]
    return ":".join([folder.plugin, *below])


def claimed_name(parsed: Parsed) -> str | None:
    """Return the name that a broken file has, or would have by the name of the file; None for documentation."""
    if parsed.name is not None:
        return parsed.name
    is_mistake = parsed.error is None or parsed.error.severity != "info"
    if is_mistake or (parsed.reading == "none" and DIALECTS[parsed.dialect].name_rule == "file"):
        return parsed.file.partition("#")[2] or file_stem(parsed.file, (".agent.md", ".md", ".markdown"))
    return None


def shadows(entries: Iterable[LoadedAgent], winner: LoadedAgent) -> list[LoadedAgent]:
    """Return what `winner` replaced, strongest first."""
    return [entry for entry in entries if entry.shadowed_by == winner.path and entry.name == winner.name]


AGENTS_OPTION = "--agents"
_OPTION_REMEDY = 'It is an object such as {"reviewer": {"description": "…", "prompt": "…"}}.'


def read_flag(text: str) -> FolderContents:
    """Return the agents of the option. Raise UsageError when it is not an object at all, or one of them cannot be
    loaded: a file of the same name could be wider than what was meant."""
    try:
        data = json.loads(text, object_pairs_hook=_without_repeats)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"The value of {AGENTS_OPTION} is not valid JSON: {error}.", remedy=_OPTION_REMEDY) from None
    if not isinstance(data, dict) or too_deep(data):
        raise UsageError(f"The value of {AGENTS_OPTION} is not a JSON object.", remedy=_OPTION_REMEDY)
    files = tuple(_agent(name, fields) for name, fields in data.items())
    for parsed in files:
        if parsed.error is not None:
            name = parsed.file.partition("#")[2]
            message = f"The agent '{name}' of {AGENTS_OPTION} cannot be loaded: {parsed.error.message}"
            raise UsageError(message, remedy=parsed.error.remedy or _OPTION_REMEDY)
    return FolderContents(Folder(AGENTS_OPTION, "flag", "claude"), files)


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the values by key. Raise ValueError for a repeated key: JSON would drop one, perhaps the narrower."""
    values: dict[str, Any] = {}
    for key, value in pairs:
        if key in values:
            raise ValueError(f"{key!r} stands twice in one object")
        values[key] = value
    return values


def _agent(name: str, fields: Any) -> Parsed:
    path = f"{AGENTS_OPTION}#{name}"
    prompt = fields.get("prompt") if isinstance(fields, dict) else None
    fault = None
    if not isinstance(fields, dict):
        fault = f"The agent '{name}' is not an object."
    elif prompt is not None and not isinstance(prompt, str):
        fault = f"The prompt of '{name}' is not text."
    if fault is not None:
        return unusable(path, Problem("bad-value", "error", fault, _OPTION_REMEDY), "claude")
    keys = {"name": name} | fields | {"name": name}
    items = [Item(key, value, 1, 1, 1) for key, value in keys.items() if key != "prompt"]
    parts = Split("", (prompt or "").strip())
    parsed = finish(DIALECTS["claude"], parts, Frontmatter(items, "yaml"), path, "flag")
    if parsed.spec is None or parts.body:
        return parsed
    mute = Problem("empty-body", "warning", "It has no prompt.", 'Say in "prompt" what the agent shall do.')
    problems = (*parsed.problems, mute)
    return replace(parsed, spec=replace(parsed.spec, problems=problems), problems=problems)


_FILE_CACHE = FileCache()


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
        files = _FILE_CACHE if cache is None else cache
        folders = find_folders(
            cwd, environment=environment, policy_folders=policy_folders, plugin_folders=plugin_folders
        )
        if builtins and not builtins_disabled(cwd, environment, settings):
            folders.extend(BUILTIN_FOLDERS)
        contents = [files.read(folder) for folder in folders]
        if agents_json is not None:
            policies = sum(folder.source == "policy" for folder in folders)
            contents.insert(policies, read_flag(agents_json))
        return cls.of(contents)

    @classmethod
    def of(cls, folders: Iterable[FolderContents]) -> Catalog:
        """Return the catalog of `folders`; the one made before, when they are the very same objects."""
        # A parent asks for its catalog before each launch; folders that did not change return the same objects.
        contents = tuple(folders)
        key = os.pathsep.join([entry.folder.path for entry in contents])
        last = _LAST_CATALOGS.get(key)
        if last is not None and [id(entry) for entry in last[0]] == [id(entry) for entry in contents]:
            return last[1]
        catalog = Catalog(*resolve(contents))
        if len(_LAST_CATALOGS) >= _MAX_LAST_CATALOGS:
            _LAST_CATALOGS.clear()
        _LAST_CATALOGS[key] = (contents, catalog)
        return catalog

    @property
    def winners(self) -> tuple[LoadedAgent, ...]:
        """One entry per name: the one that is loaded, enabled or not."""
        return tuple(entry for entry in self.entries if entry.shadowed_by is None)

    @property
    def agents(self) -> tuple[LoadedAgent, ...]:
        """The agents that can be started: the winners that are enabled and whose restrictions could be read. Only these
        may be advertised."""
        return tuple(entry for entry in self.winners if entry.startable)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(entry.name for entry in self.agents)

    def offered(self, vocabulary: Vocabulary) -> tuple[LoadedAgent, ...]:
        """Return what the delegation tools of `vocabulary` list: of a profile of CodingCode and the other
        built-in agent of that name, each vocabulary has one. Without those that are for people only."""
        profiles = vocabulary == "codingcode"
        delegable = [entry for entry in self.agents if entry.unsealed.offered]
        hidden = {entry.name.casefold() for entry in delegable if profiles and is_profile(entry)}
        listed = []
        for entry in delegable:
            replaced = entry.source == "builtin" and entry.name.casefold() in hidden
            if profiles if is_profile(entry) else not replaced:
                listed.append(entry)
        return tuple(listed)

    def find(self, name: str, vocabulary: Vocabulary | None = None) -> LoadedAgent:
        """By exact name, then by `plugin:name`, by the file's name as pi has it, and by the only
        name that differs in case.
        A disabled or refused agent is found: check `startable` before starting it. CodingCode's own
        profiles are found in its vocabulary, and elsewhere as `codingcode:explore`."""

        def visible(entries: Iterable[LoadedAgent]) -> list[LoadedAgent]:
            return [entry for entry in entries if vocabulary == "codingcode" or not is_profile(entry)]

        winners = visible(self.winners)
        for entry in winners:
            if entry.name == name:
                return entry
        for entry in self.entries:
            if entry.qualified_name == name and entry.qualified_name != entry.name:
                return entry
        for entry in winners:
            if entry.dialect == "pi" and file_stem(entry.path, (".md",)) == name:
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
        available = sorted(entry.name for entry in visible(self.agents))
        why, near = self.why_broken(name), nearest(name, available)
        hint = f" Did you mean '{near}'?" if near else ""
        if why is not None:
            hint = f" Its file could not be loaded: {why}"
        raise UnknownAgentError(
            f"There is no agent '{name}'.{hint}", remedy=f"Available agents: {', '.join(available) or 'none'}."
        )

    def why_broken(self, name: str) -> str | None:
        """Return where and why the file of an agent could not be loaded, and what to do; None where no file
        that failed may have been meant by `name`."""
        broken = next((failed for failed in self.failed if claimed_name(failed.parsed) == name), None)
        return None if broken is None else _note(broken.path, broken.problem, broken.reason)

    def general_purpose(self) -> AgentSpec:
        """Return the agent to fall back to. There is one even where all built-in agents are off."""
        return next((entry.spec for entry in self.agents if entry.name == FALLBACK_AGENT.name), FALLBACK_AGENT)

    def require_readable(self) -> None:
        """Raise DefinitionError for the first file that cannot be loaded (strictAgentFiles)."""
        for failed in self.failed:
            if failed.problem.severity == "error":
                remedy = f"{failed.problem.remedy} strictAgentFiles is on: nothing starts before the file is corrected."
                raise DefinitionError(f"{place_of(failed.path, failed.problem)}: {failed.reason}", remedy=remedy)


_LAST_CATALOGS: dict[str, tuple[tuple[FolderContents, ...], Catalog]] = {}
_MAX_LAST_CATALOGS = 64


def main_agent() -> AgentSpec:
    """Return the agent a person talks to when they name none."""
    path = Path(__file__).parent.parent / "builtin" / "prompts" / "main.md"
    spec = parse_file(path, dialect="retinue", source="builtin").spec
    if spec is None:
        raise RuntimeError(f"{path} does not load")
    return replace(spec, path=None)


MAX_NOTES = 5
_FOUND_BY_LAUNCH = frozenset(
    {"missing-description", "readonly-write-tool", "tools-resolve-to-nothing", "all-tools-denied"}
)
"""Codes of lint about facts that a launch knows better: it has chosen the agent, and knows the tools that are there."""
_NOTES_BY_FILE: dict[tuple[str, str], list[str]] = {}
_MAX_CACHED_NOTES = 512


def require_startable(spec: AgentSpec) -> None:
    """Raise RefusedAgentError for an agent of which a restricting key could not be read."""
    problem = spec.refusal
    if problem is not None:
        where = place_of(spec.path or f"agent {spec.name}", problem)
        raise RefusedAgentError(f"Agent '{spec.name}': {where}: {problem.message}", remedy=problem.remedy)


def file_notes(spec: AgentSpec, catalog: Catalog | None) -> list[str]:
    """Return the problems of the file that `spec` was read from, one text each, and what the file replaced."""
    if spec.path is None or spec.source == "builtin":
        return []
    key = (spec.path, spec.hash)
    if key not in _NOTES_BY_FILE:
        if len(_NOTES_BY_FILE) >= _MAX_CACHED_NOTES:
            _NOTES_BY_FILE.clear()
        problems = _lint_file(spec)
        if problems is None:
            problems = [problem for problem in spec.problems if problem.severity != "info"]
        _NOTES_BY_FILE[key] = [_note(spec.path, problem, problem.message) for problem in problems[:MAX_NOTES]]
        if len(problems) > MAX_NOTES:
            text = f"{len(problems) - MAX_NOTES} more problems. See: retinue agents lint {spec.path}"
            _NOTES_BY_FILE[key].append(f"{spec.path}: {text}")
    notes = list(_NOTES_BY_FILE[key])
    if catalog is not None:
        notes += _displaced_notes(spec, catalog)
    return notes


def is_file_note(spec: AgentSpec, note: str) -> bool:
    """Return whether a note of a launch is one of `file_notes` about the agent's own file."""
    return spec.path is not None and note.startswith(f"{spec.path}:")


def _note(path: str, problem: Problem, text: str) -> str:
    return f"{place_of(path, problem)}: {text} {problem.remedy}".rstrip()


def _lint_file(spec: AgentSpec) -> list[Problem] | None:
    """Return the problems that lint reports; None where the file is gone or has changed since it was read."""
    from retinue.agents.lint.checks import lint_file

    path = spec.path or ""
    data = read_bytes(path)
    if isinstance(data, Problem):
        return None
    parsed = parse(data, path=path, dialect=spec.dialect, source=spec.source)
    if parsed.spec is None or parsed.spec.hash != spec.hash:
        return None
    problems = []
    for result in sorted(lint_file(parsed, data), key=lambda result: result.finding.order):
        finding = result.finding
        # The launch reports an unknown name of an allow list with the tools of the run; it does not look at the deny
        # list.
        is_unknown = finding.code == "unknown-tool" and result.field == "tools.allow"
        if finding.severity != "info" and finding.code not in _FOUND_BY_LAUNCH and not is_unknown:
            problems.append(
                Problem(finding.code, finding.severity, finding.reason, finding.remedy, finding.key, finding.line)
            )
    return problems


def _displaced_notes(spec: AgentSpec, catalog: Catalog) -> list[str]:
    """Return notes on stronger files of the same name that are not loaded, because they could not be read."""
    notes = [
        _note(failed.path, failed.problem, failed.reason) for failed in catalog.failed if failed.instead == spec.path
    ]
    for entry in catalog.entries:
        if entry.name == spec.name and entry.recovered_under == spec.path:
            text = f"its frontmatter is not valid YAML, so '{spec.name}' is loaded from {spec.path} instead."
            notes.append(f"{entry.path}: {text} Correct the frontmatter: retinue agents lint {entry.path}")
    return notes


def startable_types(spec: AgentSpec) -> tuple[str, ...] | None:
    """Return the agents that a file names as those it may start, or None when it names none."""
    in_tools = _types_in_tools(spec)
    if not isinstance(spec.subagents, tuple):
        return in_tools
    if in_tools is None:
        return spec.subagents
    # A file that names agents in both places means the agents that both name.
    folded = set(map(str.casefold, in_tools))
    return tuple(name for name in spec.subagents if name.casefold() in folded)


def unknown_types(spec: AgentSpec, names: Collection[str]) -> Iterator[tuple[str, str]]:
    """Yield each agent that the file may start and that is not among `names`, with the sentence about it."""
    folded = set(map(str.casefold, names))
    for name in startable_types(spec) or ():
        if name.casefold() in folded:
            continue
        near = nearest(name, names)
        remedy = f"Did you mean '{near}'?" if near else "Correct the name: `retinue agents list` shows all."
        yield name, f"It may start '{name}', but there is no such agent. {remedy}"


def _types_in_tools(spec: AgentSpec) -> tuple[str, ...] | None:
    """Return the agents in parentheses behind a tool that starts agents, such as `Agent(a, b)`."""
    types: list[str] = []
    names_types = False
    for name, pattern in map(split_entry, spec.tools.allow or ()):
        if pattern and STARTING_TOOLS.intersection(canonical(name)):
            names_types = True
            types += filter(None, map(str.strip, pattern.split(",")))
    return tuple(types) if names_types else None
