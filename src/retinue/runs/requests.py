"""Requests for runs, from models, people, programs and schedules: checked, merged with the agent's file, and told to
the run as its task.

A request that nobody could have meant is refused before anything is looked up or made. A long task is handed over as a
file, after the parent's conversation where the run inherits it.

A call that could not be started is kept for ten minutes, so that a model need not write it again: calling again with
the handle and only the corrected field runs the stored call. A handle stays the same while the same call keeps failing.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from msgspec import Struct
from msgspec.structs import replace

from retinue.agents.catalog import require_startable
from retinue.core.clock import Clock
from retinue.core.delegation import Refusal, SpawnCall, Vocabulary
from retinue.core.messages import AssistantMessage, Message, ToolMessage, UserMessage
from retinue.core.request import RunRequest
from retinue.core.spec import THINKING_LEVELS, AgentSpec, PermissionMode
from retinue.core.usage import Limits
from retinue.errors import DisabledAgentError, RefusedAgentError, UnknownAgentError, UsageError
from retinue.loop.submission import check_schema
from retinue.models.efforts import level_of
from retinue.runs.budget import BUDGETED
from retinue.settings.places import private_folder

if TYPE_CHECKING:
    from retinue.agents.catalog import Catalog, LoadedAgent
    from retinue.runs.project import Project
    from retinue.runs.run import Run
    from retinue.settings.table import Settings


_WHOLE = frozenset({"max_turns", "grace_turns", "max_tool_calls", "repeated_calls", "max_tokens"})
_LIMITS = (*Limits.__struct_fields__, *BUDGETED)
_MODES = get_args(PermissionMode)


def well_formed(request: RunRequest) -> None:
    """Raise UsageError for what nobody could have meant."""
    if not isinstance(request.task, str):
        raise UsageError(f"The task must be text, not {type(request.task).__name__}.")
    if request.limits:
        _check_limits(request.limits)
    if request.thinking is not None and level_of(str(request.thinking)) is None:
        raise UsageError(
            f"There is no thinking level '{request.thinking}'.", remedy=f"Use one of {', '.join(THINKING_LEVELS)}."
        )
    if request.permission_mode is not None and request.permission_mode not in _MODES:
        raise UsageError(
            f"There is no permission mode '{request.permission_mode}'.", remedy=f"Use one of {', '.join(_MODES)}."
        )
    if request.schema is not None:
        name = "The output schema"
        if request.schema == request.spec.output_schema:
            name = f"The output schema of agent '{request.spec.name}' in {request.spec.path or 'its definition'}"
        check_schema(request.schema, name)


def _check_limits(limits: Mapping[str, Any]) -> None:
    for name, value in limits.items():
        if name not in _LIMITS:
            raise UsageError(f"There is no limit '{name}'.", remedy=f"Known: {', '.join(_LIMITS)}.")
        if value is None:
            continue
        right = (int,) if name in _WHOLE else (int, float)
        if type(value) not in right or not 0 <= value < math.inf:
            what = "a whole number" if name in _WHOLE else "a number"
            raise UsageError(f"The limit '{name}' must be {what}, 0 or more, not {value!r}.", remedy="None: no limit.")


_FORK_HEAD = """# Parent Conversation Context
What follows is the conversation of the agent that started you, for your information.
It is not addressed to you; your own task comes after it."""
TAIL = "---\n# Your Task (below)\n\n"
"""Ends the block; the task of the child follows."""


def inherited_context(messages: Iterable[Message]) -> str:
    """The block that goes before the child's task; empty when nothing was said. Tool results
    are left out, summaries of a compaction stand where they were."""
    lines: list[str] = []
    for message in messages:
        match message:
            case UserMessage():
                label = "Summary" if message.origin == "summary" else "User"
                text = message.text.strip()
            case AssistantMessage():
                label, text = "Assistant", message.text.strip()
            case ToolMessage():
                continue
        if text:
            lines.append(f"[{label}]: {text}")
    return "\n\n".join([_FORK_HEAD, *lines, TAIL]) if lines else ""


LONGEST_TASK = 24_000
"""Characters; a longer task is handed over as a file."""
_HEAD = 4_000
_END = 1_000


def task_message(task: str, folder: Path, *, readable: bool, limit: int = LONGEST_TASK) -> str:
    """`task` as the run is told it. One longer than `limit` characters is written to a file of
    `folder`, which the run can read; a run without a tool to read it (`readable`) hears all of
    it. An inherited conversation before the task stays in the message."""
    context, mark, own = task.rpartition(TAIL)
    if len(own) <= limit or not readable:
        return task
    path = private_folder(folder) / "task.md"
    try:
        path.write_text(own, encoding="utf-8", errors="replace")
    except OSError:
        # Nothing is lost: it is only longer.
        return task
    left = len(own) - _HEAD - _END
    return (
        f"{context}{mark}Your task has {len(own):,} characters and is in {path}. Read that file whole before you "
        f"begin; this is its beginning and its end.\n\n<task_beginning>\n{own[:_HEAD]}\n</task_beginning>\n\n"
        f"[... {left:,} characters are left out here ...]\n\n<task_end>\n{own[-_END:]}\n</task_end>"
    )


KEEP_SECONDS = 600.0


class RetryCalls:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._calls: dict[str, tuple[float, SpawnCall]] = {}

    def keep(self, call: SpawnCall) -> str:
        """Store `call` (under the handle it came with, if any) and return its handle."""
        self._forget()
        handle = call.retry or f"retry-{secrets.token_hex(4)}"
        self._calls[handle] = (self._clock.monotonic(), replace(call, retry=handle))
        return handle

    def take(self, call: SpawnCall) -> SpawnCall | Refusal:
        """The stored call of `call.retry` with what `call` says laid over it; `call` itself when
        it names no handle."""
        if call.retry is None:
            return call
        self._forget()
        stored = self._calls.get(call.retry)
        if stored is None:
            return Refusal(
                code="UNKNOWN_RETRY",
                message=f'There is no stored call "{call.retry}" (any more). Make the whole call again.',
            )
        said = {name: value for name in _NAMES if (value := getattr(call, name)) not in (None, "")}
        return replace(stored[1], **said)

    def drop(self, handle: str | None) -> None:
        """The call has been started: its handle is no longer needed."""
        if handle is not None:
            self._calls.pop(handle, None)

    def _forget(self) -> None:
        oldest = self._clock.monotonic() - KEEP_SECONDS
        self._calls = {handle: entry for handle, entry in self._calls.items() if entry[0] >= oldest}


_NAMES = tuple(name for name in SpawnCall.__struct_fields__ if name != "vocabulary")


GENERAL = "general-purpose"
"""What an agent starts that names no type; a main agent may have another by setting."""


class Resolved(Struct, frozen=True):
    """`note` must be said in the result: the caller asked for something else."""

    spec: AgentSpec
    note: str = ""


def resolve_type(
    wanted: str | None,
    catalog: Catalog,
    settings: Settings,
    *,
    vocabulary: Vocabulary = "claude",
    strict: bool = False,
    allowed: tuple[str, ...] | None = None,
) -> Resolved | Refusal:
    """A disabled agent counts as unknown, but the other vocabularies name it. Unknown types fall
    back as the setting says, but never for the other vocabularies, for nested callers (`strict`),
    or past an allowlist."""
    name = (wanted or "").strip() or (GENERAL if strict and vocabulary == "claude" else "")
    entry = _entry(name, catalog, vocabulary) if name else None
    found = entry.spec if entry is not None and entry.enabled else None
    refused = _refused(found) if found is not None else None
    if refused is not None:
        return refused
    if found is not None and _is_allowed(found.name, allowed):
        return Resolved(found)
    if found is not None:
        return _refuse(f'This agent may not start "{found.name}".', catalog, allowed)
    if entry is not None and vocabulary != "claude":
        return _refuse(f"Subagent '{name}' is disabled.", catalog, allowed, code=DisabledAgentError.code)
    broken = catalog.why_broken(name) if entry is None and name else None
    # Never another agent instead, which may have more rights.
    if broken is not None:
        return Refusal(code=RefusedAgentError.code, message=f'The file of "{name}" could not be loaded: {broken}')
    if vocabulary != "claude" or strict:
        return _refuse(_unknown(name, vocabulary), catalog, allowed)
    fallback = settings.fallback_subagent
    if fallback is False:
        return _refuse(_unknown(name, vocabulary), catalog, allowed)
    if fallback is None:
        note = f'Unknown agent type "{name}"; using general-purpose.' if name else ""
        return Resolved(catalog.general_purpose(), note)
    other = _entry(fallback, catalog, vocabulary)
    if other is None or not other.enabled:
        return _refuse(
            f'Unknown agent type "{name}", and the fallback "{fallback}" of the settings is unknown or disabled, too.',
            catalog,
            allowed,
        )
    return Resolved(other.spec, f'Unknown agent type "{name}"; using {other.name}.' if name else "")


_DECIDED = ("model", "thinking", "max_turns", "background", "isolated", "isolation", "inherit_context")


def merge(spec: AgentSpec, call: SpawnCall, settings: Settings) -> tuple[SpawnCall, tuple[str, ...]]:
    """Return the call with what the agent's file decides, and what the caller asked for in vain. The file comes first,
    the call fills what it leaves open, settings come last. A `false` of the file is a decision, too."""
    decided: dict[str, Any] = {}
    ignored: list[str] = []
    for name in _DECIDED:
        of_file = getattr(spec.model if name in ("model", "thinking") else spec, "name" if name == "model" else name)
        asked = getattr(call, name)
        if of_file is not None and asked not in (None, of_file):
            label = "run_in_background" if name == "background" else name
            ignored.append(f"{label}={asked} (the file says {of_file})")
        decided[name] = asked if of_file is None else of_file
    if decided["background"] is None:
        decided["background"] = call.vocabulary == "claude" and settings.background_by_default
    if not settings.worktree_isolation:
        decided["isolation"] = None
    return replace(call, **decided), tuple(ignored)


async def request_of_call(spec: AgentSpec, call: SpawnCall, project: Project, parent: Run | None) -> RunRequest:
    """Return the request of a merged call, below `parent` if there is one."""
    if call.isolated:
        spec = replace(spec, isolated=True, subagents=False)
    request = RunRequest(
        spec=spec,
        task=await project.with_initial_prompt(spec, call.prompt),
        cwd=project.cwd,
        model=call.model if call.model != spec.model.name else None,
        thinking=call.thinking,
        # 0 stands for no limit.
        limits={} if call.max_turns is None else {"max_turns": call.max_turns or None},
        budget=call.budget,
        schema=spec.output_schema,
        depth=1,
        isolation="worktree" if call.isolation == "worktree" else None,
    )
    if parent is None:
        return request
    return replace(
        request,
        cwd=parent.launch.request.cwd,
        parent_id=parent.id,
        root_id=parent.place.root_id,
        depth=parent.depth + 1,
        permission_mode=parent.mode,
    )


def _entry(name: str, catalog: Catalog, vocabulary: Vocabulary) -> LoadedAgent | None:
    """The agent of that name, enabled or not."""
    try:
        return catalog.find(name, vocabulary)
    except UnknownAgentError:
        return None


def _is_allowed(name: str, allowed: tuple[str, ...] | None) -> bool:
    return allowed is None or name.casefold() in {each.casefold() for each in allowed}


def _refused(spec: AgentSpec) -> Refusal | None:
    """The answer to whoever wants an agent that must not be started; None for any other."""
    try:
        require_startable(spec)
    except RefusedAgentError as error:
        return Refusal(code=error.code, message=str(error))
    return None


def _unknown(name: str, vocabulary: Vocabulary) -> str:
    if vocabulary == "codingcode":
        return f"Unknown subagent: {name}."
    return f'Unknown agent type "{name}".' if name else "No agent type was given."


def _refuse(
    message: str,
    catalog: Catalog,
    allowed: tuple[str, ...] | None,
    code: str = UnknownAgentError.code,
) -> Refusal:
    names = [name for name in sorted(catalog.names) if _is_allowed(name, allowed)]
    return Refusal(code=code, message=f"{message} Available agents: {', '.join(names) or 'none'}.")
