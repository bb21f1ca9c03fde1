"""Requests for runs from models, people, programs and schedules: checked, merged with the agent's file, and turned into
the task message.

An invalid request is refused before anything is looked up or created. A long task is passed as a file, after the
parent's conversation if the run inherits it.

A call that could not start a run is stored for ten minutes, so that a model need not repeat it: a call with the handle
and only the corrected field executes the stored call. A handle stays the same while the same call fails again.
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
from retinue.runs.budget import BUDGET_LIMITS
from retinue.settings.places import private_folder

if TYPE_CHECKING:
    from retinue.agents.catalog import Catalog, LoadedAgent
    from retinue.runs.project import Project
    from retinue.runs.run import Run
    from retinue.settings.table import Settings


_INTEGER_LIMITS = frozenset({"max_turns", "grace_turns", "max_tool_calls", "repeated_calls", "max_tokens"})
_LIMIT_NAMES = (*Limits.__struct_fields__, *BUDGET_LIMITS)
_PERMISSION_MODES = get_args(PermissionMode)


def check_values(request: RunRequest) -> None:
    """Raise UsageError for invalid values."""
    if not isinstance(request.task, str):
        raise UsageError(f"The task must be text, not {type(request.task).__name__}.")
    if request.limits:
        _check_limits(request.limits)
    if request.thinking is not None and level_of(str(request.thinking)) is None:
        raise UsageError(
            f"There is no thinking level '{request.thinking}'.", remedy=f"Use one of {', '.join(THINKING_LEVELS)}."
        )
    if request.permission_mode is not None and request.permission_mode not in _PERMISSION_MODES:
        raise UsageError(
            f"There is no permission mode '{request.permission_mode}'.",
            remedy=f"Use one of {', '.join(_PERMISSION_MODES)}.",
        )
    if request.schema is not None:
        name = "The output schema"
        if request.schema == request.spec.output_schema:
            name = f"The output schema of agent '{request.spec.name}' in {request.spec.path or 'its definition'}"
        check_schema(request.schema, name)


def _check_limits(limits: Mapping[str, Any]) -> None:
    for name, value in limits.items():
        if name not in _LIMIT_NAMES:
            raise UsageError(f"There is no limit '{name}'.", remedy=f"Known: {', '.join(_LIMIT_NAMES)}.")
        if value is None:
            continue
        types = (int,) if name in _INTEGER_LIMITS else (int, float)
        if type(value) not in types or not 0 <= value < math.inf:
            noun = "a whole number" if name in _INTEGER_LIMITS else "a number"
            raise UsageError(f"The limit '{name}' must be {noun}, 0 or more, not {value!r}.", remedy="None: no limit.")


_CONTEXT_HEADING = """# Parent Conversation Context
What follows is the conversation of the agent that started you, for your information.
It is not addressed to you; your own task comes after it."""
CONTEXT_END = "---\n# Your Task (below)\n\n"
"""Ends the inherited conversation; the task of the child follows."""


def inherited_context(messages: Iterable[Message]) -> str:
    """Return the parent's conversation as text before the child's task; empty if there is none. It has the summaries of
    compactions and no tool results."""
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
    return "\n\n".join([_CONTEXT_HEADING, *lines, CONTEXT_END]) if lines else ""


MAX_TASK_CHARACTERS = 24_000
"""A longer task is passed as a file."""
_TASK_START_CHARACTERS = 4_000
_TASK_END_CHARACTERS = 1_000


def task_message(task: str, folder: Path, *, readable: bool, limit: int = MAX_TASK_CHARACTERS) -> str:
    """Return the message with the task. A task of more than `limit` characters is written to a file in `folder`; unless
    it is `readable` for the run's tools, the message has all of it. An inherited conversation stays in the message."""
    context, mark, own = task.rpartition(CONTEXT_END)
    if len(own) <= limit or not readable:
        return task
    path = private_folder(folder) / "task.md"
    try:
        path.write_text(own, encoding="utf-8", errors="replace")
    except OSError:
        # Pass the long task in the message.
        return task
    start, end = own[:_TASK_START_CHARACTERS], own[-_TASK_END_CHARACTERS:]
    omitted = len(own) - len(start) - len(end)
    return (
        f"{context}{mark}Your task has {len(own):,} characters and is in {path}. Read the complete file before you "
        f"begin. Its beginning and its end:\n\n<task_beginning>\n{start}\n</task_beginning>\n\n"
        f"[... {omitted:,} characters are left out here ...]\n\n<task_end>\n{end}\n</task_end>"
    )


STORED_CALL_SECONDS = 600.0


class RetryCalls:
    """Stores calls that failed, so that they can be corrected."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._calls: dict[str, tuple[float, SpawnCall]] = {}

    def keep(self, call: SpawnCall) -> str:
        """Store `call` under its own or a new handle, and return the handle."""
        self._remove_expired()
        handle = call.retry or f"retry-{secrets.token_hex(4)}"
        self._calls[handle] = (self._clock.monotonic(), replace(call, retry=handle))
        return handle

    def take(self, call: SpawnCall) -> SpawnCall | Refusal:
        """Return the stored call of `call.retry` with the values of `call` in place of its own; `call` itself if it has
        no handle."""
        if call.retry is None:
            return call
        self._remove_expired()
        stored = self._calls.get(call.retry)
        if stored is None:
            return Refusal(
                code="UNKNOWN_RETRY",
                message=f'There is no stored call "{call.retry}" (any more). Make the whole call again.',
            )
        fields = [name for name in SpawnCall.__struct_fields__ if name != "vocabulary"]
        corrections = {name: value for name in fields if (value := getattr(call, name)) not in (None, "")}
        return replace(stored[1], **corrections)

    def drop(self, handle: str | None) -> None:
        """Remove the call of a handle after a run was started."""
        if handle is not None:
            self._calls.pop(handle, None)

    def _remove_expired(self) -> None:
        oldest = self._clock.monotonic() - STORED_CALL_SECONDS
        self._calls = {handle: entry for handle, entry in self._calls.items() if entry[0] >= oldest}


GENERAL_PURPOSE = "general-purpose"
"""The agent of calls that name no type. A setting can change it for main agents."""


class ResolvedAgent(Struct, frozen=True):
    """The agent of a call. `note` tells the caller if it is another one than the call named."""

    spec: AgentSpec
    note: str = ""


def resolve_type(
    requested: str | None,
    catalog: Catalog,
    settings: Settings,
    *,
    vocabulary: Vocabulary = "claude",
    strict: bool = False,
    allowed: tuple[str, ...] | None = None,
) -> ResolvedAgent | Refusal:
    """Return the agent of a call. A disabled agent is treated as unknown; only in the other vocabularies the refusal
    names it. For an unknown type the setting may name a fallback, but never in the other vocabularies, for nested
    callers (`strict`), or against an allowlist."""
    name = (requested or "").strip() or (GENERAL_PURPOSE if strict and vocabulary == "claude" else "")
    entry = _entry(name, catalog, vocabulary) if name else None
    if entry is not None and entry.enabled:
        refusal = _refuse_unstartable(entry.spec)
        if refusal is None and not _is_allowed(entry.spec.name, allowed):
            refusal = _refuse(f'This agent may not start "{entry.spec.name}".', catalog, allowed)
        return ResolvedAgent(entry.spec) if refusal is None else refusal
    if entry is not None and vocabulary != "claude":
        return _refuse(f"Subagent '{name}' is disabled.", catalog, allowed, code=DisabledAgentError.code)
    broken = catalog.why_broken(name) if entry is None and name else None
    # Do not fall back to another agent, which may have more rights.
    if broken is not None:
        return Refusal(code=RefusedAgentError.code, message=f'The file of "{name}" could not be loaded: {broken}')
    if vocabulary != "claude" or strict:
        return _refuse(_unknown(name, vocabulary), catalog, allowed)
    fallback = settings.fallback_subagent
    if fallback is False:
        return _refuse(_unknown(name, vocabulary), catalog, allowed)
    if fallback is None:
        note = f'Unknown agent type "{name}"; using general-purpose.' if name else ""
        return ResolvedAgent(catalog.general_purpose(), note)
    other = _entry(fallback, catalog, vocabulary)
    if other is None or not other.enabled:
        return _refuse(
            f'Unknown agent type "{name}", and the fallback "{fallback}" of the settings is unknown or disabled.',
            catalog,
            allowed,
        )
    return ResolvedAgent(other.spec, f'Unknown agent type "{name}"; using {other.name}.' if name else "")


_MERGED_OPTIONS = ("model", "thinking", "max_turns", "background", "isolated", "isolation", "inherit_context")


def merge(spec: AgentSpec, call: SpawnCall, settings: Settings) -> tuple[SpawnCall, tuple[str, ...]]:
    """Return the call with its final options, and the caller's options that are ignored. The file takes precedence over
    the call, and the call over the settings. A `false` of the file also takes precedence."""
    decided: dict[str, Any] = {}
    ignored: list[str] = []
    for name in _MERGED_OPTIONS:
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
    """Return the agent with that name, enabled or not."""
    try:
        return catalog.find(name, vocabulary)
    except UnknownAgentError:
        return None


def _is_allowed(name: str, allowed: tuple[str, ...] | None) -> bool:
    return allowed is None or name.casefold() in {allowed_name.casefold() for allowed_name in allowed}


def _refuse_unstartable(spec: AgentSpec) -> Refusal | None:
    """Return the refusal for an agent that must not be started; None for any other."""
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
