"""One run's way to other runs: `Delegation` for the tools of that run.

Everything a model may ask passes through here, so that ownership, depth, budget and the file's
word are checked in one place. What it gets wrong comes back as a Refusal it can act on.
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

POLL_SECONDS = 0.25
SHORTEST_PREFIX = 4
SWITCHED_OFF = "Subagents are switched off in the settings. Do the task yourself."
MOST_LISTED = 100
_FINAL = frozenset({OverBudgetError.code, SpawnDeniedError.code})
"""Refusals after which the same call must not be made again."""


class Delegate:
    """Bound to the run `run_id` of `supervisor`; made before the run exists, used while it does."""

    def __init__(self, supervisor: Supervisor, run_id: str) -> None:
        self._supervisor = supervisor
        self._project = supervisor.project
        self._run_id = run_id

    @cached_property
    def _fan_out(self) -> FanOut:
        """Count the agents this run starts, so that very many of them need consent."""
        supervisor = self._supervisor
        return FanOut(
            free_agents(supervisor.settings, can_ask=self._project.can_ask),
            lambda wanted: quote(wanted, self._reader, at_once=supervisor.queue.limit),
            ask=(lambda quote: ask_quote(self._me, quote)) if self._project.can_ask else None,
            clock=supervisor.clock,
        )

    @property
    def _me(self) -> Run:
        return self._supervisor.members[self._run_id]

    async def spawn(self, call: SpawnCall) -> ActiveRun | Refusal:
        whole = self._supervisor.retry_calls.take(call)
        if isinstance(whole, Refusal):
            return whole
        if whole.resume:
            return await self._resume(whole)
        self._supervisor.notice_settings()
        refusal = self._premature(whole)
        if refusal is not None:
            return refusal
        found = resolve_type(
            whole.agent,
            self._project.catalog(),
            self._supervisor.settings,
            vocabulary=whole.vocabulary,
            strict=self._me.depth > 0,
            allowed=startable_types(self._me.launch.request.spec),
        )
        if isinstance(found, Refusal):
            return self._stashed(found, whole)
        call, ignored = merge(found.spec, whole, self._supervisor.settings)
        notes = tuple(filter(None, (found.note, *(f"ignored: {option}" for option in ignored))))
        if call.inherit_context:
            await self._project.log.flush()
            context = inherited_context(self._reader.conversation(self._run_id).messages)
            call = replace(call, prompt=f"{context}{call.prompt}")
        request = await request_of_call(found.spec, call, self._project, self._me)
        try:
            unasked = None if self._fan_out.take() else await self._consent(request, whole.call_id)
            if unasked is not None:
                return Refusal(code="FAN_OUT", message=unasked)
            child = await self._supervisor.start(
                request,
                parent=self._me,
                description=self._project.redactor(whole.description) or found.spec.name,
                background=bool(call.background),
                name=whole.name,
                call_id=whole.call_id,
                join=whole.join,
                notes=notes,
            )
        except RetinueError as error:
            return self._stashed(Refusal(code=error.code, message=str(error)), whole)
        self._supervisor.retry_calls.drop(whole.retry)
        return await self._until_done(child, whole)

    async def _consent(self, request: RunRequest, call_id: str | None) -> str | None:
        """Why the agent must not be started; None when it may. Raise UnknownModelError."""
        me = self._me
        model = (await choose_model(request, self._project, [], me)).info
        with me.controls.waiting(call_id):
            return await self._fan_out.admit(QuotedAgent(request.spec.name, model))

    async def schedule(self, call: SpawnCall) -> Scheduled | Refusal:
        whole = self._supervisor.retry_calls.take(call)
        if isinstance(whole, Refusal):
            return whole
        found = await self._project.part(Scheduling).schedule(self._me, whole)
        return self._stashed(found, whole) if isinstance(found, Refusal) else found

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
            again = await self._supervisor.resume(
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
        self._project.log.append(self._me.place, ChildResumed(again.id))
        return await self._until_done(again, call)

    def _in_background(self, child: Run | ActiveRun, call: SpawnCall) -> bool:
        """Whether a resumed run works there: as for one that is started, its file has the say."""
        if isinstance(child, Run):
            of_file = child.launch.request.spec.background
        else:
            first = self._reader.created(child.id)
            of_file = first.spec.get("background") if first is not None else None
        by_default = self._supervisor.settings.background_by_default
        return next((said for said in (of_file, call.background) if said is not None), by_default)

    async def _until_done(self, child: Run, call: SpawnCall) -> ActiveRun:
        """A foreground run is waited for; cancelling the wait stops it, and lasts until it has
        stopped. Moving it to the background ends the wait."""
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
        return child if isinstance(child, Refusal) else self._seen(child)

    async def wait(self, agent_id: str, seconds: float, call_id: str | None = None) -> Waited | Refusal:
        child = self._own(agent_id)
        if isinstance(child, Refusal):
            return child
        me, clock = self._me, self._supervisor.clock
        deadline = clock.monotonic() + seconds
        with me.controls.waiting(call_id):
            ended = asyncio.ensure_future(self._end_of(child))
            try:
                while not ended.done():
                    if me.controls.pending_steer:
                        return Waited(run=self._seen(child), end="pending_message")
                    left = deadline - clock.monotonic()
                    if left <= 0:
                        return Waited(run=self._seen(child), end="timeout")
                    nap = asyncio.ensure_future(clock.sleep(min(left, POLL_SECONDS)))
                    await asyncio.wait({ended, nap}, return_when=asyncio.FIRST_COMPLETED)
                    nap.cancel()
            finally:
                ended.cancel()
        return Waited(run=self._seen(child), end="completed")

    async def _end_of(self, child: Run | ActiveRun) -> None:
        """Return when it is over, wherever it runs."""
        if isinstance(child, Run):
            await child.wait_settled()
            return
        while self._reader.run(child.id).state in LIVE:
            await self._supervisor.clock.sleep(POLL_SECONDS)

    def consume(self, agent_id: str, call_id: str | None = None) -> None:
        child = self._own(agent_id)
        if isinstance(child, Refusal) or child.live or (isinstance(child, Run) and child.consumed):
            return
        try:
            self._project.log.append(self._me.place, ResultRead(child.id, call_id))
        except StateError:
            # This run is over or cannot be recorded: it has not read anything.
            return
        if isinstance(child, Run):
            self._supervisor.room(self._me).consumed(child)

    def steer(self, agent_id: str, message: str) -> ActiveRun | Refusal:
        child = self._own(agent_id)
        if isinstance(child, Refusal):
            return child
        if not isinstance(child, Run) or not self._supervisor.steer(child, message):
            advice = "Resume it to go on with it."
            if _was_stopped_by_person(child):
                advice = "The user stopped it: leave it, and tell the user what is missing."
            message = f'Agent "{child.id}" is not running ({child.status}): the message was not delivered. {advice}'
            return Refusal(code="NOT_RUNNING", message=message)
        return child.snapshot()

    def children(self) -> tuple[ActiveRun, ...]:
        here = [child.snapshot() for child in reversed(self._me.children) if child.id not in self._me.cleared]
        known = {child.id for child in self._me.children} | self._me.cleared
        older = children(self._reader, self._run_id, MOST_LISTED, without=known)
        return (*here, *older)

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

    def _seen(self, child: Run | ActiveRun) -> ActiveRun:
        if isinstance(child, Run):
            return child.snapshot()
        return past_run(self._reader, self._reader.run(child.id))

    def _own(self, agent_id: str) -> Run | ActiveRun | Refusal:
        """The child that an id, a beginning of one or a name means; nobody else's runs exist
        here. Children of earlier processes are found in the log."""
        wanted = agent_id.strip().removeprefix("@")
        mine, meant = self._me.children, self._supervisor.members.get(wanted)
        if meant is not None and meant.parent is self._me and wanted not in self._me.cleared:
            return meant
        for child in mine:
            if wanted in (child.id, child.state.name):
                return child
        alike = [child for child in mine if len(wanted) >= SHORTEST_PREFIX and child.id.startswith(wanted)]
        if len(alike) == 1:
            return alike[0]
        found = find_child(self._reader, self._run_id, wanted, SHORTEST_PREFIX) if wanted and not alike else None
        if found is not None and found.id not in self._me.cleared:
            return found
        known = ", ".join(f"{child.id} ({child.state.description})" for child in mine if child.live) or "none"
        if alike:
            message = f'"{wanted}" could be any of {", ".join(child.id for child in alike)}.'
        else:
            message = f'Agent not found: "{wanted}". It may have been cleaned up. Running agents: {known}.'
        return Refusal(code="AGENT_NOT_FOUND", message=message)

    def _premature(self, call: SpawnCall) -> Refusal | None:
        settings, depth = self._supervisor.settings, self._me.depth + 1
        if depth > settings.max_subagent_depth:
            message = (
                f"Agents may be nested {settings.max_subagent_depth} deep at most; this one would be number {depth}."
            )
            return Refusal(code="SUBAGENT_DEPTH_EXCEEDED", message=message)
        # Someone may have switched them off since this run was offered the tool.
        if not settings.subagents_enabled:
            return Refusal(code="SUBAGENTS_DISABLED", message=SWITCHED_OFF)
        if not call.prompt.strip():
            return Refusal(code="INVALID_INPUT", message="Missing required argument: prompt.")
        return None

    def _stashed(self, refusal: Refusal, call: SpawnCall) -> Refusal:
        """Keep the call, so that the model corrects one field instead of writing it all again;
        not where nothing that it could correct would help."""
        if refusal.code in _FINAL:
            return refusal
        kept = replace(call, isolation=None) if call.isolation == "worktree" else call
        return replace(refusal, retry=self._supervisor.retry_calls.keep(kept))


def _was_stopped_by_person(child: Run | ActiveRun) -> bool:
    if isinstance(child, Run):
        return child.stopped_by == "person"
    return child.outcome is not None and child.outcome.stopped_by == "person"
