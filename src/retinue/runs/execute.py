"""The execution of one run from its first event to its last: the loop's bodies become events of the log.

Each body is passed to the log before the loop is asked for the next one. Before a tool that can change anything runs,
its start is *in* the file. So the log has a trace of every effect of a process that dies.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from retinue.agents.catalog import is_file_note
from retinue.core.encode import dump
from retinue.core.events import (
    FILE_PROBLEM,
    MISSING,
    Body,
    RunEnded,
    RunResumed,
    RunStarted,
    ToolStarted,
    Warned,
)
from retinue.core.messages import Image, UserMessage, user
from retinue.core.outcome import Ended, Failure, Outcome
from retinue.core.permission import READ_ONLY
from retinue.core.tool import Tool, ToolContext
from retinue.core.usage import Usage
from retinue.errors import StateError
from retinue.log.replay import Conversation
from retinue.loop.job import Compaction, Job
from retinue.loop.run import run_loop
from retinue.runs.capability import RunPart
from retinue.runs.guard import withheld_from
from retinue.runs.notifications import roster
from retinue.runs.offer import connect_patches, with_hidden_patches
from retinue.runs.record import NEWS_PROMPT
from retinue.runs.requests import task_message
from retinue.runs.system_prompt import why_absent
from retinue.tools.bash import BackgroundCommands, stop_commands
from retinue.tools.paths import label

if TYPE_CHECKING:
    from retinue.core.tool import Wrap
    from retinue.runs.capability import Capabilities, Capability
    from retinue.runs.launch import Launch
    from retinue.runs.run import Run


T = TypeVar("T")
Close = Callable[["Run"], Awaitable[None]]
_MAX_NAMED_DENIALS = 10
_NO_PAST = Conversation()
_TRACELESS_EFFECTS = READ_ONLY | {"spawn"}
"""Effects of tools whose start need not be in the file. A started run is in the file before it does anything, and so is
its parent's call, which was appended before."""


async def execute(node: Run, past: Conversation | None = None, news: UserMessage | None = None) -> None:
    """Execute a run until it has ended. Only cancellation leaves the run without an ending, so that the log shows it as
    interrupted. `news` is a notification before the prompt of a resumed run about completions that it does not know."""
    defect: Exception | None = None
    closers: list[Close] = [_close_hooks]
    try:
        try:
            outcome = await _finish(node, await _record(node, past, news, closers))
        except StateError:
            raise
        except Exception as error:  # noqa: BLE001 - raised again below
            # A defect of ours must still give the run an ending.
            text = f"Retinue failed: {type(error).__name__}: {error}"
            failure = Failure("internal", text, "Please report this.")
            outcome = await _finish(node, Outcome("error", failure=failure, model=node.launch.model_name))
            defect = error
        finally:
            await _close(node, closers)
        await _end(node, outcome)
    except asyncio.CancelledError:
        _leave(node, StateError(f"Run {node.id} was cut off.", remedy=f"retinue runs resume {node.id}"))
        raise
    except StateError as error:
        cut_off(node, error)
    if defect is not None:
        raise defect


async def never_started(node: Run, ended: Ended, failure: Failure) -> None:
    """End a run that has not begun."""
    outcome = await _finish(node, Outcome(ended, failure=failure, model=node.launch.model_name))
    await _close_hooks(node)
    try:
        await _end(node, outcome)
    except StateError as error:
        cut_off(node, error)


async def _finish(node: Run, outcome: Outcome) -> Outcome:
    """Return the outcome with the additions of capabilities."""
    node.controls.close()
    for capability in node.project.capabilities.finish:
        outcome = await capability.finish(node, outcome)
    return outcome


async def _close(node: Run, closers: Iterable[Close]) -> None:
    """Release the resources of the run in the opposite order, even if releasing one of them fails."""
    # The stack is created only now, because an empty one costs 1 kB in each of thousands of waiting runs.
    async with AsyncExitStack() as stack:
        for close in closers:
            stack.push_async_callback(close, node)


async def _close_hooks(node: Run) -> None:
    node.end_notes[:0] = await node.hooks.close()


async def _end(node: Run, outcome: Outcome) -> None:
    """Record the run's ending, then pass it to all who wait. Raise StateError if the log cannot be written."""
    project = node.project
    complete = _complete(outcome, node)
    if project.redactor.suspects(dump(complete)):
        # A parent must not get a secret.
        complete = project.redactor.data(complete)
    ended = project.log.append(node.place, RunEnded(complete))
    await project.log.flush()
    node.observe(ended)
    node.settle(complete)


def cut_off(node: Run, error: StateError) -> None:
    """Leave a run that cannot be recorded any more without an ending. It is interrupted, and can be resumed once the
    log can be written."""
    node.project.log.cut_off(node.place)
    _leave(node, error)


def _leave(node: Run, error: StateError) -> None:
    node.controls.close()
    node.state.end("interrupted", node.clock.now())
    node.break_off(error)


async def _record(node: Run, past: Conversation | None, news: UserMessage | None, closers: list[Close]) -> Outcome:
    work = await _prepare(node, past, news, closers)
    context, observers, watchers = work.job.context, work.observers, work.watchers
    outcome: Outcome | None = None
    stopped: tuple[str, ...] = ()
    try:
        async with aclosing(run_loop(work.job, node.launch.model, node.controls)) as bodies:
            async for body in bodies:
                if isinstance(body, RunEnded):
                    outcome = body.outcome
                    break
                node.record(body)
                for observe in observers:
                    observe(body)
                for watch in watchers:
                    await watch(body)
                if isinstance(body, ToolStarted) and _needs_trace(node.launch, body.call.name):
                    await node.project.log.flush()
    finally:
        stopped = await stop_commands(context)
        await _remove_walls(context)
        # It refers to the context of the tools, which must be freed now and not by the garbage collector.
        node.plan_mode = None
    if outcome is None:
        raise RuntimeError("the loop ended without an outcome")
    return replace(outcome, notes=(*outcome.notes, *stopped)) if stopped else outcome


class _Work(Struct):
    """The job of a run, and the capabilities that follow its events."""

    job: Job
    observers: tuple[Callable[[Body], None], ...]
    watchers: tuple[Callable[[Body], Awaitable[None]], ...]


async def _prepare(node: Run, past: Conversation | None, news: UserMessage | None, closers: list[Close]) -> _Work:
    """Write the first events of the run, and let every capability take part."""
    for opening in _openings(node, past):
        node.record(opening)
    run_parts: dict[Capability, RunPart] = {}
    for capability in node.project.capabilities.plan:
        run_part = await capability.running(node, resumed=past is not None)
        if run_part is not None:
            run_parts[capability] = run_part
            if run_part.close is not None:
                closers.append(run_part.close)
    return _Work(
        _job(node, run_parts, past, news),
        tuple(run_part.observe for run_part in run_parts.values() if run_part.observe is not None),
        tuple(run_part.watch for run_part in run_parts.values() if run_part.watch is not None),
    )


def _needs_trace(launch: Launch, name: str) -> bool:
    """Return whether the start of a call must be in the file before the call does anything."""
    tool = next((tool for tool in launch.tools if tool.spec.name == name), None)
    return tool is None or name == "apply_patch" or not tool.spec.effects <= _TRACELESS_EFFECTS


async def _remove_walls(context: ToolContext) -> None:
    """Remove the scratch folders of a run whose programs have ended."""
    walls = context.confine
    # Shielded, so that a cancelled run leaves no folders. A sandbox that was never used has none and needs no thread.
    if walls is not None and walls.in_use:
        await asyncio.shield(asyncio.to_thread(walls.close))
    elif walls is not None:
        walls.close()


def _complete(outcome: Outcome, node: Run) -> Outcome:
    """Return the outcome with the notes of the launch, the cause of a stop, and the usage of the tree."""
    nothing = Usage()
    tree = outcome.usage + node.below if node.children or node.below != nothing else None
    return replace(
        outcome,
        notes=(*node.launch.notes, *node.end_notes, *outcome.notes, *_denials(outcome)),
        tree_usage=tree,
        stopped_by=node.stopped_by if outcome.ended == "stopped" else None,
    )


def _denials(outcome: Outcome) -> list[str]:
    """Return notes about denied calls, because a parent must know what could not be done."""
    denials = outcome.evidence.denials
    notes = [f"Denied: {denial}" for denial in denials[:_MAX_NAMED_DENIALS]]
    if len(denials) > _MAX_NAMED_DENIALS:
        notes.append(f"… and {len(denials) - _MAX_NAMED_DENIALS} more calls were denied")
    return notes


def _openings(node: Run, past: Conversation | None) -> list[Body]:
    launch = node.launch
    names = tuple(dict.fromkeys([*map(label, launch.tools), *sorted(launch.later_tool_names)]))
    bodies: list[Body] = []
    if past is not None:
        prompt = "" if launch.request.continues else launch.request.task
        bodies.append(RunResumed(prompt, tuple(f"{call.name} {call.id}" for call in past.unknown)))
    if past is None or past.started is None or past.started.model != launch.model_name:
        # A run that was interrupted in the queue starts only now; another one may have another model now.
        bodies.append(RunStarted(launch.model_name, names, str(launch.request.cwd), launch.transcript))
    bodies += [Warned(_code(launch, note), note) for note in launch.notes]
    return bodies


def _code(launch: Launch, note: str) -> str:
    """Return the code of the warning for a note of the launch."""
    if note in launch.missing:
        return MISSING
    return FILE_PROBLEM if is_file_note(launch.request.spec, note) else "launch"


def _job(
    node: Run, run_parts: Mapping[Capability, RunPart], past: Conversation | None, news: UserMessage | None
) -> Job:
    # First, because the sandbox of a context needs the run's guard.
    wrap = _wrap(node.project.capabilities, run_parts)
    answers = _RunAnswers(node)
    context = _context(node, run_parts.values(), answers)
    launch = node.launch
    request, tools = launch.request, wrap(launch.tools)
    for run_part in run_parts.values():
        if run_part.connect is not None:
            run_part.connect(tools, wrap)
    connect_patches(launch.tools, tools)
    tools = with_hidden_patches(tools, wrap)
    late = _late_tools(node, context, wrap, tools, run_parts.values())

    readable = any(tool.spec.name == "read" for tool in launch.tools)
    brief = partial(task_message, folder=context.outputs, readable=readable)
    prompt = brief(request.task)
    for run_part in run_parts.values():
        if run_part.introduce is not None:
            prompt = run_part.introduce(prompt)
    return Job(
        system=launch.system,
        past=past or _NO_PAST,
        messages=_messages(prompt, request.images, past, news, brief),
        tools=tools,
        context=context,
        limits=launch.limits,
        thinking=launch.thinking,
        temperature=request.spec.model.temperature,
        schema=request.schema,
        accept=request.accept,
        compaction=Compaction(compaction_share(launch, node.project.settings.settings.compaction_at)),
        remind=answers.reminder,
        account=node.account,
        absent=answers.why_absent,
        late_tools=late,
        request_headers=_first(run_part.request_headers for run_part in run_parts.values()) or dict,
        before_end=_first(run_part.before_end for run_part in run_parts.values()),
        before_compact=_first(run_part.before_compact for run_part in run_parts.values()),
    )


def _wrap(capabilities: Capabilities, run_parts: Mapping[Capability, RunPart]) -> Wrap:
    """Return the wrapper of the run's tools, composed from the inside out."""
    wrap: Wrap = tuple
    if any(
        run_part.wrap is not None for capability, run_part in run_parts.items() if capability not in capabilities.wrap
    ):
        raise RuntimeError("a capability wraps tools and is not in the order of wraps")
    for capability in capabilities.wrap:
        run_part = run_parts.get(capability)
        if run_part is not None and run_part.wrap is not None:
            wrap = run_part.wrap(wrap)
    return wrap


def _late_tools(
    node: Run,
    context: ToolContext,
    wrap: Wrap,
    tools: tuple[Tool, ...],
    run_parts: Iterable[RunPart],
) -> Callable[[], tuple[Tool, ...]]:
    """Return the function that returns the tools added after the launch."""
    sources = [run_part.late_tools for run_part in run_parts if run_part.late_tools is not None]
    request = node.launch.request
    if request.parent_id is None and (request.depth == 0 or node.launch.mode == "plan"):
        # A person may change the mode of a main run.
        from retinue.runs.plan_mode import PlanMode

        plan = node.plan_mode = PlanMode(node, context, wrap, tools)
        sources.append(lambda: plan.tools)
    if not sources:
        # It is called in every turn of every run, so it must cost nothing for most of them.
        return tuple
    return lambda: tuple(tool for source in sources for tool in source())


class _RunAnswers:
    """Answers questions of the loop and of the tools about their run."""

    __slots__ = ("_run",)

    def __init__(self, run: Run) -> None:
        self._run = run

    def reminder(self) -> str:
        """Return what the model must be told again after its conversation was shortened."""
        dialogue = self._run.dialogue
        todos = dialogue.reminder() if dialogue is not None else ""
        return "\n\n".join(filter(None, (roster(self._run), todos)))

    def why_absent(self, tool: str) -> str:
        return why_absent(self._run, tool)

    def withheld(self) -> Callable[[str], bool] | None:
        return withheld_from(self._run.id, self._run.project)

    def takes_documents(self) -> bool:
        return self._run.launch.model.info.documents

    def child_transcripts(self) -> list[str]:
        return [child.launch.transcript or "" for child in self._run.children]


def _first(functions: Iterable[T | None]) -> T | None:
    return next((function for function in functions if function is not None), None)


def compaction_share(launch: Launch, at: float | None) -> float | None:
    """Return the share of the context window at which a conversation is shortened: that of the settings, or less if the
    agent's file names a number of tokens."""
    tokens, window = launch.request.spec.compact_at_tokens, launch.model.info.window
    if tokens is None or not window:
        return at
    return min(tokens / window, 1.0 if at is None else at)


def _messages(
    prompt: str,
    images: Sequence[Image],
    past: Conversation | None,
    news: UserMessage | None,
    brief: Callable[[str], str],
) -> tuple[UserMessage, ...]:
    """Return the new messages. A run that was interrupted before its first message also gets its task now."""
    if past is None:
        return (user(prompt, images=images),)
    notifications = (news,) if news is not None else ()
    if notifications and past.messages and prompt == NEWS_PROMPT:
        return notifications
    if past.created is None or past.messages:
        return (*notifications, user(prompt, "follow-up", images))
    return (user(brief(past.created.task)), *notifications, user(prompt, "steer", images))


def _context(node: Run, run_parts: Iterable[RunPart], answers: _RunAnswers) -> ToolContext:
    launch, project = node.launch, node.project
    roots = (launch.request.cwd, *(project.cwd / root for root in project.settings.settings.extra_roots))
    context = ToolContext(
        run_id=node.id,
        roots=tuple(map(project.real_path, roots)),
        outputs=Path(project.state, "outputs", node.id),
        environment=project.tool_environment,
        tool_timeout=launch.limits.tool_seconds,
        child=launch.request.parent_id is not None,
        dialogue=node.dialogue,
        transcripts=answers.child_transcripts,
        withheld=answers.withheld,
        takes_documents=answers.takes_documents,
    )
    for run_part in run_parts:
        if run_part.context is not None:
            context = run_part.context(context)
    if any(tool.spec.name == "bash_output" for tool in launch.tools):
        context.commands = BackgroundCommands()
    return context
