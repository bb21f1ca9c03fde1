"""The first event of a run, which holds everything that was decided about it, and the way back: what a resumed run had.
Also the names by which people address runs.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from retinue.core.encode import dump
from retinue.core.events import ModeChanged, RunCreated
from retinue.core.request import EVERYTHING, NO_CEILING, Ceiling, Pinned, RunOptions, RunRequest, placement_options
from retinue.core.run_state import RunState
from retinue.core.spec import AgentSpec, PermissionMode
from retinue.core.usage import Budget
from retinue.errors import LaunchError
from retinue.log.replay import Conversation
from retinue.log.transcript import transcript_path, wants_transcript
from retinue.models.resolve import OFFLINE
from retinue.runs.guard import bounds_to_record
from retinue.runs.prompt import current_commit
from retinue.runs.system_prompt import kept
from retinue.settings.places import database_of, home, repository_root
from retinue.tools.paths import label

if TYPE_CHECKING:
    from retinue.log.query import LogReader
    from retinue.runs.launch import Launch, LaunchPlan
    from retinue.runs.project import Project


PLANNER = OFFLINE.full_name
RESUME_PROMPT = "Go on with your task from where you were."
NEWS_PROMPT = "Hear what became of the agents that you started."
"""For a resume that only brings such news: the run is told nothing else."""


def created(
    launch: Launch,
    definition: AgentSpec,
    project: Project,
    *,
    name: str,
    description: str,
    background: bool,
    call_id: str | None,
) -> RunCreated:
    """Return the first event of a run. `definition` is the agent as its file has it."""
    request = launch.request
    spec: Mapping[str, Any] = msgspec.json.decode(dump(definition))
    options = RunOptions(
        name=name,
        description=description,
        background=background,
        call_id=call_id,
        transcript=launch.transcript,
        model=request.model,
        thinking=request.thinking,
        limits=request.limits,
        budget=None if request.budget is None else request.budget.as_dict(),
        pinned=tuple(sorted(request.pinned)),
        schema=request.schema,
        # Plan mode may end with a yes to the plan; what else made the run read-only stays.
        # On another machine, other settings hold: the mode goes with the run.
        permission_mode=launch.mode if launch.mode == "plan" or request.placement else request.permission_mode,
        readonly=bool(definition.readonly) if launch.mode == "plan" else launch.readonly,
        ceiling=request.ceiling.as_dict() if request.parent_id is not None else None,
        bounds=bounds_to_record(launch.bounds) if launch.bounds else None,
        isolation="worktree" if request.placement or (launch.isolation and launch.isolation.own) else None,
        placement=_placement(request),
        system=kept(launch),
        commit=_checkout(request, project),
        asked=request.asked,
    )
    return RunCreated(
        agent=definition.name,
        task=request.task,
        spec=spec,
        spec_hash=definition.hash,
        model=launch.model_name,
        cwd=str(launch.isolation.asked_in if launch.isolation is not None else request.cwd),
        depth=request.depth,
        options=options,
    )


def _placement(request: RunRequest) -> Mapping[str, Any] | None:
    if request.placement is None:
        return None
    return placement_options(request.placement, str(repository_root(request.cwd) or request.cwd))


def _checkout(request: RunRequest, project: Project) -> str | None:
    """Return the commit that the first run of a tree begins at: a test of it begins there again."""
    if request.parent_id is not None:
        return None
    # Many runs may start at once: they look for it once.
    return project.round.once(("commit", request.cwd), lambda: current_commit(request.cwd) or "") or None


def transcript_of(plan: LaunchPlan) -> str | None:
    """Return where the transcript of a run goes; None for none here: a run on a worker has its own there."""
    project, past = plan.project, plan.past
    if past is None:
        return _new_transcript(plan)
    if project.moved is not None or database_of(project.state) is not None:
        # A database may name any file, and files of other machines.
        return transcript_path(project.state, plan.run_id)
    if past.started is not None:
        return past.started.transcript
    return past.created.options.transcript if past.created is not None else None


def _new_transcript(plan: LaunchPlan) -> str | None:
    """The agent's file may name a folder (`session_dir`): a file of a project only one of the project, so that cloning
    it does not write elsewhere. With `persist_session` false no session is kept there; the transcript that every run
    has is with the others."""
    request, project = plan.request, plan.project
    session, chosen = request.spec.session, plan.settings.output_transcript
    if request.placement is not None or not wants_transcript(session.transcript, chosen, session.persist):
        return None
    if session.directory is None or session.persist is False:
        return transcript_path(project.state, plan.run_id)
    directory = session.directory
    if directory == "~" or directory.startswith("~/"):
        directory = str(home(project.environment)) + directory[1:]
    folder = (request.cwd / directory).resolve()
    if request.spec.provenance != "person" and not folder.is_relative_to(project.cwd):
        plan.note(f"session_dir {session.directory} is not in the project: its transcript is kept with the others.")
        return transcript_path(project.state, plan.run_id)
    return str(folder / f"{plan.run_id}.jsonl")


_TOOL_SEARCH = "tool_search"
"""Finds tools of servers; a run that had them by name before may search for them now."""


def keep_to_past(plan: LaunchPlan, past: Conversation) -> None:
    """Leave a resumed run the tools that it had: a resume gives no rights."""
    started = past.started
    if started is None:
        return
    if started.model == PLANNER and plan.model_name != PLANNER:
        plan.note(f"{plan.model_name} answers from here on; until now it was the search planner.")
    began_in = past.created.options.permission_mode if past.created is not None else None
    is_main = plan.request.parent_id is None
    approved = began_in == "plan" and plan.mode != "plan"
    planning = began_in != "plan" and plan.mode == "plan" and is_main
    had = {*started.tools, _TOOL_SEARCH}
    if approved:
        # A person gave it the others.
        had.update(map(label, plan.tools.values()))
    if planning:
        had.add("exit_plan")
    plan.tools = {name: tool for name, tool in plan.tools.items() if label(tool) in had}
    later: frozenset[str] = frozenset()
    if plan.late is not None:
        if not is_main:
            plan.late.limit_to(frozenset(started.tools))
        later = plan.late.names
    missing = set(started.tools) - set(map(label, plan.tools.values())) - later
    if approved:
        missing.discard("exit_plan")
    if missing and not planning:
        plan.note(f"no longer available: {', '.join(sorted(missing))}")


def request_of(
    row: RunState,
    past: Conversation,
    prompt: str | None,
    limits: Mapping[str, float | None] | None,
    model: str | None = None,
    budget: Budget | None = None,
    thinking: str | None = None,
) -> RunRequest:
    """The request as it was, from the run's first event; with `model`, on another model, with `thinking` at another
    level. What `limits` and `budget` name is replaced, the rest of both stays."""
    first = past.created
    if first is None:
        raise LaunchError(f"Run {row.id} has no beginning in the log.", remedy="It cannot be taken up again.")
    options = first.options
    try:
        spec = msgspec.convert(first.spec, AgentSpec)
    except ValueError as error:
        raise LaunchError(f"Run {row.id} was written by a version that this one cannot read ({error}).") from error
    spent = {**(options.budget or {}), **(budget.as_dict() if budget is not None else {})}
    pinned: set[Pinned] = {"model", *(EVERYTHING if options.pinned is None else options.pinned)}
    if limits is not None:
        pinned.add("limits")
    if thinking is not None:
        pinned.add("thinking")
    had: str | None = past.started.model if past.started else first.model
    of_file = replace(spec.model, name=None, fallbacks=())
    if had == PLANNER and not options.model:
        # Nobody chose the planner: it stood in for a model, and there may be one by now.
        had, of_file = None, spec.model
    return RunRequest(
        # The model is the one it had, whatever its name in the file would mean today.
        # It stays read-only if the run that started it was.
        spec=replace(
            spec,
            model=of_file,
            readonly=spec.readonly or options.readonly or None,
        ),
        task=prompt or RESUME_PROMPT,
        cwd=Path(first.cwd),
        model=model or had,
        thinking=thinking or options.thinking,
        limits={**options.limits, **(limits or {})},
        budget=Budget.read(spent) if spent else None,
        pinned=frozenset(pinned),
        schema=options.schema,
        permission_mode=options.permission_mode,
        parent_id=row.parent_id,
        root_id=row.root_id,
        depth=first.depth,
        isolation=options.isolation,
        ceiling=_recorded_ceiling(row, past, options),
    )


def as_received(request: RunRequest, project: Project) -> RunRequest:
    """Return a request from the log as it may run here. In a shared database other machines write the log: a
    definition from it is foreign, unless a file of this machine says the same. On a worker a run works in a worktree of
    its project and nowhere else. Raise StateError for one that names another folder."""
    if project.moved is not None:
        spec = replace(request.spec, foreign=True, path=None)
        return replace(request, spec=spec, cwd=project.place_of(request.cwd), isolation="worktree")
    if database_of(project.state) is None:
        return request
    return replace(request, spec=_own_definition(request.spec, project) or replace(request.spec, foreign=True))


def _own_definition(spec: AgentSpec, project: Project) -> AgentSpec | None:
    """Return the definition if a file of this machine brings the same rights; None where none does."""
    for entry in project.catalog().entries:
        own = entry.spec
        if (own.name, own.source, own.path) == (spec.name, spec.source, spec.path):
            return spec if _rights(own) == _rights(spec) else None
    return None


def _rights(spec: AgentSpec) -> bytes:
    return msgspec.json.encode((spec.hooks, spec.servers, spec.tools, spec.session), order="deterministic")


def with_approved_mode(
    request: RunRequest, reader: LogReader, run_id: str, chosen: PermissionMode | None = None
) -> RunRequest:
    """The request of a run that is taken up again, in the mode that a person has `chosen`, or else in the one that
    holds since a plan of it was approved or a person changed its mode. Nobody chooses for agents of agents."""
    if request.parent_id is not None:
        return request
    mode = chosen or changed_mode(reader, run_id)
    if mode is None:
        return request
    return replace(request, spec=replace(request.spec, permission_mode=None), permission_mode=mode)


def recorded_mode(reader: LogReader, run_id: str) -> PermissionMode | None:
    """The mode that a run had last; None where the files decided it."""
    first = reader.created(run_id)
    began_in = first.options.permission_mode if first is not None else None
    return changed_mode(reader, run_id) or began_in


def changed_mode(reader: LogReader, run_id: str) -> PermissionMode | None:
    """The mode that holds since a plan was approved or a person changed it; None where it is as the run began."""
    for _, event in reader.ordered(run_id, ("run.mode_changed",), newest_first=True):
        if isinstance(event.body, ModeChanged):
            return event.body.mode
    return None


def _recorded_ceiling(row: RunState, past: Conversation, options: RunOptions) -> Ceiling:
    """Return what the runs above a run kept it from having. The fork of such a run has no parent, and its ceiling."""
    if row.parent_id is None and options.ceiling is None:
        return NO_CEILING
    return _ceiling(past, options)


def _ceiling(past: Conversation, options: RunOptions) -> Ceiling:
    """Logs of older versions have none. A run of theirs that has started keeps the tools it had."""
    if options.ceiling is None and past.started is not None:
        return NO_CEILING
    return Ceiling.read(options.ceiling)


RESERVED = frozenset({"main"})
LONGEST = 64
_MENTION = re.compile(r"@([A-Za-z0-9][A-Za-z0-9_-]{0,127})[ \t\r\n]+(\S.*)", re.DOTALL)


class Mention(Struct, frozen=True):
    handle: str
    message: str


def slug(name: str) -> str:
    """A name as one lower-case word of letters, digits and dashes, at most 64 characters."""
    word = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:LONGEST].rstrip("-")
    return word or "agent"


def assign(name: str, taken: Collection[str], number: int = 2) -> str:
    """The handle for `name`: itself if free, else with the lowest free number from `number` on."""
    base = slug(name)
    if base not in taken and base not in RESERVED:
        return base
    while f"{base[: LONGEST - len(str(number)) - 1]}-{number}" in taken:
        number += 1
    return f"{base[: LONGEST - len(str(number)) - 1]}-{number}"


class Names:
    """The handles of the runs of one process. None is given back, so the thousandth run of an
    agent need not look at the numbers of all the others."""

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._last: dict[str, int] = {}

    def free(self, name: str) -> str:
        """The handle that `assign` gives; it stays free until it is added."""
        return assign(name, self._taken, self._last.get(slug(name), 2))

    def add(self, handle: str) -> None:
        self._taken.add(handle)
        base, _, number = handle.rpartition("-")
        if base and number.isdecimal() and int(number) == self._last.get(base, 2):
            self._last[base] = int(number) + 1


def parse_mention(text: str) -> Mention | None:
    """`@explore look here` as handle and message. A bare handle, a path, a file name and a
    mention anywhere but at the very start are none."""
    found = _MENTION.fullmatch(text)
    return Mention(found[1].lower(), found[2].strip()) if found else None


def without_prefix(handle: str) -> str | None:
    """`agent-explore` as `explore`; None when it has no such prefix with something behind it."""
    rest = handle.removeprefix("agent-")
    return rest if rest != handle and rest else None
