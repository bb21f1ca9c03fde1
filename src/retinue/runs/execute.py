"""One run from its first event to its last: the loop's bodies become events of the log.

The loop is asked for its next body only after the last one is on its way to the file, and before
a tool that can change anything runs, the fact that it starts is *in* the file. So a process that
dies leaves no effect without a trace.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import aclosing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from retinue.agents.report import is_file_note
from retinue.core.events import (
    FILE_PROBLEM,
    MISSING,
    Body,
    RunEnded,
    RunResumed,
    RunStarted,
    ToolStarted,
    TurnStarted,
    Warned,
)
from retinue.core.messages import Image, UserMessage, user
from retinue.core.outcome import Failure, Outcome
from retinue.core.permission import READ_ONLY
from retinue.core.tool import Tool, ToolContext
from retinue.core.usage import Usage
from retinue.errors import StateError
from retinue.log.encode import dump
from retinue.loop.job import Compaction, Job, Prior
from retinue.loop.run import run_loop
from retinue.runs.guard import withheld_from
from retinue.runs.launch import later_tool_names
from retinue.runs.notification_text import roster
from retinue.runs.offer import connect_patches, with_hidden_patches
from retinue.runs.record import NEWS_PROMPT
from retinue.runs.requests import task_message
from retinue.runs.system_prompt import why_absent
from retinue.tools.bash_output import BackgroundCommands, stop_commands
from retinue.tools.reach import label

if TYPE_CHECKING:
    from retinue.core.tool import Wrap
    from retinue.log.replay import Conversation
    from retinue.runs.handle import RunHandle
    from retinue.runs.launch import Launch
    from retinue.runs.node import RunNode
    from retinue.runs.project import Project


_MOST_DENIALS = 10
_NO_TRACE_NEEDED = READ_ONLY | {"spawn"}
"""A run that is started is in the file before it does anything, and its parent's call, which was
appended before, with it."""


async def execute(node: RunNode, project: Project, past: Conversation | None = None, post: str = "") -> None:
    """Runs to the end and settles the handle. Only cancellation leaves the run without an
    ending; the log then shows it as interrupted, which is what it is. `post` is what a resumed
    run hears before its prompt: the ends of children it does not know of yet."""
    handle = node.handle
    try:
        await finish(node, project, await _record(node, project, past, post))
    except asyncio.CancelledError:
        _leave(node, StateError(f"Run {handle.id} was cut off.", remedy=f"retinue runs resume {handle.id}"))
        raise
    except StateError as error:
        cut_off(node, error)
    except Exception as error:
        # A defect of ours must still give the run an ending.
        failure = Failure("internal", f"Retinue failed: {type(error).__name__}: {error}", "Please report this.")
        await finish(node, project, Outcome("error", failure=failure, model=handle.launch.model_name))
        raise
    finally:
        for close in project.capabilities.each("close", "finish"):
            await close(node)


async def finish(node: RunNode, project: Project, outcome: Outcome) -> None:
    """The run's ending: in the log first, then for everyone who waits. A log that cannot be
    written leaves it without one, and says so to them."""
    node.handle.controls.close()
    for complete in project.capabilities.each("finish", "finish"):
        outcome = await complete(node, outcome)
    for close in project.capabilities.each("close", "finish"):
        await close(node)
    whole = _complete(outcome, node)
    if project.redactor.suspects(dump(whole)):
        # So no parent hears a secret.
        whole = project.redactor.data(whole)
    ended = RunEnded(whole)
    try:
        project.log.append(node.handle.place, ended)
        await project.log.flush()
    except StateError as error:
        cut_off(node, error)
        return
    node.observe(ended)
    node.handle.settle(ended.outcome)


def cut_off(node: RunNode, error: StateError) -> None:
    """Leave a run without an ending, for it cannot be recorded any more: it is interrupted, and can be resumed once
    the log can be written."""
    node.project.log.cut_off(node.handle.place)
    _leave(node, error)


def _leave(node: RunNode, error: StateError) -> None:
    node.handle.controls.close()
    node.lost()
    node.handle.break_off(error)


async def _record(node: RunNode, project: Project, past: Conversation | None, post: str) -> Outcome:
    handle = node.handle
    log, place, launch = project.log, handle.place, handle.launch
    for opening in _openings(handle, past):
        log.append(place, opening)
        node.observe(opening)
    capabilities, resumed = project.capabilities, past is not None
    for begin in capabilities.each("open"):
        await begin(node, resumed=resumed)
    observers = _for_run(node, capabilities.each("observer"))
    watchers = _for_run(node, capabilities.each("watcher"))
    harmless = {tool.spec.name for tool in launch.tools if tool.spec.effects <= _NO_TRACE_NEEDED} - {"apply_patch"}
    job = _job(node, project, past, post)
    outcome: Outcome | None = None
    stopped: tuple[str, ...] = ()
    try:
        async with aclosing(run_loop(job, launch.model, handle.controls)) as bodies:
            async for body in bodies:
                if isinstance(body, RunEnded):
                    outcome = body.outcome
                    break
                written = log.append(place, body)
                if isinstance(body, TurnStarted):
                    node.turn_seq = written.seq
                node.observe(body)
                for observe in observers:
                    observe(body)
                for watch in watchers:
                    await watch(body)
                if isinstance(body, ToolStarted) and body.call.name not in harmless:
                    await log.flush()
    finally:
        stopped = await stop_commands(job.context)
        for end_calls in capabilities.each("end_calls"):
            await end_calls(node, job.context)
        # It holds the context of the tools, which must go now and not with the garbage collector.
        node.plan_mode = None
    if outcome is None:
        raise RuntimeError("the loop ended without an outcome")
    return replace(outcome, notes=(*outcome.notes, *stopped)) if stopped else outcome


def _complete(outcome: Outcome, node: RunNode) -> Outcome:
    """With what only the supervisor knows: notes of the launch, who stopped it, and the cost of
    the whole tree."""
    nothing = Usage()
    tree = outcome.usage + node.below if node.children or node.below != nothing else None
    return replace(
        outcome,
        notes=(*node.handle.launch.notes, *node.end_notes, *outcome.notes, *_denials(outcome)),
        tree_usage=tree,
        stopped_by=node.stopped_by if outcome.ended == "stopped" else None,
    )


def _denials(outcome: Outcome) -> list[str]:
    """What was refused, for whoever reads the result: a parent must know what could not be done."""
    denied = outcome.evidence.denials
    more = [f"… and {len(denied) - _MOST_DENIALS} more calls were denied"] if len(denied) > _MOST_DENIALS else []
    return [*(f"Denied: {each}" for each in denied[:_MOST_DENIALS]), *more]


def _openings(handle: RunHandle, past: Conversation | None) -> list[Body]:
    launch = handle.launch
    later = later_tool_names(launch, handle.project)
    names = tuple(dict.fromkeys([*map(label, launch.tools), *sorted(later)]))
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


def _job(node: RunNode, project: Project, past: Conversation | None, post: str) -> Job:
    handle, settings = node.handle, project.settings.settings
    capabilities, resumed = project.capabilities, past is not None
    prior = Prior(past.usage, past.turn, past.tool_uses, past.compactions) if past else Prior()
    # First: the walls of a context ask the run's guard.
    wrap = _wrap(node, project, resumed=resumed)
    context = _context(node, project)
    # What wraps the tools may have added notes to it.
    launch = handle.launch
    request, tools = launch.request, wrap(launch.tools)
    for connect in capabilities.each("connect"):
        connect(node, tools, wrap, resumed=resumed)
    connect_patches(launch, tools)
    tools = with_hidden_patches(tools, wrap)
    late = _late_tools(node, project, context, wrap, tools)

    readable = any(tool.spec.name == "read" for tool in launch.tools)
    brief = partial(task_message, folder=context.outputs, readable=readable)
    prompt = brief(request.task)
    for introduce in capabilities.each("introduce"):
        prompt = introduce(node, prompt)
    return Job(
        system=launch.system,
        history=past.messages if past else (),
        messages=_messages(prompt, request.images, past, post, brief),
        tools=tools,
        context=context,
        limits=launch.limits,
        thinking=launch.thinking,
        temperature=request.spec.model.temperature,
        schema=request.schema,
        accept=request.accept,
        first_turn=past.turn + 1 if past else 1,
        prior=prior,
        compaction=Compaction(compaction_share(launch, settings.compaction_at)),
        remind=partial(_remind, node),
        account=node.account,
        absent=partial(why_absent, launch, project),
        late_tools=late,
        request_headers=_first(node, capabilities.each("request_headers")) or dict,
        before_end=_first(node, capabilities.each("before_end")),
        before_compact=_first(node, capabilities.each("before_compact")),
    )


def _wrap(node: RunNode, project: Project, *, resumed: bool) -> Wrap:
    """Return what is put around each tool of the run, from the inside out."""
    made: Wrap = tuple
    for wrap in project.capabilities.each("wrap", "wrap"):
        made = wrap(node, made, resumed=resumed)
    return made


def _late_tools(
    node: RunNode, project: Project, context: ToolContext, wrap: Wrap, tools: tuple[Tool, ...]
) -> Callable[[], tuple[Tool, ...]]:
    """Return what the loop asks for tools that the run gets after its launch."""
    sources: list[Callable[[], tuple[Tool, ...]]] = _for_run(node, project.capabilities.each("late_tools"))
    request = node.handle.launch.request
    if request.parent_id is None and (request.depth == 0 or node.handle.launch.mode == "plan"):
        # A person may change the mode of the run they talk to.
        from retinue.runs.plan_mode import PlanMode

        plan = node.plan_mode = PlanMode(node, project, context, wrap, tools)
        sources.append(lambda: plan.tools)
    if not sources:
        # Asked in every turn of every run: for most of them it must cost nothing.
        return tuple
    return lambda: tuple(tool for source in sources for tool in source())


def _remind(node: RunNode) -> str:
    """Return what the model must hear again after its conversation was shortened."""
    said = [remind(node) for remind in node.project.capabilities.each("remind")]
    return "\n\n".join(filter(None, (roster(node), *said)))


def _for_run(node: RunNode, methods: tuple[Any, ...]) -> list[Any]:
    """Return what capabilities want to be called with in this run, without those that want nothing."""
    return [made for method in methods if (made := method(node)) is not None]


def _first(node: RunNode, methods: tuple[Any, ...]) -> Any:
    """Return what the first capability that wants to be asked is asked with, or None."""
    return next(iter(_for_run(node, methods)), None)


def compaction_share(launch: Launch, at: float | None) -> float | None:
    """The share of the window at which a conversation is shortened: what the settings say, and
    less where the agent's file names a number of tokens."""
    tokens, window = launch.request.spec.compact_at_tokens, launch.model.info.window
    if tokens is None or not window:
        return at
    return min(tokens / window, 1.0 if at is None else at)


def _messages(
    prompt: str, images: Sequence[Image], past: Conversation | None, post: str, brief: Callable[[str], str]
) -> tuple[UserMessage, ...]:
    """What is new to the model. A run that was cut off before it heard its task hears it now."""
    if past is None:
        return (user(prompt, images=images),)
    news = (user(post, "notification"),) if post else ()
    if news and past.messages and prompt == NEWS_PROMPT:
        return news
    if past.created is None or past.messages:
        return (*news, user(prompt, "follow-up", images))
    return (user(brief(past.created.task)), *news, user(prompt, "steer", images))


def _context(node: RunNode, project: Project) -> ToolContext:
    handle, launch = node.handle, node.handle.launch
    roots = (launch.request.cwd, *(project.cwd / root for root in project.settings.settings.extra_roots))
    context = ToolContext(
        run_id=handle.id,
        roots=tuple(map(project.real_path, roots)),
        outputs=Path(project.state, "outputs", handle.id),
        environment=project.tool_environment,
        tool_timeout=launch.limits.tool_seconds,
        child=launch.request.parent_id is not None,
        withheld=partial(withheld_from, handle.id, project),
        takes_documents=lambda: launch.model.info.documents,
    )
    for around in project.capabilities.each("context"):
        context = around(node, context)
    if any(tool.spec.name == "bash_output" for tool in launch.tools):
        context.commands = BackgroundCommands()
    context.transcripts = partial(_child_transcripts, node)
    return context


def _child_transcripts(node: RunNode) -> list[str]:
    return [child.handle.launch.transcript or "" for child in node.children]
