"""One run from its first event to its last: the loop's bodies become events of the log.

The loop is asked for its next body only after the last one is on its way to the file, and before
a tool that can change anything runs, the fact that it starts is *in* the file. So a process that
dies leaves no effect without a trace.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from retinue.agents.report import is_file_note
from retinue.capabilities.audit.attach import Audit
from retinue.capabilities.convert.attach import convert_to_text
from retinue.capabilities.hooks.attach import hooks_for
from retinue.capabilities.lsp.attach import diagnosed
from retinue.capabilities.mcp.attach import late_tools, tool_names
from retinue.capabilities.memory.attach import make_folder
from retinue.capabilities.permissions.gatekeeper import gatekeeper, release, withheld_from
from retinue.capabilities.questions.attach import companion_for, part
from retinue.capabilities.sandbox.attach import put_away, put_up_walls
from retinue.capabilities.skills.attach import connect
from retinue.capabilities.web.attach import reach_of
from retinue.capabilities.worktree.attach import confined, left
from retinue.core.events import FILE_PROBLEM, MISSING, Body, RunEnded, RunResumed, RunStarted, ToolStarted, Warned
from retinue.core.messages import UserMessage, user
from retinue.core.outcome import Failure, Outcome
from retinue.core.permission import READ_ONLY
from retinue.core.tool import ToolContext
from retinue.core.usage import Usage
from retinue.errors import StateError
from retinue.log.encode import dump
from retinue.loop.job import Compaction, Job, Prior
from retinue.loop.run import run_loop
from retinue.runs.assembling import why_absent
from retinue.runs.notification_text import roster
from retinue.runs.offer import connect_patches
from retinue.runs.plan import Launch
from retinue.runs.record import NEWS_PROMPT
from retinue.runs.task import task_message
from retinue.tools.bash_output import BackgroundCommands, stop_commands
from retinue.tools.reach import label

if TYPE_CHECKING:
    from retinue.log.replay import Conversation
    from retinue.runs.handle import RunHandle
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
        _cut_off(node, StateError(f"Run {handle.id} was cut off.", remedy=f"retinue runs resume {handle.id}"))
        raise
    except StateError as error:
        _cut_off(node, error)
    except Exception as error:  # a defect of ours must still give the run an ending
        failure = Failure("internal", f"Retinue failed: {type(error).__name__}: {error}", "Please report this.")
        await finish(node, project, Outcome("error", failure=failure, model=handle.launch.model_name))
        raise
    finally:
        await part(node)
        project.guards.pop(node.id, None)
        await hooks_for(node, project).close()


async def finish(node: RunNode, project: Project, outcome: Outcome) -> None:
    """The run's ending: in the log first, then for everyone who waits. A log that cannot be
    written leaves it without one, and says so to them."""
    node.handle.controls.close()
    asked = await part(node)
    await release(node, project)
    hooks = hooks_for(node, project)
    await hooks.ended(outcome)
    if node.audit is not None:
        outcome = await node.audit.finish(outcome)
    if node.handle.launch.isolation is not None:
        outcome = await left(node, project, outcome)
    await hooks.close()
    whole = _complete(outcome, node, (*hooks.notes, *asked))
    if project.redactor.suspects(dump(whole)):
        whole = project.redactor.data(whole)  # so no parent hears a secret
    ended = RunEnded(whole)
    try:
        project.log.append(node.handle.place, ended)
        await project.log.flush()
    except StateError as error:
        _cut_off(node, error)
        return
    node.observe(ended)
    node.handle.settle(ended.outcome)


def _cut_off(node: RunNode, error: StateError) -> None:
    node.handle.controls.close()
    node.lost()
    node.handle.break_off(error)


async def _record(node: RunNode, project: Project, past: Conversation | None, post: str) -> Outcome:
    handle = node.handle
    log, place, launch = project.log, handle.place, handle.launch
    for opening in _openings(handle, past):
        log.append(place, opening)
        node.observe(opening)
    hooks = hooks_for(node, project)
    await hooks.began()
    audit = node.audit = Audit(node, project, resumed=past is not None)
    harmless = {tool.spec.name for tool in launch.tools if tool.spec.effects <= _NO_TRACE_NEEDED} - {"apply_patch"}
    job = _job(node, project, audit, past, post)
    outcome: Outcome | None = None
    stopped: tuple[str, ...] = ()
    try:
        async with aclosing(run_loop(job, launch.model, handle.controls)) as bodies:
            async for body in bodies:
                if isinstance(body, RunEnded):
                    outcome = body.outcome
                    break
                log.append(place, body)
                node.observe(body)
                audit.observe(body)
                if hooks.watches:
                    await hooks.watch(body)
                if isinstance(body, ToolStarted) and body.call.name not in harmless:
                    await log.flush()
    finally:
        stopped = await stop_commands(job.context)
        await put_away(job.context)
    if outcome is None:
        raise RuntimeError("the loop ended without an outcome")
    return replace(outcome, notes=(*outcome.notes, *stopped)) if stopped else outcome


def _complete(outcome: Outcome, node: RunNode, notes: tuple[str, ...]) -> Outcome:
    """With what only the supervisor knows: notes of the launch, who stopped it, and the cost of
    the whole tree."""
    nothing = Usage()
    tree = outcome.usage + node.below if node.children or node.below != nothing else None
    return replace(
        outcome,
        notes=(*node.handle.launch.notes, *notes, *outcome.notes, *_denials(outcome)),
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
    names = tuple(dict.fromkeys([*map(label, launch.tools), *sorted(tool_names(launch))]))
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


def _job(node: RunNode, project: Project, audit: Audit, past: Conversation | None, post: str) -> Job:
    handle, settings = node.handle, project.settings.settings
    launch = handle.launch
    request = launch.request
    hooks = hooks_for(node, project)
    prior = Prior(past.usage, past.turn, past.tool_uses, past.compactions) if past else Prior()
    guarded = gatekeeper(node, project, diagnosed(launch, project, audit.tools), resumed=past is not None)
    context, tools = audit.context(_context(handle, project, launch)), guarded(launch.tools)
    if any(tool.spec.name == "bash_output" for tool in launch.tools):
        context.commands = BackgroundCommands()
    context.transcripts = lambda: [child.handle.launch.transcript or "" for child in node.children]
    context.companion = companion = companion_for(node, project, resumed=past is not None)
    make_folder(launch)
    connect(node, project, tools)
    connect_patches(launch, tools)
    late = late_tools(node, project, guarded, past is not None)
    if launch.mode == "plan" and request.parent_id is None:
        from retinue.runs.plan_mode import PlanMode

        plan, served = PlanMode(node, project, context, guarded, tools), late
        companion.plan = plan
        late = lambda: (*served(), *plan.tools)  # noqa: E731 - as short as what it replaces

    def briefed(task: str) -> str:
        readable = any(tool.spec.name == "read" for tool in launch.tools)
        return task_message(task, context.outputs, readable=readable)

    return Job(
        system=launch.system,
        history=past.messages if past else (),
        messages=_messages(hooks.introduce(briefed(request.task)), past, post, briefed),
        tools=tools,
        context=context,
        limits=launch.limits,
        thinking=launch.thinking,
        temperature=request.spec.model.temperature,
        schema=request.schema,
        first_turn=past.turn + 1 if past else 1,
        prior=prior,
        compaction=Compaction(compaction_share(launch, settings.compaction_at)),
        remind=lambda: "\n\n".join(filter(None, (roster(node), companion.reminder()))),
        account=node.account,
        absent=lambda name: why_absent(launch, project, name),
        late_tools=late,
        before_end=hooks.before_end,
        before_compact=hooks.before_compact,
    )


def compaction_share(launch: Launch, at: float | None) -> float | None:
    """The share of the window at which a conversation is shortened: what the settings say, and
    less where the agent's file names a number of tokens."""
    tokens, window = launch.request.spec.compact_at_tokens, launch.model.info.window
    if tokens is None or not window:
        return at
    return min(tokens / window, 1.0 if at is None else at)


def _messages(
    prompt: str, past: Conversation | None, post: str, briefed: Callable[[str], str]
) -> tuple[UserMessage, ...]:
    """What is new to the model. A run that was cut off before it heard its task hears it now."""
    if past is None:
        return (user(prompt),)
    news = (user(post, "notification"),) if post else ()
    if news and past.messages and prompt == NEWS_PROMPT:
        return news
    if past.created is None or past.messages:
        return (*news, user(prompt, "follow-up"))
    return (user(briefed(past.created.task)), *news, user(prompt, "steer"))


def _context(handle: RunHandle, project: Project, launch: Launch) -> ToolContext:
    roots = (launch.request.cwd, *(project.cwd / root for root in project.settings.settings.extra_roots))
    context = ToolContext(
        run_id=handle.id,
        roots=tuple(map(project.real_path, roots)),
        outputs=Path(project.state, "outputs", handle.id),
        environment=project.tool_environment,
        tool_timeout=launch.limits.tool_seconds,
        child=launch.request.parent_id is not None,
        reach=reach_of(project, handle.id),
        withheld=lambda: withheld_from(handle.id, project),
        takes_documents=lambda: launch.model.info.documents,
        convert=lambda call_id, path, context: convert_to_text(project, call_id, path, context),
    )
    context = confined(context, launch.isolation)
    put_up_walls(lambda: handle.launch, project, context)
    return context
