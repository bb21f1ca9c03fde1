"""Delegation: the tools of a run start, read and control its children through this module.

All requests of a model pass through it, so that ownership, depth, budget and the rules of the agent's file are checked
in one place. A mistake of the model is returned as a Refusal that names the correction.
"""

from __future__ import annotations

import asyncio
from functools import cached_property
from typing import TYPE_CHECKING

from msgspec.structs import replace

from retinue.agents.catalog import startable_types
from retinue.core.delegation import LIVE, Refusal, Scheduled, SpawnCall, Waited
from retinue.core.events import ChildResumed, ResultRead
from retinue.core.request import RunRequest
from retinue.core.run_state import ActiveRun
from retinue.errors import OverBudgetError, RetinueError, SpawnDeniedError, StateError
from retinue.runs.capability import Scheduling
from retinue.runs.fanout import FanOut, QuotedAgent, free_agents, quote
from retinue.runs.guard import ask_quote
from retinue.runs.notifications import conversation_text, spoken_lines
from retinue.runs.plan import choose_model
from retinue.runs.requests import inherited_context, merge, request_of_call, resolve_type
from retinue.runs.resume import children, find_child, past_run
from retinue.runs.run import Run

if TYPE_CHECKING:
    from retinue.log.query import LogReader
    from retinue.runs.supervisor import Supervisor

CHILD_POLL_SECONDS = 0.25
MIN_ID_PREFIX_CHARACTERS = 4
SWITCHED_OFF = "Subagents are switched off in the settings. Do the task yourself."
MAX_LISTED_CHILDREN = 100
_FINAL_REFUSALS = frozenset({OverBudgetError.code, SpawnDeniedError.code})
"""Refusals after which the same call must not be made again."""


class Delegate:
    """The delegation of the run `run_id`. It is created before the run, and used while the run is live."""

    def __init__(self, supervisor: Supervisor, run_id: str) -> None:
        self._supervisor = supervisor
        self._project = supervisor.project
        self._run_id = run_id

    @cached_property
    def _fan_out(self) -> FanOut:
        """Counts the agents that this run starts; very many of them need consent."""
        supervisor = self._supervisor
        return FanOut(
            free_agents(supervisor.settings, can_ask=self._project.can_ask),
            lambda agents: quote(agents, self._reader, at_once=supervisor.queue.limit),
            ask=(lambda quote: ask_quote(self._me, quote)) if self._project.can_ask else None,
            clock=supervisor.clock,
        )

    @property
    def _me(self) -> Run:
        return self._supervisor.members[self._run_id]

    async def spawn(self, call: SpawnCall) -> ActiveRun | Refusal:
        complete = self._supervisor.retry_calls.take(call)
        if isinstance(complete, Refusal):
            return complete
        if complete.resume:
            return await self._resume(complete)
        self._supervisor.notice_settings()
        refusal = self._check(complete)
        if refusal is not None:
            return refusal
        resolved = resolve_type(
            complete.agent,
            self._project.catalog(),
            self._supervisor.settings,
            vocabulary=complete.vocabulary,
            strict=self._me.depth > 0,
            allowed=startable_types(self._me.launch.request.spec),
        )
        if isinstance(resolved, Refusal):
            return self._with_retry(resolved, complete)
        call, ignored = merge(resolved.spec, complete, self._supervisor.settings)
        notes = tuple(filter(None, (resolved.note, *(f"ignored: {option}" for option in ignored))))
        if call.inherit_context:
            await self._project.log.flush()
            context = inherited_context(self._reader.conversation(self._run_id).messages)
            call = replace(call, prompt=f"{context}{call.prompt}")
        request = await request_of_call(resolved.spec, call, self._project, self._me)
        try:
            objection = None if self._fan_out.take() else await self._ask_consent(request, complete.call_id)
            if objection is not None:
                return Refusal(code="FAN_OUT", message=objection)
            child = await self._supervisor.start(
                request,
                parent=self._me,
                description=self._project.redactor(complete.description) or resolved.spec.name,
                background=bool(call.background),
                name=complete.name,
                call_id=complete.call_id,
                join=complete.join,
                notes=notes,
            )
        except RetinueError as error:
            return self._with_retry(Refusal(code=error.code, message=str(error)), complete)
        self._supervisor.retry_calls.drop(complete.retry)
        return await self._until_done(child, complete)

    async def _ask_consent(self, request: RunRequest, call_id: str | None) -> str | None:
        """Return why the agent must not be started; None if it may. Raise UnknownModelError."""
        me = self._me
        model = (await choose_model(request, self._project, [], me)).info
        with me.controls.waiting(call_id):
            return await self._fan_out.admit(QuotedAgent(request.spec.name, model))

    async def schedule(self, call: SpawnCall) -> Scheduled | Refusal:
        complete = self._supervisor.retry_calls.take(call)
        if isinstance(complete, Refusal):
            return complete
        scheduled = await self._project.part(Scheduling).schedule(self._me, complete)
        return self._with_retry(scheduled, complete) if isinstance(scheduled, Refusal) else scheduled

    async def _resume(self, call: SpawnCall) -> ActiveRun | Refusal:
        child = self._own(call.resume or "")
        if isinstance(child, Refusal):
            return child
        if child.live:
            return Refusal(
                code="STILL_RUNNING",
                message=f'Agent "{child.id}" is still {child.status}. Steer it, or wait for its result.',
            )
        if _was_stopped_by_person(child):
            return Refusal(
                code="STOPPED_BY_USER",
                message=f'Agent "{child.id}" was stopped by the user and is not resumed by another agent.',
            )
        try:
            resumed = await self._supervisor.resume(
                child.id,
                call.prompt,
                budget=call.budget,
                parent=self._me,
                background=self._in_background(child, call),
                call_id=call.call_id,
                join=call.join,
            )
        except RetinueError as error:
            return Refusal(code=error.code, message=str(error))
        self._project.log.append(self._me.place, ChildResumed(resumed.id))
        return await self._until_done(resumed, call)

    def _in_background(self, child: Run | ActiveRun, call: SpawnCall) -> bool:
        """Return whether a resumed run works in the background. As for a new run, its file takes precedence."""
        if isinstance(child, Run):
            of_file = child.launch.request.spec.background
        else:
            first = self._reader.created(child.id)
            of_file = first.spec.get("background") if first is not None else None
        by_default = self._supervisor.settings.background_by_default
        return next((choice for choice in (of_file, call.background) if choice is not None), by_default)

    async def _until_done(self, child: Run, call: SpawnCall) -> ActiveRun:
        """Wait for a foreground run, until it has ended or was moved to the background. Cancelling the wait stops the
        run, and takes until it has stopped."""
        if child.state.background:
            return child.snapshot()
        with self._me.controls.waiting(call.call_id):
            try:
                await child.settled_or_detached()
            except asyncio.CancelledError:
                if not child.state.background:
                    self._supervisor.stop(child, "Stopped with the agent that waited for it.", by="agent")
                    await child.wait_settled()
                raise
        if not child.live:
            self.consume(child.id, call.call_id)
        return child.snapshot()

    def view(self, agent_id: str) -> ActiveRun | Refusal:
        child = self._own(agent_id)
        return child if isinstance(child, Refusal) else self._snapshot(child)

    async def wait(self, agent_id: str, seconds: float, call_id: str | None = None) -> Waited | Refusal:
        child = self._own(agent_id)
        if isinstance(child, Refusal):
            return child
        me, clock = self._me, self._supervisor.clock
        deadline = clock.monotonic() + seconds
        with me.controls.waiting(call_id):
            ended = asyncio.ensure_future(self._wait_end(child))
            try:
                while not ended.done():
                    if me.controls.pending_steer:
                        return Waited(run=self._snapshot(child), end="pending_message")
                    remaining = deadline - clock.monotonic()
                    if remaining <= 0:
                        return Waited(run=self._snapshot(child), end="timeout")
                    pause = asyncio.ensure_future(clock.sleep(min(remaining, CHILD_POLL_SECONDS)))
                    await asyncio.wait({ended, pause}, return_when=asyncio.FIRST_COMPLETED)
                    pause.cancel()
            finally:
                ended.cancel()
        return Waited(run=self._snapshot(child), end="completed")

    async def _wait_end(self, child: Run | ActiveRun) -> None:
        """Wait until a child has ended, in whatever process it runs."""
        if isinstance(child, Run):
            await child.wait_settled()
            return
        while self._reader.run(child.id).state in LIVE:
            await self._supervisor.clock.sleep(CHILD_POLL_SECONDS)

    def consume(self, agent_id: str, call_id: str | None = None) -> None:
        child = self._own(agent_id)
        if isinstance(child, Refusal) or child.live or (isinstance(child, Run) and child.consumed):
            return
        try:
            self._project.log.append(self._me.place, ResultRead(child.id, call_id))
        except StateError:
            # This run is over or cannot be recorded, so it has not read the result.
            return
        if isinstance(child, Run):
            self._supervisor.notifications_of(self._me).consumed(child)

    def steer(self, agent_id: str, message: str) -> ActiveRun | Refusal:
        child = self._own(agent_id)
        if isinstance(child, Refusal):
            return child
        if not isinstance(child, Run) or not self._supervisor.steer(child, message):
            advice = "Resume it to continue."
            if _was_stopped_by_person(child):
                advice = "The user stopped it: leave it, and tell the user what is missing."
            message = f'Agent "{child.id}" is not running ({child.status}): the message was not delivered. {advice}'
            return Refusal(code="NOT_RUNNING", message=message)
        return child.snapshot()

    def children(self) -> tuple[ActiveRun, ...]:
        present = [child.snapshot() for child in reversed(self._me.children) if child.id not in self._me.cleared]
        excluded = {child.id for child in self._me.children} | self._me.cleared
        older = children(self._reader, self._run_id, MAX_LISTED_CHILDREN, without=excluded)
        return (*present, *older)

    def clear(self, agent_ids: tuple[str, ...], older_than_minutes: float, include_errors: bool) -> tuple[str, ...]:
        now = self._supervisor.clock.now()
        cleared = []
        for child in self.children():
            if child.live or (agent_ids and child.id not in agent_ids):
                continue
            old = child.ended_at is not None and now - child.ended_at >= older_than_minutes * 60
            if agent_ids or (old and (child.succeeded or include_errors)):
                self._me.cleared |= {child.id}
                cleared.append(child.id)
        self._me.children = [child for child in self._me.children if child.id not in self._me.cleared]
        return tuple(cleared)

    def transcript_lines(self, agent_id: str) -> list[str]:
        child = self._own(agent_id)
        return [] if isinstance(child, Refusal) else spoken_lines(self._reader.events(child.id))

    def conversation(self, agent_id: str) -> str:
        child = self._own(agent_id)
        return "" if isinstance(child, Refusal) else conversation_text(self._reader.events(child.id))

    @property
    def _reader(self) -> LogReader:
        return self._project.log.reader

    def _snapshot(self, child: Run | ActiveRun) -> ActiveRun:
        if isinstance(child, Run):
            return child.snapshot()
        return past_run(self._reader, self._reader.run(child.id))

    def _own(self, agent_id: str) -> Run | ActiveRun | Refusal:
        """Return the child with an id, the beginning of an id, or a name. Only own children are found; those of earlier
        processes are read from the log."""
        key = agent_id.strip().removeprefix("@")
        mine, member = self._me.children, self._supervisor.members.get(key)
        if member is not None and member.parent is self._me and key not in self._me.cleared:
            return member
        for child in mine:
            if key in (child.id, child.state.name):
                return child
        matches = [child for child in mine if len(key) >= MIN_ID_PREFIX_CHARACTERS and child.id.startswith(key)]
        if len(matches) == 1:
            return matches[0]
        if matches:
            message = f'"{key}" could be any of {", ".join(child.id for child in matches)}.'
            return Refusal(code="AGENT_NOT_FOUND", message=message)
        past = find_child(self._reader, self._run_id, key, MIN_ID_PREFIX_CHARACTERS) if key else None
        if past is not None and past.id not in self._me.cleared:
            return past
        running = ", ".join(f"{child.id} ({child.state.description})" for child in mine if child.live) or "none"
        message = f'Agent not found: "{key}". It may have been cleaned up. Running agents: {running}.'
        return Refusal(code="AGENT_NOT_FOUND", message=message)

    def _check(self, call: SpawnCall) -> Refusal | None:
        settings, depth = self._supervisor.settings, self._me.depth + 1
        if depth > settings.max_subagent_depth:
            message = (
                f"Agents may be nested {settings.max_subagent_depth} deep at most; this one would be number {depth}."
            )
            return Refusal(code="SUBAGENT_DEPTH_EXCEEDED", message=message)
        # They may have been switched off after this run was offered the tool.
        if not settings.subagents_enabled:
            return Refusal(code="SUBAGENTS_DISABLED", message=SWITCHED_OFF)
        if not call.prompt.strip():
            return Refusal(code="INVALID_INPUT", message="Missing required argument: prompt.")
        return None

    def _with_retry(self, refusal: Refusal, call: SpawnCall) -> Refusal:
        """Store the call, and return the refusal with its handle, so that the model need only correct one field. A call
        that no correction would help is not stored."""
        if refusal.code in _FINAL_REFUSALS:
            return refusal
        stored = replace(call, isolation=None) if call.isolation == "worktree" else call
        return replace(refusal, retry=self._supervisor.retry_calls.keep(stored))


def _was_stopped_by_person(child: Run | ActiveRun) -> bool:
    if isinstance(child, Run):
        return child.stopped_by == "person"
    return child.outcome is not None and child.outcome.stopped_by == "person"
