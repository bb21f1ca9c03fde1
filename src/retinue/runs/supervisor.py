"""The supervisor of one process starts, queues, resumes and stops runs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from msgspec.structs import replace

from retinue.core.clock import SYSTEM_CLOCK, Clock
from retinue.core.delegation import JoinMode, new_run_id
from retinue.core.events import MovedToBackground, Warned
from retinue.core.foreign import RunId, is_valid
from retinue.core.messages import Image, UserMessage
from retinue.core.outcome import StoppedBy
from retinue.core.request import HERE, ClusterPlacement, RunRequest
from retinue.core.run_state import ActiveRun
from retinue.core.spec import PermissionMode
from retinue.core.usage import Budget, Usage
from retinue.errors import LaunchError, StateError, UsageError
from retinue.log.replay import Conversation
from retinue.runs.budget import Account, open_account
from retinue.runs.capability import Schedules
from retinue.runs.delegate import Delegate
from retinue.runs.execute import cut_off
from retinue.runs.heap import CollectorThresholds
from retinue.runs.launch import Launch, LaunchPlan
from retinue.runs.messages import CommandServer, Sweeper
from retinue.runs.notifications import Notifications
from retinue.runs.offer import can_answer
from retinue.runs.plan import launching
from retinue.runs.project import Project
from retinue.runs.queue import RunQueue, enter_queue, execute_queued, occupy_slot, stop_unstarted
from retinue.runs.record import RunNames, as_received, created, request_of, with_approved_mode
from retinue.runs.requests import RetryCalls
from retinue.runs.resume import names_below, news_of, undelivered, used_below
from retinue.runs.run import Run

if TYPE_CHECKING:
    from retinue.runs.event_bridge import EventBridge
    from retinue.settings.table import Settings


class Supervisor:
    """Use it from one event loop as an async context manager. Leaving the context stops all live runs."""

    def __init__(self, project: Project, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self.members: dict[str, Run] = {}
        """Every run of this process by its id."""
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._notifications: dict[str, Notifications] = {}
        self.project = project
        self.clock = project.clock = clock
        self.queue = RunQueue(project.settings.settings.max_concurrent)
        self.retry_calls = RetryCalls(clock)
        self._names = RunNames()
        self.commands = CommandServer(self)
        self._sweeper = Sweeper(self)
        self._collector = CollectorThresholds()
        self.schedules: Schedules | None = None
        """Starts scheduled agents; None until schedules are used."""
        self.opened = False
        self._closed = False
        self.permission_mode: PermissionMode | None = None
        """The mode of the session, for runs whose request names none."""
        self.idle_news: Callable[[str], None] = lambda run_id: None
        """Called with the id of an ended run when one of its children has ended, for front ends that show this or
        resume the run."""
        self.broken_off: Callable[[str, StateError], None] = lambda run_id, failure: None
        """Called with the id of a run that cannot be recorded any more, and the reason. No event reports this."""

    @property
    def settings(self) -> Settings:
        return self.project.settings.settings

    @property
    def session_mode(self) -> PermissionMode | None:
        """The present mode of the newest main run, or that of the session if there is none."""
        modes = [node.mode for node in self.members.values() if node.depth == 0]
        return modes[-1] if modes else self.permission_mode

    @cached_property
    def bridge(self) -> EventBridge:
        """The event bus and the remote calls, created on first use."""
        from retinue.runs.event_bridge import EventBridge

        return EventBridge(self)

    def reload_settings(self, *, persisted: bool = True) -> None:
        """Apply changed settings. `persisted`: the change was written to a file."""
        self.project.__dict__.pop("settings", None)
        self.queue.limit = self.settings.max_concurrent
        if "bridge" in self.__dict__:
            self.bridge.settings_changed(persisted)

    def notice_settings(self) -> None:
        """Apply changes of settings files since the last call, by this or another process."""
        if self.project.settings_changed:
            self.reload_settings()

    async def start(
        self,
        request: RunRequest,
        *,
        parent: Run | None = None,
        description: str = "",
        background: bool = False,
        name: str | None = None,
        call_id: str | None = None,
        join: JoinMode | None = None,
        notes: tuple[str, ...] = (),
        run_id: str | None = None,
        queued: bool = True,
    ) -> Run:
        """Start a run, and return it as soon as it is in the log. Raise LaunchError or UsageError if it must not start;
        nothing is recorded then. A `run_id` must be new. Unless `queued`, the run starts at once, however many runs are
        at work."""
        self.notice_settings()
        request = self._placed(request, background, parent)
        run_id = run_id or new_run_id()
        if not is_valid(run_id, RunId):
            # It becomes the name of files and folders.
            raise UsageError(
                "A run_id has at most 64 letters, digits, '-' and '_', and begins with a letter or digit.",
                remedy="Choose another, or leave it out.",
            )
        plan = LaunchPlan(
            request,
            self.project,
            parent,
            Delegate(self, run_id),
            run_id,
            description,
            heard=background and can_answer(parent),
            notes=list(notes),
        )
        async with launching(plan, self._check_open) as launch:
            name = self._names.free(name or request.spec.name)
            account = self._account(launch, parent)
            opening = created(
                launch,
                request.spec,
                self.project,
                name=name,
                description=description,
                background=background,
                call_id=call_id,
            )
            event = self.project.log.append(plan.place, opening)
        node = self._add(Run(self, plan.place, launch, account, parent))
        node.observe(event)
        self._names.add(name)
        node.hooks, node.queues = plan.hooks, queued
        try:
            await self.project.log.flush()
        except BaseException:
            await asyncio.shield(stop_unstarted(node))
            raise
        if self.project.log.found_dead:
            for note in self.project.end_leftovers():
                self.project.log.append(plan.place, Warned("leftovers", note))
        return self._begin(node, join)

    async def resume(
        self,
        id_or_prefix: str,
        prompt: str | None = None,
        *,
        images: Sequence[Image] = (),
        limits: Mapping[str, float | None] | None = None,
        budget: Budget | None = None,
        model: str | None = None,
        thinking: str | None = None,
        mode: PermissionMode | None = None,
        parent: Run | None = None,
        background: bool = False,
        call_id: str | None = None,
        join: JoinMode | None = None,
        offered: bool = False,
    ) -> Run:
        """Resume an ended or interrupted run with its former options, except for those given here. It is first told how
        its children ended. A run that was `offered` by another process begins with its task. Raise StateError while it
        is live anywhere."""
        self.notice_settings()
        log = self.project.log
        await log.flush()
        row = log.reader.run(id_or_prefix)
        await self._settled(row.id)
        # A person resumes it: its parent is told of the completion.
        if parent is None and row.parent_id in self.members:
            parent, background = self.members[row.parent_id], True
        past = await log.read(lambda reader: reader.conversation(row.id))
        begins = offered and past.started is None and past.created is not None
        if begins and past.created is not None:
            prompt = past.created.task
        as_asked = request_of(row, past, prompt, limits, model, budget, thinking)
        as_asked = replace(as_received(as_asked, self.project), images=tuple(images))
        request = with_approved_mode(as_asked, log.reader, row.id, mode)
        # Before claiming the run, because commands of live runs are not ended.
        leftovers = self.project.end_leftovers(again=True) if row.state == "interrupted" else ()
        row = await log.claim(row.id)
        try:
            plan = LaunchPlan(request, self.project, parent, Delegate(self, row.id), row.id, heard=True, past=past)
            plan.notes += leftovers
            async with launching(plan, self._check_open) as launch:
                below = used_below(log.reader, row.id)
                news = self.news_for(row.id)
                account = self._account(launch, parent, past.usage + below)
        except BaseException:
            await log.release(row)
            raise
        node = self.members.get(row.id)
        if node is not None:
            node.begin(launch, account)
        else:
            node = self._add(Run(self, row.place, launch, account, parent))
            node.recall(row, past, below)
            # Reserve the names of the run and its children.
            for name in (row.name, *names_below(log.reader, row.id)):
                if name:
                    self._names.add(name)
        if parent is not None and node not in parent.children:
            node.parent = parent
            parent.children.append(node)
        node.state.background, node.state.call_id = background, call_id or node.state.call_id
        node.hooks = plan.hooks
        for child in news:
            if child.id in self.members:
                self.members[child.id].announced = True
        if node.id in self._notifications:
            self._notifications[node.id].reopened()
        message = news_of(news, show_cost=self.settings.show_cost)
        return self._begin(node, join, None if begins else past, message)

    def steer(self, node: Run, text: str, images: Sequence[Image] = ()) -> bool:
        """Send a message to a run, which reads it after its current tool calls. Return False once it has ended."""
        answers = node.dialogue is not None and node.dialogue.answer_question(text)
        if not answers and not node.controls.steer(text, images=images):
            return False
        if "bridge" in self.__dict__:
            self.bridge.steered(node, text)
        return True

    @property
    def busy(self) -> bool:
        """Whether any run is live."""
        return bool(self._tasks)

    def stop(self, run: Run, reason: str, *, by: StoppedBy = "person") -> bool:
        """Stop one run and its foreground children, and keep their answers. A queued run never starts. Return False
        once it has ended."""
        if not run.controls.stop(reason):
            return False
        run.stopped_by = run.stopped_by or by
        if run.status == "queued":
            self.queue.leave(run.id)
        return True

    def stop_tree(self, top: Run, reason: str, *, by: StoppedBy = "person") -> int:
        """Stop a run and all runs below it, including background runs. Return their number."""
        return sum(self.stop(run, reason, by=by) for run in (top, *top.descendants()) if run.live)

    async def end_tree(self, top: Run, reason: str, *, by: StoppedBy = "person") -> int:
        """Do the same, and wait until all of them have ended."""
        tree = (top, *top.descendants())
        stopped = self.stop_tree(top, reason, by=by)
        tasks = {self._tasks[run.id] for run in tree if run.id in self._tasks}
        if tasks:
            await asyncio.wait(tasks)
        return stopped

    async def stop_all(self, reason: str, *, by: StoppedBy = "person") -> int:
        """Stop all live runs, and wait until they have ended. Return their number."""
        stopped = sum(self.stop(run, reason, by=by) for run in list(self.members.values()) if run.live)
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        return stopped

    async def wait_all(self) -> None:
        """Wait until no run is live or queued. Failed runs do not raise."""
        while self._tasks:
            await asyncio.wait(self._tasks.values())

    async def cut_off(self) -> None:
        """Leave all live runs without an ending, so that another process can resume them."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def forget(self, run: Run) -> None:
        """Remove an ended run from memory. Its name stays reserved, and the log has its events."""
        self.members.pop(run.id, None)
        self._notifications.pop(run.id, None)
        if run.parent is not None and run in run.parent.children:
            run.parent.children.remove(run)

    def detach(self, node: Run, join: JoinMode | None = None) -> bool:
        """Move a foreground run to the background: its parent continues, and is notified of its completion. Return
        False if there is nothing to move."""
        if node.state.background or not node.live or node.parent is None:
            return False
        node.record(MovedToBackground(node.state.call_id))
        node.detach()
        occupy_slot(node, self.queue)
        node.notes = (*node.notes, "It was moved to the background: you will be notified when it ends.")
        self.notifications_of(node.parent).started(node, join or self.settings.default_join_mode)
        return True

    def notifications_of(self, parent: Run) -> Notifications:
        notifications = self._notifications.get(parent.id)
        if notifications is None:
            notifications = self._notifications[parent.id] = Notifications(
                parent,
                self.clock,
                show_cost=lambda: self.settings.show_cost,
                missed=lambda: self._missed(parent.id),
            )
        return notifications

    def _missed(self, parent_id: str) -> None:
        if not self._closed:
            self.idle_news(parent_id)

    def news_for(self, run_id: str) -> list[ActiveRun]:
        """Return the ended children of a run of whose completion it has not been told."""
        return undelivered(self.project.log.reader, run_id, self.members)

    async def close(self) -> None:
        """Stop all runs and close the log. No run can start any more."""
        self._closed = True
        if self.schedules is not None:
            await self.schedules.end()
        await self.stop_all("The program ended.", by="program")
        self.commands.close()
        self._sweeper.close()
        for notifications in self._notifications.values():
            notifications.close()
        self.opened = False
        await self.project.close()
        if "bridge" in self.__dict__:
            await self.bridge.close()
        for node in self.members.values():
            node.release()
        self.members.clear()

    async def __aenter__(self) -> Supervisor:
        if not self.opened:
            if self.settings.strict_agent_files:
                self.project.catalog().require_readable()
            self.opened = True
            if "bridge" in self.__dict__:
                self.bridge.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def _placed(self, request: RunRequest, background: bool, parent: Run | None) -> RunRequest:
        """Return the request with the placement from itself, its agent's file or the settings. Raise LaunchError if no
        other machine can be reached."""
        placement = request.spec.placement or (self.settings.placement if background else HERE)
        if request.placement is None and (request.depth == 0 or placement == HERE):
            return request
        if self.project.remote_sender is not None:
            from retinue.runs.remote import with_own_budget

            request = with_own_budget(request, self.settings, parent.account if parent is not None else None)
            return replace(request, placement=request.placement or ClusterPlacement.read(placement))
        if self.project.moved is not None:
            # This process is a worker.
            return replace(request, placement=None)
        raise LaunchError("A run was placed on a cluster, and none is named.", remedy="Set RETINUE_DATABASE.")

    def _check_open(self) -> None:
        if self._closed:
            raise LaunchError("The program is ending: no run is started any more.")

    async def _settled(self, run_id: str) -> None:
        """Wait for the end of a run of this process that is just ending, so that it can be resumed."""
        node, task = self.members.get(run_id), self._tasks.get(run_id)
        if node is not None and node.live and not node.controls.ended:
            raise StateError(f"Run {run_id} is already running in this process.", remedy="Steer it or wait for it.")
        if task is not None:
            await asyncio.wait({task})

    def _account(self, launch: Launch, parent: Run | None, resumed: Usage | None = None) -> Account:
        above = parent.account if parent else None
        return open_account(launch.request, launch.model.info, self.settings, above, self.clock, resumed)

    def _add(self, node: Run) -> Run:
        self.members[node.id] = node
        if node.parent is not None:
            node.parent.children.append(node)
        return node

    def _begin(
        self, node: Run, join: JoinMode | None, past: Conversation | None = None, news: UserMessage | None = None
    ) -> Run:
        if node.parent is not None and node.state.background:
            self.notifications_of(node.parent).started(node, join or self.settings.default_join_mode)
        sender = self.project.remote_sender if node.launch.request.placement is not None else None
        if sender is not None:
            from retinue.runs.remote import execute_remotely

            work = execute_remotely(node, sender)
        else:
            work = execute_queued(node, self.queue, enter_queue(node, self.queue), past, news)
        task = self._tasks[node.id] = asyncio.create_task(work, name=f"run {node.id}")
        task.add_done_callback(lambda done: self._over(node, done))
        self._collector.adapt(len(self._tasks))
        self.commands.watch()
        return node

    def _over(self, node: Run, task: asyncio.Task[None]) -> None:
        self._tasks.pop(node.id, None)
        self._collector.adapt(len(self._tasks))
        node.account.close()
        if not task.cancelled():
            # A defect has already become the run's outcome.
            task.exception()
        if node.live:  # cancelled before its first step
            cut_off(node, StateError(f"Run {node.id} was cut off before it had started."))
        failure = node.failure
        if failure is not None and not self._closed:
            self.broken_off(node.id, failure)
        parent_id = node.place.parent_id
        if node.parent is not None and node.state.background:
            self.notifications_of(node.parent).ended(node)
        elif node.parent is None and parent_id is not None:  # started by a run of another process
            self._missed(parent_id)
        self._sweeper.watch()
