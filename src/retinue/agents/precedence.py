"""Which of several agents with one name counts: the one in the strongest place.

Within one folder, or one tree that is read as one, the file that comes last by path wins, as
the dialects have it. Whatever loses stays visible with the path of what won.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct

from retinue.agents.cache import FolderContents
from retinue.agents.dialects.tables import DIALECTS
from retinue.agents.folders import Folder
from retinue.agents.frontmatter import Parsed
from retinue.agents.parse import file_name, seal, seal_parsed
from retinue.core.spec import AgentSpec, DialectName, Problem, Source

RECOVERED = "lines"
"""The reading of a frontmatter that is not YAML and was understood line by line."""


class LoadedAgent:
    """One agent that loaded. `shadowed_by` is the path of the file that replaced it;
    `duplicate_of` the same, where both lie in one folder and neither place is stronger."""

    __slots__ = ("_parsed", "duplicate_of", "name", "plugin", "recovered_under", "shadowed_by", "source")

    def __init__(
        self,
        parsed: Parsed,
        name: str,
        source: Source,
        shadowed_by: str | None = None,
        duplicate_of: str | None = None,
        plugin: str | None = None,
    ) -> None:
        self._parsed = parsed
        self.name = name
        self.source = source
        self.shadowed_by = shadowed_by
        self.duplicate_of = duplicate_of
        self.plugin = plugin
        self.recovered_under: str | None = None
        """The weaker file that counts instead, because this one was only read line by line."""

    def __repr__(self) -> str:
        return f"Entry({self.name!r}, {self.source!r}, {self.path!r})"

    @property
    def parsed(self) -> Parsed:
        return seal_parsed(self._parsed)

    @property
    def spec(self) -> AgentSpec:
        return seal(self._spec)

    @property
    def path(self) -> str:
        return self._parsed.file

    @property
    def dialect(self) -> DialectName:
        return self._spec.dialect

    @property
    def enabled(self) -> bool:
        return self._spec.enabled

    @property
    def startable(self) -> bool:
        """Enabled, and every key that restricts it could be read."""
        spec = self._spec
        return spec.enabled and spec.refusal is None

    @property
    def reading(self) -> str:
        return self._parsed.reading

    @property
    def _spec(self) -> AgentSpec:
        spec = self._parsed.spec
        if spec is None:
            raise ValueError("an entry is made of a file that loaded")
        return spec

    @property
    def problems(self) -> tuple[Problem, ...]:
        found = self._parsed.problems
        if self.duplicate_of is None:
            return found
        text = f"Another file of this folder is also called '{self.name}': {self.duplicate_of}. That one counts."
        problem = Problem("duplicate-name", "warning", text, "Rename or remove one of them.", "name")
        return (*found, problem)

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
    return entry.source == "builtin" and entry.dialect == "codingcode"


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


def resolve(readings: Iterable[FolderContents]) -> tuple[tuple[LoadedAgent, ...], tuple[FailedFile, ...]]:
    """`readings` come strongest first. Entries keep that order, winners and losers mixed."""
    winners: dict[str, LoadedAgent] = {}
    owners: dict[str, FolderContents] = {}
    entries: list[LoadedAgent] = []
    broken: list[tuple[int, Parsed]] = []
    readings = tuple(readings)
    profiles = _profile_paths(readings)
    for reading in readings:
        for parsed in reversed(reading.files):
            spec = parsed.spec
            if spec is None:
                broken.append((len(entries), parsed))
                continue
            winner = winners.get(spec.name)
            source, plugin = reading.folder.source, _scope(reading.folder, parsed.file)
            # A file whose frontmatter no YAML reader takes never hides one that is sound.
            if winner is not None and winner.reading == RECOVERED and parsed.reading != RECOVERED:
                winner.shadowed_by = winner.recovered_under = parsed.file
                _follow(entries, winner)
                winner = None
            taken = None
            # CodingCode ignores a user's file that is called as one of its own profiles; a project's counts.
            if reading.folder.home == "codingcode" and source == "user":
                taken = profiles.get(spec.name.casefold())
            if taken is not None:
                entry = LoadedAgent(parsed, spec.name, source, taken, plugin=plugin)
            elif winner is None:
                entry = LoadedAgent(parsed, spec.name, source, plugin=plugin)
                winners[spec.name] = entry
                owners[spec.name] = reading
            else:
                duplicate = None
                if owners[spec.name] is reading:
                    duplicate = winner.path
                entry = LoadedAgent(parsed, spec.name, source, winner.path, duplicate, plugin)
            entries.append(entry)
    order = {entry.path: index for index, entry in enumerate(entries)}
    return tuple(entries), tuple(_make_failed(parsed, index, winners, order) for index, parsed in broken)


def _profile_paths(readings: Sequence[FolderContents]) -> dict[str, str]:
    """Return the names of CodingCode's built-in profiles, in lower case, with their files."""
    found = {}
    for reading in readings:
        if reading.folder.source == "builtin" and reading.folder.home == "codingcode":
            for parsed in reading.files:
                if parsed.spec is not None:
                    found[parsed.spec.name.casefold()] = parsed.file
    return found


def _follow(entries: list[LoadedAgent], loser: LoadedAgent) -> None:
    """Make whatever `loser` had replaced be replaced by what replaces it."""
    for entry in entries:
        if entry.shadowed_by == loser.path and entry.name == loser.name:
            entry.shadowed_by = loser.shadowed_by


def _scope(folder: Folder, path: str) -> str | None:
    """Return `plugin` or `plugin:sub:folders`, under which a plugin's agent can be asked for as well."""
    if folder.plugin is None:
        return None
    below = path[len(folder.path) :].replace("\\", "/").strip("/").split("/")[:-1]
    return ":".join([folder.plugin, *below])


def _make_failed(parsed: Parsed, index: int, winners: dict[str, LoadedAgent], order: dict[str, int]) -> FailedFile:
    # Only a broken file that is stronger than the winner has lost its name to it.
    problem = parsed.error or Problem("unreadable", "error", "The file could not be read.")
    name = claimed_name(parsed)
    winner = None
    if name and problem.severity == "error":
        winner = winners.get(name)
    # One that is disabled is not loaded instead: there is no agent of this name then.
    loads = winner is not None and winner.startable and order[winner.path] >= index
    return FailedFile(parsed.file, problem, parsed, winner.path if winner is not None and loads else None)


def claimed_name(parsed: Parsed) -> str | None:
    """Return the name a broken file would have had, if that much is certain."""
    if parsed.name is not None:
        return parsed.name
    if parsed.reading == "none" and DIALECTS[parsed.dialect].name_rule == "file":
        return file_name(parsed.file, (".agent.md", ".md"))
    return None


def may_mean(failed: FailedFile, name: str) -> bool:
    """Return whether someone who asks for `name` may mean this broken file."""
    claimed = claimed_name(failed.parsed)
    if claimed is not None:
        return claimed == name
    stem = failed.path.partition("#")[2] or file_name(failed.path, (".agent.md", ".md", ".markdown"))
    return failed.problem.severity != "info" and stem == name


def shadows(entries: Sequence[LoadedAgent], winner: LoadedAgent) -> tuple[LoadedAgent, ...]:
    """Return what `winner` replaced, strongest first."""
    found = []
    for entry in entries:
        if entry.shadowed_by == winner.path and entry.name == winner.name:
            found.append(entry)
    return tuple(found)
