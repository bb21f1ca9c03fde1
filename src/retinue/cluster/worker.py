"""A worker: a process that serves runs of all projects of a database.

It takes an attempt, creates the run's workspace from the database, continues the run from the log, and sends back its
files and its branch. It uses its own keys, sandbox and home. It watches the other workers and offers the runs of dead
ones again. On shutdown it takes no more attempts, lets its runs finish for a while, and hands over the rest.
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
from retinue.cluster.retention import DAY_SECONDS, KEEP_DAYS, remove_from_remotes, remove_leftovers
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
"""How long the last owner of a run may still look alive after its worker was found dead."""
MAX_ATTEMPTS = 20
"""After so many attempts a run is ended as failed."""
RETRY_SECONDS = 1.0
FULL_DISK_SECONDS = 5.0
"""How long a worker with a full disk waits before it offers a run again."""
MIN_FREE_BYTES = 1 << 20
"""A disk with less free space is full, and failures may be due to that."""
MAX_RETRIES = 30
"""How often a worker tries to reach an unavailable server, for ten seconds each."""
REMOVE_SECONDS = 600.0
"""The interval between two removals of files of ended runs."""
_UNOWNED_STATES = ("interrupted", "queued")
"""States of a run that no process works on."""
Report = Callable[[str], None]
Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


class Worker:
    """One worker process. `allow` lists the rights that senders may bring, `remotes` the git repositories through which
    files may be sent. `report` receives sentences for the operator."""

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
        report: Report = lambda text: None,
    ) -> None:
        use_database(url)
        self._url, self._home, self._environment, self._report = url, home, environment, report
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
        self._causes = CauseLog(report)
        self._tables = ClusterTables(url, self._causes)
        self._queues = DbosQueues(self._tables, owner, replace(view, queue=queue_of(view)))
        self._serving: dict[str, Supervisor] = {}
        self._at_work = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._over = threading.Event()

    async def run(self, draining: asyncio.Event, grace: float) -> None:
        """Serve until `draining` is set; then let current runs work for at most `grace` seconds. Raise StateError if
        the database cannot be used."""
        beating = threading.Thread(target=self._beat, name="retinue-beat", daemon=True)
        taking = asyncio.create_task(self._queues.take(self.serve), name="take attempts")
        watching = asyncio.create_task(self._watch(), name="watch other workers")
        removing = asyncio.create_task(self._remove_leftovers(), name="remove files of ended runs")
        waiting = asyncio.create_task(draining.wait())
        listening = asyncio.create_task(self._queues.listens.wait())
        try:
            await asyncio.wait({taking, waiting, listening}, return_when=asyncio.FIRST_COMPLETED)
            if listening.done():
                await self._queues.beat()
                beating.start()
                self._report(
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
            await asyncio.to_thread(self._tables.remove_worker, self.id)
            self._queues.close()
            self._tables.close()

    async def _drain(self, grace: float) -> None:
        self._queues.view = replace(self._queues.view, draining=True)
        await self._queues.beat()
        if self._serving:
            self._report(f"Ending: {len(self._serving)} at work get {grace:.0f} s to finish.")
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._idle.wait(), grace)
        for supervisor in list(self._serving.values()):
            await supervisor.cut_off()
        await self._idle.wait()

    def _beat(self) -> None:
        """Send heartbeats from a separate thread and connection, so that no work can make this worker look dead."""
        tables = ClusterTables(self._url, self._causes)
        while not self._over.wait(SHARED_HEARTBEAT_SECONDS):
            try:
                tables.beat(self._owner, self._queues.view)
            except Exception as error:  # noqa: BLE001 - it is tried again
                self._causes.report_failure("beat", "This worker could not send its heartbeat", error)
        tables.close()

    async def _watch(self) -> None:
        """Offer the runs of dead workers again, if this worker could serve them."""
        await self._queues.listens.wait()
        while True:
            try:
                for unreadable in await asyncio.to_thread(self._tables.remove_unreadable):
                    await asyncio.to_thread(self._refuse, unreadable)
                for attempt in await asyncio.to_thread(self._tables.stranded):
                    able = not self._queues.view.lacks(attempt.needs)
                    if able and await asyncio.to_thread(self._tables.put, attempt):
                        self._report(
                            f"{attempt.run_id}: its worker is gone, offered again as attempt {attempt.number}."
                        )
                self._share_limits()
            except Exception as error:  # noqa: BLE001 - it is tried again
                self._causes.report_failure("watch", "The other workers could not be watched", error)
            await asyncio.sleep(WATCH_SECONDS)

    def _refuse(self, unreadable: UnreadablePlacement) -> None:
        """Report an offer that was removed because it is unreadable, and end its run."""
        self._causes.report(unreadable.reason, f"{unreadable.reason} It was removed.")
        if unreadable.names_a_run:
            state = database_folder(self._home, ProjectDatabase(self._url, unreadable.project))
            self._end(state, unreadable.run_id, unreadable.reason)

    def _end(self, state: Path, run_id: str, reason: str) -> None:
        """Record in the log that a run has failed, if the run exists."""
        failure = Failure("not_found", f"The worker could not continue it: {reason}", "Correct this and resume it.")
        try:
            # Reading does not create the log of an unknown project.
            with LogReader.open(state) as reader:
                reader.run(run_id)
            annotate(state, run_id, RunEnded(Outcome("error", failure=failure)))
        except RetinueError as error:
            self._causes.report_failure("end", "The end of a run could not be written", error)

    def _share_limits(self) -> None:
        """Publish which accounts a provider has told this worker to pause, and pause those that other workers
        publish."""
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
                for sentence in await asyncio.to_thread(self._clean_up, tables):
                    self._report(sentence)
            except Exception as error:  # noqa: BLE001 - it is tried again, and serving matters more
                self._causes.report_failure("leftovers", "Files of ended runs could not be removed", error)
            finally:
                tables.close()
            await asyncio.sleep(REMOVE_SECONDS)

    def _clean_up(self, tables: ClusterTables) -> list[str]:
        tables.forget_workers()
        sentences = remove_leftovers(tables, self._home, self._keep_seconds)
        view = self._queues.view
        if view.remotes:
            sentences += remove_from_remotes(tables, self._keep_seconds, view.may_use, self._environment)
        return sentences

    async def serve(self, attempt: Attempt) -> None:
        """Continue one run until it ends or cannot continue here. Never raises."""
        if self._queues.view.draining or not await self._patiently(self._tables.take, attempt, self.id):
            return
        state = database_folder(self._home, ProjectDatabase(self._url, attempt.project))
        self._report(f"{attempt.run_id}: attempt {attempt.number}, project {attempt.project}.")
        self._at_work += 1
        self._idle.clear()
        try:
            await self._run_attempt(attempt, state)
        except Exception as error:  # noqa: BLE001 - a defect must not end the worker
            self._causes.report_failure("serve", f"{attempt.run_id}: Retinue failed", error)
        finally:
            self._at_work -= 1
            if not self._at_work:
                self._idle.set()

    async def _run_attempt(self, attempt: Attempt, state: Path) -> None:
        try:
            await self._continue(attempt, state)
        except (LostDatabaseError, RemoteAwayError) as error:
            # The run is not at fault: another attempt follows.
            self._report(f"{attempt.run_id}: {error}")
            await asyncio.sleep(RETRY_SECONDS)
        except Exception as error:  # noqa: BLE001 - a defect must not end the worker
            expected = isinstance(error, (RetinueError, GitError, OSError))
            self._report(f"{attempt.run_id}: {'' if expected else f'Retinue failed: {type(error).__name__}: '}{error}")
            if expected and self._is_full():
                # Another worker may have space, or this one later. The pause keeps this one from taking many runs.
                await asyncio.sleep(FULL_DISK_SECONDS)
            else:
                await self._fail(attempt, state, error)
        finally:
            await self._settle(attempt, state)

    def _is_full(self) -> bool:
        """Return whether the disk of this worker's home is full. Git reports a full disk only in words."""
        with contextlib.suppress(OSError):
            return shutil.disk_usage(self._home).free < MIN_FREE_BYTES
        return False

    async def _patiently(
        self, work: Callable[Parameters, Result], *arguments: Parameters.args, **options: Parameters.kwargs
    ) -> Result:
        """Return the result of `work`, called in a thread and again while the server is unavailable: without this
        record nobody would take up the run."""
        for _ in range(MAX_RETRIES):
            try:
                return await asyncio.to_thread(work, *arguments, **options)
            except LostDatabaseError:
                await asyncio.sleep(RETRY_SECONDS)
        return await asyncio.to_thread(work, *arguments, **options)

    async def _continue(self, attempt: Attempt, state: Path) -> None:
        run = WorkerRun(attempt, state, self._tables, self._queues.view, self._environment)
        project = await asyncio.to_thread(run.prepare)
        if project is None:
            return
        project.capabilities = standard_capabilities(run)
        supervisor = Supervisor(project)
        self._serving[attempt.run_id] = supervisor
        try:
            async with supervisor:
                node = await self._take_over(supervisor, attempt, await asyncio.to_thread(run.describe_move))
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
                # Its last owner may look alive for a moment after its worker was found dead.
                if asyncio.get_running_loop().time() > deadline:
                    raise
            await asyncio.sleep(0.2)

    async def _fail(self, attempt: Attempt, state: Path, error: Exception) -> None:
        """End a run that cannot continue here, unless the attempt is no longer this worker's."""
        if not await asyncio.to_thread(self._tables.holds, attempt, self.id):
            return
        await asyncio.to_thread(self._end, state, attempt.run_id, str(error))

    async def _settle(self, attempt: Attempt, state: Path) -> None:
        """Withdraw the offer of an ended run, and offer an unfinished run to other workers."""

        def read_run() -> RunState:
            with LogReader.open(state) as reader:
                return reader.run(attempt.run_id)

        try:
            run = await self._patiently(read_run)
            if run.state == "ended":
                await self._patiently(self._tables.drop, attempt.project, attempt.run_id)
                remove_folder(SafeDir(state, ("brought",)), attempt.run_id)
                self._report(f"{attempt.run_id}: {run.ended}.")
            elif run.state in _UNOWNED_STATES and attempt.number < MAX_ATTEMPTS:
                if await asyncio.to_thread(self._tables.put, replace(attempt, number=attempt.number + 1)):
                    self._report(f"{attempt.run_id}: handed over.")
            elif run.state in _UNOWNED_STATES:
                await self._fail(attempt, state, StateError(f"{MAX_ATTEMPTS} workers have tried."))
        except UnknownRunError as error:
            # It was offered but is not in the log: no worker could ever serve it.
            self._causes.report_failure(
                f"settle {attempt.project}", f"{attempt.run_id}: an offer without a run was removed", error
            )
            await self._patiently(self._tables.drop, attempt.project, attempt.run_id)
        except RetinueError as error:
            self._causes.report_failure("settle", f"{attempt.run_id}: its state could not be read", error)
