"""One run from its first event to its last: the loop's bodies become events of the log.

The loop is asked for its next body only after the last one is on its way to the file, and before
a tool that can change anything runs, the fact that it starts is *in* the file. So a process that
dies leaves no effect without a trace.
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
_MOST_DENIALS = 10
_NO_PAST = Conversation()
_NO_TRACE_NEEDED = READ_ONLY | {"spawn"}
"""A run that is started is in the file before it does anything, and its parent's call, which was
appended before, with it."""


async def execute(node: Run, past: Conversation | None = None, news: UserMessage | None = None) -> None:
    """Runs to the end and settles it. Only cancellation leaves the run without an
    ending; the log then shows it as interrupted, which is what it is. `news` is what a resumed
    run hears before its prompt: the ends of children it does not know of yet."""
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
    """Give a run that has not begun its ending."""
    outcome = await _finish(node, Outcome(ended, failure=failure, model=node.launch.model_name))
    await _close_hooks(node)
    try:
        await _end(node, outcome)
    except StateError as error:
        cut_off(node, error)


async def _finish(node: Run, outcome: Outcome) -> Outcome:
    """Return the outcome with what capabilities add to it."""
    node.controls.close()
    for capability in node.project.capabilities.finish:
        outcome = await capability.finish(node, outcome)
    return outcome


async def _close(node: Run, closers: Iterable[Close]) -> None:
    """Release what was opened for the run, in the opposite order; each one also after another has failed."""
    # A stack is made only now: an empty one costs 1 kB in each of thousands of waiting runs.
    async with AsyncExitStack() as stack:
        for close in closers:
            stack.push_async_callback(close, node)


async def _close_hooks(node: Run) -> None:
    node.end_notes[:0] = await node.hooks.close()


async def _end(node: Run, outcome: Outcome) -> None:
    """Record the run's ending, then tell it everyone who waits. Raise StateError when the log cannot be written."""
    project = node.project
    whole = _complete(outcome, node)
    if project.redactor.suspects(dump(whole)):
        # So no parent hears a secret.
        whole = project.redactor.data(whole)
    ended = project.log.append(node.place, RunEnded(whole))
    await project.log.flush()
    node.observe(ended)
    node.settle(whole)


def cut_off(node: Run, error: StateError) -> None:
    """Leave a run without an ending, for it cannot be recorded any more: it is interrupted, and can be resumed once
    the log can be written."""
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
        # It holds the context of the tools, which must go now and not with the garbage collector.
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
    """Write the first events of the run, and let every capability take its part."""
    for opening in _openings(node, past):
        node.record(opening)
    parts: dict[Capability, RunPart] = {}
    for capability in node.project.capabilities.plan:
        part = await capability.running(node, resumed=past is not None)
        if part is not None:
            parts[capability] = part
            if part.close is not None:
                closers.append(part.close)
    return _Work(
        _job(node, parts, past, news),
        tuple(part.observe for part in parts.values() if part.observe is not None),
        tuple(part.watch for part in parts.values() if part.watch is not None),
    )


def _needs_trace(launch: Launch, name: str) -> bool:
    """Return whether the start of a call must be in the file before the call does anything."""
    tool = next((tool for tool in launch.tools if tool.spec.name == name), None)
    return tool is None or name == "apply_patch" or not tool.spec.effects <= _NO_TRACE_NEEDED


async def _remove_walls(context: ToolContext) -> None:
    """Remove the scratch folders of a run whose programs have ended."""
    walls = context.confine
    # Shielded, so that a cancelled run leaves no folders. Walls that were never used have none, and need no thread.
    if walls is not None and walls.in_use:
        await asyncio.shield(asyncio.to_thread(walls.close))
    elif walls is not None:
        walls.close()


def _complete(outcome: Outcome, node: Run) -> Outcome:
    """With what only the supervisor knows: notes of the launch, who stopped it, and the cost of
    the whole tree."""
    nothing = Usage()
    tree = outcome.usage + node.below if node.children or node.below != nothing else None
    return replace(
        outcome,
        notes=(*node.launch.notes, *node.end_notes, *outcome.notes, *_denials(outcome)),
        tree_usage=tree,
        stopped_by=node.stopped_by if outcome.ended == "stopped" else None,
    )


def _denials(outcome: Outcome) -> list[str]:
    """What was refused, for whoever reads the result: a parent must know what could not be done."""
    denied = outcome.evidence.denials
    more = [f"… and {len(denied) - _MOST_DENIALS} more calls were denied"] if len(denied) > _MOST_DENIALS else []
    return [*(f"Denied: {each}" for each in denied[:_MOST_DENIALS]), *more]


def _openings(node: Run, past: Conversation | None) -> list[Body]:
    launch = node.launch
    names = tuple(dict.fromkeys([*map(label, launch.tools), *sorted(launch.later_tool_names)]))
    bodies: list[Body] = []
    if past is not None:
        bodies.append(RunResumed(launch.request.task, tuple(f"{call.name} {call.id}" for call in past.unknown)))
    if past is None or past.started is None or past.started.model != launch.model_name:
        # one that was cut off in the queue starts only now; another goes on with another model
        bodies.append(RunStarted(launch.model_name, names, str(launch.request.cwd), launch.transcript))
    bodies += [Warned(_code(launch, note), note) for note in launch.notes]
    return bodies


def _code(launch: Launch, note: str) -> str:
    """The code of the warning that a note of the launch becomes."""
    if note in launch.missing:
        return MISSING
    return FILE_PROBLEM if is_file_note(launch.request.spec, note) else "launch"


def _job(node: Run, parts: Mapping[Capability, RunPart], past: Conversation | None, news: UserMessage | None) -> Job:
    # First: the walls of a context ask the run's guard.
    wrap = _wrap(node.project.capabilities, parts)
    answers = _RunAnswers(node)
    context = _context(node, parts.values(), answers)
    launch = node.launch
    request, tools = launch.request, wrap(launch.tools)
    for part in parts.values():
        if part.connect is not None:
            part.connect(tools, wrap)
    connect_patches(launch.tools, tools)
    tools = with_hidden_patches(tools, wrap)
    late = _late_tools(node, context, wrap, tools, parts.values())

    readable = any(tool.spec.name == "read" for tool in launch.tools)
    brief = partial(task_message, folder=context.outputs, readable=readable)
    prompt = brief(request.task)
    for part in parts.values():
        if part.introduce is not None:
            prompt = part.introduce(prompt)
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
        request_headers=_first(part.request_headers for part in parts.values()) or dict,
        before_end=_first(part.before_end for part in parts.values()),
        before_compact=_first(part.before_compact for part in parts.values()),
    )


def _wrap(capabilities: Capabilities, parts: Mapping[Capability, RunPart]) -> Wrap:
    """Return what is put around each tool of the run, from the inside out."""
    wrap: Wrap = tuple
    if any(part.wrap is not None for capability, part in parts.items() if capability not in capabilities.wrap):
        raise RuntimeError("a capability wraps tools and is not in the order of wraps")
    for capability in capabilities.wrap:
        part = parts.get(capability)
        if part is not None and part.wrap is not None:
            wrap = part.wrap(wrap)
    return wrap


def _late_tools(
    node: Run,
    context: ToolContext,
    wrap: Wrap,
    tools: tuple[Tool, ...],
    parts: Iterable[RunPart],
) -> Callable[[], tuple[Tool, ...]]:
    """Return what the loop asks for tools that the run gets after its launch."""
    sources = [part.late_tools for part in parts if part.late_tools is not None]
    request = node.launch.request
    if request.parent_id is None and (request.depth == 0 or node.launch.mode == "plan"):
        # A person may change the mode of the run they talk to.
        from retinue.runs.plan_mode import PlanMode

        plan = node.plan_mode = PlanMode(node, context, wrap, tools)
        sources.append(lambda: plan.tools)
    if not sources:
        # Asked in every turn of every run: for most of them it must cost nothing.
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
    """The share of the window at which a conversation is shortened: what the settings say, and
    less where the agent's file names a number of tokens."""
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
    """What is new to the model. A run that was cut off before it heard its task hears it now."""
    if past is None:
        return (user(prompt, images=images),)
    told = (news,) if news is not None else ()
    if told and past.messages and prompt == NEWS_PROMPT:
        return told
    if past.created is None or past.messages:
        return (*told, user(prompt, "follow-up", images))
    return (user(brief(past.created.task)), *told, user(prompt, "steer", images))


def _context(node: Run, parts: Iterable[RunPart], answers: _RunAnswers) -> ToolContext:
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
    for part in parts:
        if part.context is not None:
            context = part.context(context)
    if any(tool.spec.name == "bash_output" for tool in launch.tools):
        context.commands = BackgroundCommands()
    return context
