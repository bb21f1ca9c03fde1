"""Commands on agent files: check, convert, read, create, copy, enable and disable."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

from msgspec import Struct, field

from retinue.agents import manage as manage
from retinue.agents.catalog import Catalog
from retinue.agents.convert import Loss as Loss
from retinue.agents.convert import convert
from retinue.agents.dialects.tables import DIALECTS as DIALECTS
from retinue.agents.edit import write_atomically as write_atomically
from retinue.agents.folders import WRITABLE as WRITABLE
from retinue.agents.folders import PluginFolder as PluginFolder
from retinue.agents.frontmatter import Parsed
from retinue.agents.lint.runner import lint_catalog
from retinue.agents.lint.runner import lint_paths as lint_paths
from retinue.agents.lint.subject import AppliedRepair
from retinue.agents.lint.subject import Finding as Finding
from retinue.agents.manage import OWN_SOURCES as OWN_SOURCES
from retinue.agents.manage import WRITER_TURNS as WRITER_TURNS
from retinue.agents.manage import AgentDraft as AgentDraft
from retinue.agents.manage import EjectedAgent as EjectedAgent
from retinue.agents.manage import Removed as Removed
from retinue.agents.manage import SwitchedAgent as SwitchedAgent
from retinue.agents.manage import WrittenAgent as WrittenAgent
from retinue.agents.manage import agents_folder as agents_folder
from retinue.agents.manage import brief as brief
from retinue.agents.manage import look as look
from retinue.agents.manage import own_files as own_files
from retinue.agents.manage import remove as remove
from retinue.agents.manage import reset as reset
from retinue.agents.manage import spec_of, write_new
from retinue.agents.manage import starter as starter
from retinue.agents.parse import is_skill, parse, parse_file, parse_skill, read_bytes, unusable
from retinue.agents.write import check_name as check_name
from retinue.agents.write import file_name as file_name
from retinue.agents.write import write_agent
from retinue.app.agents import FateView, load_catalog, plugin_folders, view_fates
from retinue.capabilities.mcp.servers import ServerLint
from retinue.cluster import open_project
from retinue.core.spec import THINKING_LEVELS as THINKING_LEVELS
from retinue.core.spec import AgentSpec, DialectName, Problem, Severity
from retinue.errors import RetinueError, UsageError

if TYPE_CHECKING:
    from retinue.runs.project import Project

SKILL_DIALECTS = ("skill", "skills")
SEVERITY_PLURALS: Mapping[Severity, str] = {"error": "errors", "warning": "warnings", "info": "infos"}


# Checks


class LintList(Struct, frozen=True, kw_only=True):
    """The problems in agent files, by file and line. `fixed` lists the repairs that were made, `files` counts the files
    that were checked."""

    findings: Sequence[Finding]
    fixed: Sequence[AppliedRepair] = ()
    files: int
    errors: int
    warnings: int
    infos: int

    def fails(self, *, strict: bool = False) -> bool:
        """Return whether there is an error, or with `strict` a warning."""
        return self.errors > 0 or (strict and self.warnings > 0)


def lint_agents(
    cwd: Path, *, paths: Sequence[str] = (), fix: bool = False, project: Callable[[], Project] | None = None
) -> LintList:
    """Check agent files: those in `paths`, or by default those of the project, the user and the project's plugins.
    `fix` makes every repair that adds no rights. `project` returns a project that is already open."""
    check = ServerLint(project or (lambda: open_project(cwd)))
    if paths:
        report = lint_paths(paths, fix=fix, check=check)
    else:
        # Only plugins of the project: `fix` must not change files of others.
        report = lint_catalog(cwd, fix=fix, plugins=plugin_folders(cwd, own=False), check=check)
    return _lint_list(report.findings, report.changes, report.files)


def _lint_list(findings: Sequence[Finding], changes: Sequence[AppliedRepair], files: int) -> LintList:
    totals = dict.fromkeys(SEVERITY_PLURALS.values(), 0)
    for finding in findings:
        totals[SEVERITY_PLURALS[finding.severity]] += 1
    return LintList(findings=findings, fixed=changes, files=files, **totals)


# Conversion


class ConvertedAgent(Struct, frozen=True, kw_only=True):
    """An agent in another dialect. `path` is the file that was written, if any. `losses` are the fields that the
    dialect cannot express."""

    name: str
    source: str
    origin: DialectName = field(name="from")
    to: DialectName
    file: str
    path: str | None
    text: str
    losses: Sequence[Loss]


class FailedConversion(Struct, frozen=True):
    """An agent that could not be converted."""

    agent: str
    code: str
    message: str


class ConversionList(Struct, frozen=True):
    """The agents that were converted, and those that could not be."""

    converted: list[ConvertedAgent]
    failed: list[FailedConversion]


def convert_agents(names: Sequence[str], to: str, cwd: Path, output: str, *, force: bool = False) -> ConversionList:
    """Write agents in the dialect `to`. Each name is an agent or a file; `output` is a folder, a file, or `-` to write
    nothing. With several names a failure is listed and the others are still converted; with one name it is raised."""
    result = ConversionList([], [])
    for name in names:
        try:
            result.converted.append(_convert(name, cast("DialectName", to), cwd, output, len(names) > 1, force))
        except RetinueError as error:
            if len(names) == 1:
                raise
            result.failed.append(FailedConversion(name, error.code, str(error)))
    return result


def _convert(name: str, to: DialectName, cwd: Path, output: str, many: bool, force: bool) -> ConvertedAgent:
    parsed = _find_file(name, cwd)
    conversion = convert(parsed, to)
    path: Path | None = None
    if output != "-":
        path = Path(output).expanduser().absolute()
        if many or path.is_dir() or output.endswith(("/", "\\")) or not path.suffix:
            path /= conversion.file_name
        write_new(path, conversion.text, force=force)
    return ConvertedAgent(
        name=conversion.name,
        source=parsed.file,
        origin=parsed.dialect,
        to=conversion.dialect,
        file=conversion.file_name,
        path=None if path is None else str(path),
        text=conversion.text,
        losses=conversion.losses,
    )


def _find_file(name: str, cwd: Path) -> Parsed:
    path = Path(name).absolute()
    if path.is_file():
        return parse_file(path)
    if "/" in name or "\\" in name or name.lower().endswith((".md", ".markdown", ".yaml", ".yml")):
        raise UsageError(f"There is no file {path}.", remedy="Name a file that exists, or an agent.")
    return load_catalog(cwd).find(name).parsed


# Parsed files


class AgentFileView(Struct, frozen=True, kw_only=True):
    """One file as the parser reads it, without discovery. `error` is the reason why it defines no agent."""

    file: str
    dialect: str
    name: str | None
    description: str | None
    tools: Sequence[str] | None
    disallowed_tools: Sequence[str] | None
    model: str | Sequence[str] | None
    prompt: str
    spec: AgentSpec | None
    fates: Mapping[str, FateView]
    problems: Sequence[Problem]
    error: Problem | None


def read_agent_file(path: str, dialect: str | None = None) -> AgentFileView:
    """Parse a file of an agent or a skill. Without `dialect` it is guessed from the path and the keys."""
    skill = dialect in SKILL_DIALECTS or (dialect is None and is_skill(path))
    chosen = cast("DialectName | None", dialect if dialect in DIALECTS else None)
    data = read_bytes(path)
    if isinstance(data, Problem):
        parsed = unusable(path, data, chosen)
    elif skill:
        parsed = parse_skill(data, path=path)
    else:
        parsed = parse(data, path=path, dialect=chosen)
    return AgentFileView(
        file=parsed.file,
        dialect="skill" if skill else parsed.dialect,
        name=parsed.name,
        description=parsed.description,
        tools=parsed.tools,
        disallowed_tools=parsed.disallowed_tools,
        model=parsed.model,
        prompt=parsed.prompt,
        spec=parsed.spec,
        fates=view_fates(parsed.fates),
        problems=parsed.problems,
        error=parsed.error,
    )


# Changes to files


class SavedAgentFile(Struct, frozen=True, kw_only=True):
    """A file that was written. `effective` is False if the agent is loaded from a file with a higher precedence."""

    name: str
    path: str
    dialect: DialectName
    replaced: bool
    effective: bool


class NewAgent(SavedAgentFile, frozen=True, kw_only=True):
    """The file of a new agent."""

    findings: Sequence[Finding]


def create_agent(draft: AgentDraft, cwd: Path, *, user: bool = False, force: bool = False) -> NewAgent:
    """Write the file of a new agent. Raise UsageError for a draft that is not a valid agent, and for a file that
    exists."""
    spec = spec_of(draft)
    path = agents_folder(draft.dialect, cwd, user=user) / file_name(spec.name, draft.dialect)
    replaced = write_new(path, write_agent(spec, draft.dialect), force=force)
    winner = Catalog.load(cwd).find(spec.name).path
    return NewAgent(
        name=spec.name,
        path=str(path),
        dialect=draft.dialect,
        replaced=replaced,
        effective=winner == str(path),
        findings=lint_paths([path]).findings,
    )


def eject_agent(name: str, cwd: Path, *, dialect: DialectName, user: bool, force: bool) -> EjectedAgent:
    """Copy an agent into a file that can be edited."""
    return manage.eject(name, cwd, dialect=dialect, user=user, force=force, plugins=plugin_folders(cwd))


def switch_agent(name: str, cwd: Path, *, on: bool, user: bool = False) -> SwitchedAgent:
    """Disable an agent, or enable it again, which restores its file."""
    folders = plugin_folders(cwd)
    return manage.enable(name, cwd, plugins=folders) if on else manage.disable(name, cwd, user=user, plugins=folders)
