"""The observers of a run: who they are, how digests reach them, and how they end.

An observer is one run in the background for each type that the file of the observed agent names. It starts with the
first digest, keeps its conversation, and rests between digests; what happens while it works comes as one digest. The
observed run ends when its observers have heard the last digest, or after `LAST_SECONDS`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from retinue.capabilities.observer.messages import TASK, digest_text, digested, read_digest
from retinue.core.delegation import Refusal
from retinue.core.events import Body, ToolEnded, TurnEnded
from retinue.core.placement import HERE
from retinue.core.request import RunRequest
from retinue.core.spec import AgentSpec
from retinue.errors import RetinueError
from retinue.runs.record import is_observer
from retinue.runs.resolution import resolve_type

if TYPE_CHECKING:
    from retinue.core.outcome import Ended, Outcome
    from retinue.runs.launch import LaunchPlan
    from retinue.runs.node import RunNode

LAST_SECONDS = 60.0
"""How long the end of a run waits for its observers."""
_UNHEARD: frozenset[Ended] = frozenset({"stopped", "over-budget"})
"""After these ends nobody waits for an observer: a person is in a hurry, or nothing may be spent any more."""


class ObserverTypes(Struct, frozen=True):
    """The agents that are to watch a run."""

    specs: tuple[AgentSpec, ...]


class RunObservers(Struct, frozen=True):
    """The observers of one attempt of a run."""

    each: tuple[RunObserver, ...]


def choose_observers(plan: LaunchPlan) -> None:
    """Find the agents that the file names. One that cannot be started is noted; the run goes on without it."""
    if not plan.settings.subagents_enabled:
        plan.note("Nobody observes it: sub-agents are switched off in the settings.")
        return
    found: dict[str, AgentSpec] = {}
    for name in plan.spec.observer:
        type_ = resolve_type(name, plan.project.catalog(), plan.settings, strict=True)
        if isinstance(type_, Refusal):
            plan.note(f"The observer '{name}' does not watch it: {type_.message}")
        else:
            found[type_.spec.name] = type_.spec
    plan.put(ObserverTypes(tuple(found.values())))


def watch_run(node: RunNode) -> Callable[[Body], None] | None:
    """Return what takes notice of the events of an observed run."""
    types = node.get(ObserverTypes)
    # A recording has the answers of the run itself; its observers would ask for others.
    if types is None or not types.specs or node.project.model_source is not None:
        return None
    observers = RunObservers(tuple(RunObserver(node, spec) for spec in types.specs))
    node.put(observers)
    busy = False

    def observe(body: Body) -> None:
        nonlocal busy
        if isinstance(body, ToolEnded):
            busy = True
        elif isinstance(body, TurnEnded) and busy:
            busy = False
            for observer in observers.each:
                observer.due.set()

    return observe


async def end_observers(node: RunNode, outcome: Outcome) -> None:
    """Hand over the last digest and wait for the observers, for a limited time. What went wrong is a note."""
    observers = node.get(RunObservers)
    if observers is None:
        return
    tasks = [observer.task for observer in observers.each]
    for observer in observers.each:
        observer.end(outcome.ended)
    limit = asyncio.ensure_future(node.clock.sleep(LAST_SECONDS))
    waiting = {*tasks}
    while waiting and not limit.done():
        _, pending = await asyncio.wait({*waiting, limit}, return_when=asyncio.FIRST_COMPLETED)
        waiting = pending - {limit}
    limit.cancel()
    for observer in observers.each:
        if not observer.task.done():
            observer.note(f"was stopped {LAST_SECONDS:.0f} seconds after the end")
            observer.stop()
    for observer, error in zip(observers.each, await asyncio.gather(*tasks, return_exceptions=True), strict=True):
        if isinstance(error, Exception):
            observer.note(f"failed: {type(error).__name__}: {error}. Please report this")
    node.end_notes += [observer.trouble for observer in observers.each if observer.trouble]


def release_observers(node: RunNode) -> None:
    """Let go of the observers of a run that is over or was cut off."""
    observers = node.get(RunObservers)
    if observers is not None:
        for observer in observers.each:
            observer.task.cancel()


class RunObserver:
    """One observer of one attempt of a run. `due` is set when there is something to tell it."""

    def __init__(self, observed: RunNode, spec: AgentSpec) -> None:
        self.due = asyncio.Event()
        self.trouble = ""
        self._observed = observed
        self._spec = spec
        self._ended: Ended | None = None
        self._observer: RunNode | None = None
        self._earlier: str | None = None
        self._seen = 0
        self._rested = asyncio.Event()
        self._keeping = ExitStack()
        self.task = asyncio.create_task(self._serve(), name=f"observer {spec.name} of {observed.id}")

    def note(self, what: str) -> None:
        """Say what is wrong with the observer, once."""
        self.trouble = self.trouble or f"The observer {self._spec.name} {what}."

    def end(self, ended: Ended) -> None:
        """The observed run is over: the next digest is the last one."""
        self._ended = ended
        if ended in _UNHEARD:
            self.stop()
        self.due.set()

    def stop(self) -> None:
        """End the observer where it is."""
        self.task.cancel()
        if self._observer is not None and self._observer.live:
            self._observed.handle.supervisor.stop(
                self._observer, "Stopped with the run that it observed.", by="program"
            )

    async def _serve(self) -> None:
        try:
            await self.due.wait()
            if not await self._find_earlier():
                return
            while await self._hand_over():
                await self.due.wait()
        except RetinueError as error:
            self.note(f"could not start: {error}")
        finally:
            self._keeping.close()

    async def _find_earlier(self) -> bool:
        """Look for the observer of an earlier attempt. Return False when a person has stopped it."""
        log = self._observed.project.log
        await log.flush()
        for row in log.reader.list_runs(parent_id=self._observed.id, agent=self._spec.name):
            if not is_observer(log.reader, row.id):
                continue
            outcome = log.reader.outcome(row.id)
            self._earlier, self._seen = row.id, digested(log.reader, row.id)
            return outcome is None or outcome.stopped_by != "person"
        return True

    async def _hand_over(self) -> bool:
        """Tell the observer what is new and wait until it has dealt with it. Return False after the last time."""
        self.due.clear()
        last, log = self._ended, self._observed.project.log
        await log.flush()
        digest = read_digest(log.reader, self._observed, self._seen, last)
        if digest is None:
            return True
        self._seen = digest.through
        text = digest_text(self._observed, digest)
        if self._observer is None:
            node = self._observer = await self._begin(text)
            node.handle.controls.rested = self._rest
            if last is None:
                self._keeping.enter_context(node.handle.controls.keep_open())
        else:
            node = self._observer
            await self._tell(node, text)
        if last is not None:
            self._keeping.close()
        await self._until_rest(node)
        outcome = node.handle.outcome
        cut_short = last is None or outcome is None or not outcome.ok
        if not node.live and cut_short and node.stopped_by != "program":
            self.note(f"({node.id[:8]}) watches no more: it has ended ({node.status})")
        return node.live and last is None

    async def _begin(self, text: str) -> RunNode:
        observed = self._observed
        supervisor, above = observed.handle.supervisor, observed.handle.launch
        node: RunNode
        if self._earlier is not None:
            node = await supervisor.resume(self._earlier, text, parent=observed, background=True)
            return node
        spec = _as_observer(self._spec)
        request = RunRequest(
            spec=spec,
            task=await observed.project.with_initial_prompt(spec, f"{TASK}\n\n{text}"),
            cwd=above.request.cwd,
            parent_id=observed.id,
            root_id=observed.handle.place.root_id,
            depth=observed.depth + 1,
            permission_mode=above.mode,
            observes=observed.id,
        )
        about = f"observes {observed.handle.agent}"
        node = await supervisor.start(request, parent=observed, description=about, background=True)
        return node

    async def _tell(self, node: RunNode, text: str) -> None:
        # One that has ended would keep the slot for ever.
        if node.queue is not None and node.live:
            await node.queue.wake(node.id)
        self._rested.clear()
        node.handle.controls.tell(text, "notification")

    def _rest(self) -> None:
        """The observer waits for the next digest: others may have its slot."""
        self._rested.set()
        if self._observer is not None and self._observer.queue is not None:
            self._observer.queue.rest(self._observer.id)

    async def _until_rest(self, node: RunNode) -> None:
        resting = asyncio.ensure_future(self._rested.wait())
        ended = asyncio.ensure_future(node.handle.wait_settled())
        try:
            await asyncio.wait({resting, ended}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            resting.cancel()
            ended.cancel()


def _as_observer(spec: AgentSpec) -> AgentSpec:
    """Return the agent as one that only looks: it changes, starts and keeps nothing, whatever its file says."""
    return replace(
        spec,
        readonly=True,
        isolated=True,
        isolation=None,
        placement=HERE,
        subagents=False,
        memory=None,
        servers=None,
        required_servers=(),
        rollback=None,
        output_schema=None,
        observer=(),
    )
