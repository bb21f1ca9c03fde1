"""The first event of a run, which records all decisions about it, and the request that a resumed run had. Also the
names by which people address runs.
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
from retinue.runs.system_prompt import recorded_prompt
from retinue.settings.places import database_of, home, repository_root
from retinue.tools.paths import label

if TYPE_CHECKING:
    from retinue.log.query import LogReader
    from retinue.runs.launch import Launch, LaunchPlan
    from retinue.runs.project import Project


PLANNER_MODEL = OFFLINE.full_name
RESUME_PROMPT = "Go on with your task from where you were."
NEWS_PROMPT = "Read the results of the agents that you started."
"""The prompt of a resume for such results only. The run gets just the notification."""


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
    """Return the first event of a run. `definition` is the agent as in its file."""
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
        # Plan mode may end with an approval; other reasons for a read-only run stay.
        # Another machine has other settings, so the mode is sent with the run.
        permission_mode=launch.mode if launch.mode == "plan" or request.placement else request.permission_mode,
        readonly=bool(definition.readonly) if launch.mode == "plan" else launch.readonly,
        ceiling=request.ceiling.as_dict() if request.parent_id is not None else None,
        bounds=bounds_to_record(launch.bounds) if launch.bounds else None,
        isolation="worktree" if request.placement or (launch.isolation and launch.isolation.own) else None,
        placement=_placement(request),
        system=recorded_prompt(launch),
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
    """Return the commit at which the first run of a tree begins, for tests that begin there again."""
    if request.parent_id is not None:
        return None
    # Runs that start together determine it once.
    return project.round.once(("commit", request.cwd), lambda: current_commit(request.cwd) or "") or None


def transcript_of(plan: LaunchPlan) -> str | None:
    """Return the path of a run's transcript; None if it has none here. A worker has the transcript of its run."""
    project, past = plan.project, plan.past
    if past is None:
        return _new_transcript(plan)
    if project.moved is not None or database_of(project.state) is not None:
        # A shared database may name any file, or files of other machines.
        return transcript_path(project.state, plan.run_id)
    if past.started is not None:
        return past.started.transcript
    return past.created.options.transcript if past.created is not None else None


def _new_transcript(plan: LaunchPlan) -> str | None:
    """Return the path of a new transcript. The agent's file may name a folder (`session_dir`); if the file belongs to a
    project, the folder must too, so that a cloned project cannot write elsewhere. With `persist_session` false the
    folder is not used, and the transcript is with the others."""
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
"""The tool that finds tools of servers. A resumed run that had these tools before may search for them."""


def restrict_to_past(plan: LaunchPlan, past: Conversation) -> None:
    """Limit a resumed run to the tools that it had, because a resume must not add rights."""
    started = past.started
    if started is None:
        return
    if started.model == PLANNER_MODEL and plan.model_name != PLANNER_MODEL:
        plan.note(f"{plan.model_name} answers from now on; until now it was the search planner.")
    began_in = past.created.options.permission_mode if past.created is not None else None
    is_main = plan.request.parent_id is None
    approved = began_in == "plan" and plan.mode != "plan"
    planning = began_in != "plan" and plan.mode == "plan" and is_main
    permitted = {*started.tools, _TOOL_SEARCH}
    if approved:
        # A person has granted the others with the approval.
        permitted.update(map(label, plan.tools.values()))
    if planning:
        permitted.add("exit_plan")
    plan.tools = {name: tool for name, tool in plan.tools.items() if label(tool) in permitted}
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
    """Return the request of a run from its first event. `model` and `thinking` replace those of the run. Values in
    `limits` and `budget` replace single limits."""
    first = past.created
    if first is None:
        raise LaunchError(f"Run {row.id} has no first event in the log.", remedy="It cannot be resumed.")
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
    past_model: str | None = past.started.model if past.started else first.model
    of_file = replace(spec.model, name=None, fallbacks=())
    if past_model == PLANNER_MODEL and not options.model:
        # The planner was used for want of a model, and there may be one now.
        past_model, of_file = None, spec.model
    return RunRequest(
        # The run keeps its model, whatever the name in its file means now.
        # It stays read-only if the run that started it was.
        spec=replace(
            spec,
            model=of_file,
            readonly=spec.readonly or options.readonly or None,
        ),
        task=prompt or RESUME_PROMPT,
        continues=not prompt,
        cwd=Path(first.cwd),
        model=model or past_model,
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
    """Return a request from the log as it may be executed here. Other machines write to a shared database, so a
    definition from it is foreign, unless a file of this machine has the same rights. On a worker a run works only in a
    worktree of its project. Raise StateError if it names another folder."""
    if project.moved is not None:
        spec = replace(request.spec, foreign=True, path=None)
        return replace(request, spec=spec, cwd=project.place_of(request.cwd), isolation="worktree")
    if database_of(project.state) is None:
        return request
    return replace(request, spec=_own_definition(request.spec, project) or replace(request.spec, foreign=True))


def _own_definition(spec: AgentSpec, project: Project) -> AgentSpec | None:
    """Return the definition if a file of this machine has the same rights; None otherwise."""
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
    """Return the request of a resumed run with the mode that a person has `chosen`, or else with the last mode that an
    approval or a person has set. The mode of agents of agents cannot be chosen."""
    if request.parent_id is not None:
        return request
    mode = chosen or changed_mode(reader, run_id)
    if mode is None:
        return request
    return replace(request, spec=replace(request.spec, permission_mode=None), permission_mode=mode)


def recorded_mode(reader: LogReader, run_id: str) -> PermissionMode | None:
    """Return the last mode of a run; None if the files decide it."""
    first = reader.created(run_id)
    began_in = first.options.permission_mode if first is not None else None
    return changed_mode(reader, run_id) or began_in


def changed_mode(reader: LogReader, run_id: str) -> PermissionMode | None:
    """Return the last mode that an approval or a person has set; None if the mode never changed."""
    for _, event in reader.ordered(run_id, ("run.mode_changed",), newest_first=True):
        if isinstance(event.body, ModeChanged):
            return event.body.mode
    return None


def _recorded_ceiling(row: RunState, past: Conversation, options: RunOptions) -> Ceiling:
    """Return the rights that the runs above a run have withheld from it. A fork has no parent, but the same ceiling."""
    # Older versions recorded no ceiling. Their started runs keep the tools they had.
    if options.ceiling is None and (row.parent_id is None or past.started is not None):
        return NO_CEILING
    return Ceiling.read(options.ceiling)


RESERVED_HANDLES = frozenset({"main"})
MAX_HANDLE_CHARACTERS = 64
_MENTION = re.compile(r"@([A-Za-z0-9][A-Za-z0-9_-]{0,127})[ \t\r\n]+(\S.*)", re.DOTALL)


class Mention(Struct, frozen=True):
    """A message to the run with a handle."""

    handle: str
    message: str


def slug(name: str) -> str:
    """Return a name as one lower-case word of letters, digits and dashes, with at most 64 characters."""
    word = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:MAX_HANDLE_CHARACTERS].rstrip("-")
    return word or "agent"


def assign(name: str, taken: Collection[str], number: int = 2) -> str:
    """Return the handle for `name`: its slug if that is free, else the slug with the lowest free number from `number`
    on."""
    base = slug(name)
    if base not in taken and base not in RESERVED_HANDLES:
        return base
    while f"{base[: MAX_HANDLE_CHARACTERS - len(str(number)) - 1]}-{number}" in taken:
        number += 1
    return f"{base[: MAX_HANDLE_CHARACTERS - len(str(number)) - 1]}-{number}"


class RunNames:
    """The handles of the runs of one process. Handles are never released, so that the numbers of an agent's runs need
    not be searched from the start."""

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._next_number: dict[str, int] = {}

    def free(self, name: str) -> str:
        """Return a free handle for `name`. It stays free until it is added."""
        return assign(name, self._taken, self._next_number.get(slug(name), 2))

    def add(self, handle: str) -> None:
        self._taken.add(handle)
        base, _, number = handle.rpartition("-")
        if base and number.isdecimal() and int(number) == self._next_number.get(base, 2):
            self._next_number[base] = int(number) + 1


def parse_mention(text: str) -> Mention | None:
    """Return handle and message of text such as `@explore look here`; None for a bare handle, a path, a file name, or a
    mention that is not at the start."""
    match = _MENTION.fullmatch(text)
    return Mention(match[1].lower(), match[2].strip()) if match else None


def without_prefix(handle: str) -> str | None:
    """Return `explore` for `agent-explore`; None for a handle without this prefix."""
    name = handle.removeprefix("agent-")
    return name if name != handle and name else None
