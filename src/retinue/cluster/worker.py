"""A worker: a process that serves runs of all projects of a database.

It takes an attempt, makes the run's workspace from the database, goes on with the run where the log says it is, and
gives everything back. It has keys, walls and a home of its own. It watches the other workers and offers again what
one that died held. Asked to end, it takes nothing more, lets runs finish for a while, and hands over the rest.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import threading
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from msgspec.structs import replace

from retinue.capabilities.orders import standard_capabilities
from retinue.cluster.cause_log import CauseLog
from retinue.cluster.cluster import DbosQueues, queue_of
from retinue.cluster.cluster_tables import ClusterTables, UnreadablePlacement
from retinue.cluster.git_remote import RemoteAwayError
from retinue.cluster.retention import DAY_SECONDS, KEEP_DAYS, RemovedLeftovers, remove_from_remotes, remove_leftovers
from retinue.cluster.worker_run import WorkerRun
from retinue.core.events import RunEnded
from retinue.core.outcome import Failure, Outcome
from retinue.core.programs import SHARED_HEARTBEAT_SECONDS, this_process
from retinue.core.request import Attempt, WorkerView
from retinue.core.run_state import RunState
from retinue.core.version import __version__
from retinue.errors import RetinueError, StateError, UnknownRunError
from retinue.guard.git import GitError
from retinue.log.backend import LostDatabaseError
from retinue.log.commands import annotate
from retinue.log.query import LogReader
from retinue.models.limiter import process_limiters
from retinue.runs.supervisor import Supervisor
from retinue.settings.places import ProjectDatabase, database_folder, use_database
from retinue.tools.safe_dir import SafeDir, remove_folder

if TYPE_CHECKING:
    from retinue.runs.run import Run

WATCH_SECONDS = 1.0
TAKE_OVER_SECONDS = 10.0
"""How long the last owner of a run may seem to live after its worker was found dead."""
MAX_ATTEMPTS = 20
"""A run that has cost so many workers their lives is given up."""
RETRY_SECONDS = 1.0
FULL_DISK_SECONDS = 5.0
"""How long a worker whose disk is full keeps a run to itself before it offers it again."""
MIN_FREE_BYTES = 1 << 20
"""With less free than this a disk is full: whatever failed then may have failed for that."""
MAX_RETRIES = 30
"""So often a worker tries to reach a server that is away, for ten seconds each."""
REMOVE_SECONDS = 600.0
"""How often a worker looks for what ended runs have left."""
_UNOWNED_STATES = ("interrupted", "queued")
"""States of a run that no process works on."""
Say = Callable[[str], None]
P = ParamSpec("P")
T = TypeVar("T")


class Worker:
    """One worker process. `allow` is what senders may bring; `remotes` the git repositories that files
    may travel through."""

    def __init__(
        self,
        url: str,
        home: Path,
        environment: Mapping[str, str],
        *,
        providers: Collection[str],
        labels: Collection[str] = (),
        allow: Collection[str] = (),
        remotes: Collection[str] = (),
        sandbox: str = "",
        concurrency: int = 4,
        tenant_limit: int | None = None,
        global_limit: int | None = None,
        keep_seconds: float = KEEP_DAYS * DAY_SECONDS,
        say: Say = lambda text: None,
    ) -> None:
        use_database(url)
        self._url, self._home, self._environment, self._say = url, home, environment, say
        owner = this_process()
        view = WorkerView(
            id=owner.id,
            host=owner.host,
            pid=owner.pid,
            labels=tuple(sorted(labels)),
            providers=tuple(sorted(providers)),
            allow=tuple(sorted(allow)),
            remotes=tuple(sorted(remotes)),
            sandbox=sandbox,
            version=__version__,
            concurrency=concurrency,
            tenant_limit=None if tenant_limit is None else min(tenant_limit, concurrency),
            global_limit=global_limit,
        )
        self.id = owner.id
        self._concurrency = concurrency
        self._keep_seconds = keep_seconds
        self._owner = owner
        self._causes = CauseLog(say)
        self._tables = ClusterTables(url, self._causes)
        self._queues = DbosQueues(self._tables, owner, replace(view, queue=queue_of(view)))
        self._serving: dict[str, Supervisor] = {}
        self._at_work = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._over = threading.Event()

    async def run(self, draining: asyncio.Event, grace: float) -> None:
        """Serve until `draining` is set, then for at most `grace` seconds what is at work. Raise StateError when the
        database cannot be used."""
        beating = threading.Thread(target=self._beat, name="retinue-beat", daemon=True)
        taking = asyncio.create_task(self._queues.take(self.serve), name="take attempts")
        watching = asyncio.create_task(self._watch(), name="watch other workers")
        removing = asyncio.create_task(self._remove_leftovers(), name="remove what ended runs have left")
        waiting = asyncio.create_task(draining.wait())
        listening = asyncio.create_task(self._queues.listens.wait())
        try:
            await asyncio.wait({taking, waiting, listening}, return_when=asyncio.FIRST_COMPLETED)
            if listening.done():
                await self._queues.beat()
                beating.start()
                self._say(
                    f"worker {self.id[:8]} (process {self._owner.pid}) takes runs now, {self._concurrency} at a time"
                )
                await asyncio.wait({taking, waiting}, return_when=asyncio.FIRST_COMPLETED)
            if taking.done():
                taking.result()
            await self._drain(grace)
        finally:
            tasks = (watching, removing, waiting, taking, listening)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._over.set()
            if beating.is_alive():
                await asyncio.to_thread(beating.join)
            await asyncio.to_thread(self._tables.leave, self.id)
            self._queues.close()
            self._tables.close()

    async def _drain(self, grace: float) -> None:
        self._queues.view = replace(self._queues.view, draining=True)
        await self._queues.beat()
        if self._serving:
            self._say(f"Ending: {len(self._serving)} at work get {grace:.0f} s to finish.")
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._idle.wait(), grace)
        for supervisor in list(self._serving.values()):
            await supervisor.cut_off()
        await self._idle.wait()

    def _beat(self) -> None:
        """In a thread of its own, over a connection of its own: nothing that this worker does may make it seem dead."""
        tables = ClusterTables(self._url, self._causes)
        while not self._over.wait(SHARED_HEARTBEAT_SECONDS):
            try:
                tables.beat(self._owner, self._queues.view)
            except Exception as error:  # noqa: BLE001 - it is tried again
                self._causes.report_failure("beat", "This worker could not say that it lives", error)
        tables.close()

    async def _watch(self) -> None:
        """Offer again what dead workers held, as far as this one could serve it."""
        await self._queues.listens.wait()
        while True:
            try:
                for unreadable in await asyncio.to_thread(self._tables.remove_unreadable):
                    await asyncio.to_thread(self._refuse, unreadable)
                for attempt in await asyncio.to_thread(self._tables.stranded):
                    able = not self._queues.view.lacks(attempt.needs)
                    if able and await asyncio.to_thread(self._tables.put, attempt):
                        self._say(f"{attempt.run_id}: its worker is gone, offered again as attempt {attempt.number}.")
                self._share_limits()
            except Exception as error:  # noqa: BLE001 - it is tried again
                self._causes.report_failure("watch", "The other workers could not be watched", error)
            await asyncio.sleep(WATCH_SECONDS)

    def _refuse(self, unreadable: UnreadablePlacement) -> None:
        """Report an offer that was removed because it cannot be read, and end its run."""
        self._causes.report(unreadable.reason, f"{unreadable.reason} It was removed.")
        if unreadable.names_a_run:
            state = database_folder(self._home, ProjectDatabase(self._url, unreadable.project))
            self._end(state, unreadable.run_id, unreadable.reason)

    def _end(self, state: Path, run_id: str, reason: str) -> None:
        """Write into the log that a run has failed, if there is such a run."""
        failure = Failure("not_found", f"The worker could not go on with it: {reason}", "Correct this and resume it.")
        try:
            # Reading makes no log of a project that has none.
            with LogReader.open(state) as reader:
                reader.run(run_id)
            annotate(state, run_id, RunEnded(Outcome("error", failure=failure)))
        except RetinueError as error:
            self._causes.report_failure("end", "The end of a run could not be written", error)

    def _share_limits(self) -> None:
        """Tell other workers which accounts a provider has told this one to let wait, and wait with them."""
        limiters = process_limiters()
        self._queues.view = replace(self._queues.view, held=limiters.own_holds())
        for other in self._tables.seen:
            for account, seconds in other.held.items():
                if other.id != self.id:
                    limiters.hold(account, seconds - other.heartbeat)

    async def _remove_leftovers(self) -> None:
        await self._queues.listens.wait()
        while True:
            tables = ClusterTables(self._url, self._causes)
            try:
                await asyncio.to_thread(tables.forget_workers)
                done = await asyncio.to_thread(remove_leftovers, tables, self._home, self._keep_seconds)
                if done != RemovedLeftovers():
                    self._say(f"Removed of ended runs: {done.checkouts} checkouts, {done.bundles} bundles.")
                for sentence in await asyncio.to_thread(self._remove_from_remotes, tables):
                    self._say(sentence)
            except Exception as error:  # noqa: BLE001 - it is tried again, and serving matters more
                self._causes.report_failure("leftovers", "What ended runs have left could not be removed", error)
            finally:
                tables.close()
            await asyncio.sleep(REMOVE_SECONDS)

    def _remove_from_remotes(self, tables: ClusterTables) -> list[str]:
        view = self._queues.view
        return remove_from_remotes(tables, self._keep_seconds, view.may_use, self._environment) if view.remotes else []

    async def serve(self, attempt: Attempt) -> None:
        """Go on with one run until it has ended here, or cannot go on here. Never raises."""
        if self._queues.view.draining or not await self._patiently(self._tables.take, attempt, self.id):
            return
        state = database_folder(self._home, ProjectDatabase(self._url, attempt.project))
        self._say(f"{attempt.run_id}: attempt {attempt.number}, project {attempt.project}.")
        self._at_work += 1
        self._idle.clear()
        try:
            await self._serve(attempt, state)
        except Exception as error:  # noqa: BLE001 - a defect must not end the worker
            self._causes.report_failure("serve", f"{attempt.run_id}: Retinue failed", error)
        finally:
            self._at_work -= 1
            if not self._at_work:
                self._idle.set()

    async def _serve(self, attempt: Attempt, state: Path) -> None:
        try:
            await self._go_on(attempt, state)
        except (LostDatabaseError, RemoteAwayError) as error:
            # It is not the run's fault: someone tries again.
            self._say(f"{attempt.run_id}: {error}")
            await asyncio.sleep(RETRY_SECONDS)
        except Exception as error:  # noqa: BLE001 - a defect must not end the worker
            expected = isinstance(error, (RetinueError, GitError, OSError))
            self._say(f"{attempt.run_id}: {'' if expected else f'Retinue failed: {type(error).__name__}: '}{error}")
            if expected and self._is_full():
                # Another worker may have room, or this one later. Until then it takes fewer runs.
                await asyncio.sleep(FULL_DISK_SECONDS)
            else:
                await self._give_up(attempt, state, error)
        finally:
            await self._settle(attempt, state)

    def _is_full(self) -> bool:
        """Return whether the disk of this worker's home is full. Asked of the disk: git has only words for it."""
        with contextlib.suppress(OSError):
            return shutil.disk_usage(self._home).free < MIN_FREE_BYTES
        return False

    async def _patiently(self, work: Callable[P, T], *arguments: P.args, **options: P.kwargs) -> T:
        """Return what `work` gives, in a thread. What is not said to a server that is away for a while is forgotten:
        nobody else would take up the run."""
        for _ in range(MAX_RETRIES):
            try:
                return await asyncio.to_thread(work, *arguments, **options)
            except LostDatabaseError:
                await asyncio.sleep(RETRY_SECONDS)
        return await asyncio.to_thread(work, *arguments, **options)

    async def _go_on(self, attempt: Attempt, state: Path) -> None:
        run = WorkerRun(attempt, state, self._tables, self._queues.view, self._environment)
        project = await asyncio.to_thread(run.prepare)
        if project is None:
            return
        project.capabilities = standard_capabilities(run)
        supervisor = Supervisor(project)
        self._serving[attempt.run_id] = supervisor
        try:
            async with supervisor:
                node = await self._take_over(supervisor, attempt, await asyncio.to_thread(run.news))
                await node.wait_settled()
                await supervisor.wait_all()
                if node.status == "interrupted":
                    await run.save_now(node)
        finally:
            del self._serving[attempt.run_id]

    async def _take_over(self, supervisor: Supervisor, attempt: Attempt, prompt: str | None) -> Run:
        deadline = asyncio.get_running_loop().time() + TAKE_OVER_SECONDS
        while True:
            try:
                return await supervisor.resume(attempt.run_id, prompt, offered=True)
            except StateError:
                # Its last owner may seem to live for a moment after its worker was found dead.
                if asyncio.get_running_loop().time() > deadline:
                    raise
            await asyncio.sleep(0.2)

    async def _give_up(self, attempt: Attempt, state: Path, error: Exception) -> None:
        """End a run that cannot go on here, unless others have it or are to have it."""
        if not await asyncio.to_thread(self._tables.holds, attempt, self.id):
            return
        await asyncio.to_thread(self._end, state, attempt.run_id, str(error))

    async def _settle(self, attempt: Attempt, state: Path) -> None:
        """Forget a run that has ended. Offer one that has not to others."""

        def look() -> RunState:
            with LogReader.open(state) as reader:
                return reader.run(attempt.run_id)

        try:
            run = await self._patiently(look)
            if run.state == "ended":
                await self._patiently(self._tables.drop, attempt.project, attempt.run_id)
                remove_folder(SafeDir(state, ("brought",)), attempt.run_id)
                self._say(f"{attempt.run_id}: {run.ended}.")
            elif run.state in _UNOWNED_STATES and attempt.number < MAX_ATTEMPTS:
                if await asyncio.to_thread(self._tables.put, replace(attempt, number=attempt.number + 1)):
                    self._say(f"{attempt.run_id}: handed over.")
            elif run.state in _UNOWNED_STATES:
                await self._give_up(attempt, state, StateError(f"{MAX_ATTEMPTS} workers have tried."))
        except UnknownRunError as error:
            # It was offered and is not in the log: no worker could ever serve it.
            self._causes.report_failure(
                f"settle {attempt.project}", f"{attempt.run_id}: an offer without a run was removed", error
            )
            await self._patiently(self._tables.drop, attempt.project, attempt.run_id)
        except RetinueError as error:
            self._causes.report_failure("settle", f"{attempt.run_id}: what became of it could not be looked up", error)
