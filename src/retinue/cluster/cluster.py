"""The queues of a cluster: DBOS in the shared database (extra `cluster`).

A DBOS workflow is one attempt of a run. It has no steps, because the log records what the run does. Workers with the
same profile (version, providers, labels, rights, limits) share a queue. A sender offers an attempt by a row of
`placements` and need not load DBOS, which takes half a second. A worker that is notified of the offer puts it into the
queue of a profile that can serve it. Until there is such a profile, the offer waits in `placements`.

DBOS needs a paid service to notice dead executors. Here each worker watches the others (`ClusterTables.stranded`): the
attempts of a silent worker are offered again under the next number.
"""

from __future__ import annotations

import asyncio
import hashlib
import threading
from collections import Counter
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from typing import Any

import msgspec
from msgspec.structs import replace

from retinue.cluster.cause_log import CauseLog
from retinue.cluster.cluster_tables import SCHEMA, ClusterTables
from retinue.cluster.dbos_json import json_serializer, load_dbos, report_dbos
from retinue.core.foreign import UnreadableValueError, decode_json
from retinue.core.programs import Owner
from retinue.core.request import Attempt, RunNeeds, WorkerView
from retinue.log.postgres import PostgresListener

Serve = Callable[[Attempt], Awaitable[None]]
_APPLICATION_NAME = "retinue"
_APPLICATION_VERSION = "1"
"""Never changes: after an upgrade, DBOS would not serve waiting workflows. `RunNeeds.version` is our own check."""
_WORKFLOW_NAME = "retinue_attempt"
QUEUE_POLL_SECONDS = 0.2


class DbosQueues:
    """The queues from the point of view of one worker. The log alone decides who may write to a run, so it is harmless
    to give an attempt to two workers, or to one that is too late: the log refuses all but one."""

    def __init__(self, tables: ClusterTables, owner: Owner, view: WorkerView) -> None:
        self._tables = tables
        self._owner = owner
        self.view = view
        self._client: Any = None
        self._offered = threading.Event()
        """Set when there may be new offers."""
        self.listens = asyncio.Event()
        """Set once this worker takes attempts. Before, it must not be visible to others."""

    def _enqueue(self, attempt: Attempt) -> str:
        """Put an attempt into a queue whose workers can serve it, and return the queue's name; "" if there is none."""
        worker = self._worker_for(attempt.needs)
        if worker is None:
            return ""
        if attempt.number > 1:
            try:
                self._connected().cancel_workflow(replace(attempt, number=attempt.number - 1).id)
            except Exception as error:  # noqa: BLE001 - its worker will find that the attempt is withdrawn
                self._tables.causes.report_failure(
                    "cancel", "The last attempt of a run could not be taken out of its queue", error
                )
        self._connected().enqueue(_enqueue_options(attempt, worker), msgspec.json.encode(attempt).decode())
        return worker.queue

    def _queue_offers(self, over: threading.Event) -> None:
        """Put offers into queues, from a separate thread and connection."""
        tables = ClusterTables(self._tables.url, self._tables.causes)
        try:
            # Connect before the first offer waits for it.
            self._connected()
        except Exception as error:  # noqa: BLE001 - it is tried again with the first offer
            self._tables.causes.report_failure("connect", "The queues of runs cannot be reached", error)
        while self._offered.wait() and not over.is_set():
            self._offered.clear()
            try:
                tables.queue_offers(self._enqueue)
            except Exception as error:  # noqa: BLE001 - a worker that could serve the run offers it again
                self._tables.causes.report_failure("queue", "A run could not be put into a queue", error)
        tables.close()

    def _worker_for(self, needs: RunNeeds) -> WorkerView | None:
        """Return a worker of the profile that can serve this and has the most free slots; None if there is none."""
        candidates: dict[str, WorkerView] = {}
        free_slots: Counter[str] = Counter()
        for worker in self._tables.workers():
            if not worker.lacks(needs):
                candidates[worker.queue] = worker
                free_slots[worker.queue] += worker.concurrency - len(worker.runs)
        return candidates[max(candidates, key=free_slots.__getitem__)] if candidates else None

    async def beat(self) -> None:
        """Send the heartbeat and the profile of this worker."""
        await asyncio.to_thread(self._tables.beat, self._owner, self.view)
        # An offer may have waited for a worker with this profile.
        self._offered.set()

    async def take(self, serve: Serve) -> None:
        """Serve attempts until cancelled, as many at once as this worker may. An attempt stays in its queue until
        `serve` returns."""
        loop = asyncio.get_running_loop()
        tasks: set[asyncio.Task[None]] = set()

        def begin(attempt: Attempt, done: Future[None]) -> None:
            task = loop.create_task(_serve_attempt(serve, attempt, done))
            tasks.add(task)
            task.add_done_callback(tasks.discard)

        def serve_text(text: object) -> None:
            try:
                attempt = decode_json(text, Attempt, "An entry of the queue")
            except UnreadableValueError as error:
                return self._tables.causes.report(str(error), f"{error} It is skipped.")
            done: Future[None] = Future()
            loop.call_soon_threadsafe(begin, attempt, done)
            return done.result()

        await asyncio.to_thread(_launch, self._tables.url, self._owner.id, self.view, self._tables.causes, serve_text)
        over = threading.Event()
        queueing = threading.Thread(target=self._queue_offers, args=(over,), name="retinue-offers", daemon=True)
        queueing.start()
        listener = PostgresListener(self._tables.url, SCHEMA, self._offered.set)
        self.listens.set()
        try:
            await asyncio.Event().wait()
        finally:
            listener.end()
            over.set()
            self._offered.set()
            await asyncio.to_thread(queueing.join)
            await asyncio.to_thread(load_dbos().DBOS.destroy, destroy_registry=True)

    def close(self) -> None:
        if self._client is not None:
            self._client.destroy()
            self._client = None

    def _connected(self) -> Any:
        if self._client is None:
            dbos = load_dbos()
            self._client = dbos.DBOSClient(
                system_database_url=_driver_url(self._tables.url), serializer=json_serializer()
            )
        return self._client


def queue_of(view: WorkerView) -> str:
    """Return the name of the queue that all workers with this profile share."""
    limits = (view.concurrency, view.tenant_limit, view.global_limit)
    profile = (view.version, view.providers, view.labels, view.allow, view.remotes, *limits)
    return f"retinue-{hashlib.sha256(repr(profile).encode()).hexdigest()[:12]}"


def _enqueue_options(attempt: Attempt, worker: WorkerView) -> dict[str, Any]:
    options = {
        "queue_name": worker.queue,
        "workflow_name": _WORKFLOW_NAME,
        "workflow_id": attempt.id,
        "app_version": _APPLICATION_VERSION,
        # DBOS serves the lowest number first. Interrupted runs go before new runs of the same priority.
        "priority": 2 * attempt.needs.priority + (attempt.number == 1),
    }
    if worker.tenant_limit is not None:
        # Either all workflows of a queue have such keys, or none.
        options["queue_partition_key"] = attempt.needs.tenant or attempt.project
    return options


async def _serve_attempt(serve: Serve, attempt: Attempt, done: Future[None]) -> None:
    try:
        await serve(attempt)
    finally:
        if not done.done():
            done.set_result(None)


def _launch(url: str, executor: str, view: WorkerView, causes: CauseLog, serve_text: Callable[[object], None]) -> None:
    dbos = load_dbos().DBOS
    report_dbos(causes)
    dbos(
        config={
            "name": _APPLICATION_NAME,
            "system_database_url": _driver_url(url),
            "executor_id": executor,
            "application_version": _APPLICATION_VERSION,
            "serializer": json_serializer(),
            "log_level": "WARNING",
            "scheduler_polling_interval_sec": 300.0,
            # By default DBOS polls for messages of workflows a hundred times a second. Ours send none.
            "notification_coalesce_sec": 0.5,
            "sys_db_pool_size": 4,
            "max_executor_threads": view.concurrency + 4,
        }
    )

    def attempt(*values: object, **others: object) -> None:
        serve_text(values[0] if len(values) == 1 and not others else None)

    dbos.workflow(name=_WORKFLOW_NAME, max_recovery_attempts=1000)(attempt)
    dbos.listen_queues([view.queue])
    dbos.launch()
    dbos.register_queue(
        view.queue,
        worker_concurrency=view.concurrency,
        global_concurrency=view.global_limit,
        partition_worker_concurrency=view.tenant_limit,
        polling_interval_sec=QUEUE_POLL_SECONDS,
    )


def _driver_url(url: str) -> str:
    """Return the URL with the name of the installed driver."""
    return "postgresql+psycopg://" + url.partition("://")[2]
